"""Who is charged when a worker process dies."""

from __future__ import annotations

import pytest

from supervisor.core.blame import Death, HeldRun, assign
from supervisor.core.board import Inflight, RunState, run_hash
from supervisor.core.model import Release

NOW = 1000


def entry(run_id: str, state: RunState, *, attempt: int = 1, deadline_ns: int = 0) -> Inflight:
    return Inflight(run_hash(run_id), attempt, state, deadline_ns)


def held(*run_ids: str) -> list[HeldRun]:
    return [HeldRun(run_id, 1) for run_id in run_ids]


def test_the_only_run_that_had_begun_is_charged() -> None:
    """Its neighbours were fetched and nothing more, so they go back as if nothing had happened."""
    table = [entry("a", RunState.STARTED), entry("b", RunState.FETCHED)]

    assert assign(held("a", "b"), table, death=Death.CRASHED, now_ns=NOW) == {
        "a": Release.CRASHED,
        "b": Release.UNSTARTED,
    }


def test_several_begun_runs_are_suspects() -> None:
    """Any of them may have done it; each runs alone next, and nobody is charged."""
    table = [entry("a", RunState.STARTED), entry("b", RunState.STARTED)]

    assert set(assign(held("a", "b"), table, death=Death.CRASHED, now_ns=NOW).values()) == {Release.SUSPECT}


def test_the_run_that_overran_its_deadline_is_charged_and_no_other() -> None:
    """The process was killed for it, so the cause is known."""
    table = [entry("slow", RunState.STARTED, deadline_ns=NOW), entry("b", RunState.STARTED, deadline_ns=NOW + 1)]

    assert assign(held("slow", "b"), table, death=Death.OVERRUN, now_ns=NOW) == {
        "slow": Release.CRASHED,
        "b": Release.INTERRUPTED,
    }


def test_a_deadline_that_passed_after_a_crash_is_no_proof() -> None:
    """The agent may look a second after the death; only the parent knows that it killed for a deadline."""
    table = [entry("a", RunState.STARTED, deadline_ns=NOW - 1), entry("b", RunState.STARTED)]

    assert set(assign(held("a", "b"), table, death=Death.CRASHED, now_ns=NOW).values()) == {Release.SUSPECT}


def test_a_stopped_worker_charges_nobody() -> None:
    """Grace ran out: that is not the runs' fault."""
    table = [entry("a", RunState.STARTED), entry("b", RunState.FETCHED)]

    assert assign(held("a", "b", "c"), table, death=Death.STOPPED, now_ns=NOW) == {
        "a": Release.INTERRUPTED,
        "b": Release.UNSTARTED,
        "c": Release.INTERRUPTED,
    }


@pytest.mark.parametrize("death", [Death.CRASHED, Death.OVERRUN, Death.STOPPED])
def test_a_finished_run_that_was_not_acknowledged_is_run_again_uncharged(death: Death) -> None:
    """Its acknowledgement died with the process."""
    assert assign(held("a"), [entry("a", RunState.DONE)], death=death, now_ns=NOW) == {"a": Release.INTERRUPTED}


def test_a_run_without_an_entry_is_suspect() -> None:
    """It may have begun: the worker died between the fetch and its note, or the table is lost."""
    assert assign(held("a"), [], death=Death.CRASHED, now_ns=NOW) == {"a": Release.SUSPECT}


def test_an_entry_of_an_earlier_attempt_says_nothing() -> None:
    """The same run may have been in the same process before."""
    table = [entry("a", RunState.FETCHED, attempt=2)]

    assert assign(held("a"), table, death=Death.CRASHED, now_ns=NOW) == {"a": Release.SUSPECT}


def test_the_loss_of_a_node_charges_nobody() -> None:
    """Power and networks fail without any job's help."""
    found = assign(held("a", "b"), [entry("a", RunState.STARTED)], death=Death.NODE_LOST, now_ns=NOW)

    assert set(found.values()) == {Release.INTERRUPTED}
