"""The options of ``@job``, checked where they are written, as fields of the template of every run.

Guarantees
    Whatever could not be kept is refused at import with the value seen and the remedy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from supervisor.core.durations import Duration, seconds_of
from supervisor.core.model import PRIORITIES
from supervisor.core.retry import Retry

PATTERN_MAX = 128
CONCURRENCY_MAX = 100_000
RATE_COUNT_MAX = 1_000_000
CRASHES_MAX = 1000
TIMEOUT_S = 300.0
SPAN_MS_MAX = 366 * 86_400_000
_PATTERN = re.compile(r"(?:[^{}]|\{[A-Za-z_][A-Za-z0-9_]*\})*")
_PLACEHOLDER = re.compile(r"\{(\w+)\}", re.ASCII)
_RATE = re.compile(r"([0-9]{1,7})/([0-9.]*)(ms|s|m|h|d)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of ``@job``, for every run of a job."""

    queue: str
    priority: str | None
    retry: Retry | None
    timeout: Duration | None
    soft_timeout: Duration | None
    max_crashes: int
    result_ttl: Duration
    delivery: str
    start_deadline: Duration | None
    unique: bool | str
    concurrency: int | tuple[str, int] | tuple[str, int, str] | None
    rate: str | tuple[str, str] | None

    def fields(self) -> dict[str, Any]:
        """Return the fields of ``Template`` that these are.

        Raises:
            ValueError: one is malformed or outside its range.
        """
        return {
            "queue": self.queue,
            "priority": self._priority(),
            "max_crashes": self._max_crashes(),
            **self._times(),
            **self._delivery(),
            **self._limits(),
        }

    def _priority(self) -> int:
        if self.priority is not None and self.priority not in PRIORITIES:
            raise ValueError(f"priority must be one of {', '.join(PRIORITIES)}, got {self.priority!r}")
        return PRIORITIES[self.priority or "normal"]

    def _max_crashes(self) -> int:
        if not 1 <= self.max_crashes <= CRASHES_MAX:
            raise ValueError(f"max_crashes must be 1 to {CRASHES_MAX}, got {self.max_crashes}")
        return self.max_crashes

    def _times(self) -> dict[str, float | None]:
        timeout_s = TIMEOUT_S if self.timeout is None else seconds_of("timeout", self.timeout)
        soft_s = None if self.soft_timeout is None else seconds_of("soft_timeout", self.soft_timeout)
        ttl_s = seconds_of("result_ttl", self.result_ttl)
        start_s = None if self.start_deadline is None else seconds_of("start_deadline", self.start_deadline)
        if not timeout_s > 0:
            raise ValueError(f"timeout must be above 0 seconds, got {self.timeout}")
        if soft_s is not None and not 0 < soft_s <= timeout_s:
            raise ValueError(
                f"soft_timeout must be above 0 and at most timeout ({timeout_s:g} s), got {self.soft_timeout}"
            )
        if not ttl_s >= 0:
            raise ValueError(f"result_ttl must be 0 seconds or more, got {self.result_ttl}")
        if start_s is not None and not 0.001 <= start_s <= SPAN_MS_MAX / 1000:
            raise ValueError(f"start_deadline must be 1 ms to 366 days, got {self.start_deadline}")
        return {
            "timeout_s": timeout_s,
            "soft_timeout_s": soft_s,
            "result_ttl_s": ttl_s,
            "start_deadline_s": start_s,
        }

    def _delivery(self) -> dict[str, Any]:
        if self.delivery not in {"at_least_once", "at_most_once"}:
            raise ValueError(f"delivery must be at_least_once or at_most_once, got {self.delivery!r}")
        at_most_once = self.delivery == "at_most_once"
        if at_most_once and self.retry is not None and self.retry.attempts > 1:
            raise ValueError("delivery at_most_once cannot be combined with retries; drop retry or set attempts=1")
        return {"at_most_once": at_most_once, "retry": (self.retry or Retry(attempts=1 if at_most_once else 3)).on_wire}

    def _limits(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.unique is not False:
            fields["unique"] = "*" if self.unique is True else _pattern("unique", self.unique)
            if not fields["unique"]:
                raise ValueError("unique must not be empty: True for all arguments, or a pattern such as '{customer}'")
        if self.concurrency is not None:
            given = self.concurrency if isinstance(self.concurrency, tuple) else ("", self.concurrency)
            pattern, most, policy = (*given, "queue", "queue")[:3]
            if len(given) > 3 or policy not in {"queue", "replace"}:
                raise ValueError(
                    f"concurrency must be a number, (key, number) or (key, number, 'replace'), "
                    f"got {self.concurrency!r}; a newer run that is left out, instead of waiting, is unique="
                )
            if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= CONCURRENCY_MAX:
                raise ValueError(f"concurrency must be 1 to {CONCURRENCY_MAX} runs, got {most!r}")
            fields |= {"concurrency": _pattern("concurrency", pattern), "concurrency_max": most}
            fields |= {"concurrency_replaces": policy == "replace"}
        if self.rate is not None:
            pattern, text = self.rate if isinstance(self.rate, tuple) else ("", self.rate)
            count, per_ms = _rate(text)
            fields |= {"rate": _pattern("rate", pattern), "rate_count": count, "rate_per_ms": per_ms}
        return fields


def placeholders(fields: dict[str, Any]) -> dict[str, str]:
    """Return the parameters that the patterns in ``fields`` name, each with the option that does."""
    options = ("unique", "concurrency", "rate")
    return {name: option for option in options for name in _PLACEHOLDER.findall(fields.get(option, ""))}


def _pattern(option: str, pattern: Any) -> str:
    if not isinstance(pattern, str) or len(pattern) > PATTERN_MAX or not _PATTERN.fullmatch(pattern):
        raise ValueError(
            f"{option} must be at most {PATTERN_MAX} characters of text and {{parameter}} placeholders, got {pattern!r}"
        )
    return pattern


def _rate(text: Any) -> tuple[int, int]:
    """Return how many runs may start in how many milliseconds: ``100/m``, ``10/s``, ``5/2h``."""
    parts = _RATE.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        raise ValueError(f"rate must be runs/duration such as '100/m', '10/s' or '5/2h', got {text!r}")
    count, per_ms = int(parts[1]), round(1000 * seconds_of("rate", f"{parts[2] or 1}{parts[3]}"))
    if not 1 <= count <= RATE_COUNT_MAX or not 1 <= per_ms <= SPAN_MS_MAX:
        raise ValueError(f"rate must be 1 to {RATE_COUNT_MAX} runs in 1 ms to 366 days, got {text!r}")
    return count, per_ms
