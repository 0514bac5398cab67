"""Waiting for the end of runs: one thread and one connection for all that a process waits for (adr/0050).

Guarantees
    An end that is told arrives at once; one that is not (an older version wrote it, a fail-over lost it) is found by
    asking again, after 1, 2, 4 and then every 5 s, and never more often than once a second for a run.
    While Redis is away nobody is woken; when it is back every run is asked for again.
    The thread lives while somebody waits, and LINGER_S longer. An error is logged, and a second later
    it goes on with another connection.

Does not guarantee
    That a run has ended when its waiter is woken: the waiter reads it, and waits on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush

from supervisor.clock import Clock
from supervisor.core.effects import drive
from supervisor.core.errors import TenureError
from supervisor.core.units import SECOND_NS
from supervisor.store.client import threads
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.run_records import AWAIT_MAX, RunEnds
from supervisor.store.queues.run_search import await_runs

Wake = Callable[[], object]
log = logging.getLogger("tenure.producer")
LOOK_NS = (SECOND_NS, 2 * SECOND_NS, 4 * SECOND_NS, 5 * SECOND_NS)
"""Pauses between two looks at a run; the last one again and again."""

BLOCK_S = 1.0
LINGER_S = 2.0
_IDLE_BLOCK_S = 0.1
_BELL_BYTES = 12
_STALE_LOOKS = 100


@dataclass(slots=True)
class _AwaitedRun:
    queue: str
    look_ns: int
    looks: int = 1
    wakes: list[Wake] = field(default_factory=list)


class AwaitedRuns:
    """Runs for which a process waits, and when to look at each. Safe to share between threads; does no I/O."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _AwaitedRun] = {}
        self._looks: list[tuple[int, str]] = []  # a heap; an entry counts if it is the run's next look

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run_id: str, queue: str, wake: Wake, now_ns: int) -> None:
        """Wake by ``wake`` when the run may have ended."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                run = self._runs[run_id] = _AwaitedRun(queue, now_ns + LOOK_NS[0])
                heappush(self._looks, (run.look_ns, run_id))
            run.wakes.append(wake)

    def discard(self, run_id: str, wake: Wake) -> None:
        """Forget one who waited."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is not None and wake in run.wakes:
                run.wakes.remove(wake)
                if not run.wakes:
                    del self._runs[run_id]
            if len(self._looks) > 2 * len(self._runs) + _STALE_LOOKS:  # nobody looks while no thread runs
                self._looks = sorted((run.look_ns, run_id) for run_id, run in self._runs.items())

    def wake(self, run_id: str) -> None:
        """Wake all who wait for a run."""
        with self._lock:
            run = self._runs.get(run_id)
            wakes = list(run.wakes) if run is not None else []
        for wake in wakes:
            with suppress(RuntimeError):  # its event loop is closed
                wake()

    def due(self, now_ns: int) -> list[tuple[str, str]]:
        """Return queue and id of runs to look at now, as many as one call takes."""
        found: list[tuple[str, str]] = []
        with self._lock:
            while self._looks and self._looks[0][0] <= now_ns and len(found) < AWAIT_MAX:
                look_ns, run_id = heappop(self._looks)
                run = self._runs.get(run_id)
                if run is not None and run.look_ns == look_ns:
                    found.append((run.queue, run_id))
        return found

    def looked(self, asked: Sequence[tuple[str, str]], queues: Sequence[str], now_ns: int) -> None:
        """Note where the runs are that were asked for, and wake who waits for those that are not where they were."""
        for (former, run_id), queue in zip(asked, queues, strict=True):
            with self._lock:
                run = self._runs.get(run_id)
                if run is None:
                    continue
                run.queue = queue or run.queue
                run.look_ns = now_ns + LOOK_NS[min(run.looks, len(LOOK_NS) - 1)]
                run.looks += 1
                heappush(self._looks, (run.look_ns, run_id))
            if not queue or (former and former != queue):  # perhaps another run of its id
                self.wake(run_id)

    def look_again(self, now_ns: int) -> None:
        """Look at every run next."""
        with self._lock:
            for run in self._runs.values():
                run.look_ns = now_ns
            self._looks = [(now_ns, run_id) for run_id in self._runs]

    def next_look_s(self, now_ns: int) -> float:
        """Return the seconds until the next look, at most ``BLOCK_S``."""
        with self._lock:
            first_ns = self._looks[0][0] if self._looks else now_ns + SECOND_NS
        return min(BLOCK_S, max(0.01, (first_ns - now_ns) / SECOND_NS))


class RunWaits:
    """The listener of one process."""

    def __init__(
        self, keys: Keys, *, open_store: Callable[[], Store], clock: Clock, entropy: Callable[[int], bytes]
    ) -> None:
        self.bell = entropy(_BELL_BYTES).hex()
        self.runs = AwaitedRuns()
        self._rung = keys.rung(self.bell)
        self._ends = RunEnds(keys)
        self._open = open_store
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    @contextmanager
    def watch(self, run_id: str, queue: str, wake: Wake) -> Iterator[None]:
        """Wake by ``wake`` inside of the context. Enter it before asking to be told, so that no end is missed."""
        self.runs.add(run_id, queue, wake, self._clock.elapsed_ns())
        try:
            yield
        finally:
            self.runs.discard(run_id, wake)

    def listen(self) -> None:
        """Make sure that the thread runs."""
        with self._lock:
            if self._thread is None:
                self._closing.clear()
                self._thread = threads.start(self._listen, "tenure-waits")

    def close(self) -> None:
        """End the thread, unless somebody waits."""
        thread = self._thread
        if thread is None or len(self.runs):
            return
        self._closing.set()
        thread.join(BLOCK_S + LINGER_S)

    async def close_async(self) -> None:
        """Do the same without blocking the event loop."""
        if self._thread is not None:
            await threads.result_of(self.close, "tenure-waits-end")

    def _listen(self) -> None:
        store: Store | None = None
        idle_ns, fault = self._clock.elapsed_ns(), ""
        try:
            while True:
                now_ns = self._clock.elapsed_ns()
                if len(self.runs):
                    self._closing.clear()
                    idle_ns = now_ns
                elif (self._closing.is_set() or now_ns - idle_ns > LINGER_S * SECOND_NS) and self._is_over():
                    return
                try:
                    store = store or self._open().on_one_connection()
                    self.step(store, self.runs.next_look_s(now_ns) if len(self.runs) else _IDLE_BLOCK_S)
                    fault = ""
                except Exception as error:  # nobody else wakes those who wait
                    if not isinstance(error, TenureError):
                        fault, former = repr(error), fault
                        if fault != former:
                            log.exception("waiting for runs met an error, and is tried again each second")
                        _close(store)  # it may be in the middle of a reply
                        store = None
                    self._closing.wait(LOOK_NS[0] / SECOND_NS)
                    self.runs.look_again(self._clock.elapsed_ns())
        finally:
            _close(store)
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _is_over(self) -> bool:
        with self._lock:
            if len(self.runs):
                return False
            self._thread = None
            return True

    def step(self, store: Store, block_s: float) -> None:
        """Look at the runs whose time has come, then hear of ends for at most ``block_s``.

        Raises:
            StoreUnavailableError: Redis does not answer.
        """
        while asked := self.runs.due(self._clock.elapsed_ns()):
            found = drive(await_runs(self._ends, self.bell, asked), store.run)
            self.runs.looked(asked, found, self._clock.elapsed_ns())
        run_id = store.pop(self._rung, block_s)
        if run_id is not None:
            self.runs.wake(run_id)


def _close(store: Store | None) -> None:
    with suppress(TenureError, OSError):
        if store is not None:
            store.close()
