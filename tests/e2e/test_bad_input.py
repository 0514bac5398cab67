"""Whatever is wrong at start: clear lines, the documented exit code, nothing half started."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.servers import Server
from tests.e2e.trees import Tree, tenure, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

TWO_PROBLEMS = """
version: 1
electoin: {lease_duration: 5s}
election: {lease_duration: 5}
"""

CASES = {
    "YAML that is none": ("a: [1,\n", ["tenure.yaml:2"]),
    "several problems at once": (
        TWO_PROBLEMS,
        ["tenure.yaml:3", "did you mean", "tenure.yaml:4", "5s if seconds are meant"],
    ),
    "a duplicate key": ("version: 1\ncluster: a\ncluster: b\n", ["tenure.yaml:3", "cluster"]),
    "a colon time that YAML reads as a number": ("cluster: 12:30:00\n", ["tenure.yaml:1", "quote"]),
    "an unknown time zone": (
        "jobs: [jobs.shell]\nschedules:\n  a: {job: shell.command, cron: '0 1 * * *', timezone: Europe/Berln, args: {command: x}}\n",
        ["tenure.yaml:3", "Europe/Berln"],
    ),
    "a cron that never matches": (
        "jobs: [jobs.shell]\nschedules:\n  a: {job: shell.command, cron: '0 0 31 2 *', args: {command: x}}\n",
        ["tenure.yaml:3", "31"],
    ),
    "a module that does not import": ("jobs: [no.such_module]\n", ["tenure.yaml:1", "no.such_module"]),
    "an unknown job": (
        "jobs: [jobs.shell]\nschedules:\n  a: {job: shell.comand, every: 1m}\n",
        ["tenure.yaml:3", "did you mean shell.command"],
    ),
    "arguments that do not fit": (
        "jobs: [jobs.shell]\nschedules:\n  a: {job: shell.command, every: 1m, args: {comand: x}}\n",
        ["tenure.yaml:3", "comand"],
    ),
    "a queue without a pool": (
        "workers_strict: true\njobs: [jobs.shell]\nschedules:\n  a: {job: shell.command, every: 1m, queue: lonely, args: {command: x}}\n",
        ["tenure.yaml:4", "lonely"],
    ),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("case", CASES)
def test_a_bad_configuration_names_place_and_remedy(short_directory: Path, case: str) -> None:
    """One line for each problem, exit 78, and no data directory, socket or process is left."""
    text, expected = CASES[case]
    (short_directory / "tenure.yaml").write_text(text)

    done = tenure(short_directory, "run", "--config", "tenure.yaml", "--port", "0")

    assert done.returncode == 78, done.stderr
    assert "Traceback" not in done.stderr
    for part in expected:
        assert part in done.stderr, done.stderr
    assert not (short_directory / ".tenure").exists()


THREADS = {
    "a thread": "threading.Thread(target=time.sleep, args=(600,), name='early', daemon=True).start()",
    "a thread that Python waits for at its end": "threading.Thread(target=time.sleep, args=(600,), name='early').start()",
    "a thread that Python does not list": "_thread.start_new_thread(time.sleep, (600,))",
}


@pytest.mark.share(3)
@pytest.mark.parametrize("case", THREADS)
def test_a_module_that_starts_a_thread_is_refused(short_directory: Path, case: str) -> None:
    """A fork would copy its locks. Exit 78, and the thread cannot hold up the end."""
    lines = ["import _thread, threading, time", "from tenure import job", THREADS[case]]
    job = ["@job('early.job')", "def run() -> None: ..."]
    (short_directory / "early.py").write_text("\n".join([*lines, *job, ""]))
    (short_directory / "tenure.yaml").write_text("version: 1\njobs: [early]\n")

    done = tenure(short_directory, "run", "--config", "tenure.yaml", "--port", "0")

    assert done.returncode == 78, done.stderr
    assert "tenure.yaml:2" in done.stderr
    assert "1 thread(s)" in done.stderr
    assert "OPENBLAS_NUM_THREADS=1" in done.stderr, "the remedy for who imports numpy"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGQUIT, 1)])
def test_a_signal_before_anything_is_started_ends_the_start(
    start: Callable[..., Tree], short_directory: Path, number: signal.Signals, code: int
) -> None:
    """By a handler: as process 1 of a container the default action would be to ignore it.

    The import sleeps in short steps: Python sees a signal that comes just before a call into C only after that call.
    """
    slow = "import time\nprint('importing', flush=True)\nwhile True: time.sleep(0.05)\n"
    (short_directory / "slow.py").write_text(slow)
    (short_directory / "tenure.yaml").write_text("version: 1\njobs: [slow]\n")
    tree = start("early", "--config", "tenure.yaml", "--port", "0")
    wait_until(lambda: "importing" in tree.log_path.read_text(), what="the import to begin")

    tree.process.send_signal(number)

    assert tree.wait(20) == code
    assert number.name in tree.log_path.read_text()
    assert not (short_directory / ".tenure").exists()


def test_a_taken_port_is_named(short_directory: Path) -> None:
    """Exit 69, before any child is forked."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tenure(short_directory, "run", "--port", str(port))

    assert done.returncode == 69
    assert f"127.0.0.1:{port}" in done.stderr
    assert "web.port" in done.stderr
    assert "tree_starting" not in done.stderr


def test_an_unusable_data_directory_is_named(short_directory: Path) -> None:
    """Exit 73. A file in its place stops root as well as anybody."""
    (short_directory / "taken").write_text("")

    done = tenure(short_directory, "run", "--port", "0", "--data-dir", "taken/data")

    assert done.returncode == 73
    assert "taken/data" in done.stderr
    assert "tree_starting" not in done.stderr


@pytest.fixture
def refusing_server(short_directory: Path) -> Iterator[Callable[..., str]]:
    """Start a server with further options, and return its URL."""
    servers: list[Server] = []

    def serve(*options: str) -> str:
        servers.append(Server(short_directory, *options))
        return servers[-1].url

    yield serve
    for server in servers:
        server.kill()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--requirepass", "correct-horse"), "password"),
        (("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"), "maxmemory-policy"),
    ],
    ids=["a wrong password", "a server that evicts"],
)
def test_a_redis_that_refuses_ends_the_start(
    short_directory: Path, refusing_server: Callable[..., str], options: tuple[str, ...], expected: str
) -> None:
    """A retry would not help: exit 78, the reason, and never the password."""
    url = refusing_server(*options)
    environ = {"TENURE_REDIS__URL": url}
    if "--requirepass" in options:
        environ["TENURE_REDIS__PASSWORD"] = "battery-staple"

    done = tenure(short_directory, "run", "--port", "0", environ=environ)

    assert done.returncode == 78, done.stderr
    assert expected in done.stderr
    assert "battery-staple" not in done.stderr
    assert "tree_starting" not in done.stderr


def test_a_redis_that_is_down_is_waited_for(
    short_directory: Path, start: Callable[..., Tree], refusing_server: Callable[..., str]
) -> None:
    """The tree starts unready, and serves as soon as Redis answers; no process is restarted for it."""
    url = f"unix://{short_directory}/redis.sock"
    tree = start("early", "--port", "0", "--redis-url", url, "--log-format", "json")
    tree.wait_for("tree_ready")

    assert tree.get("/livez")[0] == 200
    wait_until(lambda: tree.get("/readyz")[0] == 503, what="the tree to be unready")
    refusing_server()
    wait_until(lambda: tree.get("/readyz")[0] == 200, what="the tree to be ready")
    assert {each["generation"] for each in tree.events("child_started")} == {1}
    tree.terminate()
    assert tree.wait() == 0


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [("cluster: [\n", (), 78), ("IMPORT: ['https://127.0.0.1:1/x']\n", ("--compat", "cloudforet"), 75)],
)
def test_a_configuration_in_a_pipe_is_read_once(
    short_directory: Path, text: str, options: tuple[str, ...], code: int
) -> None:
    """The second time it is empty, which is a configuration too: that of a replica that does something else."""
    os.mkfifo(short_directory / "pipe")
    writer = threading.Thread(target=(short_directory / "pipe").write_text, args=(text,), daemon=True)
    writer.start()
    done = tenure(short_directory, "run", "--config", "pipe", "--port", "0", *options)
    assert done.returncode == code, done.stderr
    assert "asked again" not in done.stderr
    writer.join()
