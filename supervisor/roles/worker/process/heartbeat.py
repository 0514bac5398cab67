"""Heartbeat of one worker process: on the scoreboard its beat, its runs and their deadlines.

Besides: its outages, and the limits at which it asks to be replaced.

The order of the stores is the point, because the process can be killed between any two:
STARTED is stored before user code runs, so blame is never missed; a fresh beat is stored before
the deadline that excused its absence goes, so that the parent sees no hang that was none.
"""

from __future__ import annotations

import signal
from bisect import bisect_left, insort
from collections.abc import Callable

import structlog

from supervisor.clock import Clock
from supervisor.core.errors import EXIT_OK, StoreRefusedError, StoreUnavailableError
from supervisor.core.model import RunKey
from supervisor.core.supervision.scoreboard import InflightTable, Row, execution_hash
from supervisor.core.supervision.slot import Cause
from supervisor.core.supervision.states import ChildState, Phase, RunState, SlotState, UnwantedReason, Verb
from supervisor.core.units import SECOND_NS
from supervisor.roles.child import ChildContext, ConfigFollower, resident_kib
from supervisor.settings.sections.models import PoolSettings
from supervisor.telemetry import metrics

_BEAT, _BUSY, _DEADLINE, _DONE = (word.index for word in (Row.beat_ns, Row.busy, Row.deadline_ns, Row.done))
CLOSE_S, CLOSE_NOW_S = 1.0, 0.1
EXIT_QUIT = 128 + signal.SIGQUIT  # as shells have it
NEAR_NS = 600_000_000  # the parent looks every 0.5 s; a deadline nearer than that it must be told of


class WorkerHeartbeat:
    """This worker's row and in-flight table."""

    def __init__(self, child: ChildContext) -> None:
        self.row = child.row
        self._words = child.row.words  # each run writes some: without the detour through the row's attributes
        self._header = child.board.header
        self._table: InflightTable = child.inflight
        self._clock: Clock = child.clock
        self._slot = child.slot
        self._generation = child.generation
        self._announce, self._wake_parent = child.announce, child.wake_parent
        self._free = list(reversed(range(self._table.size)))
        self._held: dict[RunKey, tuple[int, int, int]] = {}  # index, attempt, fetched_ms
        self._twins: dict[tuple[RunKey, int, int], int] = {}  # attempt and fetched_ms of what came twice: index
        self._deadline_of: dict[RunKey, int] = {}
        self._deadlines: list[int] = []  # the same, sorted
        self._unwanted_number = self.row.unwanted_number
        self._following = ConfigFollower(child)

    @property
    def phase(self) -> Phase:
        """Phase of the whole tree."""
        return Phase(self._header.phase)

    @property
    def is_stopping(self) -> bool:
        """True if the whole tree stops."""
        return self._header.phase >= Phase.DRAINING

    @property
    def must_go(self) -> bool:
        """True if this process, or the whole tree, was told to drain. A job may have taken the signal that says so."""
        return self.is_stopping or self.row.state == SlotState.STOPPING

    @property
    def was_asked(self) -> bool:
        """True if the parent wants this process to go. A signal alone may come from anybody, a job of it included."""
        return self.is_stopping or Cause(self.row.cause).was_asked

    def exit_code(self, *, has_cut_off: bool) -> int:
        """Return the exit code of a process that leaves: if it cut off runs unasked, that of a death by the signal."""
        return EXIT_QUIT if has_cut_off and not self.was_asked else EXIT_OK

    @property
    def closing_s(self) -> float:
        """Time limit for closing resources that jobs opened."""
        return CLOSE_NOW_S if self._header.phase >= Phase.KILLING else CLOSE_S

    def ready(self) -> None:
        """Report that the loop turns."""
        self._table.clear_all()
        self.beat()
        self._announce(ChildState.READY)

    def draining(self) -> None:
        """Report that nothing more is fetched."""
        self._announce(ChildState.DRAINING)

    def beat(self, lag_us: int = 0) -> None:
        """Report that the loop turned just now."""
        self._following.poll()
        self.row.loop_lag_us = lag_us
        self.row.beat_ns = self._clock.elapsed_ns()

    def unwanted(self) -> tuple[int, UnwantedReason] | None:
        """Return the hash of the run that the agent asks to end, and why; None if it has not asked again."""
        number, execution, reason = self.end_request()
        if number == self._unwanted_number:
            return None
        self._unwanted_number = number
        return execution, reason

    def end_request(self) -> tuple[int, int, UnwantedReason]:
        """Return the number of the agent's last request to end a run, the hash of the execution, and the reason."""
        number = self.row.unwanted_number
        is_cancelled = self.row.unwanted_reason == UnwantedReason.CANCELLED
        reason = UnwantedReason.CANCELLED if is_cancelled else UnwantedReason.REPLACED
        return number, self.row.unwanted_hash, reason

    def asks(self) -> None:
        """Report that a question to Redis is under way."""
        if self.row.asking_ns == 0:
            self.row.asking_ns = self._clock.elapsed_ns()

    def redis_answered(self, *, is_turn: bool = True) -> None:
        """Report that Redis answered just now; a bell, without ``is_turn``, has no meaning for turns."""
        self.row.redis_ok_ns = self._clock.elapsed_ns()
        if is_turn:
            self.row.asking_ns = 0
        self.row.progress += 1

    def turned(self, now_ms: int) -> None:
        """Report that a turn was answered just now, at ``now_ms`` by Redis: it brought nothing later than that."""
        self.row.turn_ms = now_ms
        self.redis_answered()

    def request(self, verb: Verb) -> bool:
        """Ask the parent for something that concerns this process; False if it has not seen the last request yet."""
        is_asked = self.row.request(verb, self._slot, self._generation)
        if is_asked:
            self._wake_parent()
        return is_asked

    @property
    def room(self) -> int:
        """Number of further runs that the in-flight table can note."""
        return len(self._free)

    def fetched(self, key: RunKey, attempt: int, fetched_ms: int) -> bool:
        """Note an execution that is here and not begun; False if an earlier one of the same run is still here.

        That happens when Redis let go of the earlier one. The later one must then not begin in this process.
        """
        index = self._free.pop()
        execution = execution_hash(key, fetched_ms)
        self._table.put(index, execution=execution, attempt=attempt, state=RunState.FETCHED)
        if key in self._held:
            self._twins[key, attempt, fetched_ms] = index
            return False
        self._held[key] = (index, attempt, fetched_ms)
        return True

    def has(self, key: RunKey, attempt: int, fetched_ms: int) -> bool:
        """Return whether this very execution is noted, and not settled: Redis gave it twice."""
        held = self._held.get(key)
        return held is not None and (held[1:] == (attempt, fetched_ms) or (key, attempt, fetched_ms) in self._twins)

    def waits(self, key: RunKey) -> None:
        """Note that nothing is done about a run for now: it is prepared, or others come first."""
        index, attempt, _ = self._held[key]
        self._table.mark(index, attempt=attempt, state=RunState.WAITING)

    def started(self, key: RunKey, deadline_ns: int, now_ns: int | None = None) -> None:
        """Note that user code of the run is about to be called, and when it must be killed."""
        index, attempt, _ = self._held[key]
        self._table.mark(index, attempt=attempt, state=RunState.STARTED, deadline_ns=deadline_ns)
        self._deadline_of[key] = deadline_ns
        deadlines, words = self._deadlines, self._words
        insort(deadlines, deadline_ns)
        words[_BUSY] = len(deadlines)
        words[_DEADLINE] = deadlines[0]
        if deadline_ns - (self._clock.elapsed_ns() if now_ns is None else now_ns) < NEAR_NS:
            self._wake_parent()

    def done(self, key: RunKey, now_ns: int | None = None) -> None:
        """Note that user code of the run returned; its acknowledgement is still to be answered."""
        words = self._words
        words[_BEAT] = self._clock.elapsed_ns() if now_ns is None else now_ns
        index, attempt, _ = self._held[key]
        self._table.mark(index, attempt=attempt, state=RunState.DONE)
        deadlines = self._deadlines
        del deadlines[bisect_left(deadlines, self._deadline_of.pop(key))]
        words[_BUSY] = len(deadlines)
        words[_DONE] += 1
        words[_DEADLINE] = deadlines[0] if deadlines else 0

    def settled(self, key: RunKey, attempt: int, fetched_ms: int) -> None:
        """Forget an execution that Redis no longer counts as ours."""
        index = self._twins.pop((key, attempt, fetched_ms), None) if self._twins else None
        if index is None:
            held = self._held.pop(key)
            index = held[0]
            assert held == (index, attempt, fetched_ms)
        self._table.clear(index)
        self._free.append(index)

    @property
    def idle_by_ns(self) -> int:
        """Latest hard deadline of the executed runs; 0: nothing is executed."""
        return self._deadlines[-1] if self._deadlines else 0

    def resources(self, ill: int) -> None:
        """Report how many resources of jobs did not answer when they were last asked."""
        self.row.ill_resources = ill


FIRST_S = 0.05
LONGEST_S = 2.0
StoreError = StoreUnavailableError | StoreRefusedError
# A refusal too: an operator who mends the password or the ACL must not have to restart the workers as well.
STORE_ERRORS = (StoreUnavailableError, StoreRefusedError)

log = structlog.get_logger("tenure.worker")


class Outage:
    """The current series of calls that Redis failed, if there is one: growing waits, and one log line."""

    def __init__(self, clock: Clock, uniform: Callable[[], float]) -> None:
        self._clock = clock
        self._uniform = uniform
        self._failures = 0
        self._since_ns = 0

    @property
    def is_on(self) -> bool:
        """True if the last call failed."""
        return self._failures > 0

    def failed(self, operation: str, error: StoreError) -> float:
        """Count a failed call and return the seconds to wait before the next."""
        metrics.REDIS_ERRORS.labels(operation).inc()
        if self._failures == 0:
            self._since_ns = self._clock.elapsed_ns()
            log.warning("redis_lost", operation=operation, error=str(error))
        ceiling = min(LONGEST_S, FIRST_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        # Half fixed, half drawn: workers that failed together do not come back together, and none at once.
        return ceiling * (0.5 + 0.5 * self._uniform())

    def answered(self) -> None:
        """Note that a call was answered."""
        if self._failures:
            seconds = round((self._clock.elapsed_ns() - self._since_ns) / SECOND_NS, 3)
            log.info("redis_back", after_s=seconds, failures=self._failures)
        self._failures = 0


LOOK_NS = 5_000_000_000
ASK_NS = 60_000_000_000
"""An unanswered request is forgotten by the parent when no successor came up; then it is made again."""

SETTLED_RUNS = 100
SETTLED_NS = 60_000_000_000
_JITTER = 0.1


class RecyclingLimits:
    """Limits of one worker process: it asks to be replaced after so many runs, so much growth, or at an age.

    Growth counts from the need of the process once it had settled in, not from nothing: with a limit on the whole a
    process that is born above it would be replaced for ever. Each limit is moved by up to a tenth, drawn for each
    process, so that those that started together are not replaced together.

    It asks, and goes on working: the parent starts the successor first, and ends this process when that one is ready.
    """

    def __init__(
        self,
        pool: PoolSettings,
        *,
        presence: WorkerHeartbeat,
        clock: Clock,
        uniform: Callable[[], float],
        resident: Callable[[], int] = resident_kib,
    ) -> None:
        """Build it when the process starts.

        Args:
            pool: whose limits these are.
            presence: where memory is noted, and the request made.
            clock: of this machine.
            uniform: draws the jitter, from [0, 1).
            resident: returns the resident memory in KiB.
        """

        def about(limit: float | None) -> float:
            return float("inf") if limit is None else limit * (1 - _JITTER + 2 * _JITTER * uniform())

        self._runs_max = about(pool.recycle_runs)
        self._growth_kib_max = about(pool.recycle_growth_mib) * 1024
        self._age_ns_max = about(pool.recycle_age_s) * SECOND_NS
        self._presence = presence
        self._clock = clock
        self._resident = resident
        self._born_ns = clock.elapsed_ns()
        self._look_at_ns = 0
        self._ask_at_ns = 0
        self._baseline_kib = 0

    def tick(self, now_ns: int, *, is_stuck: bool = False) -> None:
        """Ask to be replaced if it is time, or its hooks hang. Cheap: memory is looked at every few seconds only."""
        runs = self._presence.row.done
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + LOOK_NS
            self._measure(runs, now_ns)
        reason = {"reason": "hooks"} if is_stuck else self._reason(runs, now_ns)
        if reason is not None and now_ns >= self._ask_at_ns and self._presence.request(Verb.RECYCLE):
            if self._ask_at_ns == 0:
                log.info("worker_recycles", **reason)
            self._ask_at_ns = now_ns + ASK_NS

    def _measure(self, runs: int, now_ns: int) -> None:
        kib = self._presence.row.rss_kib = self._resident()
        if self._baseline_kib == 0 and (runs >= SETTLED_RUNS or now_ns - self._born_ns >= SETTLED_NS):
            self._baseline_kib = kib

    def _reason(self, runs: int, now_ns: int) -> dict[str, str | int] | None:
        if runs >= self._runs_max:
            return {"reason": "runs", "runs": runs}
        growth_kib = self._presence.row.rss_kib - self._baseline_kib
        if self._baseline_kib and growth_kib >= self._growth_kib_max:
            return {"reason": "growth", "growth_mib": growth_kib // 1024, "from_mib": self._baseline_kib // 1024}
        if now_ns - self._born_ns >= self._age_ns_max:
            return {"reason": "age", "age_s": (now_ns - self._born_ns) // SECOND_NS}
        return None
