"""Results of one plugin run: counted, reported as progress, handed to a sink in batches.

Guarantees
    At most ``BATCH_MAX`` results are held. The next result is asked for when the sink has taken the batch, so a
    plugin that is faster than its sink waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from supervisor.clock import Clock
from supervisor.core.units import SECOND_NS
from supervisor.plugins.contract import PluginUnusableError

BATCH_MAX = 100
EVERY_NS = SECOND_NS
CLOCK_EVERY = 64  # the clock is asked once in so many results
MESSAGES_MAX = 10
MESSAGE_CHARS_MAX = 200
STATES = ("SUCCESS", "FAILURE")

Sink = Callable[[list[Any]], object]


class Summary(TypedDict):
    """Result of a plugin run, as the run records it."""

    results: int
    succeeded: int
    failed: int
    messages: list[str]  # of the first results that failed


class Results:
    """The results of one run."""

    def __init__(
        self,
        *,
        clock: Clock,
        most: int,
        tell: Callable[[dict[str, int]], None],
        sink: Sink | None,
        clean: Callable[[str], str] = str,
    ) -> None:
        """Build it.

        Args:
            clock: of this machine.
            most: how many there may be.
            tell: takes the counts, about once a second.
            sink: takes batches; None: they are only counted.
            clean: takes secrets out of the messages that are kept.
        """
        self._clock = clock
        self._most = most
        self._tell = tell
        self._sink = sink
        self._clean = clean
        self._batch: list[Any] = []
        self._told_ns = clock.elapsed_ns()
        self._messages: list[str] = []
        self.count = 0
        self.failed = 0

    def take(self, result: Any) -> None:
        """Count one result, and hand it on when its batch is full or old.

        Raises:
            PluginUnusableError: there are too many.
        """
        self.count += 1
        if self.count > self._most:
            raise PluginUnusableError(f"gave more than {self._most} results (results_max)", phase="run")
        if isinstance(result, Mapping) and result.get("state", "SUCCESS") not in {"SUCCESS", None}:
            self._note_failure(result)
        if self._sink is not None:
            self._batch.append(result)
            if len(self._batch) >= BATCH_MAX:
                self.flush()
        if self.count % CLOCK_EVERY == 0:
            self._look()

    def flush(self) -> None:
        """Hand over the held results."""
        if self._batch and self._sink is not None:
            batch, self._batch = self._batch, []
            self._sink(batch)

    def summary(self) -> Summary:
        """Return the summary, once all is handed over."""
        self.flush()
        return Summary(
            results=self.count, succeeded=self.count - self.failed, failed=self.failed, messages=self._messages
        )

    def counts(self) -> dict[str, int]:
        """Return how far it is."""
        return {"results": self.count, "failed": self.failed}

    def _note_failure(self, result: Mapping[str, Any]) -> None:
        self.failed += 1
        if len(self._messages) < MESSAGES_MAX:
            message = self._clean(str(result.get("message", result.get("state"))))
            self._messages.append(message[:MESSAGE_CHARS_MAX])

    def _look(self) -> None:
        now_ns = self._clock.elapsed_ns()
        if now_ns - self._told_ns >= EVERY_NS:
            self._told_ns = now_ns
            self._tell(self.counts())
