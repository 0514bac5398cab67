"""Writing lines: they never tear, and nobody who reads them can hang the writer."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import structlog

from supervisor.telemetry.log_lines.log_sink import LineSink
from supervisor.telemetry.logs import configure

pytestmark = pytest.mark.usefixtures("logging_restored")


def start(stream: Any, role: str = "agent") -> Any:
    """Configure for ``stream`` and return a logger."""
    configure(level="info", format="json", cluster="c1", replica="r1", role=role, stream=stream)
    return structlog.get_logger()


def test_lines_of_several_processes_on_one_pipe_never_tear(monkeypatch: pytest.MonkeyPatch) -> None:
    """All children of a tree write to the same standard error. The reader may be as slow as it likes."""
    monkeypatch.setattr("supervisor.telemetry.log_lines.log_sink._WAIT_MS", 60_000)
    read, write = os.pipe()
    log = start(write)
    children = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            os.close(read)
            for count in range(200):
                log.info("line", child=number, count=count, fill="f" * (count * 17 % 3000))
            os._exit(0)
        children.append(pid)
    os.close(write)
    start(io.StringIO())  # which lets go of the pipe
    with os.fdopen(read, "rb") as pipe:
        seen = [json.loads(line) for line in pipe]
    for pid in children:
        os.waitpid(pid, 0)

    for number in range(4):
        assert [line["count"] for line in seen if line["child"] == number] == list(range(200))


def test_a_reader_that_hangs_costs_lines_not_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor must reap and restart children although nobody reads its log."""
    monkeypatch.setattr("supervisor.telemetry.log_lines.log_sink._WAIT_MS", 1)
    read, write = os.pipe()
    log = start(write)
    for _ in range(100):
        log.info("fill", fill="f" * 1400)
    done = b""
    os.set_blocking(read, False)
    while chunk := _take(read):
        done += chunk

    log.info("after")

    after = json.loads(_take(read))
    assert after["lines_dropped"] == 100 - done.count(b"\n") > 0
    log.info("and on")
    assert "lines_dropped" not in json.loads(_take(read))
    os.close(read)
    os.close(write)


def _take(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def test_a_reader_that_is_gone_raises_nothing() -> None:
    """A log shipper that died must not take the tree with it."""
    read, write = os.pipe()
    log = start(write)
    os.close(read)

    log.info("nobody listens")
    os.close(write)
    log.info("not even a descriptor")


@pytest.mark.parametrize("forks", [3, pytest.param(10, marks=pytest.mark.long)])
def test_a_fork_while_another_thread_logs_leaves_the_child_able_to_log(forks: int) -> None:
    """A lock held by a thread that does not exist after the fork is held for ever."""
    read, write = os.pipe()
    null = os.open(os.devnull, os.O_WRONLY)
    log = start(null)
    stop = threading.Event()

    def chatter() -> None:
        while not stop.is_set():
            log.info("chatter")
            logging.getLogger("library").warning("chatter")

    thread = threading.Thread(target=chatter)
    thread.start()
    try:
        for _ in range(forks):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of exactly this fork
                pid = os.fork()
            if pid == 0:
                start(write, role="child").info("alive")
                logging.getLogger("library").warning("alive")
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
    os.close(write)
    os.close(null)
    with os.fdopen(read) as pipe:
        assert len(pipe.readlines()) == 2 * forks


def test_a_full_disk_is_counted_not_raised() -> None:
    """There is nowhere left to say it, and work goes on."""
    full = os.open("/dev/full", os.O_WRONLY)
    sink = LineSink(full)

    sink.write(b"x\n")

    assert sink.dropped == 1
    os.close(full)


def test_threads_that_wait_for_the_same_reader_end_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's elector and its duties write at once when Redis goes; both wait for room in a full pipe."""
    monkeypatch.setattr("supervisor.telemetry.log_lines.log_sink._WAIT_MS", 300)
    read, write = os.pipe()
    sink = LineSink(write)
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(sink.write, b"line\n") for _ in range(4)]
        assert [each.exception() for each in done] == [None] * 4

    assert sink.dropped
    sink.close()
    os.close(read)
    os.close(write)
