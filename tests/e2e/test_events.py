"""Events of whole trees, as a person and a program see them; and health, while something really is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.store.client.sync_client import Store
from supervisor.store.event_log import EventLog
from supervisor.store.keys import Keys
from tests.e2e.servers import Server
from tests.e2e.trees import COMMAND, ROOT, Tree, tenure
from tests.kit.waiting import WAIT_S_MAX, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
JOBS = """
from tenure import Context, job


@job("notify.report")
async def report(context: Context, fails: bool = False) -> None:
    context.progress(1, 2)
    if fails:
        raise ValueError("password=hunter2 was wrong")
"""
CONFIG = """
redis: {{url: "{url}"}}
web: {{port: 0}}
jobs: [notify]
workers: {{io: {{kind: async}}}}
election: {{lease_duration: 2s, renew_period: 500ms, renew_timeout: 400ms}}
events: {{runs: {runs}}}
"""


@pytest.fixture
def configure(short_directory: Path, redis_url: str) -> Callable[..., None]:
    """Write the configuration and the jobs."""

    def write(runs: str = "failures") -> None:
        (short_directory / "notify.py").write_text(JOBS)
        (short_directory / "tenure.yaml").write_text(CONFIG.format(url=redis_url, runs=runs))

    return write


def told(directory: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return what `tenure events` prints."""
    found = tenure(directory, "events", "--config", "tenure.yaml", "-o", "json", *arguments)
    assert found.returncode == 0, found.stderr
    rows: list[dict[str, Any]] = json.loads(found.stdout)
    return rows


def wait_for(store: Store, *wanted: str) -> None:
    """Return once an event of one of these reasons is on record."""
    log = EventLog(Keys("default"))
    wait_until(lambda: {each.event.reason for each in store.run(log.read())} & {*wanted}, f"one of {wanted}")


def reasons(directory: Path, *arguments: str) -> list[str]:
    """Return the reasons among them, in their order."""
    return [row["reason"] for row in told(directory, *arguments)]


def test_the_four_states_of_a_run_are_told_in_their_order(
    start: Callable[..., Tree], short_directory: Path, store: Store, configure: Callable[..., None]
) -> None:
    """What Cloudforet's notify tells: started, in progress, success and failure; without what the job's error held."""
    configure(runs="all")
    tree = start("one", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")
    tenure(short_directory, "enqueue", "notify.report", "--config", "tenure.yaml")
    wait_for(store, "run_succeeded")
    assert [each for each in reasons(short_directory) if each.startswith("run_")] == [
        "run_started", "run_progress", "run_succeeded",
    ]  # fmt: skip

    tenure(short_directory, "enqueue", "notify.report", "fails=true", "--config", "tenure.yaml")
    wait_for(store, "run_failed", "run_dead")
    (failed,) = told(short_directory, "--reason", "run_failed", "--reason", "run_dead", "-n", "1000")[:1]
    assert (failed["subject"], failed["role"]) == ("notify.report", "worker-io-0")
    assert failed["fields"]["run"]
    assert "hunter2" not in json.dumps(failed)


@pytest.mark.long
def test_a_hand_over_and_a_death_are_followed_from_anywhere(
    start: Callable[..., Tree], short_directory: Path, store: Store, configure: Callable[..., None]
) -> None:
    """One stream for all replicas: whoever follows sees who stopped and who leads now, and which process died."""
    configure()
    first = start("one", "--config", "tenure.yaml")
    first.wait_for("leader_acquired")
    second = start("two", "--config", "tenure.yaml")
    second.wait_for("tree_ready")
    second.kill("worker-io-0")
    wait_for(store, "child_exited")

    command = [*COMMAND, "events", "--follow", "--config", "tenure.yaml", "-o", "json"]
    chosen = [
        "--reason",
        "leader_released",
        "--reason",
        "leader_acquired",
        "--limit",
        "2",
        "--after",
        "99999999999999-0",
    ]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{short_directory}"}
    latest = told(short_directory)[-1]["id"]
    chosen[-1] = latest
    with subprocess.Popen(
        [*command, *chosen], stdout=subprocess.PIPE, text=True, cwd=short_directory, env=environ
    ) as follower:
        first.terminate()
        shown, _ = follower.communicate(timeout=WAIT_S_MAX)
    stopped, began = map(json.loads, shown.splitlines())
    assert follower.returncode == 0
    assert {stopped["reason"], began["reason"]} == {"leader_released", "leader_acquired"}
    assert stopped["replica"] != began["replica"]


def test_a_reload_and_its_refusal_are_told(
    start: Callable[..., Tree], short_directory: Path, store: Store, configure: Callable[..., None]
) -> None:
    """By the parent, which speaks neither to Redis nor over HTTP."""
    configure()
    tree = start("one", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")
    file = short_directory / "tenure.yaml"
    good = file.read_text()
    file.write_text(good + "bogus: 1\n")
    os.kill(tree.pid, signal.SIGHUP)
    tree.wait_for("reload_refused")
    file.write_text(good + "log: {level: debug}\n")
    os.kill(tree.pid, signal.SIGHUP)
    tree.wait_for("reload_done")

    wait_for(store, "reload_done")
    assert [each for each in reasons(short_directory) if each.startswith("reload")] == ["reload_refused", "reload_done"]
    assert {"tree_ready", "leader_acquired"} <= set(reasons(short_directory, "--since", "1h"))


def codes(tree: Tree) -> tuple[int, int, str]:
    """Return what /livez and /readyz say, and the word of /check."""
    return tree.get("/livez")[0], tree.get("/readyz")[0], json.loads(tree.get("/check")[1])["status"]


@pytest.mark.long
def test_health_while_redis_is_away(
    start: Callable[..., Tree], short_directory: Path, configure: Callable[..., None], server: Server
) -> None:
    """Not serving, alive all the time, and serving again by itself."""
    del short_directory
    configure()
    tree = start("one", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")
    wait_until(lambda: codes(tree) == (200, 200, "SERVING"), "the replica to serve")
    server.kill()
    wait_until(lambda: codes(tree) == (200, 503, "NOT_SERVING"), "the replica to say so")
    wait_until(lambda: "[-]redis failed" in tree.get("/readyz")[1], "the reason")

    server.start()
    wait_until(lambda: codes(tree) == (200, 200, "SERVING"), "the replica to serve again")


def test_health_while_the_agent_is_frozen(
    start: Callable[..., Tree], short_directory: Path, configure: Callable[..., None]
) -> None:
    """Not ready once its parent has ended it, alive all the time, ready again with its successor."""
    del short_directory
    configure()
    tree = start("one", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")
    for deaths in range(4):  # each successor waits for longer: the next one long enough to be asked meanwhile
        wait_until(lambda: codes(tree) == (200, 200, "SERVING"), "the replica to serve")
        tree.kill("agent")
        tree.wait_for("child_started", slot="agent", generation=2 + deaths)
    wait_until(lambda: codes(tree) == (200, 200, "SERVING"), "the replica to serve")
    os.kill(tree.slot_pid("agent"), signal.SIGSTOP)
    wait_until(lambda: codes(tree) == (200, 503, "NOT_SERVING"), "the replica to say so")

    wait_until(lambda: codes(tree) == (200, 200, "SERVING"), "the next agent")


def test_a_configuration_that_the_web_child_cannot_serve_is_refused(
    short_directory: Path, configure: Callable[..., None]
) -> None:
    """Exit 78 with every problem, before anything is started."""
    configure()
    done = tenure(
        short_directory, "run", "--config", "tenure.yaml",
        "--set", "web.tokens_file=absent", "--set", "events.webhook_url=mailto:x", "--set", "web.tls_key_file=k",
    )  # fmt: skip
    assert done.returncode == 78
    for path in ("web.tokens_file", "events.webhook_url", "web.tls_key_file"):
        assert path in done.stderr
