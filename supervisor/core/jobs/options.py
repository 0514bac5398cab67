"""The options of ``@job``, checked where they are written, as fields of the template of every run.

Guarantees
    Whatever could not be kept is refused at import, by an OptionError with the value seen and the remedy.
"""

from __future__ import annotations

import re
from typing import Any

from supervisor.core.durations import Duration, seconds_of
from supervisor.core.errors import OptionError, shown
from supervisor.core.model import PRIORITIES
from supervisor.core.retry import Retry

PATTERN_MAX = 128
CONCURRENCY_MAX = 100_000
RATE_COUNT_MAX = 1_000_000
CRASHES_MAX = 1000
TIMEOUT_S = 300.0
SPAN_MS_MAX = 366 * 86_400_000
_PATTERN = re.compile(r"(?:[^{}\ud800-\udfff]|\{[^\W\d]\w*\})*")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_RATE = re.compile(r"([0-9]{1,7})/([0-9.]*)(ms|s|m|h|d)", re.ASCII)


def crashes_field(max_crashes: Any) -> int:
    """Return how many processes a run may take down."""
    if type(max_crashes) is not int or not 1 <= max_crashes <= CRASHES_MAX:
        raise OptionError(f"max_crashes must be 1 to {CRASHES_MAX}, got {shown(max_crashes)}")
    return max_crashes


def time_fields(
    timeout: Duration | None, soft_timeout: Duration | None, result_ttl: Duration, start_deadline: Duration | None
) -> dict[str, float | None]:
    """Return the fields of the template that are durations."""
    timeout_s = TIMEOUT_S if timeout is None else seconds_of("timeout", timeout)
    soft_s = None if soft_timeout is None else seconds_of("soft_timeout", soft_timeout)
    ttl_s = seconds_of("result_ttl", result_ttl)
    start_s = None if start_deadline is None else seconds_of("start_deadline", start_deadline)
    if not timeout_s > 0:
        raise OptionError(f"timeout must be above 0 seconds, got {shown(timeout)}")
    if soft_s is not None and not 0 < soft_s <= timeout_s:
        raise OptionError(
            f"soft_timeout must be above 0 and at most timeout ({timeout_s:g} s), got {shown(soft_timeout)}"
        )
    if not ttl_s >= 0:
        raise OptionError(f"result_ttl must be 0 seconds or more, got {shown(result_ttl)}")
    if start_s is not None and not 0.001 <= start_s <= SPAN_MS_MAX / 1000:
        raise OptionError(f"start_deadline must be 1 ms to 366 days, got {shown(start_deadline)}")
    return {"timeout_s": timeout_s, "soft_timeout_s": soft_s, "result_ttl_s": ttl_s, "start_deadline_s": start_s}


def delivery_fields(delivery: Any, retry: Any) -> dict[str, Any]:
    """Return the fields of the template that say how often a run is tried."""
    if not isinstance(delivery, str) or delivery not in {"at_least_once", "at_most_once"}:
        raise OptionError(f"delivery must be at_least_once or at_most_once, got {shown(delivery)}")
    if retry is not None and not isinstance(retry, Retry):
        raise OptionError(f"retry must be a Retry, such as Retry(attempts=5), got {shown(retry)}")
    at_most_once = delivery == "at_most_once"
    if at_most_once and retry is not None and retry.attempts > 1:
        raise OptionError("delivery at_most_once cannot be combined with retries; drop retry or set attempts=1")
    return {"at_most_once": at_most_once, "retry": (retry or Retry(attempts=1 if at_most_once else 3)).on_wire}


def limit_fields(unique: Any, concurrency: Any, rate: Any) -> dict[str, Any]:
    """Return the fields of the template that limit runs beside each other."""
    fields: dict[str, Any] = {}
    if unique is not False:
        fields["unique"] = "*" if unique is True else _pattern("unique", unique)
        if not fields["unique"]:
            raise OptionError("unique must not be empty: True for all arguments, or a pattern such as '{customer}'")
    if concurrency is not None:
        given = concurrency if isinstance(concurrency, tuple) else ("", concurrency)
        if not 2 <= len(given) <= 3 or (len(given) == 3 and given[2] not in ("queue", "replace")):
            raise OptionError(
                f"concurrency must be a number, (key, number) or (key, number, 'replace'), "
                f"got {shown(concurrency)}; a newer run that is left out, instead of waiting, is unique="
            )
        pattern, most = given[:2]
        if type(most) is not int or not 1 <= most <= CONCURRENCY_MAX:
            raise OptionError(f"concurrency must be 1 to {CONCURRENCY_MAX} runs, got {shown(most)}")
        fields |= {"concurrency": _pattern("concurrency", pattern), "concurrency_max": most}
        fields |= {"concurrency_replaces": given[2:] == ("replace",)}
    if rate is not None:
        pattern, text = rate if isinstance(rate, tuple) and len(rate) == 2 else ("", rate)
        count, per_ms = _rate(text)
        fields |= {"rate": _pattern("rate", pattern), "rate_count": count, "rate_per_ms": per_ms}
    return fields


def checked_priority(priority: Any) -> str:
    """Return the name of a priority."""
    if not isinstance(priority, str) or priority not in PRIORITIES:
        raise OptionError(f"priority must be one of {', '.join(PRIORITIES)}, got {shown(priority)}")
    return priority


def placeholders(fields: dict[str, Any]) -> dict[str, str]:
    """Return the parameters that the patterns in ``fields`` name, each with the option that does."""
    options = ("unique", "concurrency", "rate")
    return {name: option for option in options for name in _PLACEHOLDER.findall(fields.get(option, ""))}


def _pattern(option: str, pattern: Any) -> str:
    if not isinstance(pattern, str) or len(pattern) > PATTERN_MAX or not _PATTERN.fullmatch(pattern):
        raise OptionError(
            f"{option} must be at most {PATTERN_MAX} characters of text and {{parameter}} placeholders, "
            f"got {shown(pattern)}"
        )
    return pattern


def _rate(text: Any) -> tuple[int, int]:
    """Return how many runs may start in how many milliseconds: ``100/m``, ``10/s``, ``5/2h``."""
    parts = _RATE.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        raise OptionError(f"rate must be runs/duration such as '100/m', '10/s' or '5/2h', got {shown(text)}")
    count, per_ms = int(parts[1]), round(1000 * seconds_of("rate", f"{parts[2] or 1}{parts[3]}"))
    if not 1 <= count <= RATE_COUNT_MAX or not 1 <= per_ms <= SPAN_MS_MAX:
        raise OptionError(f"rate must be 1 to {RATE_COUNT_MAX} runs in 1 ms to 366 days, got {shown(text)}")
    return count, per_ms
