"""JSON by anybody: one kind of error for what cannot be read, and a limit for what is written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.core import json_values
from supervisor.core.errors import ArgumentsError
from supervisor.core.json_values import JSON_DEPTH_MAX, check_arguments, is_deeper, json_of, json_reader, read_json
from tests.kit.tables import table

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab[]{}\\"', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k[{"\\', max_size=2), inner, max_size=3),
    max_leaves=12,
)
TOO_DEEP = [b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000]


def depth_of(value: Any) -> int:
    """Return how deep lists and objects are nested in each other."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth_of, inside), default=0)
    return 0


def nested(levels: int, value: Any = 1) -> Any:
    """Return ``value`` in so many lists."""
    for _ in range(levels):
        value = [value]
    return value


@given(JSON, st.integers(0, 8))
@example("[", 0)
def test_depth_is_told_from_the_bytes_alone(value: Any, depth: int) -> None:
    """Brackets within texts are none, however they are escaped."""
    for body in (msgspec.json.encode(value), json.dumps(value, indent=1).encode()):
        assert is_deeper(body, depth) == (depth_of(value) > depth)


@table("data", [*TOO_DEEP, b"\xff", b'"\xff"', b"", b"[", b"1" * 5000, b"NaN"])
def test_whatever_the_bytes_are_the_error_is_a_decode_error(data: bytes) -> None:
    """So one handler is enough: a stack that is too small for the data is no fault of the process."""
    with pytest.raises(msgspec.DecodeError):
        read_json(data)
    with pytest.raises(msgspec.DecodeError):
        json_reader(dict[str, Any])(data)


def test_what_is_nested_up_to_the_limit_travels() -> None:
    """The limit counts from the value of an argument; what stands around it is not the caller's."""
    args = {"value": nested(JSON_DEPTH_MAX)}
    check_arguments("j", args, msgspec.json.encode(args), around=1)
    assert read_json(json_of(nested(JSON_DEPTH_MAX))) == nested(JSON_DEPTH_MAX)


@pytest.mark.parametrize("levels", [JSON_DEPTH_MAX + 1, 900])
def test_arguments_that_are_nested_deeper_are_refused_with_place_and_remedy(levels: int) -> None:
    """A process with more on its stack than the producer has could not read them."""
    args = {"rows": [1, {"tree": nested(levels - 2)}]}
    with pytest.raises(ArgumentsError, match=r"job j: argument rows\.1\.tree\.0\.0.*deeper than 100 levels; flatten"):
        check_arguments("j", args, msgspec.json.encode(args), around=1)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_are_refused_with_their_place(number: float) -> None:
    """They would arrive as null, which is another value."""
    args = {"rows": [{"score": 1.0, "none": None}, {"score": number}]}
    with pytest.raises(ArgumentsError, match=r"argument rows\.1\.score is -?(nan|inf), which JSON does not have"):
        check_arguments("j", args, msgspec.json.encode(args), around=1)
    with pytest.raises(ValueError, match=r"not JSON: rows\.1\.score is"):
        json_of(args)


def test_null_and_texts_that_look_like_trouble_pass() -> None:
    """What is searched for is the value, not its letters."""
    args = {"a": None, "b": "null NaN [[[[", "c": [[None]] * 200}
    check_arguments("j", args, msgspec.json.encode(args), around=1)


def test_values_without_json_are_refused_with_the_reason() -> None:
    """A recursive list is one, too."""
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), {1j: 2}, endless, "\ud800"):
        with pytest.raises(ValueError, match="not JSON"):
            json_of(value)


@pytest.mark.parametrize(
    ("body", "key"),
    [(b'{"a":1,"a":1}', "a"), (b'[{"b":{"c":1,"c":2}}]', "c"), (b'{"\\u0061":1,"a":2}', "a")],
)
def test_a_key_that_stands_twice_is_named(body: bytes, key: str) -> None:
    """Whatever is in between, and however it is written."""
    with pytest.raises(msgspec.DecodeError, match=f"the key '{key}' stands twice"):
        json_values.read_unrepeated(body)


@pytest.mark.parametrize("body", [b'{"a":{"a":1}}', b"[1,1]", b"1" + b"0" * 5000, b'{"a":1e400}', b"{}"])
def test_json_without_repeated_keys_is_read_as_before(body: bytes) -> None:
    """Numbers of any length included."""
    try:
        expected: Any = json_values.read_json(body)
    except msgspec.DecodeError:
        with pytest.raises(msgspec.DecodeError):
            json_values.read_unrepeated(body)
    else:
        assert json_values.read_unrepeated(body) == expected


def test_deep_json_is_refused_as_data() -> None:
    """Whichever of the two readers gives up first."""
    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        json_values.read_unrepeated(b"[" * 100_000 + b"]" * 100_000)
