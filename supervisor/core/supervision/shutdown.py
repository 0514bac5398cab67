"""Shutdown of the tree: the order in which its children are stopped, and the deadline of each stage.

Guarantees
    The stop ends within the grace plus 3.5 s, whatever the children do, and within half a
    second once it is forced: every stage that waits has a deadline, and both orders of
    stages are finite. The embedded server is the last to go, on a forced stop too.

Does not guarantee
    That nothing is left: processes that survive SIGKILL are given up on, and the exit code shows it.

Order (docs/guarantees.md): work first, because its runs need a beating session; then the
agent, which gives back the rest; then the web, so that probes see it all; then the server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from supervisor.core.errors import EXIT_CANNOT_CREATE, EXIT_CONFIG, EXIT_CRASH_LOOP, EXIT_FAILED, EXIT_OK
from supervisor.core.supervision.slot import Group, Slot, SlotEvent, is_refusal
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS

DEBOUNCE_NS = SECOND_NS // 4  # terminals and launchers deliver one Ctrl-C several times
BOUND_AFTER_GRACE_NS = 7 * SECOND_NS // 2
FORCED_BOUND_NS = SECOND_NS // 2
SWEEP_MIN_NS = SECOND_NS // 20  # of the bound, kept for descendants that nobody waited for
SWEEP_MAX_NS = 2 * SECOND_NS
_MS = SECOND_NS // 1000
_SHORTEST_NS = 20 * _MS  # a parent that was itself paused still gives each child the time to notice

WORK = frozenset({Group.SCHEDULER, Group.WORKER})
AGENT = frozenset({Group.AGENT})
WEB = frozenset({Group.WEB})
SERVER = frozenset({Group.EMBEDDED})


class ShutdownStage(Enum):
    """Stage of the shutdown of the tree."""

    RUNNING = "running"  # nobody asked
    DRAINING = "draining"
    CANCELLING = "cancelling"
    KILLING_WORK = "killing work"
    STOPPING_AGENT = "stopping agent"
    KILLING_AGENT = "killing agent"
    STOPPING_WEB = "stopping web"
    KILLING_WEB = "killing web"
    STOPPING_SERVER = "stopping server"
    KILLING_SERVER = "killing server"
    FORCED_WORK = "forced: killing work"
    FORCED_AGENT = "forced: stopping agent"
    FORCED_AGENT_KILL = "forced: killing agent"
    FORCED_WEB = "forced: killing web"
    FORCED_SERVER = "forced: stopping server"
    FORCED_SERVER_KILL = "forced: killing server"
    DONE = "done"


class StopEvent(Enum):
    """Events that advance the shutdown."""

    ASKED = "asked"
    FORCED = "forced"
    GONE = "gone"  # nobody whom this stage waits for has a process any more
    LATE = "late"  # the stage took as long as it may


_G = ShutdownStage
FORCED = frozenset(
    {_G.FORCED_WORK, _G.FORCED_AGENT, _G.FORCED_AGENT_KILL, _G.FORCED_WEB, _G.FORCED_SERVER, _G.FORCED_SERVER_KILL}
)

WORKING = frozenset({_G.DRAINING, _G.CANCELLING})
"""Stages in which workers may still acknowledge: who carries that for them is replaced if it dies."""


class StagePlan(NamedTuple):
    """Course of a stage that waits: the order on entering it, whom it concerns, the next stages, and its time."""

    order: SlotEvent  # to slots with a process
    groups: frozenset[Group]
    gone: ShutdownStage  # next when all of these are gone
    late: ShutdownStage  # next when its time is over
    length_ms: int | None  # by itself; the forced ones add up to less than half a second
    latest_ms: int  # counted from the end of the grace, when earlier stages were late
    is_clean: bool = True  # False: who is entered here was cut off. A web child cut off lost nobody's work


_E = SlotEvent
_FORCED_MS = 3350  # a second signal near the end makes the stop no longer

PLANS: dict[ShutdownStage, StagePlan] = {
    _G.DRAINING: StagePlan(_E.STOP, WORK, _G.STOPPING_AGENT, _G.CANCELLING, None, 0),
    _G.CANCELLING: StagePlan(_E.CANCEL, WORK, _G.STOPPING_AGENT, _G.KILLING_WORK, 2000, 2000, is_clean=False),
    _G.KILLING_WORK: StagePlan(_E.KILL, WORK, _G.STOPPING_AGENT, _G.STOPPING_AGENT, 150, 2150, is_clean=False),
    _G.STOPPING_AGENT: StagePlan(_E.STOP, AGENT, _G.STOPPING_WEB, _G.KILLING_AGENT, 5000, 2650),
    _G.KILLING_AGENT: StagePlan(_E.KILL, AGENT, _G.STOPPING_WEB, _G.STOPPING_WEB, 50, 2700, is_clean=False),
    _G.STOPPING_WEB: StagePlan(_E.STOP, WEB, _G.STOPPING_SERVER, _G.KILLING_WEB, 1000, 2850),
    _G.KILLING_WEB: StagePlan(_E.KILL, WEB, _G.STOPPING_SERVER, _G.STOPPING_SERVER, 50, 2900),
    _G.STOPPING_SERVER: StagePlan(_E.STOP, SERVER, _G.DONE, _G.KILLING_SERVER, 5000, 3300),
    _G.KILLING_SERVER: StagePlan(_E.KILL, SERVER, _G.DONE, _G.DONE, 100, 3400, is_clean=False),
    _G.FORCED_WORK: StagePlan(_E.KILL, WORK, _G.FORCED_AGENT, _G.FORCED_AGENT, 30, _FORCED_MS, is_clean=False),
    _G.FORCED_AGENT: StagePlan(_E.STOP, AGENT, _G.FORCED_WEB, _G.FORCED_AGENT_KILL, 150, _FORCED_MS, is_clean=False),
    _G.FORCED_AGENT_KILL: StagePlan(_E.KILL, AGENT, _G.FORCED_WEB, _G.FORCED_WEB, 20, _FORCED_MS, is_clean=False),
    _G.FORCED_WEB: StagePlan(_E.KILL, WEB, _G.FORCED_SERVER, _G.FORCED_SERVER, 20, _FORCED_MS, is_clean=False),
    _G.FORCED_SERVER: StagePlan(_E.STOP, SERVER, _G.DONE, _G.FORCED_SERVER_KILL, 200, _FORCED_MS, is_clean=False),
    _G.FORCED_SERVER_KILL: StagePlan(_E.KILL, SERVER, _G.DONE, _G.DONE, 30, _FORCED_MS, is_clean=False),
}
"""Every stage but the first and the last."""

# Pairs that are absent are impossible, and raise. A test walks the full product.
TRANSITIONS: dict[tuple[ShutdownStage, StopEvent], ShutdownStage] = {
    (_G.RUNNING, StopEvent.ASKED): _G.DRAINING,
    (_G.RUNNING, StopEvent.FORCED): _G.FORCED_WORK,
    (_G.DONE, StopEvent.ASKED): _G.DONE,
    (_G.DONE, StopEvent.FORCED): _G.DONE,
    **{(stage, StopEvent.ASKED): stage for stage in PLANS},
    **{(stage, StopEvent.FORCED): stage if stage in FORCED else _G.FORCED_WORK for stage in PLANS},
    (_G.KILLING_SERVER, StopEvent.FORCED): _G.KILLING_SERVER,  # all were killed: anew it would only take longer
    **{(stage, StopEvent.GONE): plan.gone for stage, plan in PLANS.items()},
    **{(stage, StopEvent.LATE): plan.late for stage, plan in PLANS.items()},
}


class ImpossibleStopError(AssertionError):
    """An event that cannot happen in this stage: the parent has a bug."""

    def __init__(self, stage: ShutdownStage, event: StopEvent) -> None:
        super().__init__(f"a stop in the stage {stage.value!r} cannot meet the event {event.value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One stop of a tree, from nobody having asked to done. Times are CLOCK_BOOTTIME."""

    grace_ns: int
    stage: ShutdownStage = ShutdownStage.RUNNING
    asked_ns: int = 0
    entered_ns: int = 0
    first_signal_ns: int = 0
    is_clean: bool = True
    forced_ns: int = 0
    code: int = EXIT_OK  # of the reason to stop, when that is not just having been asked
    reason: str = ""

    @property
    def is_asked(self) -> bool:
        """True if the tree stops; then nothing is started any more but the needs of draining workers."""
        return self.stage is not ShutdownStage.RUNNING

    @property
    def deadline_ns(self) -> int:
        """Deadline of the present stage; 0 if it waits for nothing."""
        if self.stage not in PLANS:
            return 0
        plan = PLANS[self.stage]
        bounds = [self.asked_ns + self.grace_ns + plan.latest_ms * _MS]
        if plan.length_ms is not None:
            bounds.append(self.entered_ns + plan.length_ms * _MS)
        return max(min(bounds), self.entered_ns + _SHORTEST_NS)

    def sweep_until_ns(self, now_ns: int) -> int:
        """Return until when descendants that nobody waited for may be ended: for the rest of the bound."""
        bound_ns = self.asked_ns + self.grace_ns + BOUND_AFTER_GRACE_NS
        if self.forced_ns:
            bound_ns = min(bound_ns, self.forced_ns + FORCED_BOUND_NS)
        return max(now_ns + SWEEP_MIN_NS, min(now_ns + SWEEP_MAX_NS, bound_ns))

    @property
    def exit_code(self) -> int:
        """Exit code of the tree: the reason's own code, else by whether everything drained."""
        return self.code or (EXIT_OK if self.is_clean else EXIT_FAILED)


def advance(stop: Stop, event: StopEvent, *, now_ns: int) -> Stop:
    """Return the stop after ``event``. Entering a stage restarts its clock."""
    after = TRANSITIONS.get((stop.stage, event))
    if after is None:
        raise ImpossibleStopError(stop.stage, event)
    if event is StopEvent.FORCED:
        stop = replace(stop, forced_ns=stop.forced_ns or now_ns)
    if after is stop.stage:
        return stop
    return replace(
        stop,
        stage=after,
        asked_ns=stop.asked_ns or now_ns,
        entered_ns=now_ns,
        is_clean=stop.is_clean and (after not in PLANS or PLANS[after].is_clean),
    )


def ask(stop: Stop, *, now_ns: int, code: int, reason: str) -> Stop:
    """Stop because of something other than a signal; the first reason is the one that counts."""
    if stop.is_asked:
        return stop
    return advance(replace(stop, code=code, reason=reason), StopEvent.ASKED, now_ns=now_ns)


def signalled(stop: Stop, *, now_ns: int, is_quit: bool, reason: str) -> Stop:
    """Return the stop after TERM, INT or QUIT. TERM and INT are one family: either may be the second."""
    reason = stop.reason or reason
    if is_quit:
        return advance(replace(stop, reason=reason), StopEvent.FORCED, now_ns=now_ns)
    if not stop.first_signal_ns:
        return advance(replace(stop, first_signal_ns=now_ns, reason=reason), StopEvent.ASKED, now_ns=now_ns)
    if now_ns - stop.first_signal_ns < DEBOUNCE_NS:
        return stop
    return advance(stop, StopEvent.FORCED, now_ns=now_ns)


EARLY_FAILURES_MAX = 3  # before the tree was ever ready: a broken release fails at once


@dataclass(frozen=True, slots=True)
class TreeExit:
    """The tree has to end, with this exit code.

    Guarantees
        A tree that was never ready ends at the third failure of a slot, or at once when a child reports that
        starting it again cannot help. A ready tree ends only for a role that it is pointless without.
    """

    code: int
    reason: str


def tree_verdict(slot: Slot, status: int, *, name: str, group: Group, is_tree_ready: bool) -> TreeExit | None:
    """Return whether the failure of one slot ends the tree; ``slot`` as it is after the exit."""
    if slot.state not in {SlotState.BACKOFF, SlotState.FATAL} or slot.streak == 0:
        return None
    code = EXIT_CANNOT_CREATE if status == EXIT_CANNOT_CREATE else EXIT_CRASH_LOOP  # the place is at fault, or we are
    if not is_tree_ready:
        if slot.state is SlotState.FATAL and is_refusal(status):
            return TreeExit(EXIT_CONFIG, f"{name} refused to start with exit code {status}")
        if slot.streak >= EARLY_FAILURES_MAX:
            return TreeExit(code, f"{name} failed {slot.streak} times before the tree was ever ready")
    if slot.state is SlotState.FATAL and group.ends_tree:
        return TreeExit(code, f"{name} keeps failing, last with {describe_status(status)}")
    return None


def describe_status(status: int) -> str:
    """Describe how a process ended, for people."""
    return f"exit code {status}" if status >= 0 else f"signal {-status}"
