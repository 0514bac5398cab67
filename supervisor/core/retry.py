"""Retry policy of a failed run, and the exceptions by which a job decides itself."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from supervisor.core.durations import DELAY_S_MAX as AGAIN_S_MAX
from supervisor.core.durations import seconds_of
from supervisor.core.errors import OptionError, TenureError, shown

if TYPE_CHECKING:
    Span = float | str | timedelta
    Errors = type[BaseException] | tuple[type[BaseException], ...]
else:  # never on the wire: a run carries what follows from them
    Span = Errors = Any

ATTEMPTS_MAX = 100
DELAY_S_MAX = 86_400.0
AGAIN_MAX = 1000
"""How often a run may ask to run again by ``Again``; interruptions count with it. The next time it is dead."""


class GiveUp(TenureError):  # noqa: N818 - read as the order it is: raise GiveUp("no such mailbox")
    """Raised by a job whose run would fail again for the same reason: it is dead at once, with that reason."""

    ends_run = True


class Again(Exception):  # noqa: N818 - no error: raise Again("5m")
    """Raised by a job whose run should run again after ``delay``; no attempt is charged.

    The run starts anew, with the same arguments; finished steps stay finished. At most 1,000 times for one run.

    Args:
        delay: seconds, a text such as ``"5m"``, or a ``timedelta``; 0 to 366 days.
        reason: for the log.

    Raises:
        OptionError: the delay is none.
    """

    def __init__(self, delay: Span, reason: str = "") -> None:
        self.delay_s = seconds_of("Again: delay", delay)
        if not 0 <= self.delay_s <= AGAIN_S_MAX:
            raise OptionError(f"Again: delay must be 0 seconds to 366 days, got {shown(delay)}")
        super().__init__(reason or f"again after {self.delay_s:g} s")


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Retry policy: the number of attempts of a run, and the delays between them.

    The delay before attempt n + 1 is drawn uniformly from [0, min(cap_s, base_s * 2 ** (n - 1))]
    ("full jitter": AWS Architecture Blog, "Exponential Backoff And Jitter", 2015), so that runs
    which failed together do not come back together.

    ``base`` and ``cap`` take what ``base_s`` and ``cap_s`` are in seconds as texts or ``timedelta`` too.

    Raises:
        OptionError: a value is outside its range, of another type, or no exception class.
    """

    attempts: int = 3
    """Attempts in all, the first included; 1 to 100. Crashes and interruptions do not count."""

    base_s: float = 2.0
    """Upper bound of the first delay, in seconds; 0 to 86400."""

    cap_s: float = 600.0
    """Upper bound of every delay, in seconds; ``base_s`` to 86400."""

    base: Span | None = None
    """Upper bound of the first delay: seconds, ``"2s"``, or a ``timedelta``; becomes ``base_s``."""

    cap: Span | None = None
    """Upper bound of every delay; becomes ``cap_s``."""

    on: Errors = ()
    """Exceptions after which the run is tried again; any other ends it dead. Empty: all of them."""

    give_up_on: Errors = ()
    """Exceptions that end the run dead at once, also those of ``on``."""

    def __post_init__(self) -> None:
        """Refuse values that are never meant."""
        for name in ("base", "cap"):
            if (value := getattr(self, name)) is not None:
                msgspec.structs.force_setattr(self, f"{name}_s", seconds_of(f"Retry.{name}", value))
                msgspec.structs.force_setattr(self, name, None)
        for name in ("on", "give_up_on"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or value:
                msgspec.structs.force_setattr(self, name, _classes(f"Retry.{name}", value))
        if type(self.attempts) is not int or not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise OptionError(f"Retry.attempts must be 1 to {ATTEMPTS_MAX}, got {shown(self.attempts)}")
        if not _is_number(self.base_s) or not 0 <= self.base_s <= DELAY_S_MAX:
            raise OptionError(f"Retry.base_s must be 0 to {DELAY_S_MAX:.0f} seconds, got {shown(self.base_s)}")
        if not _is_number(self.cap_s) or not self.base_s <= self.cap_s <= DELAY_S_MAX:
            raise OptionError(
                f"Retry.cap_s must be base_s ({self.base_s}) to {DELAY_S_MAX:.0f} seconds, got {shown(self.cap_s)}"
            )

    @property
    def on_wire(self) -> Retry:
        """The same without exceptions, which only a program that has the job's code can know."""
        return Retry(attempts=self.attempts, base_s=self.base_s, cap_s=self.cap_s)

    def tries_again(self, error: BaseException) -> bool:
        """Return whether an attempt that failed with ``error`` is worth another one."""
        return not isinstance(error, self.give_up_on) and (not self.on or isinstance(error, self.on))

    def delay_s(self, attempt: int, uniform: float) -> float | None:
        """Return the seconds to wait after ``attempt`` failed, or None when that was the last.

        Args:
            attempt: the attempt that failed, from 1.
            uniform: a draw from [0, 1), handed in because the core draws nothing.
        """
        assert attempt >= 1
        assert 0.0 <= uniform < 1.0
        if attempt >= self.attempts:
            return None
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 40))
        return ceiling * uniform


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _classes(what: str, value: Any) -> tuple[type[BaseException], ...]:
    found = tuple(value) if isinstance(value, tuple | list | set | frozenset) else (value,)
    for item in found:
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise OptionError(f"{what} takes exception classes, such as (TimeoutError, OSError), got {shown(item)}")
    return found
