"""shell.command in a real sync worker: what the run's record says, and how the worker's signals end it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.jobs.registry import registry
from supervisor.core.model import Envelope, Kind
from tenure.jobs.shell import command
from tests.integration.jobs.processes import is_gone
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit

Until = Callable[[Callable[[], bool], str], None]


@pytest.fixture
def shop(server: Any) -> WorkerKit:
    """A sync pool's workshop with the jobs that ship."""
    assert command.__module__ == "tenure.jobs.shell.command"
    return WorkerKit(server, registry, Kind.SYNC)


def put(shop: WorkerKit, line: str, **overrides: Any) -> str:
    """Enqueue a run of a shell line, where the workshop's worker looks."""
    template = registry.get("shell.command").template(
        {"command": line, "output_in_error": True}, queue="default", **overrides
    )
    return shop.put(Envelope(id="a-run", template=template))


def test_a_run_keeps_its_output(shop: WorkerKit) -> None:
    """In the result that `tenure runs show` prints."""
    run_id = put(shop, 'echo "run $TENURE_RUN_ID, attempt $TENURE_ATTEMPT"')
    found = fork(shop, ended=1).report()

    assert found.history == [(run_id, "ok", 1)]
    assert {**found.results[run_id], "duration_s": 0} == {
        "exit_code": 0, "signal": None, "duration_s": 0, "output_tail": "run a-run, attempt 1\n", "truncated": False,
    }  # fmt: skip


def test_the_last_words_of_a_failed_run_are_in_its_error(shop: WorkerKit) -> None:
    """Whole, although the record keeps only the beginning of a message."""
    run_id = put(shop, "seq 10000; echo the cause >&2; exit 4")
    found = fork(shop, ended=1).report()

    error = found.errors[run_id]
    assert (found.states[run_id], error["type"]) == ("dead", "CommandFailedError")
    assert error["message"].startswith("/bin/sh exited with 4 after ")
    assert error["message"].endswith("\n10000\nthe cause")


def test_a_run_past_its_soft_timeout_says_what_it_was_doing(shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is asked to end and may say why; the worker goes on."""
    # 1.5 s, short for a busy machine; the worker is forked off this process
    monkeypatch.setattr(sys.modules[command.__module__], "PATIENCE_S_MAX", 20.0)
    run_id = put(
        shop,
        "trap 'echo stuck at step 2; exit' TERM; echo step 1; while :; do sleep 0.1; done 2>/dev/null",
        soft_timeout_s=8.0,  # the shell needs seconds to begin on a machine that is busy
    )
    found = fork(shop, ended=1).report()

    error = found.errors[run_id]
    assert (found.code, found.states[run_id], error["type"]) == (0, "dead", "SoftTimeout")
    assert "/bin/sh was stopped; its last output:\nstep 1\nstuck at step 2" in error["message"]


def test_a_worker_that_must_go_takes_its_command_along(shop: WorkerKit, until: Until, tmp_path: Path) -> None:
    """SIGQUIT ends the command; the run goes back to its queue, uncharged."""
    pid = tmp_path / "pid"
    run_id = put(shop, f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600")
    worker = fork(shop)
    until(pid.exists, "the command runs")

    shop.ask_to_go()
    worker.signal(signal.SIGQUIT)
    found = worker.report()

    assert (found.history, found.states) == ([(run_id, "interrupted", 1)], {run_id: "queued"})
    until(lambda: is_gone(int(pid.read_text())), "the command ended")
