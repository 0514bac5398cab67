"""Backoff of a worker while Redis does not answer: growing waits, and one log line for the outage."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from supervisor.clock import Clock
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.units import SECOND_NS
from supervisor.telemetry import metrics

FIRST_S = 0.05
LONGEST_S = 2.0
StoreError = StoreUnavailableError | StoreRefusedError
# A refusal too: an operator who mends the password or the ACL must not have to restart the workers as well.
STORE_ERRORS = (StoreUnavailableError, StoreRefusedError)

log = structlog.get_logger("tenure.worker")


class Outage:
    """The current series of failed calls, if there is one."""

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
