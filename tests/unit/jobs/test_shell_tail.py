"""The tail of a command's output: bounded, whole characters, and honest about what it dropped."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenure.jobs.shell.guard import JSON_BYTES_MAX, Tail


def fed(limit: int, *chunks: bytes) -> Tail:
    """Return a tail that was fed ``chunks``."""
    tail = Tail(limit)
    for chunk in chunks:
        tail.feed(chunk)
    return tail


def test_all_of_a_short_output_is_kept() -> None:
    """The common case loses nothing."""
    tail = fed(100, b"one\n", b"two\n")

    assert tail.text() == "one\ntwo\n"
    assert not tail.is_truncated


def test_only_the_end_of_a_long_output_is_kept() -> None:
    """What a failing command says last tells why."""
    tail = fed(5, b"abc", b"defg", b"hi")

    assert tail.text() == "efghi"
    assert tail.is_truncated


def test_nothing_is_kept_when_nothing_is_asked_for() -> None:
    """A limit of 0 keeps output out of the record altogether."""
    tail = fed(0, b"secret")

    assert tail.text() == ""
    assert tail.is_truncated


def test_a_character_cut_in_two_is_dropped() -> None:
    """Half a character is noise, not output."""
    assert fed(4, "xäöü".encode()).text() == "öü"
    assert fed(3, "äöü".encode()).text() == "ü"


def test_bytes_that_are_no_text_are_marked() -> None:
    """A run's record is JSON, so it can only hold text."""
    assert fed(10, b"a\xffb").text() == "a�b"


def test_control_characters_count_as_the_record_will_hold_them() -> None:
    """Each NUL takes six bytes as JSON: the result of a run that dumps a disk must still be stored."""
    tail = fed(32 * 1024, bytes(64 * 1024))

    assert len(msgspec.json.encode(tail.text())) <= JSON_BYTES_MAX
    assert tail.is_truncated


@given(st.lists(st.binary(max_size=40)), st.integers(0, 60))
def test_how_output_is_cut_into_pieces_does_not_matter(chunks: list[bytes], limit: int) -> None:
    """Reads from a pipe return whatever has arrived."""
    whole, pieces = fed(limit, b"".join(chunks)), fed(limit, *chunks)

    assert whole.text() == pieces.text()
    assert whole.is_truncated == pieces.is_truncated


@given(st.binary(max_size=200), st.integers(0, 250))
def test_the_tail_is_what_the_output_ends_with(output: bytes, limit: int) -> None:
    """Apart from a character cut in two, the tail is the last bytes, decoded."""
    tail = fed(limit, output)

    assert output.decode(errors="replace").endswith(tail.text())
    assert tail.is_truncated == (len(output) > limit)
