"""``tenure runs logs``: what people see of the output of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from supervisor.core.model import Outcome
from supervisor.store.queues.run_records import AttemptLog, LogItem
from tests.integration.cli.conftest import ClusterWithJobs, Result
from tests.kit.builders import StoreCalls, envelope

pytestmark = pytest.mark.server
S = "r.1/worker-io-0/1"
Invoke = Callable[..., Result]


def said(number: int, head: str, **fields: Any) -> bytes:
    """Return the output of an attempt, as its acknowledgement carries it."""
    log = AttemptLog(number, number, "tests.noop", "default", S, 1_795_000_000_000, 2, head=head, **fields)
    return LogItem("r1", 7, number, msgspec.json.encode(log)).packed


@pytest.fixture
def world(desk: ClusterWithJobs) -> StoreCalls:
    """A run of two attempts, and one that says nothing."""
    world = desk.world
    world.open(S)
    world.enqueue(envelope("r1"), envelope("silent"))
    world.fetch(S)
    world.ack(S, "r1", Outcome.RETRY, log=said(1, "first\n"))
    world.ack(S, "silent", Outcome.OK)
    world.fetch(S)
    cut = said(2, "start\n", tail="end \x1b[31m\n", cut_chars=900, cut_lines=7)
    world.ack(S, "r1", Outcome.DEAD, attempt=2, log=cut)
    return world


def test_all_attempts_are_shown_with_what_was_cut(world: StoreCalls, invoke: Invoke) -> None:
    """In their order; nothing that somebody wrote into Redis steers the terminal."""
    assert world.state("r1") == "dead"
    first, second = (f"--- attempt {n}, started 2026-11-18T11:06:40.000Z\n" for n in (1, 2))
    whole = f"{first}first\n{second}start\n… 7 lines cut (900 characters in all) …\nend \\x1b[31m\n"
    assert invoke("runs", "logs", "r1").out == whole
    assert invoke("runs", "logs", "r1", "--follow").out == whole, "a run that has ended is followed to its end"
    assert invoke("runs", "logs", "r1", "--attempt", "1").out == f"{first}first\n"
    assert [log["attempt"] for log in invoke("runs", "logs", "r1", "-o", "json").json()] == [1, 2]


def test_a_run_without_output_and_one_that_nobody_knows_are_told_apart(world: StoreCalls, invoke: Invoke) -> None:
    """By exit code and sentence."""
    assert world.state("silent") == "finished"
    silent, unknown = invoke("runs", "logs", "silent"), invoke("runs", "logs", "nobody")
    assert (silent.code, silent.out, "log.runs" in silent.err) == (3, "", True)
    assert (unknown.code, "no run is called 'nobody'" in unknown.err) == (1, True)
    assert invoke("runs", "logs", "r1", "--attempt", "9").code == 3
    assert invoke("runs", "logs", "not an id").code == 2
    assert invoke("runs", "logs", "r1", "-f", "-o", "json").code == 2
