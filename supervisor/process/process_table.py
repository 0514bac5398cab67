"""The slots of one tree and their processes: forked, signalled, collected, mirrored on the board.

The decisions are those of ``supervisor.core.supervision.slot``; this carries them out. A pid is
signalled only between its fork and its reaping, while it cannot be another's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from signal import Signals

from supervisor.core.supervision.crash_blame import MemoryWatch
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.supervision.shutdown import TreeExit, describe_status, tree_verdict
from supervisor.core.supervision.slot import (
    Action,
    Group,
    SlotEvent,
    SlotPolicy,
    SlotTransition,
    exited,
    is_failure,
    step,
)
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS
from supervisor.process.kernel import Kernel
from supervisor.process.slots import ChildIdentity, LiveSlot, Log, ParentLimits, SlotSpec
from supervisor.process.spawn import ForkBudget
from supervisor.process.system.reaper import Ended

RECLAIM_WAIT_NS = 2 * SECOND_NS  # how long a worker's successor waits for the agent to read whom to blame
IDLE_RECLAIM_WAIT_NS = SECOND_NS // 4  # the same where the in-flight table names no run
RETIREMENT_NS_MIN = SECOND_NS  # `grace: 0s` is for a stop of the tree; one that retires has acknowledgements to send
_EX_OSERR = 71
_CLEAN_WHEN_ASKED = {0, 75}
_NOTHING_TO_LOSE = frozenset({Group.WEB, Group.SCHEDULER})  # a scheduler fires in one step, or not at all
_CARRIERS = frozenset({Group.EMBEDDED, Group.AGENT, Group.WEB})  # keep sessions of draining workers, and tell of them
_SIGNALS = {Action.TERM: Signals.SIGTERM, Action.QUIT: Signals.SIGQUIT, Action.ABORT: Signals.SIGABRT}


@dataclass(slots=True, kw_only=True)
class ProcessTable:
    """All slots, in the order in which they are started."""

    slots: list[LiveSlot]
    kernel: Kernel
    log: Log
    jitter: Callable[[], float]
    parent_pid: int
    limits: ParentLimits
    budget: ForkBudget = field(default_factory=ForkBudget)
    memory: MemoryWatch = field(default_factory=MemoryWatch)
    by_pid: dict[int, LiveSlot] = field(default_factory=dict)
    is_ready: bool = False  # every slot was ready once
    is_stopping: bool = False  # nothing is started for the first time any more
    is_draining: bool = False  # and yet workers finish runs, whose sessions must be kept meanwhile
    is_clean: bool = True  # nobody whose work counts was lost while stopping
    is_agent_due: bool = False  # something changed that the agent should look at
    verdict: TreeExit | None = None  # the first reason to end the tree
    is_known_stranger: Callable[[int, int], bool] = lambda _pid, _status: False  # no slot's, and yet ours

    def of(self, groups: frozenset[Group]) -> Iterator[LiveSlot]:
        """Yield the slots of some groups."""
        return (live for live in self.slots if live.spec.group in groups)

    def is_wanted(self, live: LiveSlot) -> bool:
        """Return whether the slot is to have a process; while workers drain, those that serve them still are."""
        if not self.is_stopping:
            return live.is_up
        return self.is_draining and live.spec.group in _CARRIERS and live.slot.generation > 0

    def apply(self, live: LiveSlot, change: SlotTransition, now_ns: int) -> None:
        """Make a step real: mirror it first, so that a child never sees more than the board shows."""
        has_moved = change.slot.state is not live.slot.state
        live.slot = change.slot
        live.mirror(is_wanted=self.is_wanted(live))
        self.is_agent_due = self.is_agent_due or has_moved
        for action in change.actions:
            self._act(live, action, now_ns)

    def step(self, live: LiveSlot, event: SlotEvent, now_ns: int) -> None:
        """Let ``event`` happen to a slot."""
        self.apply(live, step(live.slot, event, now_ns=now_ns, policy=live.policy, jitter=self.jitter()), now_ns)

    def _act(self, live: LiveSlot, action: Action, now_ns: int) -> None:
        match action:
            case Action.FORK:
                self._fork(live, now_ns)
            case Action.REPORT_UNKILLABLE:
                self.log("child_unkillable", level="error", slot=live.spec.name, child_pid=live.pid)
            case Action.KILL:
                self._log_signal(live, Signals.SIGKILL)
                self.kernel.kill(live.pid)
            case _:
                self._log_signal(live, _SIGNALS[action])
                self.kernel.send(live.pid, _SIGNALS[action])

    def _log_signal(self, live: LiveSlot, number: Signals) -> None:
        level = "info" if live.slot.cause.was_asked and number is not Signals.SIGKILL else "warning"
        cause = live.slot.cause.name.lower()
        self.log(
            "child_signalled", level=level, slot=live.spec.name, child_pid=live.pid, signal=number.name, cause=cause
        )

    def _fork(self, live: LiveSlot, now_ns: int) -> None:
        live.forget_child()
        launch = ChildIdentity(slot=live.index, generation=live.slot.generation, parent_pid=self.parent_pid)
        try:
            live.pid = self.kernel.fork(live.spec, launch, self.log)
        except OSError as error:
            self.step(live, SlotEvent.FORK_FAILED, now_ns)
            self.log("fork_failed", level="error", slot=live.spec.name, error=str(error))
            self._judge(live, _EX_OSERR)
            return
        self.by_pid[live.pid] = live
        live.mirror(is_wanted=True)
        self.log("child_started", slot=live.spec.name, child_pid=live.pid, generation=live.slot.generation)

    def start_due(self, now_ns: int) -> None:
        """Start every slot that is due. A restart takes a token; the first starts are free."""
        for live in self.slots:
            due_ns = self.start_ns(live, now_ns)
            if due_ns is None or due_ns > now_ns:
                continue
            if not self._is_free(live):
                self.budget.take(now_ns)
            if live.slot.state is not SlotState.STOPPED and not live.slot.cause.was_asked:
                live.restarts += 1  # one that nobody planned
            self.step(live, SlotEvent.START, now_ns)

    def _is_free(self, live: LiveSlot) -> bool:
        """Return whether this is one of the tree's first starts, which take no token."""
        return live.slot.generation == 0 and not self.is_ready

    def start_ns(self, live: LiveSlot, now_ns: int) -> int | None:
        """Return when a slot may be started, or None if that depends on something else happening first."""
        slot = live.slot
        if not self.is_wanted(live) or slot.state not in {SlotState.STOPPED, SlotState.BACKOFF, SlotState.FATAL}:
            return None
        if self._is_free(live):
            return now_ns if live.spec.group is Group.EMBEDDED or self._is_server_up() else None
        due_ns = now_ns if slot.state is SlotState.STOPPED else slot.deadline_ns
        if due_ns == 0:
            return None
        if live.spec.group is Group.WORKER and live.row.reclaimed_generation < slot.generation and self._has_agent():
            # The in-flight table of the dead generation says which run to blame; the fork clears it.
            wait_ns = RECLAIM_WAIT_NS if live.held_runs else IDLE_RECLAIM_WAIT_NS
            due_ns = max(due_ns, slot.ended_ns + wait_ns)
        return max(due_ns, self.budget.next_ns(now_ns))

    def _is_server_up(self) -> bool:
        return all(live.was_ready for live in self.of(frozenset({Group.EMBEDDED})))

    def _has_agent(self) -> bool:
        return any(live.has_process for live in self.of(frozenset({Group.AGENT})))

    def collect(self, now_ns: int) -> None:
        """Take note of every process that ended."""
        for ended in self.kernel.reap(self.by_pid):
            live = self.by_pid.pop(ended.pid, None)
            if live is None:
                if self.is_known_stranger(ended.pid, ended.status):
                    continue
                self.log("orphan_collected", level="debug", child_pid=ended.pid, status=ended.status)
                continue
            self._note_exit(live, ended, now_ns)

    def _note_exit(self, live: LiveSlot, ended: Ended, now_ns: int) -> None:
        before = live.slot
        self._log_exit(live, ended, now_ns, self._outside_hand(live, ended))
        live.pid = 0
        live.last_status = ended.status
        is_wanted, is_runs_fault = self.is_wanted(live), live.held_runs
        if self._was_cut_off(live, ended.status, had_runs=is_runs_fault):
            self.is_clean = False
        change = exited(
            before,
            ended.status,
            now_ns=now_ns,
            group=live.spec.group,
            policy=live.policy,
            is_wanted=is_wanted,
            is_runs_fault=is_runs_fault,
            jitter=self.jitter(),
        )
        self.apply(live, change, now_ns)
        if change.slot.state is SlotState.FATAL:
            wait_s = round((change.slot.deadline_ns - now_ns) / SECOND_NS)
            after = f"tried again in {wait_s} s" if change.slot.deadline_ns else "the tree ends"
            last, held = describe_status(ended.status), len(list(live.inflight.entries())) if is_runs_fault else 0
            self.log("slot_given_up", level="error", slot=live.spec.name, last=last, next=after, in_flight=held)
        if not self.is_stopping and not is_runs_fault and is_failure(before, ended.status):
            self._judge(live, ended.status)

    def _was_cut_off(self, live: LiveSlot, status: int, *, had_runs: bool) -> bool:
        """Return whether the stop of the tree lost somebody whose work counts."""
        is_leaving = self.is_stopping and not self.is_wanted(live)
        had_work = live.spec.group not in _NOTHING_TO_LOSE and live.slot.ready_ns > 0
        was_idle = status == -Signals.SIGTERM and not had_runs  # told before it had anything to drain
        return is_leaving and had_work and not (was_idle or status in _CLEAN_WHEN_ASKED)

    def _judge(self, live: LiveSlot, status: int) -> None:
        name, group = live.spec.name, live.spec.group
        found = tree_verdict(live.slot, status, name=name, group=group, is_tree_ready=self.is_ready)
        self.verdict = self.verdict or found

    def _outside_hand(self, live: LiveSlot, ended: Ended) -> str:
        """Return who killed a process that was not killed by us; empty when that is not the question."""
        if ended.status != -Signals.SIGKILL or live.slot.is_killed:
            return ""
        is_victim = self.memory.is_victim(self.kernel.memory_kills())
        if is_victim is None:
            return "killed from outside, maybe for memory"
        if not is_victim:
            return "killed from outside"
        live.oom_generation = live.slot.generation
        return "killed by the kernel for memory"

    def look_at_memory(self, now_ns: int) -> None:
        """Follow the kernel's count of kills for memory."""
        if now_ns >= self.memory.due_ns:
            self.memory.look(self.kernel.memory_kills(), now_ns)

    def _log_exit(self, live: LiveSlot, ended: Ended, now_ns: int, hint: str) -> None:
        fields: dict[str, object] = {"code": ended.status}
        if ended.status < 0:
            fields = {"signal": -ended.status}
            if hint:
                fields["hint"] = hint
        is_expected = self.is_stopping or not is_failure(live.slot, ended.status)
        self.log(
            "child_exited",
            level="info" if is_expected else "warning",
            slot=live.spec.name,
            child_pid=ended.pid,
            **fields,
            cause=live.slot.cause.name.lower(),
            uptime_s=round((now_ns - live.slot.started_ns) / SECOND_NS, 3),
            memory_kib_max=ended.memory_kib_max,
            busy=live.row.busy,
        )

    def order(self, event: SlotEvent, groups: frozenset[Group], now_ns: int) -> None:
        """Send an order to every slot of some groups that has a process."""
        for live in self.of(groups):
            if live.has_process:
                self.step(live, event, now_ns)

    def stop_starting(self, now_ns: int, *, is_draining: bool) -> None:
        """Start nothing any more that is not wanted; slots that wait for such a start stop at once."""
        self.is_stopping, self.is_draining = True, is_draining
        for live in self.slots:
            if live.has_process:
                live.mirror(is_wanted=self.is_wanted(live))
            elif not self.is_wanted(live):
                self.step(live, SlotEvent.STOP, now_ns)

    def any_process(self, groups: frozenset[Group]) -> bool:
        """Return whether somebody of these groups is left."""
        return any(live.has_process for live in self.of(groups))

    def poke_agent(self) -> None:
        """Wake the agent if it has something to see."""
        if not self.is_agent_due:
            return
        self.is_agent_due = False
        for live in self.of(frozenset({Group.AGENT})):
            if live.has_process and live.pid:
                self.kernel.send(live.pid, Signals.SIGURG)

    def poke_all(self) -> None:
        """Wake every child that looks at the board when it is woken."""
        for live in self.slots:
            if live.slot.state is SlotState.RUNNING and live.spec.group is not Group.EMBEDDED:
                self.kernel.send(live.pid, Signals.SIGURG)

    def retune(self, limits: ParentLimits, *, boot_timeout_s: float, hang_timeout_s: float) -> None:
        """Take other limits; deadlines that count already stay, and so do the hang limits of agent and scheduler."""
        self.limits = limits
        for live in self.slots:
            live.policy = _policy(boot_timeout_s, limits)
            if live.spec.group in {Group.WEB, Group.WORKER}:
                live.spec = replace(live.spec, hang_timeout_s=hang_timeout_s)

    def kill_all(self) -> None:
        """SIGKILL every child, whatever its state: the parent itself failed."""
        for pid in self.by_pid:
            self.kernel.kill(pid)


def plant(
    specs: Sequence[SlotSpec],
    board: Board,
    *,
    kernel: Kernel,
    log: Log,
    limits: ParentLimits,
    jitter: Callable[[], float],
) -> ProcessTable:
    """Return a tree with nothing started yet."""
    assert len(specs) <= board.slots, f"{len(specs)} slots do not fit on a board of {board.slots}"
    assert len({spec.name for spec in specs}) == len(specs), "slot names must differ"
    slots = [
        LiveSlot(
            index=index,
            spec=spec,
            row=board.rows[index],
            inflight=board.inflight[index],
            policy=_policy(spec.boot_timeout_s, limits),
        )
        for index, spec in enumerate(specs)
    ]
    return ProcessTable(slots=slots, kernel=kernel, log=log, jitter=jitter, parent_pid=os.getpid(), limits=limits)


def _policy(boot_timeout_s: float, limits: ParentLimits) -> SlotPolicy:
    return SlotPolicy(
        boot_timeout_ns=int(boot_timeout_s * SECOND_NS),
        grace_ns=max(limits.grace_ns, RETIREMENT_NS_MIN),
        backoff_max_ns=int(limits.backoff_max_s * SECOND_NS),
    )
