"""What a log line says, how it looks, and that it never tears or hangs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import pty
import warnings
from typing import Any

import pytest
import structlog

from supervisor.telemetry.log_lines.log_sink import LINE_BYTES_MAX
from supervisor.telemetry.logs import bind_run, configure
from tests.kit.tables import table

pytestmark = pytest.mark.usefixtures("logging_restored")


class Unshowable:
    """A value whose own code is broken."""

    def __repr__(self) -> str:
        raise RuntimeError("broken")


def start(stream: Any, clock: Any = None, **changes: Any) -> Any:
    """Configure for ``stream`` and return a logger."""
    options = {"level": "info", "format": "json", "cluster": "c1", "replica": "r1", "role": "agent"} | changes
    configure(**options, stream=stream, clock=clock)
    return structlog.get_logger()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return what was logged as JSON."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_line_says_when_what_and_who(still_clock: Any) -> None:
    """Lines of many replicas end in one place; each must stand alone."""
    out = io.StringIO()

    start(out, still_clock).info("lease_acquired", epoch=7)

    assert list(lines(out)[0].items()) == [
        ("ts", "2026-11-20T12:34:56.007Z"), ("level", "info"), ("event", "lease_acquired"), ("cluster", "c1"),
        ("replica", "r1"), ("role", "agent"), ("pid", os.getpid()), ("epoch", 7),
    ]  # fmt: skip


STDLIB_CHAIN: dict[str, Any] = {
    "processors": [structlog.stdlib.add_log_level, structlog.processors.JSONRenderer()],
    "wrapper_class": structlog.stdlib.BoundLogger,
    "logger_factory": structlog.stdlib.LoggerFactory(),
}


@pytest.mark.parametrize("configure_", ["configure", "configure_once"])
@pytest.mark.parametrize("chain", [STDLIB_CHAIN, {"processors": STDLIB_CHAIN["processors"]}], ids=["all", "part"])
def test_a_program_that_configures_structlog_changes_no_line(configure_: str, chain: dict[str, Any]) -> None:
    """Its chain led to logging, and back: a start, or a worker, took all memory without a line. A part raised."""
    out = io.StringIO()
    start(out)

    getattr(structlog, configure_)(**chain)

    structlog.get_logger("of.ours").info("child_started", slot="web")
    logging.getLogger("of.theirs").warning("disk is %s", "full")
    assert [(line["event"], line["role"]) for line in lines(out)] == [
        ("child_started", "agent"), ("disk is full", "agent"),
    ]  # fmt: skip


def test_what_a_chain_of_a_program_sends_to_logging_is_written_once() -> None:
    """One that was configured all the same, by a name that was imported before."""
    out, configure_structlog = io.StringIO(), structlog.configure
    start(out)

    configure_structlog(**STDLIB_CHAIN)
    structlog.get_logger("of.theirs").warning("disk is full")

    assert [json.loads(line["event"])["event"] for line in lines(out)] == ["disk is full"]


def test_a_field_cannot_pretend_to_be_the_identity() -> None:
    """The parent logs the pid of a child; the line's own pid must stay its own."""
    out = io.StringIO()

    start(out).info("child_started", pid=4711, role="web")

    assert (lines(out)[0]["pid"], lines(out)[0]["pid_"]) == (os.getpid(), 4711)
    assert (lines(out)[0]["role"], lines(out)[0]["role_"]) == ("agent", "web")


def test_the_pid_is_that_of_the_process_after_a_fork() -> None:
    """A logger made before the fork must not speak for its parent."""
    read, write = os.pipe()
    log = start(write)
    pid = os.fork()
    if pid == 0:
        log.info("child")
        os._exit(0)
    os.waitpid(pid, 0)

    assert json.loads(os.read(read, 65536))["pid"] == pid
    os.close(read)
    os.close(write)


def test_inside_a_run_every_line_carries_it_and_none_after() -> None:
    """A line of a job that cannot be tied to its run is noise."""
    out = io.StringIO()
    log = start(out)

    with bind_run(run="nightly@1", job="shell.command", schedule="nightly", attempt=2):
        log.info("inside")
        logging.getLogger("library").warning("also inside")
    log.info("outside")

    run = {"run": "nightly@1", "job": "shell.command", "schedule": "nightly", "attempt": 2}
    inside, library, outside = lines(out)
    assert run.items() <= inside.items()
    assert run.items() <= library.items()
    assert not run.keys() & outside.keys()


async def test_runs_of_one_loop_do_not_mix() -> None:
    """An async worker has fifty runs in flight on one thread."""
    out = io.StringIO()
    log = start(out)
    both = asyncio.Barrier(2)

    async def job(run: str) -> None:
        with bind_run(run=run, job="j"):
            await both.wait()
            log.info("step", mine=run)

    await asyncio.gather(job("a"), job("b"))

    assert [line["run"] == line["mine"] and "schedule" not in line for line in lines(out)] == [True, True]


def test_lines_below_the_level_are_not_written() -> None:
    """The level is the operator's choice, for our lines and for libraries'."""
    out = io.StringIO()
    log = start(out, level="warning")

    log.info("quiet")
    logging.getLogger("library").info("quiet")
    log.warning("loud")

    assert [line["event"] for line in lines(out)] == ["loud"]


def test_configuring_again_changes_loggers_that_exist() -> None:
    """A child takes the parent's module-level loggers over the fork and gives them its own role."""
    first, second = io.StringIO(), io.StringIO()
    log = start(first)
    log.info("one")

    start(second, role="web", level="debug")
    log.debug("two")

    assert [line["role"] for line in lines(first)] == ["agent"]
    assert [(line["event"], line["role"]) for line in lines(second)] == [("two", "web")]


def test_an_exception_is_two_short_fields() -> None:
    """What and where, innermost first; a traceback over forty lines is not one event."""
    out = io.StringIO()
    log = start(out)
    try:
        try:
            int("x")
        except ValueError as error:
            raise RuntimeError("cannot read redis://:hunter2@h") from error
    except RuntimeError:
        log.exception("run_failed")

    (line,) = lines(out)
    assert line["level"] == "error"
    assert line["exception"] == (
        "RuntimeError: cannot read redis://***@h (from ValueError: invalid literal for int() with base 10: 'x')"
    )
    assert line["trace"][0].endswith("test_an_exception_is_two_short_fields")


def test_libraries_and_warnings_come_out_in_the_same_form() -> None:
    """A log shipper parses every line or none."""
    out = io.StringIO()
    start(out)

    logging.getLogger("some.library").error("broke: %s", "redis://:pw@h")
    logging.getLogger("some.library").warning("bad %d", "format")
    logging.getLogger("custom").log(35, "between two levels")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old call", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(capture=False)

    first, second, third, fourth = lines(out)
    assert (first["event"], first["logger"], first["level"]) == ("broke: redis://***@h", "some.library", "error")
    assert second["event"] == "'bad %d' ('format',)"
    assert third["level"] == "warning"
    assert "old call" in fourth["event"]
    assert fourth["logger"] == "py.warnings"


def test_secrets_are_masked_wherever_they_stand() -> None:
    """In the event, in a field, under a name, inside a mapping, in a name."""
    out = io.StringIO()

    start(out).info("to redis://:hunter2@h", url="http://u:hunter2@h", password="hunter2", args={"token": "hunter2"})
    start(out).info("lag", seconds={"redis://u:hunter2@h": 3}, **{"redis://:hunter2@h": 3})

    assert out.getvalue().count('"redis://***@h":3') == 2
    assert "hunter2" not in out.getvalue()


@table(
    "fields",
    [
        {"output": "x" * 100_000},
        {"output": "é€😀" * 5_000},
        {"many": ["y" * 300] * 90},
        {"quoted": '"\\\n' * 4_000},
        {f"k{n}": "z" * 100 for n in range(500)},
        {"n" * 9_000: 1},
        {"file": "bad\udcffname"},
        {"big": 2**200, "nan": float("nan"), "odd": {1: 2}, "set": {1}, "bytes": b"\xff", "object": object()},
    ],
)
def test_any_event_becomes_one_json_line_that_one_write_carries(fields: dict[str, Any]) -> None:
    """Beyond PIPE_BUF the kernel may cut a write in two and put another process' line between."""
    out = io.StringIO()

    start(out).info("job_output", **fields)

    (text,) = out.getvalue().splitlines()
    assert len(text.encode()) < LINE_BYTES_MAX
    assert json.loads(text)["event"] == "job_output"


def test_a_terminal_gets_columns_and_a_pipe_gets_json(still_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``format: auto`` is right without thinking."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    master, slave = pty.openpty()
    log = start(slave, still_clock, format="auto")

    log.info("lease_acquired", epoch=7)

    shown = os.read(master, 4096).decode()
    assert "lease_acquired" in shown
    assert "\x1b[" in shown
    os.close(slave)
    os.close(master)
    read, write = os.pipe()
    start(write, format="auto").info("piped")
    assert json.loads(os.read(read, 4096))["event"] == "piped"
    os.close(read)
    os.close(write)


def test_a_readable_line_names_time_level_process_event_and_fields(still_clock: Any) -> None:
    """What a person needs, in the order they look for it."""
    out = io.StringIO()

    start(out, still_clock, format="console").info("run_done", run="a b", took_s=1.5, args={"password": "x"})

    assert out.getvalue() == (
        f"12:34:56.007Z info     c1/r1 agent[{os.getpid()}] run_done "
        """run='a b' took_s=1.5 args={"password":"***"}\n"""
    )


def test_a_readable_line_cannot_command_the_terminal() -> None:
    """A job's output may hold escape sequences that would repaint the screen."""
    out = io.StringIO()

    start(out, format="console").info("out\x1b[2Jput", text="\x1b]0;title\x07", more="a\nb")

    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("\n") == 1


def test_a_readable_exception_is_the_whole_traceback_without_secrets() -> None:
    """A person at a terminal is debugging."""
    out = io.StringIO()
    log = start(out, format="console")
    try:
        int("redis://:hunter2@h")
    except ValueError:
        log.exception("failed")

    assert "Traceback (most recent call last)" in out.getvalue()
    assert "hunter2" not in out.getvalue()


def test_a_value_that_cannot_be_shown_does_not_reach_the_caller_as_an_error() -> None:
    """Neither as a field, nor as an error that is logged, nor as an argument of a library's record."""
    out = io.StringIO()

    class Broken(Exception):  # noqa: N818 - a job's own
        def __repr__(self) -> str:
            raise RuntimeError("no text")

        __str__ = __repr__

    start(out).info("odd", value=Broken())
    start(out).error("failed", exc_info=Broken())
    logging.getLogger("some.library").error("with %s", Broken())

    named = "<Broken that cannot be shown: RuntimeError>"
    field, error, record = lines(out)
    assert field["value"] == named
    assert error["exception"] == f"Broken: {named}"
    assert record["event"] == "'with %s' <tuple that cannot be shown: RuntimeError>"


@pytest.mark.parametrize("args", [(Unshowable(),), ("one", "too many"), ({"other": 1},)], ids=["repr", "more", "names"])
def test_a_message_that_cannot_be_made_does_not_reach_the_caller_as_an_error(args: tuple[Any, ...]) -> None:
    """A job must not fail for what it logs."""
    out = io.StringIO()
    log = start(out).bind(run="r")

    for write in (log.info, log.warning, log.error, log.exception):
        write("so: %(name)s" if isinstance(args[0], dict) else "so: %s", *args)
    log.debug("so: %s", *args)
    log.info("%d of %d", 1, 2)

    assert [line["event"].startswith("'so: ") for line in lines(out)] == [True] * 4 + [False]
    assert lines(out)[-1]["event"] == "1 of 2"
