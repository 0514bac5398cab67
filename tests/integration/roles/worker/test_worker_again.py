"""Runs that ask to run again, beside others that wait."""

from __future__ import annotations

from pathlib import Path

from tenure import Again, job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit


def test_a_run_that_asks_to_run_again_lets_those_that_wait_go_first(sync_shop: WorkerKit, tmp_path: Path) -> None:
    """It may wait for one of them: ahead of them it would ask a thousand times, and be dead, before that one began."""
    done, asked = tmp_path / "done", tmp_path / "asked"

    @job("asks")
    def asks() -> None:
        with asked.open("a") as file:
            file.write(".")
        if not done.exists():
            raise Again(0)

    @job("does")
    def does() -> None:
        done.touch()

    ids = [sync_shop.enqueue("asks"), sync_shop.enqueue("does")]
    found = fork(sync_shop, ended=2).report()

    assert sorted(found.history) == sorted((run_id, "ok", 1) for run_id in ids)
    assert asked.read_text() == ".."
