"""What is kept of an exception."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from supervisor.roles.worker.attempt.calls import Calls, drive, enter
from supervisor.roles.worker.attempt.failure import MESSAGE_BYTES_MAX, NOTE_CHARS_MAX, Failure, describe


def failure_of(error: BaseException) -> Failure:
    """Return the failure of a job that raised ``error``."""

    def job() -> None:
        raise error

    try:
        job()
    except BaseException as caught:  # noqa: BLE001 - every kind is tried
        return describe(caught, worker="w")
    raise AssertionError


def test_it_names_the_type_the_message_and_the_place() -> None:
    """Enough to find the fault without the log."""
    found = failure_of(ValueError("no such tenant"))

    assert (found.type, found.message, found.worker) == ("ValueError", "no such tenant", "w")
    assert "in job" in found.traceback
    assert found.note == "ValueError: no such tenant"


def test_frames_of_the_worker_are_left_out() -> None:
    """They are the same for every run, also where a driver and the entry to the job stand between the two."""
    assert "failure_of" not in failure_of(ValueError("x")).traceback

    def raising() -> None:
        raise ValueError("x")

    def attempt(_: dict[str, Any]) -> Calls:
        return (yield raising)

    with pytest.raises(ValueError, match="x") as caught:
        enter(partial(drive, attempt))
    found = describe(caught.value, worker="w").traceback
    assert "in raising" in found
    assert "calls.py" not in found


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 50_000, "\ud800" * 5_000, "line\n" * 20_000])
def test_a_huge_message_is_cut(text: str) -> None:
    """The record of a run stays under 4 KiB, whatever the job put into its exception."""
    found = failure_of(RuntimeError(text))

    assert len(found.message.encode("utf-8", "replace")) <= MESSAGE_BYTES_MAX
    assert len(found.note) <= NOTE_CHARS_MAX
    assert len(found.traceback.encode("utf-8", "replace")) <= 4096
    assert "in job" in found.traceback  # a long message leaves room for the place


def test_a_deep_recursion_is_cut_to_its_end() -> None:
    """The innermost frames tell."""

    def endless(depth: int) -> int:
        return endless(depth + 1) + 1

    try:
        endless(0)
    except RecursionError as error:
        found = describe(error, worker="w")

    assert found.type == "RecursionError"
    assert len(found.traceback.encode()) <= 4096


def test_an_exception_that_cannot_be_printed_is_described_all_the_same() -> None:
    """Its own __str__ must not take the worker down."""

    class Broken(Exception):  # noqa: N818 - a job's own
        def __str__(self) -> str:
            raise RuntimeError("no text")

    found = failure_of(Broken())

    assert found.type == "Broken"
    assert "failed" in found.message


def test_an_exception_without_a_message_has_none() -> None:
    """Not its own name twice."""
    assert failure_of(KeyboardInterrupt()).message == ""


def test_it_is_json() -> None:
    """It is stored beside the run, and a lone surrogate in a message is none of JSON's characters."""
    assert b'"type":"ValueError"' in msgspec.json.encode(failure_of(ValueError("a\ud800b")).as_error())
