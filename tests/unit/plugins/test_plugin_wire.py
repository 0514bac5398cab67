"""The lines of protocol 1: what a host writes, and what it takes for an answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.plugins.protocol import Done, Failed, Hello, Item, ProtocolError, read_hello, read_line, request
from tests.kit.tables import table


def test_a_request_can_be_taken_apart_by_a_shell_script() -> None:
    """One line, without spaces, the id first and the method second; what is not ASCII stays as it is."""
    line = request(7, "run", {"options": {"a b": [1]}, "secrets": {}, "task": {"name": "ä\n"}})

    assert (
        line.decode()
        == '{"id":7,"method":"run","params":{"options":{"a b":[1]},"secrets":{},"task":{"name":"ä\\n"}}}\n'
    )


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (b'{"id":3,"item":{"a":1}}', Item({"a": 1})),
        (b' { "result" : null , "id" : 3, "x": 1 } ', Done(None)),
        (b'{"id":3,"result":[1]}\r', Done([1])),
        (b'{"id":3,"error":{"message":"no","code":4}}', Failed("no")),
        (b'{"id":3,"error":{}}', Failed("no message")),
    ],
)
def test_an_answer_is_read_however_it_is_written(line: bytes, meant: Any) -> None:
    """In any order, with any spaces, and with keys of a later version."""
    assert read_line(line, expected=3) == meant


@table(
    ("line", "said"),
    [
        (b"", "wrote what is no message"),
        (b"[]", "wrote what is no message"),
        (b'{"id":"3","result":1}', "wrote what is no message"),
        (b'{"result":1}', "wrote what is no message"),
        (b'{"id":2,"result":1}', "answered call 2 while call 3 was open"),
        (b'{"id":3}', "must say one of item, result and error in a line, got none"),
        (b'{"id":3,"item":1,"error":{}}', r"got \['item', 'error'\]"),
        (b"[" * 100_000, "wrote"),
    ],
)
def test_anything_else_is_a_breach_that_shows_its_beginning(line: bytes, said: str) -> None:
    """Enough to find it, and never all of it."""
    with pytest.raises(ProtocolError, match=said) as caught:
        read_line(line, expected=3)
    assert len(str(caught.value)) < 400


@given(st.binary(max_size=200))
def test_no_line_does_anything_but_be_read_or_refused(line: bytes) -> None:
    """A program may write whatever it likes."""
    try:
        read_line(line, expected=1)
    except ProtocolError:
        return


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "does not introduce itself"),
        ({"version": "1"}, "does not introduce itself"),
        ({"protocol": "1"}, "does not introduce itself"),
        ({"protocol": 2, "version": "1"}, "speaks protocol 2, and this is 1"),
        ({"protocol": 1, "version": ""}, "must have a version"),
        ({"protocol": 1, "version": "1", "methods": ["m"] * 65}, "at most 64 methods"),
    ],
)
def test_a_program_that_introduces_itself_badly_is_refused(value: Any, said: str) -> None:
    """Before it is asked anything else."""
    with pytest.raises(ProtocolError, match=said):
        read_hello(value)


def test_a_program_may_say_as_little_as_its_protocol_and_version() -> None:
    """What it can do is then `run`."""
    assert read_hello({"protocol": 1, "version": "2.1", "later": True}) == Hello(protocol=1, version="2.1")
