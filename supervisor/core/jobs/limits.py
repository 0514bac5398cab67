"""Limits on the runs of a job: one unfinished run per key, so many at once, so many in a time.

A key is a pattern over the arguments of the run, such as ``{tenant}``, resolved when the run is packed. It belongs to
its job: two jobs never share one. Limits travel in front of a run's envelope as a header that the scripts read:
``[p<length>;u<key>;c<max>:<key>;x;r<count>/<per_ms>:<key>]``, each part only where there is one.

Guarantees
    Equal arguments give equal keys, on every machine. A key is 1 to 128 characters of ``A-Z a-z 0-9 . _ : / @ -``,
    or ``#`` and a digest where it would not fit these, or where the name of its job holds a colon.

Does not guarantee
    That different arguments give different keys where the pattern joins several texts without a mark between them,
    or where a text and a number look alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from supervisor.core.errors import ArgumentsError
from supervisor.core.json_values import canonical_text
from supervisor.core.model import Template

KEY_LENGTH_MAX = 128
EVERYTHING = "*"
"""The pattern that stands for all arguments."""

_KEY = re.compile(rf"[A-Za-z0-9._:/@-]{{1,{KEY_LENGTH_MAX}}}", re.ASCII)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one run, their keys resolved. An empty key: no such limit."""

    unique: str = ""
    concurrency: str = ""
    concurrency_max: int = 0
    is_replacing: bool = False
    rate: str = ""
    rate_count: int = 0
    rate_per_ms: int = 0

    def header(self, above: int = 0) -> str:
        """Return the header in front of the envelope; empty where there is no limit.

        Args:
            above: no limit, but it is in there too: how much of the run's id is that of the run which counts it.
        """
        parts = [f"p{above}"] if above else []
        if self.unique:
            parts.append(f"u{self.unique}")
        if self.concurrency:
            parts += [f"c{self.concurrency_max}:{self.concurrency}", *(["x"] if self.is_replacing else [])]
        if self.rate:
            parts.append(f"r{self.rate_count}/{self.rate_per_ms}:{self.rate}")
        return f"[{';'.join(parts)}]" if parts else ""


NONE = Limits()


def limits_of(template: Template) -> Limits:
    """Return the limits of a run of ``template``.

    Raises:
        ArgumentsError: a pattern names an argument that the run does not have.
    """
    is_limited = template.concurrency_max > 0
    is_rated = template.rate_count > 0 and template.rate_per_ms > 0
    if not (template.unique or is_limited or is_rated):
        return NONE
    return Limits(
        unique=_key(template, template.unique) if template.unique else "",
        concurrency=_key(template, template.concurrency) if is_limited else "",
        concurrency_max=template.concurrency_max if is_limited else 0,
        is_replacing=is_limited and template.concurrency_replaces,
        rate=_key(template, template.rate) if is_rated else "",
        rate_count=template.rate_count if is_rated else 0,
        rate_per_ms=template.rate_per_ms if is_rated else 0,
    )


def _key(template: Template, pattern: str) -> str:
    if pattern == EVERYTHING:
        return _digest(template.job, canonical_text(template.args))
    resolved = _PLACEHOLDER.sub(lambda found: _text(template.job, pattern, template.args, found[1]), pattern)
    key = f"{template.job}:{resolved}"
    is_plain = ":" not in template.job and _KEY.fullmatch(key)  # the job `a:b` would share keys with the job `a`
    return key if is_plain else _digest(template.job, resolved)


def _digest(job: str, value: str) -> str:
    """Return a key that fits, whatever the value: the job's name in front, for people, where that fits."""
    digest = blake2b(value.encode(), digest_size=16).hexdigest()
    if _KEY.fullmatch(job) and len(job) + 2 + len(digest) <= KEY_LENGTH_MAX:
        return f"{job}:#{digest}"
    return f"#{blake2b(f'{job}:#{digest}'.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def _text(job: str, pattern: str, args: Mapping[str, Any], name: str) -> str:
    if name not in args:
        raise ArgumentsError(
            f"job {job}: the key {pattern!r} of a limit names {name!r}, which this run does not have; "
            f"it has {', '.join(sorted(args)) or 'no arguments'}"
        )
    return canonical_text(args[name])
