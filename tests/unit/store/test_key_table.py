"""The table of keys holds every key that the code spells, each with a bound and what clears it."""

from __future__ import annotations

import re
from pathlib import Path

from supervisor.store.key_table import KEY_TABLE
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


def spelt_by_scripts() -> set[str]:
    """Return what scripts put behind the prefix, behind ``schedule:`` and behind the prefix of a queue."""
    found = set()
    for path in LUA.rglob("*.lua"):
        text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("--"))
        found |= set(re.findall(r"\bprefix \.\. '([a-z_:]+)", text))
        found |= {f"schedule:{name}" for name in re.findall(r"\b(?:S|SCHEDULE) \.\. '([a-z_:]+)", text)}
        found |= {f"q:x:{name}" for name in re.findall(r"\bq\([a-z_.]+, '([a-z_:]+)", text)}
    return found - {"q:", "schedule:", "cache:"}


def test_every_key_that_python_spells_is_in_the_table() -> None:
    """A key that nobody thought about is a key that nobody clears."""
    keys = Keys("t")
    parts = {name: key.removeprefix(keys.prefix) for name, key in every_key(keys).items()}

    assert {name: part for name, part in parts.items() if not is_listed(part)} == {}


def test_every_key_that_a_script_spells_is_in_the_table() -> None:
    """Scripts derive keys that Python never names."""
    spelt = spelt_by_scripts()

    assert len(spelt) > 50
    assert {part for part in spelt if not is_listed(part) and not is_listed(f"{part}x:x")} == set()


def test_every_key_has_a_bound_and_is_listed_once() -> None:
    """What grows for ever fills the server in the end."""
    assert all(row.bound and row.cleared_by and row.grows_with for row in KEY_TABLE)
    assert len({row.pattern for row in KEY_TABLE}) == len(KEY_TABLE)
