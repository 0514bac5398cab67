"""Makes a running tree follow its changed configuration: checked aside first, then step by step, or not at all.

Guarantees
    A configuration that cannot be used changes nothing. Nor does one whose new workers do not come up: the
    running processes run on, and a child started later is one of before.
    Workers that must change are replaced first, each once its successor runs; only then does everybody else
    follow, so that nothing is scheduled which no worker could run yet.
    One reload at a time. Requests meanwhile are carried out once, afterwards, with the files as they are then.

Does not guarantee
    That changed code is loaded: the effects of a module's import stay, until the tree is started afresh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from supervisor.clock import Clock
from supervisor.core.json_values import read_json
from supervisor.core.supervision.pool import PoolReplacement
from supervisor.core.supervision.reload import ReloadOutcome, ReloadPlan, ReloadRecord
from supervisor.core.supervision.scoreboard import Header
from supervisor.core.supervision.shutdown import describe_status
from supervisor.core.supervision.states import Phase
from supervisor.core.units import SECOND_NS
from supervisor.process import config_check
from supervisor.process.pool_control import PoolBook
from supervisor.process.process_table import ProcessTable
from supervisor.process.slots import Log, ParentLimits
from supervisor.process.system import reaper
from supervisor.process.system.systemd import Notifier

if TYPE_CHECKING:  # the parent parses nothing
    from supervisor.reload.check import ConfigCheck

CHECK_NS = 10 * SECOND_NS
CHECK_NS_PER_SCHEDULE = SECOND_NS // 1000  # a hundred thousand take most of a minute to read, as they do at the start
_PACE_NS = SECOND_NS // 10  # how often a check is looked after, should its SIGCHLD have been merged with another


class _Step(Enum):
    IDLE = auto()
    CHECKING = auto()
    ROLLING = auto()


@dataclass(slots=True)
class _Now:
    step: _Step = _Step.IDLE
    number: int = 0
    turn_ns: int = 0  # of the parent, in which it began
    began_ns: int = 0
    pid: int = 0  # of the check
    deadline_ns: int = 0
    is_late: bool = False
    status: int | None = None  # once the check ended
    plan: ReloadPlan = field(default_factory=ReloadPlan)
    processes_before: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Reloading:
    """Carries out one reload after the other."""

    check: ConfigCheck
    header: Header
    clock: Clock
    _: KW_ONLY
    notify: Notifier
    log: Log
    follow: Callable[[ReloadPlan], None]  # lets the parent process itself follow, as far as it has to
    publish: Callable[[ReloadRecord], None]  # receives the end of a reload, for those who wait; must not raise
    check_ns: int = CHECK_NS  # how long a check may take
    fork: Callable[[Callable[[], bool]], int] = config_check.start  # another one, as the next, in tests
    kill: Callable[[int], None] = reaper.kill

    def __post_init__(self) -> None:
        self._is_asked = False
        self._last_number = 0
        self._now = _Now()

    @property
    def deadline_ns(self) -> int:
        """Time by which ``look`` is needed at the latest; 0: nothing is planned."""
        now = self._now
        if now.step is _Step.CHECKING:
            return min(now.deadline_ns, self.clock.elapsed_ns() + _PACE_NS)
        return 0

    def request(self) -> None:
        """Begin, or begin again once the current one is over."""
        if self._now.step is not _Step.IDLE:
            self.log("reload_queued", already=self._is_asked)
        self._is_asked = True

    def look(self, now_ns: int, tree: ProcessTable, book: PoolBook) -> None:
        """Go on. On every turn of the parent, unless the tree stops."""
        now = self._now
        if now.step is _Step.IDLE and self._is_asked and tree.is_ready:
            self._begin(now_ns, book)
        elif now.step is _Step.CHECKING and now.status is not None:
            self._judge(now_ns, tree, book)
        elif now.step is _Step.CHECKING and now_ns >= now.deadline_ns:
            now.is_late, now.deadline_ns = True, now_ns + CHECK_NS
            self.kill(now.pid)
        elif now.step is _Step.ROLLING:
            self._look_at_roll(now_ns, tree, book)

    def ended(self, pid: int, status: int) -> bool:
        """Take note that a process ended which is no slot's; return whether it was this one's."""
        now = self._now
        if now.step is not _Step.CHECKING or pid != now.pid:
            return False
        now.status = status
        return True

    def stop(self) -> None:
        """Give up: the tree stops. A half-way roll needs no undoing, since nothing is started any more."""
        if self._now.step is _Step.CHECKING and self._now.status is None:
            self.kill(self._now.pid)
        if self._now.step is not _Step.IDLE or self._is_asked:
            self._is_asked = False
            self._end(ReloadOutcome.CUT, self.clock.elapsed_ns(), ("the tree stops",))

    def _begin(self, now_ns: int, book: PoolBook) -> None:
        self._is_asked = False
        self._last_number += 1
        number, in_effect = self._last_number, self.header.config_epoch
        began_ns = self.clock.elapsed_ns()  # after whatever asked for it, which may be later than this turn
        self._now = _Now(number=number, turn_ns=now_ns, began_ns=began_ns, deadline_ns=now_ns + self.check_ns)
        self.header.phase = Phase.RELOADING
        self.notify.reloading()
        self.log("reload_started", number=number)
        try:
            self.check.open(number, in_effect)
            self._now.pid = self.fork(lambda: self.check.run(number, in_effect, book.fits))
        except OSError as error:
            self._end(ReloadOutcome.REFUSED, now_ns, (f"the check could not be started: {error.strerror or error}",))
            return
        self._now.step = _Step.CHECKING

    def _judge(self, now_ns: int, tree: ProcessTable, book: PoolBook) -> None:
        """Read the result of the check; its exit code adds nothing to it."""
        now = self._now
        packed = None if now.is_late else self.check.plan(now.number)
        if packed is None:
            self._end(ReloadOutcome.REFUSED, now_ns, (self._why_no_plan(),))
            return
        now.plan = plan = read_json(packed, ReloadPlan)
        if plan.problems:
            more = plan.problem_count - len(plan.problems)
            self._end(ReloadOutcome.REFUSED, now_ns, (*plan.problems, *([f"and {more} more"] if more > 0 else [])))
        elif not plan.changed:
            self._end(ReloadOutcome.UNCHANGED, now_ns)
        else:
            self._apply(now_ns, tree, book)

    def _why_no_plan(self) -> str:
        if self._now.is_late:
            limit_s = self.check_ns // SECOND_NS
            return f"the check took longer than {limit_s} s; does a module under jobs hang at its import?"
        return f"the check ended without a result ({describe_status(self._now.status or 0)}); its output says more"

    def _apply(self, now_ns: int, tree: ProcessTable, book: PoolBook) -> None:
        now = self._now
        now.step = _Step.ROLLING
        self.header.worker_epoch = now.number
        now.processes_before = {pool: book.processes(pool) for pool in now.plan.processes}
        for pool, count in now.plan.processes.items():
            if problem := book.set_processes(pool, count):  # somebody changed it since the check
                self._undo(now_ns, tree, book, problem)
                return
        if now.plan.rolled:
            self.log("reload_rolling", number=now.number, pools=list(now.plan.rolled))
            book.roll(now.plan.rolled)
        self._look_at_roll(now_ns, tree, book)

    def _look_at_roll(self, now_ns: int, tree: ProcessTable, book: PoolBook) -> None:
        states = {pool: book.rolling(pool) for pool in self._now.plan.rolled}
        aborted = [pool for pool, state in states.items() if state is PoolReplacement.ABORTED]
        if aborted:
            why = f"new workers of {', '.join(aborted)} did not come up; the log says why (child_exited)"
            self._undo(now_ns, tree, book, why)
        elif PoolReplacement.GOING not in states.values():
            self._commit(now_ns, tree, book)

    def _undo(self, now_ns: int, tree: ProcessTable, book: PoolBook, why: str) -> None:
        """Let every worker started from now on be one of before, and replace those that went ahead.

        First no successor counts any more. A child reads its configuration once it runs: one forked for the roll
        of another pool could find the former one, come up with it and replace a worker for nothing.
        """
        now = self._now
        book.abort(now.plan.rolled, now_ns)
        self.header.worker_epoch = self.header.config_epoch
        for pool, count in now.processes_before.items():
            book.set_processes(pool, count)
        for live in tree.slots:
            if live.spec.pool in now.plan.rolled and live.is_up and live.slot.started_ns >= now.turn_ns:
                book.replace(live)
        self._end(ReloadOutcome.UNDONE, now_ns, (why,))

    def _commit(self, now_ns: int, tree: ProcessTable, book: PoolBook) -> None:
        plan = self._now.plan
        self.header.config_epoch = self._now.number
        if plan.limits is not None:
            limits = plan.limits
            tree.retune(
                ParentLimits(grace_s=limits.grace_s, backoff_max_s=limits.backoff_max_s),
                boot_timeout_s=limits.boot_timeout_s,
                hang_timeout_s=limits.hang_timeout_s,
            )
        self.follow(plan)
        for slot in plan.restarts:
            book.restart(slot, now_ns)
        tree.poke_all()
        self._end(ReloadOutcome.APPLIED, now_ns)

    def _end(self, outcome: ReloadOutcome, now_ns: int, reasons: tuple[str, ...] = ()) -> None:
        now, header = self._now, self.header
        self._now = _Now()
        if header.phase == Phase.RELOADING:
            header.phase = Phase.READY
        header.is_reload_refused = int(not outcome.is_success)
        header.reloaded_ms = self.clock.wall_ms()
        header.reload_number += 1
        # A stop ends those that wait as well.
        header.reload_began_ns = began_ns = now_ns if outcome is ReloadOutcome.CUT else now.began_ns or now_ns
        level = "info" if outcome.is_success else "error"
        for reason in reasons:
            self.log("reload_problem", level=level, number=now.number, problem=reason)
        fields = {"problems": len(reasons)} if reasons else {"changed": list(now.plan.changed)}
        took_s = round((now_ns - now.turn_ns) / SECOND_NS, 3) if now.turn_ns else 0.0
        event = "reload_done" if outcome.is_success else "reload_refused"
        self.log(event, level=level, number=now.number, outcome=outcome.value, took_s=took_s, **fields)
        if now.plan.stale:
            hint = "a reload imports nothing twice; restart to run the changed code"
            self.log("code_not_reloaded", level="warning", modules=list(now.plan.stale), hint=hint)
        note = "" if outcome.is_success else f"reload {outcome.value}: {reasons[0]}"
        if outcome is not ReloadOutcome.CUT:
            self.notify.reloaded(note)
        self.publish(
            ReloadRecord(
                number=header.reload_number,
                outcome=outcome,
                began_ns=began_ns,
                ended_ms=header.reloaded_ms,
                reasons=reasons,
                changed=now.plan.changed if outcome.is_success else (),
                stale=now.plan.stale,
            )
        )
