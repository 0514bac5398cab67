"""Output of the attempts of one worker process: which is kept, and when Redis gets it.

Guarantees
    An attempt that writes nothing costs nothing. The output of one that ends travels with its acknowledgement, that of
    one that goes on is sent once a second by a thread, which exists only while somebody writes.
    Nothing of this fails a run or holds one up: what Redis does not take is dropped, for ten seconds after a failure.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import msgspec
import structlog

from supervisor.clock import Clock
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.model import Outcome
from supervisor.core.units import SECOND_NS
from supervisor.store.client import threads
from supervisor.store.queues.run_records import AttemptLog, LogItem, RunLogs
from supervisor.telemetry.run_context import RunOutput

if TYPE_CHECKING:
    from supervisor.roles.worker.attempt.executor import Execution
    from supervisor.store.producer.producer import Producer

EVERY_S = 1.0
AFTER_FAILURE_NS = 10 * SECOND_NS
BATCH_BYTES = 256 * 1024
CALL_S = 1.0
LEAVE_S = 0.2
IDLE_MAX = 10
_SUCCESSES = frozenset({Outcome.OK, Outcome.AGAIN})

log = structlog.get_logger("tenure.worker")


class OutputKeeping:
    """Outputs of the attempts of this process."""

    def __init__(self, policy: str, *, worker: str, clock: Clock, runner: Producer | None) -> None:
        """Build it.

        Args:
            policy: the setting ``log.runs``.
            worker: session of this process.
            clock: of this machine.
            runner: sends what attempts write while they go on; None: nothing is sent.
        """
        self._is_all = policy == "all"
        self.is_on = policy != "none"
        self._worker = worker
        self._clock = clock
        self._runner = runner
        self._writing: dict[int, Execution] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._mute_until_ns = 0

    def of(self, execution: Execution) -> RunOutput:
        """Return the output of an attempt that goes on; it is made here with its first text."""
        output = execution.output
        if output is None:
            output = self._begun(execution)
        return output

    def _begun(self, execution: Execution) -> RunOutput:
        """Return the one output of an attempt, whichever thread or signal handler makes it first."""
        made = RunOutput()
        output = execution.output
        if output is None:  # since the line before there was no call: nobody else can have come in between
            output = execution.output = made
        self._writing[id(execution)] = execution
        if self._runner is not None and self._thread is None and not self._stop.is_set():
            self._start()
        return output

    def ended(self, execution: Execution, outcome: Outcome) -> bytes | None:
        """Return what the acknowledgement of an attempt that wrote something carries of it; None if nothing."""
        self._writing.pop(id(execution), None)
        output, execution.output = execution.output, None
        assert output is not None
        if not self._is_all and outcome in _SUCCESSES:
            return self._item(execution, b"").packed if output.is_sent else None
        return self._item(execution, self._body(execution, output, is_over=True)).packed

    def close(self) -> None:
        """Send nothing more; waits a moment for what is on its way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(LEAVE_S)

    def _body(self, execution: Execution, output: RunOutput, *, is_over: bool) -> bytes:
        fetched = execution.fetched
        kept = AttemptLog(
            fetched.fetched_ms, fetched.attempt, execution.spec.name, fetched.queue, self._worker, execution.started_ms,
            self._clock.wall_ms(), not is_over, *output.excerpt(is_over=is_over),
        )  # fmt: skip
        return msgspec.json.encode(kept)

    def _item(self, execution: Execution, body: bytes) -> LogItem:
        fetched = execution.fetched
        return LogItem(
            run_id=fetched.envelope.id,
            born=fetched.envelope.enqueued_ms,
            number=fetched.fetched_ms,
            log=body,
            queue=fetched.queue,
            fence=f"{self._worker}|{fetched.attempt}|{fetched.fetched_ms}",
        )

    # While attempts go on ------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                try:
                    self._thread = threads.start(self._serve, "tenure-run-logs")
                except OSError:  # the next attempt that writes tries again
                    self._thread = None

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the main thread's
        idle = 0
        while not self._stop.wait(EVERY_S):
            idle = 0 if self._writing else idle + 1
            self.send()
            with self._lock:
                if idle >= IDLE_MAX and not self._writing:
                    self._thread = None
                    return

    def send(self) -> None:
        """Send what attempts have written that have gone on for a second, each once."""
        now_ns, size = self._clock.elapsed_ns(), 0
        items: list[tuple[RunOutput, int, LogItem]] = []
        for execution in list(self._writing.values()) if now_ns >= self._mute_until_ns else ():
            output = execution.output
            if execution.ended_ns:
                self._writing.pop(id(execution), None)  # it was refused by a hook
            if output is None or output.chars == output.sent_chars or size >= BATCH_BYTES:
                continue
            if now_ns - execution.started_ns < EVERY_S * SECOND_NS:
                continue
            output.is_sent = True
            if not execution.ended_ns:  # else it may have been asked already whether some of it was sent
                chars = output.chars
                items.append((output, chars, self._item(execution, self._body(execution, output, is_over=False))))
                size += len(items[-1][2].log)
                if self._writing.pop(id(execution), None) is not None:
                    self._writing[id(execution)] = execution  # behind those that there was no room for
        if items and self._runner is not None:
            self._send(self._runner, items)

    def _send(self, runner: Producer, items: list[tuple[RunOutput, int, LogItem]]) -> None:
        try:
            runner.run(RunLogs(runner.keys).write([item for _, _, item in items]), timeout_s=CALL_S)
        except (StoreUnavailableError, StoreRefusedError) as error:
            self._mute_until_ns = self._clock.elapsed_ns() + AFTER_FAILURE_NS
            log.warning("run_output_unsent", error=str(error))
        else:
            for output, chars, _ in items:
                output.sent_chars = chars
