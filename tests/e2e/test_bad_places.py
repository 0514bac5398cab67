"""Places that a tree writes to, and that take nothing: the log, the disk, shared memory."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.servers import Server
from tests.e2e.trees import COMMAND, ROOT, Tree, tenure
from tests.kit.launcher import Process, launch
from tests.kit.shares import share
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

WITHOUT_ROOM = ("bash", "-c", 'ulimit -S -f 48; exec "$0" "$@"')
"""A limit on the size of every file stands for a full disk: it needs no privilege, and the errors take the same way."""


SMALL = """
version: 1
jobs: [jobs.shell]
workers: {cpu: {kind: sync, processes: 1, queues: [default, shell]}}
web: {port: 0}
log: {format: json}
"""
"""A tree whose board is within that limit too: memory that several processes share counts as a file."""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def status(port: int, path: str) -> int:
    """Return the status of one GET; 0 without an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def workers(parent: int) -> list[int]:
    """Return the worker processes of a tree."""
    found = []
    for each in psutil.Process(parent).children():
        with suppress(psutil.NoSuchProcess):
            if each.name().startswith("worker"):
                found.append(each.pid)
    return found


@pytest.fixture
def run_into(short_directory: Path) -> Iterator[Callable[..., Process]]:
    """Start a tree that writes its log to a descriptor."""
    started: list[Process] = []

    def run(descriptor: int, port: int, *more: str) -> Process:
        words = ["run", "--port", str(port), "--log-format", "json", *more]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(launch(words, cwd=short_directory, environ=environ, stdout=descriptor, stderr=descriptor))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "how", share(["a pipe that nobody reads", "such a pipe as log.file", "a pipe whose reader is gone"], 3)
)
def test_a_log_that_nobody_takes_holds_up_nothing(run_into: Callable[..., Process], how: str) -> None:
    """Start, replacement and stop go on; a line waits a second for room, once, and then lines are dropped."""
    reader, writer = os.pipe()
    port, is_gone = free_port(), how == "a pipe whose reader is gone"
    process = run_into(writer, port, *(["--log-file", "/dev/stdout"] if how == "such a pipe as log.file" else []))
    if not is_gone:
        size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(writer, b"\n" * size)
    else:
        os.close(reader)
    wait_until(lambda: status(port, "/readyz") == 200, what="the tree to be ready")

    before = workers(process.pid)
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: set(workers(process.pid)) - set(before), what="another worker")
    process.terminate()

    assert process.wait(30) == 0
    os.close(writer)
    if not is_gone:
        os.close(reader)


@pytest.mark.long
def test_a_disk_without_room_is_named_by_who_needs_it(short_directory: Path) -> None:
    """Exit 73: the server that holds the data would only die, without a word of why."""
    done = subprocess.run(
        [*WITHOUT_ROOM, *COMMAND, "run", "--port", "0"],
        cwd=short_directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 73, done.stderr
    assert "takes no data" in done.stderr
    assert "tree_starting" not in done.stderr


@pytest.mark.long
def test_a_disk_without_room_costs_metrics_when_the_data_is_elsewhere(short_directory: Path, server: Server) -> None:
    """Every child says that it counts in memory; jobs run, and the stop is clean."""
    environ = {"TENURE_REDIS__URL": server.url}
    (short_directory / "tenure.yaml").write_text(SMALL)
    tree = Tree(short_directory, "full", "--config", "tenure.yaml", environ=environ, wrapper=WITHOUT_ROOM)
    try:
        tree.wait_for("tree_ready")
        assert tree.wait_for("metrics_in_memory", role="web")["consequence"] == "not scraped"
        done = tenure(
            short_directory, "enqueue", "shell.command", 'command=["true"]', "--config", "tenure.yaml", environ=environ
        )
        assert done.returncode == 0, done.stderr
        tree.wait_for("run_succeeded")
        assert tree.get("/metrics")[0] == 200
        assert {each["generation"] for each in tree.events("child_started")} == {1}
        tree.terminate()
        assert tree.wait() == 0
    finally:
        tree.close()


def test_a_log_file_that_cannot_be_opened_any_more_ends_no_child_that_is_replaced(
    short_directory: Path, server: Server
) -> None:
    """Its directory was moved away. The web child, which each reload replaces, and workers log to standard error."""
    config, logs, moved = short_directory / "tenure.yaml", short_directory / "logs", short_directory / "moved"
    logs.mkdir()
    text = SMALL.replace("format: json", f"format: json, file: {logs}/tree.log")
    config.write_text(text)
    tree = Tree(short_directory, "moved", "--config", "tenure.yaml", environ={"TENURE_REDIS__URL": server.url})
    standard_error, tree.log_path = tree.log_path, logs / "tree.log"
    try:
        wait_until(tree.log_path.exists, what="the log")
        tree.wait_for("tree_ready")
        logs.rename(moved)
        tree.log_path = moved / "tree.log"
        config.write_text(
            text.replace("processes: 1", "processes: 1, prefetch: 2").replace("port: 0", "port: 0, debug: true")
        )
        os.kill(tree.pid, signal.SIGHUP)
        assert tree.wait_for("reload_done")["outcome"] == "applied"
        wait_until(lambda: "web_ready" in standard_error.read_text(), what="the web child to serve")
        assert "cannot be opened anew: No such file or directory" in standard_error.read_text()
        tree.terminate()
        assert tree.wait() == 0
    finally:
        tree.close()
