"""Keys of limits, of cached results and of runs with an id of one's own: equal arguments have one text, everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from supervisor.core.jobs.limits import limits_of
from supervisor.core.json_values import canonical_text
from supervisor.core.model import Kind, Template
from supervisor.store.wire.envelope import content_of

ROOT = Path(__file__).resolve().parents[3]


class Colour(Enum):
    """Of any kind."""

    RED = "x"
    BLUE = "b"


@dataclass
class Point:
    """Fields that are not in the order of the alphabet."""

    y: Any
    x: Any


class Tagged(msgspec.Struct, tag="t", rename="camel"):
    """Fields that are called otherwise in JSON."""

    z_a: Any
    b_c: Any


def keys_of(value: Any) -> tuple[str, str, str, str]:
    """Return every key that is made of an argument."""
    template = Template(job="j", kind=Kind.ASYNC, args={"v": value}, unique="*")
    named = msgspec.structs.replace(template, unique="{v}")
    content = content_of("j", {"v": value, "a": 1})
    return limits_of(template).unique, limits_of(named).unique, content, canonical_text(value)


@pytest.mark.parametrize(
    ("value", "everything", "named", "content", "cached"),
    [
        ("ü/é", "j:#a51268fc0804a12ec140ba5b9e39dcc3", "j:#ffbfe595e4e19005e8cbeeb1a08d2dd1", "2cdd96a55539cc82", "ü/é"),
        (7, "j:#f4bce94695475e33691862966e62361e", "j:7", "99472e05f9792ae1", "7"),
        (1.0, "j:#adc93bc5941d3f84a1e86ee58e1a3aba", "j:1.0", "a2cf7d879542d20e", "1.0"),
        (None, "j:#4db8c058f6b7d01da70dc1f652604323", "j:null", "507c7d76120290b5", "null"),
        (
            {"b": [1, {"z": 1, "a": None}], "a": "x"},
            "j:#1398d81237a3fb4ed129f825bdbed172",
            "j:#2321407e21a4eee989df3223294c54b6",
            "f4e53fe530837c7e",
            '{"a":"x","b":[1,{"a":null,"z":1}]}',
        ),
        ({3, 1, 2}, "j:#2c815291fc7749148fe0dd5096c0837a", "j:#53c65deb7d4e0bfc9931d06cfe60790d", "b08599e6eb204406", "[1,2,3]"),
        (
            datetime(2026, 1, 2, tzinfo=UTC),
            "j:#02cb98f854039ad0c96701d1eb783e37",
            "j:2026-01-02T00:00:00Z",
            "8d4dfca8446805c0",
            "2026-01-02T00:00:00Z",
        ),
        (Decimal("1.50"), "j:#4ddaf97492cf9bb890683ad0f631b414", "j:1.50", "e9139b23d3276ff1", "1.50"),
        (Colour.RED, "j:#259db0edc3ba4d70b47050384ad842e3", "j:x", "c48348b8561bffec", "x"),
        (b"ab", "j:#6bd0b936ccc3e2ffeadaf1a063aac466", "j:#4509b6e88b96c144efdd66d7ba672572", "80d91f1397de4410", "YWI="),
        (
            Point(1, 2),
            "j:#ccc89e49fde4fa8075e3b5c317400c84",
            "j:#58762ea6182ee622cf746dc4fb0d833e",
            "662ec9e93f375081",
            '{"x":2,"y":1}',
        ),
        (
            Tagged(1, {"q": 1, "a": Point(3, 4)}),
            "j:#8f1d1dca269d7f8a921f9f949accec78",
            "j:#921bd0379e4d8a8963823c8147271732",
            "1045ae3302b79d63",
            '{"bC":{"a":{"x":4,"y":3},"q":1},"type":"t","zA":1}',
        ),
        ((1, "a"), "j:#46e8aed3bf5845cd59fd3b297d56b2cd", "j:#0cd1815628877fc2ca4ef2a690d32040", "6e8431ce4d30aae8", '[1,"a"]'),
    ],
)  # fmt: skip
def test_keys_are_those_of_every_version(value: Any, everything: str, named: str, content: str, cached: str) -> None:
    """They lie in Redis: replicas of two versions count the same runs by them."""
    assert keys_of(value) == (everything, named, content, cached)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({2: "b", 1: "a"}, '{"1":"a","2":"b"}'),
        ({UUID(int=3): 1, date(2026, 1, 2): {1.5: 2}}, f'{{"{UUID(int=3)}":1,"2026-01-02":{{"1.5":2}}}}'),
        ({Colour.RED: 1, Colour.BLUE: 2}, '{"b":2,"x":1}'),
        ({1: "first", "1": "last"}, '{"1":"last"}'),
        ({"a", 2, None}, '["a",2,null]'),
        ([{Colour.RED, Colour.BLUE}], '[["b","x"]]'),
        (Point({2: 1}, {1, "a"}), '{"x":["a",1],"y":{"2":1}}'),
        (Tagged({2: 1}, (1, {"a", None})), '{"bC":[1,["a",null]],"type":"t","zA":{"2":1}}'),
    ],
)
def test_mappings_by_other_keys_and_sets_of_several_types_have_keys(value: Any, text: str) -> None:
    """They are arguments like others: what can be enqueued can be enqueued under an id, and counted."""
    assert keys_of(value)[3] == text
    assert all(keys_of(value))


SCRIPT = """
from tests.unit.core.test_canonical_json import Point, keys_of
words = {f"word-{n}" for n in range(20)}
for value in (words, frozenset(words), Point(words, {1: words}), words | {1, None}, [{"a": words}]):
    print(*keys_of(value))
"""


def test_a_set_has_one_key_in_each_process() -> None:
    """Its order is another in each: two processes counted by two keys, and a deleted result stayed."""
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(found) == 1
