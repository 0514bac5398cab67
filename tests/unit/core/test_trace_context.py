"""What a traceparent is, and that anything else is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.jobs.trace_context import checked, trace_id_of
from tests.kit.tables import table

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("given", [GOOD, f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-ff"])
def test_a_traceparent_is_taken_as_it_is(given: str) -> None:
    """Flags that this version has no name for are kept."""
    assert checked(given) == given
    assert trace_id_of(given) == TRACE


@pytest.mark.parametrize("later", [f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes-later"])
def test_one_of_a_later_version_is_read_as_ours(later: str) -> None:
    """The standard asks for it: what is known of it stays as it is."""
    assert checked(later) == GOOD


@table(
    "given",
    [
        "",
        "no",
        GOOD[:-1],
        f"{GOOD}0",
        f"{GOOD}-more",
        f"{GOOD}\n",
        GOOD.upper(),
        f" {GOOD}",
        f"ff-{TRACE}-{SPAN}-01",
        f"01-{TRACE}-{SPAN}-01more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0x",
        f'00-{TRACE}-{SPAN[:-1]}"-01',
        f"00-{TRACE}-{SPAN[:-1]}é-01",
        None,
        7,
        b"bytes",
        ["list"],
    ],
)
def test_what_is_malformed_is_dropped(given: Any) -> None:
    """A caller's mistake in a header costs the trace, and never the run."""
    assert checked(given) == ""
    assert trace_id_of(given) == ""
