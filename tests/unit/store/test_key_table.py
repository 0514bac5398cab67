"""The table of keys holds every key that the code spells, each with a bound and what clears it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from supervisor.store import scripts
from supervisor.store.key_table import KEY_TABLE, PIECES
from supervisor.store.keys import Keys
from tests.kit.every_key import every_key

LUA = Path(__file__).parents[3] / "supervisor/store/lua"
PATTERNS = [re.compile(re.sub("<[a-z]+>", ".+", row.pattern)) for row in KEY_TABLE]


def is_listed(part: str) -> bool:
    """Return whether some row is of ``part``; of a prefix such as ``limit:c:``, whether one begins so."""
    return any(
        pattern.fullmatch(part) or pattern.fullmatch(f"{part}x") or pattern.fullmatch(f"{part}:x")
        for pattern in PATTERNS
    )


def test_every_key_that_python_spells_is_in_the_table() -> None:
    """A key that nobody thought about is a key that nobody clears."""
    keys = Keys("t")
    parts = {name: key.removeprefix(keys.prefix) for name, key in every_key(keys).items()}

    assert {name: part for name, part in parts.items() if not is_listed(part)} == {}


def test_no_script_spells_a_key() -> None:
    """A key that is written in two places is changed in one; scripts say ``keys.<name>``, and the table spells it."""
    heads = {piece.strip(":") for pieces in PIECES.values() for piece in pieces if ":" in piece} - {""}
    spelt = re.compile(rf"\bprefix \.\. ['\"]|KEYS\[1\] \.\.|(?<!\w)'(?:{'|'.join(sorted(heads))}):")
    lines = [
        f"{path.name}:{number}: {line.strip()}"
        for path in LUA.rglob("*.lua")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if spelt.search(line) and not line.startswith("--")
    ]
    assert {"schedule:def", "q", "ready", "limit:c"} <= heads
    assert lines == []


def test_a_name_becomes_what_the_table_spells() -> None:
    """In Lua as in Python: constants in one piece, values in between, and behind the queue only its part."""
    calls = {
        "keys.lease": "(KEYS[1] .. 'lease')",
        "keys.ready(queue, f(a, 'b)'), '1')": "(KEYS[1] .. 'q:' .. queue .. ':ready:' .. f(a, 'b)') .. ':1')",
        "keys.tally(id or keys.lease)": "(KEYS[1] .. 'tally:' .. (id or (KEYS[1] .. 'lease')))",
        "parts.ready('a', '0')": "('ready:a:0')",
        "t.keys - 1": "t.keys - 1",
    }

    assert {call: scripts._with_keys(call) for call in calls} == calls
    with pytest.raises(ValueError, match="zip"):
        scripts._with_keys("keys.ready(queue)")
    with pytest.raises(KeyError):
        scripts._with_keys("keys.reddy(queue)")


def test_every_key_has_a_bound_and_is_listed_once() -> None:
    """What grows for ever fills the server in the end."""
    assert all(row.bound and row.cleared_by and row.grows_with for row in KEY_TABLE)
    assert len({row.pattern for row in KEY_TABLE}) == len({row.name for row in KEY_TABLE}) == len(KEY_TABLE)
