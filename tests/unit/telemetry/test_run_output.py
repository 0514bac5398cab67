"""Output of an attempt: what it hears, what it keeps, and what no text can do to it."""

# ruff: noqa: T201 - what jobs print is the subject

from __future__ import annotations

import asyncio
import contextvars
import io
import logging
import os
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from supervisor.telemetry import logs, run_context
from supervisor.telemetry.masking import hiding
from supervisor.telemetry.run_context import HALF_BYTES, RunOutput, enter_run, streams_heard
from tests.kit.tables import table

pytestmark = pytest.mark.usefixtures("logging_restored")
FITS = 2 * HALF_BYTES


@dataclass
class Attempt:
    """An attempt that keeps its own output."""

    ended_ns: int = 0
    output: RunOutput = field(default_factory=RunOutput)

    def of(self, attempt: Attempt) -> RunOutput:
        return attempt.output

    @property
    def text(self) -> str:
        return self.output.excerpt(is_over=True).head


@pytest.fixture
def attempt() -> Any:
    """One whose code runs in this test."""
    found = Attempt()
    enter_run({"run": "r", "job": "j", "attempt": 1}, (found, found))
    yield found
    enter_run(None)


def output_of(*texts: str) -> RunOutput:
    """Return the output of an attempt that wrote these."""
    output = RunOutput()
    for text in texts:
        output.add(text)
    return output


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"]), max_size=300)))
def test_what_fits_is_kept_whole_whatever_the_pieces(pieces: list[str]) -> None:
    """How often a job writes is no matter of what it wrote."""
    text = "".join(pieces)
    assert output_of(*pieces).excerpt(is_over=True).head == run_context.mask_text(text, max(1, len(text)))


@given(st.lists(st.integers(1, 3 * FITS), min_size=1, max_size=20), st.sampled_from("a€😀\x00"))
def test_start_and_end_are_kept_and_the_rest_is_counted(sizes: list[int], character: str) -> None:
    """No text makes it larger than its bounds, in bytes, and no line is lost uncounted."""
    pieces = [f"{n} {character * size}\n" for n, size in enumerate(sizes)]
    output = output_of(*pieces)
    kept = output.excerpt(is_over=True)

    assert len(kept.head.encode()) <= (HALF_BYTES if kept.cut_chars else FITS)
    assert len(kept.tail.encode()) <= HALF_BYTES
    assert kept.head.startswith("0 ")
    assert output.chars == sum(map(len, pieces))
    if kept.cut_chars:
        assert kept.cut_chars + len(kept.head) + len(kept.tail) >= output.chars
    else:
        assert kept.head.count("\n") == len(sizes)


def test_one_text_of_many_mebibytes_leaves_nothing_of_itself_in_memory() -> None:
    """Only its start and its end."""
    output = output_of("start\n" + "x" * (64 << 20) + "\nend\n")
    kept = output.excerpt(is_over=True)

    assert (kept.head[:6], kept.tail[-5:]) == ("start\n", "\nend\n")
    assert kept.cut_chars > 63 << 20
    assert sum(map(len, [*output._head, *output._tail])) < 4 * HALF_BYTES


def test_very_many_short_texts_stay_within_the_bounds() -> None:
    """A loop that prints dots costs no list of them."""
    output = RunOutput()
    for _ in range(200_000):
        output.add(".")
    assert len(output._head) + len(output._tail) < 1100
    assert output.excerpt(is_over=True).cut_chars > 100_000


@table("filler", ["", "x" * (HALF_BYTES - 30), "line\n" * 60_000])
@table(
    "pieces",
    [("password=", "hunter2\n"), ("pass", "word=hunt", "er2\n"), ("password=\x1b[31m", "hunter2\x1b[0m\n")],
)
def test_a_secret_in_several_writes_is_masked(filler: str, pieces: tuple[str, ...]) -> None:
    """Masked is what people read, not what one call wrote."""
    kept = output_of(filler, *pieces, "rest\n" * 20_000 if filler.startswith("x") else "").excerpt(is_over=True)
    assert "hunt" not in kept.head + kept.tail
    assert "password=***" in kept.head + kept.tail


def test_a_secret_that_the_cut_divides_is_not_shown() -> None:
    """Its name may be in what was cut."""
    for shift in range(0, 1200, 100):
        output = output_of("start\n" * 20_000, "password=" + "s3cr3t" * 100, "y" * (HALF_BYTES - shift))
        kept = output.excerpt(is_over=True)
        assert "s3cr3t" not in kept.head + kept.tail


def test_a_secret_that_the_cut_divides_is_not_shown_where_others_were_masked() -> None:
    """Masked text is shorter, so more than what is shown may have been looked at."""
    url = "redis://:" + "s3cr3t" * 20 + "@host "
    key = "-----BEGIN-----\n" + "s3cr3t" * 5 + "\n" + "s3cr3t" * 20 + "\n"
    masked = ("password=" + "q" * 200 + " ") * 400
    for shift in range(0, 1000, 50):
        with hiding((key,)):
            output = output_of(masked[: HALF_BYTES + shift], f" {url}" * 4, "x" * FITS, key, masked[:HALF_BYTES])
            output.add("z" * shift)
        kept = output.excerpt(is_over=True)
        assert "s3cr3t" not in kept.head + kept.tail


@pytest.mark.parametrize("secret", ["line\r\nline", "ab\x1b[31mcd", "tab\x0bulator", "\x1b[0m"])
def test_hidden_texts_are_found_where_their_controls_are_dropped(secret: str) -> None:
    """A key with line ends of Windows is the same secret when it is shown with others."""
    with hiding((secret,)):
        output = output_of(f"it is {secret}.")
    assert output.excerpt(is_over=True).head in {"it is ***.", "it is ."}


def test_texts_that_were_hidden_while_they_were_written_are_masked_later() -> None:
    """A run's own secrets are known while it runs, and its output is read at its end."""
    output = RunOutput()
    with hiding(("swordfish",)):
        output.add("the word is sword")
        output.add("fish\n")
    assert output.excerpt(is_over=True).head == "the word is ***\n"


def test_a_line_without_its_end_is_not_sent_ahead() -> None:
    """Half of a secret matches no shape."""
    output = output_of("whole\n", "password")
    assert output.excerpt(is_over=False).head == "whole\n"
    output.add("=hunter2")
    assert output.excerpt(is_over=True).head == "whole\npassword=***"


def test_a_long_line_without_its_end_is_not_sent_ahead_either() -> None:
    """Neither where it reaches beyond the start that is kept, nor where its own start was cut."""
    output = output_of("whole\n", "x" * 2 * HALF_BYTES)
    assert output.excerpt(is_over=False) == ("whole\n", "", 0, 0)
    output.add("x" * FITS)
    assert output.excerpt(is_over=False) == ("whole\n", "", 0, 0)
    output.add("\n" + "y" * FITS)
    kept = output.excerpt(is_over=False)
    assert (kept.head[:7], len(kept.head), kept.tail, kept.cut_lines) == ("whole\nx", HALF_BYTES, "", 1)


@pytest.mark.parametrize("pieces", [("a\r\nb\rc\n",), ("a\r", "\nb\r", "c\r", "\n"), ("a\r", "", "\n", "b\r", "c\n")])
def test_line_ends_count_as_they_are_shown(pieces: tuple[str, ...]) -> None:
    """A carriage return alone is one, with a line feed behind it both are one, also of two writes."""
    output = output_of("start\n", *pieces)
    assert output.excerpt(is_over=False).head == "start\na\nb\nc\n"
    output = output_of("start\n" * 10_000, "z" * FITS, "\n", *pieces, "end\n" * 20_000)
    kept = output.excerpt(is_over=True)
    assert kept.head.count("\n") + kept.cut_lines + kept.tail.count("\n") == 30_004


def test_nothing_that_a_terminal_obeys_is_kept() -> None:
    """Colours are dropped, other controls are shown as one character, a progress bar becomes lines."""
    output = output_of("\x1b[1;31mred\x1b[0m \x07\x00\x9b\u202e", "10 %\r20 %\r\n", "\ud800")
    assert output.excerpt(is_over=True).head == "red \ufffd\ufffd\ufffd\ufffd10 %\n20 %\n?"


def test_prints_log_lines_and_lines_of_libraries_come_in_their_order(
    attempt: Attempt, capsys: pytest.CaptureFixture[str]
) -> None:
    """And still go where they went before."""
    stream = io.StringIO()
    logs.configure(level="info", format="json", cluster="c", replica="r", role="w", stream=stream)
    with streams_heard():
        print("printed", 1)
        structlog.get_logger().info("logged", rows=3, password="x")
        logging.getLogger("library").warning("from %s", "a library")
        print("also", file=sys.stderr)
        structlog.get_logger().debug("below the level")

    lines = attempt.text.splitlines()
    assert lines[0] == "printed 1"
    assert lines[1].endswith("info     logged rows=3 password=***")
    assert lines[2].endswith("warning  from a library logger=library")
    assert lines[3:] == ["also"]
    assert capsys.readouterr() == ("printed 1\n", "also\n")
    assert stream.getvalue().count("\n") == 2


def test_only_what_is_written_inside_the_attempt_is_its(attempt: Attempt) -> None:
    """Tasks and threads that have its context are inside; others, and whoever outlives it, are not."""

    async def work() -> None:
        await asyncio.gather(asyncio.to_thread(print, "in a thread"), asyncio.create_task(in_task()))

    async def in_task() -> None:
        print("in a task")

    late, over = threading.Event(), threading.Event()

    def outlive() -> None:
        late.wait(20)
        print("too late")
        over.set()

    with streams_heard():
        asyncio.run(work())
        thread = threading.Thread(target=contextvars.copy_context().run, args=(outlive,))
        thread.start()
        stranger = threading.Thread(target=print, args=("somebody else",))
        stranger.start()
        stranger.join()
        attempt.ended_ns = 1
        late.set()
        thread.join()
        assert over.is_set()
    assert sorted(attempt.text.splitlines()) == ["in a task", "in a thread"]


def test_a_forked_child_writes_to_no_output(attempt: Attempt, capfd: pytest.CaptureFixture[str]) -> None:
    """It has a copy of the parent's, which nobody reads, and a lock that a thread may have held."""
    with streams_heard():
        attempt.output._lock.acquire()
        pid = os.fork()
        if pid == 0:
            os.close(1)
            print("in the child")
            os._exit(len(attempt.output._head))
        attempt.output._lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert attempt.text == ""


def test_what_a_job_does_to_the_streams_is_its_own_affair(attempt: Attempt) -> None:
    """Redirected, closed, of another type: no error of ours, and the next run is heard again."""
    inner, kept = io.StringIO(), sys.stdout
    with streams_heard():
        sys.stdout = inner
        print("to the job's own")
        sys.stdout = kept
        with pytest.raises(TypeError):
            sys.stdout.write(b"bytes")  # type: ignore[arg-type]
        sys.stdout.writelines(["heard\n"])
        del sys.stdout.write
        print("not heard")
    assert (attempt.text, inner.getvalue()) == ("heard\n", "to the job's own\n")
    assert "write" not in vars(sys.stderr)


def test_a_log_handler_that_logs_and_a_repr_that_prints_end(attempt: Attempt) -> None:
    """Whatever is written while something is written is just more of it."""

    class Chatty(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() != "again":
                logging.getLogger("chatty").warning("again")

    class Shown:
        def __str__(self) -> str:
            print("shown")
            return "value"

    logs.configure(level="info", format="json", cluster="c", replica="r", role="w", stream=io.StringIO())
    handler, chatty = Chatty(), logging.getLogger("chatty")
    chatty.addHandler(handler)
    try:
        with streams_heard():
            chatty.warning("first")
            structlog.get_logger().info("with", value=Shown())
    finally:
        chatty.removeHandler(handler)
    assert [line.split()[2] if " " in line else line for line in attempt.text.splitlines()] == [
        "again",
        "first",
        "shown",
        "with",
    ]
