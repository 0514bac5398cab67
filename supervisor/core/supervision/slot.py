"""The life of one slot: when its process is started, asked to go, killed and started again.

Guarantees
    A slot has at most one process: the only way to a fork leads through a state
    without one. Every state that waits for a process has a deadline, so a child
    that hangs, spins or is stopped by the kernel cannot hold the slot for ever.
    A child that keeps dying is started ever more rarely, and at last given up. A worker that dies with runs in
    its hands does not count: the runs are charged, and end; it comes back at most once a second.

Does not guarantee
    That SIGKILL works: a process in uninterruptible sleep stays, and is reported.

Time, exit statuses and jitter enter as arguments; decisions come back as actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum, StrEnum

from supervisor.core.errors import EXIT_CONFIG, EXIT_OK, EXIT_RESTART
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS

EXIT_NO_PERMISSION = 77  # EX_NOPERM of sysexits(3)

ABORT_TO_KILL_NS = 2 * SECOND_NS  # time to write the stacks, or to give runs back
UNKILLABLE_REPORT_NS = 5 * SECOND_NS
STABLE_AFTER_NS = 60 * SECOND_NS
CRASH_WINDOW_NS = 120 * SECOND_NS
CRASHES_MAX = 5  # more than these within the window are a crash loop
RESTART_PERIOD_MIN_NS = 1 * SECOND_NS  # exits that count as nobody's failure are paced by this alone
BACKOFF_FIRST_NS = SECOND_NS // 10


class Group(StrEnum):
    """Group of a slot: it decides order, stopping and the meaning of a crash loop."""

    EMBEDDED = "embedded"
    AGENT = "agent"
    SCHEDULER = "scheduler"
    WEB = "web"
    WORKER = "worker"

    @property
    def ends_tree(self) -> bool:
        """True if the tree is pointless without it. Without a scheduler or a worker the rest goes on."""
        return self in {Group.EMBEDDED, Group.AGENT, Group.WEB}


class Cause(IntEnum):
    """Reason for which the parent ended a process. The agent assigns blame by it."""

    NONE = 0  # nobody told it: if it is dead, it crashed
    STOP = 1  # the tree stops
    RESTART = 2  # a fresh one was asked for
    BOOT_TIMEOUT = 3
    HANG = 4
    OVERRUN = 5  # one of its runs passed its hard deadline
    FORCED = 6  # grace is over, or a second signal
    RETIRED = 7  # its place is another's, or nobody's

    @property
    def was_asked(self) -> bool:
        """True if it was asked to go through no fault of its own."""
        return self in {Cause.STOP, Cause.RESTART, Cause.FORCED, Cause.RETIRED}

    @property
    def is_failure(self) -> bool:
        """True if the process itself failed. A run that overran is the job's failure, not the worker's."""
        return self in {Cause.BOOT_TIMEOUT, Cause.HANG}


class SlotEvent(Enum):
    """Events of a slot."""

    START = "start"
    FORK_FAILED = "fork failed"
    READY = "ready"
    LATE = "late"  # the deadline of the present state passed
    HUNG = "hung"
    OVERRAN = "overran"
    RESTART = "restart"
    RETIRE = "retire"  # let it finish what it runs and go, while the tree goes on
    STOP = "stop"
    CANCEL = "cancel"  # grace is over: hand the runs back
    KILL = "kill"
    ENDED = "ended"  # exited, and is not wanted any more
    DIED = "died"  # exited, and is to come back
    GAVE_UP = "gave up"  # exited once too often


class Action(Enum):
    """Actions of the parent on a slot."""

    FORK = "fork"
    TERM = "term"
    QUIT = "quit"
    ABORT = "abort"  # faulthandler writes every stack, then the process dies
    KILL = "kill"  # SIGKILL to the process and its group
    REPORT_UNKILLABLE = "report unkillable"


_S, _E = SlotState, SlotEvent

# Pairs that are absent are impossible, and raise. A test walks the full product.
TRANSITIONS: dict[tuple[SlotState, SlotEvent], SlotState] = {
    (_S.STOPPED, _E.START): _S.STARTING,
    (_S.STOPPED, _E.STOP): _S.STOPPED,
    (_S.STOPPED, _E.RETIRE): _S.STOPPED,
    (_S.BACKOFF, _E.START): _S.STARTING,
    (_S.BACKOFF, _E.STOP): _S.STOPPED,  # nobody waits for a delay when the tree stops
    (_S.FATAL, _E.START): _S.STARTING,  # roles that the tree can do without are retried, rarely
    (_S.BACKOFF, _E.RETIRE): _S.STOPPED,
    (_S.FATAL, _E.STOP): _S.STOPPED,
    (_S.FATAL, _E.RETIRE): _S.STOPPED,
    (_S.STARTING, _E.FORK_FAILED): _S.BACKOFF,
    (_S.STARTING, _E.READY): _S.RUNNING,
    (_S.STARTING, _E.LATE): _S.KILLING,
    (_S.STARTING, _E.RESTART): _S.STOPPING,
    (_S.STARTING, _E.RETIRE): _S.STOPPING,
    (_S.STARTING, _E.STOP): _S.STOPPING,
    (_S.STARTING, _E.CANCEL): _S.KILLING,
    (_S.STARTING, _E.KILL): _S.KILLING,
    (_S.RUNNING, _E.HUNG): _S.KILLING,
    (_S.RUNNING, _E.OVERRAN): _S.KILLING,
    (_S.RUNNING, _E.RESTART): _S.STOPPING,
    (_S.RUNNING, _E.RETIRE): _S.STOPPING,
    (_S.RUNNING, _E.STOP): _S.STOPPING,
    (_S.RUNNING, _E.CANCEL): _S.KILLING,
    (_S.RUNNING, _E.KILL): _S.KILLING,
    (_S.STOPPING, _E.LATE): _S.KILLING,
    (_S.STOPPING, _E.HUNG): _S.KILLING,
    (_S.STOPPING, _E.OVERRAN): _S.KILLING,
    (_S.STOPPING, _E.RESTART): _S.STOPPING,
    (_S.STOPPING, _E.RETIRE): _S.STOPPING,
    (_S.STOPPING, _E.STOP): _S.STOPPING,
    (_S.STOPPING, _E.CANCEL): _S.KILLING,
    (_S.STOPPING, _E.KILL): _S.KILLING,
    (_S.KILLING, _E.LATE): _S.KILLING,
    (_S.KILLING, _E.OVERRAN): _S.KILLING,  # cancelled but still running: its deadline is exact all the same
    (_S.KILLING, _E.RESTART): _S.KILLING,
    (_S.KILLING, _E.RETIRE): _S.KILLING,
    (_S.KILLING, _E.STOP): _S.KILLING,
    (_S.KILLING, _E.CANCEL): _S.KILLING,
    (_S.KILLING, _E.KILL): _S.KILLING,
    **{
        (state, event): after
        for state in (_S.STARTING, _S.RUNNING, _S.STOPPING, _S.KILLING)
        for event, after in ((_E.ENDED, _S.STOPPED), (_E.DIED, _S.BACKOFF), (_E.GAVE_UP, _S.FATAL))
    },
}


class ImpossibleSlotTransitionError(AssertionError):
    """An event that cannot happen in this state: the parent has a bug."""

    def __init__(self, state: SlotState, event: SlotEvent) -> None:
        super().__init__(f"a slot in state {state.name} cannot meet the event {event.value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPolicy:
    """The limits of one slot."""

    boot_timeout_ns: int
    grace_ns: int  # of a restart that was asked for; a stop of the tree has its own clock
    backoff_max_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One slot as the parent knows it. Times are CLOCK_BOOTTIME; 0 means never."""

    state: SlotState = SlotState.STOPPED
    generation: int = 0
    cause: Cause = Cause.NONE
    started_ns: int = 0
    ready_ns: int = 0
    ended_ns: int = 0
    deadline_ns: int = 0  # of the present state: ready, gone, killed, or to be started by then
    is_killed: bool = False  # SIGKILL was sent
    streak: int = 0  # failures since it last ran for a minute
    failures: tuple[int, ...] = ()  # when, the newest CRASHES_MAX + 1
    is_crash_looping: bool = False


@dataclass(frozen=True, slots=True)
class SlotTransition:
    """A slot after an event, and the actions that follow, in order."""

    slot: Slot
    actions: tuple[Action, ...] = ()


def step(slot: Slot, event: SlotEvent, *, now_ns: int, policy: SlotPolicy, jitter: float = 1.0) -> SlotTransition:
    """Return the slot after ``event``. An exit goes through ``exited``, which picks the event."""
    after = TRANSITIONS.get((slot.state, event))
    if after is None:
        raise ImpossibleSlotTransitionError(slot.state, event)
    match event:
        case SlotEvent.START:
            return _start(slot, now_ns, policy)
        case SlotEvent.READY:
            return SlotTransition(replace(slot, state=after, ready_ns=now_ns, deadline_ns=0))
        case SlotEvent.FORK_FAILED:
            streak = slot.streak + 1
            due_ns = now_ns + backoff_ns(streak, cap_ns=policy.backoff_max_ns, jitter=jitter)
            return SlotTransition(replace(slot, state=after, streak=streak, ended_ns=now_ns, deadline_ns=due_ns))
        case SlotEvent.STOP | SlotEvent.RESTART | SlotEvent.RETIRE:
            return _ask(slot, event, after, now_ns, policy)
        case SlotEvent.ENDED | SlotEvent.DIED | SlotEvent.GAVE_UP:
            return SlotTransition(replace(slot, state=after, ended_ns=now_ns, deadline_ns=0))
        case _:
            return _kill(slot, event, now_ns)


def _start(slot: Slot, now_ns: int, policy: SlotPolicy) -> SlotTransition:
    started = replace(
        slot,
        state=SlotState.STARTING,
        generation=slot.generation + 1,
        cause=Cause.NONE,
        started_ns=now_ns,
        ready_ns=0,
        ended_ns=0,
        deadline_ns=now_ns + policy.boot_timeout_ns,
        is_killed=False,
    )
    return SlotTransition(started, (Action.FORK,))


_CAUSES = {SlotEvent.STOP: Cause.STOP, SlotEvent.RESTART: Cause.RESTART, SlotEvent.RETIRE: Cause.RETIRED}


def _ask(slot: Slot, event: SlotEvent, after: SlotState, now_ns: int, policy: SlotPolicy) -> SlotTransition:
    """Ask a process to go by itself. Without one, or with one that is being killed, there is nobody to ask."""
    if after is not SlotState.STOPPING:
        return SlotTransition(replace(slot, state=after, deadline_ns=slot.deadline_ns if after.has_process else 0))
    is_told = slot.state is SlotState.STOPPING
    if event is not SlotEvent.STOP and is_told:
        return SlotTransition(slot)
    # The stop of the tree keeps its own deadlines (core/supervision/shutdown.py); one set here would compete with them.
    deadline_ns = 0 if event is SlotEvent.STOP else now_ns + policy.grace_ns
    asked = replace(slot, state=after, cause=_CAUSES[event], deadline_ns=deadline_ns)
    return SlotTransition(asked, () if is_told else (Action.TERM,))


def still_working(slot: Slot, *, now_ns: int, policy: SlotPolicy) -> Slot:
    """Return a slot whose process executes a run within its deadline, or cannot tell an end: it has no hurry to retire.

    Its grace counts from when it last had such a run. Those end by their own deadlines, which are exact,
    and it takes no further ones, so it goes in the end; before an outage of Redis is over, they would be repeated.
    """
    if slot.state is not SlotState.STOPPING or slot.cause is not Cause.RETIRED:
        return slot
    return replace(slot, deadline_ns=now_ns + policy.grace_ns)


def _kill(slot: Slot, event: SlotEvent, now_ns: int) -> SlotTransition:
    if slot.state is SlotState.KILLING:
        return _kill_again(slot, event, now_ns)
    cause, action = {
        (SlotState.STARTING, SlotEvent.LATE): (Cause.BOOT_TIMEOUT, Action.ABORT),
        (SlotState.STOPPING, SlotEvent.LATE): (slot.cause, Action.QUIT),
        (slot.state, SlotEvent.HUNG): (Cause.HANG, Action.ABORT),
        (slot.state, SlotEvent.OVERRAN): (Cause.OVERRUN, Action.KILL),
        (slot.state, SlotEvent.CANCEL): (Cause.FORCED, Action.QUIT),
        (slot.state, SlotEvent.KILL): (Cause.FORCED, Action.KILL),
    }[slot.state, event]
    is_killed = action is Action.KILL
    wait_ns = UNKILLABLE_REPORT_NS if is_killed else ABORT_TO_KILL_NS
    killing = replace(slot, state=SlotState.KILLING, cause=cause, deadline_ns=now_ns + wait_ns, is_killed=is_killed)
    return SlotTransition(killing, (action,))


def _kill_again(slot: Slot, event: SlotEvent, now_ns: int) -> SlotTransition:
    """Escalate to SIGKILL, once; then report a process that survives it, every few seconds."""
    if event is SlotEvent.CANCEL:
        return SlotTransition(slot)
    report_ns = now_ns + UNKILLABLE_REPORT_NS
    if not slot.is_killed:
        cause = Cause.OVERRUN if event is SlotEvent.OVERRAN and slot.cause.was_asked else slot.cause
        return SlotTransition(replace(slot, cause=cause, is_killed=True, deadline_ns=report_ns), (Action.KILL,))
    if event is SlotEvent.LATE:
        return SlotTransition(replace(slot, deadline_ns=report_ns), (Action.KILL, Action.REPORT_UNKILLABLE))
    return SlotTransition(slot)


def exited(
    slot: Slot, status: int, *, now_ns: int, group: Group, policy: SlotPolicy, is_wanted: bool,
    is_runs_fault: bool = False, jitter: float = 1.0,
) -> SlotTransition:  # fmt: skip
    """Return the slot after its process ended with ``status``: an exit code, or minus a signal.

    ``is_runs_fault``: runs were in its hands. They are blamed for its end, and not the slot.
    """
    if not is_wanted:
        return step(slot, SlotEvent.ENDED, now_ns=now_ns, policy=policy)
    if slot.ready_ns and now_ns - slot.ready_ns >= STABLE_AFTER_NS:
        slot = replace(slot, streak=0, failures=(), is_crash_looping=False)
    if is_runs_fault or not is_failure(slot, status):
        # It comes back at once, but a child that leaves politely in a tight loop must not use up the machine.
        due_ns = max(now_ns, slot.started_ns + RESTART_PERIOD_MIN_NS)
        again = step(slot, SlotEvent.DIED, now_ns=now_ns, policy=policy)
        return SlotTransition(replace(again.slot, deadline_ns=due_ns))
    failures = (*slot.failures, now_ns)[-CRASHES_MAX - 1 :]
    is_looping = slot.is_crash_looping or (len(failures) > CRASHES_MAX and now_ns - failures[0] <= CRASH_WINDOW_NS)
    slot = replace(slot, streak=slot.streak + 1, failures=failures, is_crash_looping=is_looping)
    if is_looping or is_refusal(status):
        fatal = step(slot, SlotEvent.GAVE_UP, now_ns=now_ns, policy=policy)
        due_ns = 0 if group.ends_tree else now_ns + int(policy.backoff_max_ns * jitter)
        return SlotTransition(replace(fatal.slot, deadline_ns=due_ns))
    died = step(slot, SlotEvent.DIED, now_ns=now_ns, policy=policy)
    due_ns = now_ns + backoff_ns(slot.streak, cap_ns=policy.backoff_max_ns, jitter=jitter)
    return SlotTransition(replace(died.slot, deadline_ns=due_ns))


def is_failure(slot: Slot, status: int) -> bool:
    """Return whether an exit counts against the slot."""
    if slot.cause is not Cause.NONE:
        return slot.cause.is_failure
    # A child that leaves politely before it was ready has done nothing, and would do so for ever.
    return status not in {EXIT_OK, EXIT_RESTART} or slot.ready_ns == 0


def forgiven(slot: Slot) -> Slot:
    """Return a slot that waits or was given up as one that is due at once: the cause of its failure has changed."""
    if slot.state not in {SlotState.BACKOFF, SlotState.FATAL}:
        return slot
    return replace(slot, streak=0, failures=(), is_crash_looping=False, deadline_ns=max(1, slot.ended_ns))


def recent_failures(slot: Slot) -> int:
    """Return how often the slot failed within a minute, counted back from its last failure; at most six are known."""
    return sum(slot.failures[-1] - failed_ns <= STABLE_AFTER_NS for failed_ns in slot.failures)


def is_refusal(status: int) -> bool:
    """Return whether a child reported that starting it again cannot help."""
    return status in {EXIT_CONFIG, EXIT_NO_PERMISSION}


def backoff_ns(streak: int, *, cap_ns: int, jitter: float) -> int:
    """Return the pause after ``streak`` failures: none after the first, then doubling from 100 ms."""
    assert streak >= 1
    assert 1.0 <= jitter <= 1.25
    if streak == 1:
        return 0
    return int(min(cap_ns, BACKOFF_FIRST_NS * 2 ** min(streak - 2, 40)) * jitter)
