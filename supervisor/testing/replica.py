"""One replica in a world: the real election and the real scheduler over a real scoreboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from supervisor.core.election.lease import Term
from supervisor.core.model import ScheduleDef
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.supervision.states import Phase, SlotState
from supervisor.core.units import SECOND_NS
from supervisor.roles.agent.election.context import ElectionContext, ElectionTiming, TreeView
from supervisor.roles.agent.election.elector import Elector
from supervisor.roles.scheduler.backfill import Backfills
from supervisor.roles.scheduler.scheduler import Scheduler
from supervisor.settings.schedules.complete import schedules_digest
from supervisor.store.election.leases import CandidateInfo, Leases
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import Schedules
from supervisor.testing.world import Actor, ReplicaClock, S, World

SCHEDULER_SLOT = 0
CRASHES_WITHIN_NS = 60 * S  # as the parent counts them
HANG_LIMIT_NS = 2 * S  # as the parent's own limit for the scheduler
RESTART_NS = S // 10


@dataclass(frozen=True, slots=True)
class Trust:
    """A stretch of true time in which a replica trusted a term."""

    replica: str
    epoch: int
    from_ns: int
    until_ns: int


class TracedBoard(Board):
    """A scoreboard that remembers when which term was trusted."""

    def __init__(self, trace: Callable[[Term], None]) -> None:
        words = memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q")
        super().__init__(words, slots=1, inflight=1)
        self._trace = trace

    def publish_term(self, term: Term) -> None:
        """Write the term, and remember."""
        super().publish_term(term)
        self._trace(term)


class _PatientElector(Elector):
    """Looks at its scheduler when it renews: here its death wakes the elector."""

    look_ns = 60 * S


class _PatientScheduler(Scheduler):
    """Looks less often: here no message is lost, and whatever changes wakes it."""

    slice_ns = lateness_ns = 60 * S
    idle_ns = 5 * S
    reconcile_ns = audit_ns = 3600 * S


PATIENT: Any = {"elector_class": _PatientElector, "scheduler_class": _PatientScheduler}
"""Options of a replica that lives for hours: each look of each second costs as much as a fire."""


class _SimulatedTree(TreeView):
    """As in production, but a wake-up is a call."""

    def __init__(self, board: Board, clock: ReplicaClock, wake: Callable[[], None]) -> None:
        super().__init__(board, board.rows[SCHEDULER_SLOT], clock)
        self._wake = wake

    def term_changed(self) -> None:
        """Wake the scheduler."""
        self._wake()


class Replica:
    """A machine with one process tree. ``start`` again after ``kill`` makes a new incarnation."""

    def __init__(
        self,
        world: World,
        keys: Keys,
        name: str,
        *,
        timing: ElectionTiming,
        definitions: Sequence[ScheduleDef],
        clock: ReplicaClock,
        elector_class: type[Elector] = Elector,
        scheduler_class: type[Scheduler] = Scheduler,
    ) -> None:
        self.name = name
        self.world = world
        self.clock = clock
        self.definitions = definitions
        self.version = ""
        self.zones_version = "test"
        self.priority = 0
        self.is_cut = False  # a partition: nothing gets through, nothing is refused
        self.trusts: list[Trust] = []
        self._keys = keys
        self._timing = timing
        self._classes = (elector_class, scheduler_class)
        self._rng = Random(f"{world.seed}/{name}")  # noqa: S311 - a simulation must repeat itself
        self._incarnation = 0
        self._crashes_ns: list[int] = []
        self.board = self._new_board()
        self.elector = Actor(world, clock, self, f"{name}/elector")
        self.scheduler = self._scheduler_actor()
        world.on_executed.append(self._hear)

    @property
    def id(self) -> str:
        """The name of this incarnation in the election."""
        return f"{self.name}.{self._incarnation:06x}"

    @property
    def is_alive(self) -> bool:
        """True if its tree runs, perhaps paused or cut off."""
        return self.elector.is_alive or self.scheduler.is_alive

    @property
    def is_leading(self) -> bool:
        """True if it trusts a term at this moment."""
        return self.is_alive and self.board.term().is_trusted(self.clock.elapsed_ns())

    def start(self) -> None:
        """Boot a new process tree."""
        assert not self.is_alive
        self._incarnation += 1
        self.board = self._new_board()
        self.board.header.phase = Phase.READY
        self._crashes_ns.clear()
        self.start_scheduler()
        self.start_elector()

    def start_elector(self) -> None:
        """Start an agent's elector on the board as it is."""
        tree = _SimulatedTree(self.board, self.clock, lambda: self.scheduler.wake())  # noqa: PLW0108 - may be replaced
        tree.progress_limit_ns = max(tree.progress_limit_ns, 2 * self._classes[1].slice_ns)
        context = ElectionContext(
            leases=Leases(self._keys),
            board=self.board,
            clock=self.clock,
            me=CandidateInfo(
                replica=self.id,
                host=self.name,
                version=self.version,
                priority=self.priority,
                started_ms=self.clock.wall_ms(),
                schedules_digest=schedules_digest(self.definitions) if self.definitions else "",
            ),
            timing=self._timing,
            around=tree,
            report=self._reporter(self.elector.name),
            rng=self._rng,
            new_nonce=lambda: f"{self._rng.getrandbits(128):032x}",
        )
        elector = self._classes[0](context)
        self._announce = elector.bring
        self.elector.start(elector.run())

    def bring(self) -> None:
        """Follow a reload: announce from now on that it brings ``definitions``."""
        self._announce(schedules_digest(self.definitions))

    def start_scheduler(self) -> None:
        """Start a scheduler process on the board as it is."""
        board = self.board
        row = board.rows[SCHEDULER_SLOT]
        row.state = SlotState.RUNNING
        row.generation += 1
        scheduler = self._classes[1](
            schedules=Schedules(self._keys),
            board=board,
            clock=self.clock,
            definitions=self.definitions,
            lease_ms=self._timing.duration_ms,
            is_stopping=lambda: board.header.phase >= Phase.DRAINING,
            report=self._reporter(self.scheduler.name),
            rng=self._rng,
            backfills=Backfills(
                self._keys,
                clock=self.clock,
                report=self._reporter(self.scheduler.name),
                look_ns=self._classes[1].reconcile_ns,
            ),
            zones_version=self.zones_version,
        )
        self.scheduler.start(scheduler.run())

    def kill(self) -> None:
        """End the whole tree at once, as kill -9 of its parent does."""
        self.kill_elector()
        self.kill_scheduler()
        self._end_trust()
        self._tell("killed")

    def kill_elector(self) -> None:
        """End the agent; the board and the scheduler go on."""
        self.elector.kill()

    def kill_scheduler(self) -> None:
        """End the scheduler process; the board and the agent go on."""
        self.scheduler.kill()
        row, now_ns = self.board.rows[SCHEDULER_SLOT], self.world.now_ns
        self._crashes_ns = [at for at in self._crashes_ns if now_ns - at < CRASHES_WITHIN_NS] + [now_ns]
        row.crashes = len(self._crashes_ns)
        self._reap_scheduler(SlotState.BACKOFF)
        self.elector.wake()  # as the parent wakes the agent

    def _reap_scheduler(self, state: SlotState) -> None:
        row = self.board.rows[SCHEDULER_SLOT]
        row.state, row.ended_generation = state, row.generation

    def replace_scheduler(self) -> None:
        """End the scheduler process and let the parent start another one, as it does after a crash."""
        self.kill_scheduler()
        self._later_start_scheduler()

    def hang_scheduler(self, for_ns: int) -> None:
        """Block the scheduler; the parent kills it after its limit, unless the tree is stopped too."""
        self._tell("scheduler_hangs", seconds=for_ns / SECOND_NS)
        self.scheduler.pause(for_ns)
        incarnation, generation = self.id, self.board.rows[SCHEDULER_SLOT].generation

        def look() -> None:
            is_same = (self.id, self.board.rows[SCHEDULER_SLOT].generation) == (incarnation, generation)
            if is_same and self.scheduler.is_alive and self.scheduler.is_paused:
                self._tell("scheduler_hung")
                self.replace_scheduler()

        if for_ns > HANG_LIMIT_NS:
            self.world.after(HANG_LIMIT_NS, look)

    def _later_start_scheduler(self) -> None:
        incarnation = self.id

        def start() -> None:
            if self.id == incarnation and self.elector.is_alive and not self.scheduler.is_alive:
                self.start_scheduler()

        self.world.after(RESTART_NS, start)

    def stop(self) -> None:
        """Ask the tree to drain, as SIGTERM does."""
        self.board.header.phase = Phase.DRAINING
        self._tell("asked_to_stop")
        self.scheduler.wake()
        self.elector.wake()

    def pause(self, for_ns: int) -> None:
        """Stop every process of it, as SIGSTOP or a suspended machine does."""
        self._tell("paused", seconds=for_ns / SECOND_NS)
        self.elector.pause(for_ns)
        self.scheduler.pause(for_ns)

    def unpause(self) -> None:
        """Let its processes go on."""
        self._tell("resumed")
        self.elector.unpause()
        self.scheduler.unpause()

    def _scheduler_actor(self) -> Actor:
        def ended() -> None:
            self._reap_scheduler(SlotState.STOPPED)

        def stepped() -> None:
            self.board.rows[SCHEDULER_SLOT].progress += 1

        return Actor(self.world, self.clock, self, f"{self.name}/scheduler", on_step=stepped, on_end=ended)

    def _hear(self) -> None:
        self.elector.hear()
        self.scheduler.hear()

    def _new_board(self) -> TracedBoard:
        return TracedBoard(self._trace)

    def _trace(self, term: Term) -> None:
        self._end_trust()
        if term.is_trusted(self.clock.elapsed_ns()):
            until_ns = self.clock.true_ns(term.trusted_until_ns)
            self.trusts.append(Trust(self.id, term.epoch, self.world.now_ns, until_ns))

    def _end_trust(self) -> None:
        if self.trusts and self.trusts[-1].until_ns > self.world.now_ns:
            last = self.trusts.pop()
            self.trusts.append(Trust(last.replica, last.epoch, last.from_ns, self.world.now_ns))

    def _tell(self, event: str, **fields: Any) -> None:
        self.world.tell(self.name, event, **fields)

    def _reporter(self, who: str) -> Callable[..., None]:
        def report(event: str, **fields: Any) -> None:
            self.world.tell(who, event, **fields)

        return report
