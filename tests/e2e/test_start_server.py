"""What a user's test starts: a replica on a free port, and a program that embeds the command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import tenure
from supervisor.store.producer.connection import use
from supervisor.testing import servers, start_server
from supervisor.testing.servers import RunningServer, ServerNotReadyError
from tests.e2e.servers import Server
from tests.kit import launcher
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SERVICE = Path(__file__).parent / "embedding_service.py"
JOBS = {"jobs": ["jobs.shell"], "workers": {"cpu": {"kind": "sync", "processes": 1, "queues": ["default", "shell"]}}}


def parts(words: Sequence[str]) -> dict[str, Any]:
    """Return the words after the interpreter's as the launcher takes them."""
    return {"words": words[2:], "program": Path(words[1])} if words[1].endswith(".py") else {"words": words[3:]}


def fork(words: Sequence[str], *, cwd: Path, env: dict[str, str], stdout: Any, stderr: Any, **_: Any) -> Any:
    """Start what ``start_server`` starts by a fork."""
    return launcher.launch(**parts(words), cwd=cwd, environ=env, stdout=stdout, stderr=stderr)


def fork_and_wait(words: Sequence[str], *, cwd: Path, env: dict[str, str], **_: Any) -> Any:
    """Run a command by a fork."""
    return launcher.run(**parts(words), cwd=cwd, environ=env)


@pytest.fixture(params=["forked", pytest.param("in new interpreters", marks=pytest.mark.long)])
def _started(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers and commands that are forked, as those of other tests are, or start interpreters, as a user's do."""
    if request.param == "forked":
        how = SimpleNamespace(**{**vars(subprocess), "Popen": fork, "run": fork_and_wait})
        monkeypatch.setattr(servers, "subprocess", how)


def runs(server: RunningServer) -> list[dict[str, Any]]:
    """Return the runs that have ended, by a command that is forked: it is asked again and again."""
    done = launcher.tenure(server.directory, "runs", "list", "--config", "tenure.yaml", "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def wait_for_run(server: RunningServer, job: str, *, after: str = "") -> str:
    """Return a run of ``job`` that ended well, by the log: a command costs an interpreter's start."""

    def look() -> str | None:
        ended = [each for each in server.log("run_succeeded") if each["job"] == job and each["ts"] > after]
        return str(ended[-1]["run"]) if ended else None

    found: str = wait_until(look, what=f"a run of {job}")
    return found


@pytest.mark.usefixtures("_started")
def test_a_server_is_ready_inside_of_the_block_and_gone_after_it() -> None:
    """The embedded server, a free port, clients of every kind, and nothing left behind."""
    with start_server(JOBS) as server:
        assert server.get("/readyz")[0] == 200
        family = psutil.Process(server.process.pid).children(recursive=True)
        assert family
        producer = tenure.connect(server.redis_url)
        producer.enqueue("shell.command", {"command": ["true"]})
        producer.close()
        use(None)
        wait_for_run(server, "shell.command")
        assert server.command("doctor", "--config", "tenure.yaml").returncode == 0
        assert server.log("startup")[0]["changed"]["web.port"] == 0
        directory = server.directory

    assert server.process.returncode == 0
    assert not directory.exists()
    assert not psutil.wait_procs(family, timeout=10)[1]


@pytest.mark.usefixtures("_started")
def test_two_servers_share_a_given_redis(server: Server) -> None:
    """One leads, the other stands by: a test of a hand-over needs no more."""
    with start_server(JOBS, redis_url=server.url) as one, start_server(JOBS, redis_url=server.url) as two:
        assert one.address != two.address
        status = launcher.tenure(two.directory, "status", "--config", "tenure.yaml", "-o", "json")
        assert len(json.loads(status.stdout)["replicas"]) == 2


@pytest.mark.usefixtures("_started")
def test_a_server_that_cannot_start_says_why() -> None:
    """The problem of the configuration is in the failure, not in a file that is gone."""
    with (
        pytest.raises(ServerNotReadyError, match=r"(?s)ended with exit code 78.*did you mean port\?"),
        start_server({"web": {"prot": 1}}),
    ):
        pass


@pytest.mark.usefixtures("_started")
def test_a_program_that_embeds_the_command_brings_what_it_has_through_a_reload() -> None:
    """``python my_service.py run``: what it handed over is there after the start and after a reload, unlisted."""
    schedules: dict[str, Any] = {
        "own": {"job": "mine.report", "every": "1s", "args": {"who": "ada"}},
        "plugin": {"job": "plugin.plan", "every": "1s", "args": {"plugin": "hello"}},
        "closed": {"job": "mine.report", "every": "1s", "args": {"who": "nobody"}, "profile": "held"},
    }
    profiles = {"held": {"hooks": {"enabled": ["sundays"]}}}
    program = (sys.executable, str(SERVICE))
    with start_server({"schedules": schedules, "profiles": profiles}, program=program) as server:
        wait_for_run(server, "mine.report")
        wait_for_run(server, "plugin.run")
        wait_until(lambda: any(each["outcome"] == "rejected" for each in runs(server)), what="a veto of the hook")
        assert "mine.report" in server.command("job", "list", "--config", "tenure.yaml").stdout

        text = (
            server.config.read_text().replace("ada", "eve").replace("schedules:", "queues: {history: 9000}\nschedules:")
        )
        server.config.write_text(text.replace("queues: {history: 9000}\n", "supervision: {grace: 19s}\n"))
        done = server.command("reload", "--config", "tenure.yaml")
        assert done.returncode == 0, done.stderr

        (reloaded,) = server.log("reload_done")
        wait_until(
            lambda: "eve" in shown(server, wait_for_run(server, "mine.report", after=reloaded["ts"])), what="eve"
        )
        wait_for_run(server, "plugin.run", after=reloaded["ts"])
        stray = server.command("run", "now")
        assert stray.returncode == 2
        assert stray.stderr.startswith("Usage: embedding_service.py run [OPTIONS]")


@pytest.mark.usefixtures("_started")
@pytest.mark.parametrize(
    ("signals", "code"),
    [
        pytest.param((signal.SIGTERM,), 0, id="drain", marks=pytest.mark.long),
        pytest.param((signal.SIGQUIT,), 1, id="at-once"),
    ],
)
def test_no_line_of_the_log_is_lost_or_cut_when_the_tree_goes(signals: tuple[signal.Signals, ...], code: int) -> None:
    """Whatever the way out, os._exit included: each line is one write, and the last one says how it ended."""
    with start_server(JOBS) as server:
        for number in signals:
            server.process.send_signal(number)
        assert server.process.wait(60) == code
        text = server.log_text()

    assert text.endswith("\n")
    entries = [json.loads(line) for line in text.splitlines()]
    assert (entries[-1]["event"], entries[-1]["code"]) == ("tree_stopped", code)


def shown(server: RunningServer, run: str) -> str:
    """Return the record of a run, as ``runs show`` tells it."""
    return launcher.tenure(server.directory, "runs", "show", run, "--config", "tenure.yaml", "-o", "json").stdout
