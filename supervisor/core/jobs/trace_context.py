"""Trace context of a run, in the W3C's format: https://www.w3.org/TR/trace-context/.

``traceparent`` is a version, the id of the trace, the id of the span that caused its carrier, and flags. A
malformed one is dropped, as the standard asks: a trace may break, the traced work may not.
"""

from __future__ import annotations

import re
from typing import Any

CHARS = 55
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16


def checked(traceparent: Any) -> str:
    """Return ``traceparent`` in version 00; empty if it is not one, or not a text."""
    if not isinstance(traceparent, str):
        return ""
    found = _FORM.match(traceparent)
    if found is None or found[1] == "ff" or found[2] == _NO_TRACE or found[3] == _NO_SPAN:
        return ""
    rest = traceparent[CHARS:]
    if rest and (found[1] == "00" or not rest.startswith("-")):  # only a later version may say more
        return ""
    return "00" + found[0][2:]


def trace_id_of(traceparent: str) -> str:
    """Return the id of the trace; empty if ``traceparent`` is malformed."""
    return checked(traceparent)[3:35]
