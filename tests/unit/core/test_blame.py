"""Who is charged when a worker process dies."""

from __future__ import annotations

import pytest

from supervisor.core.blame import Death, HeldRun, assign, describe_death
from supervisor.core.inflight import Inflight, RunState, execution_hash
from supervisor.core.model import Release
from supervisor.core.restart import Cause

NOW = 1000


def entry(run_id: str, state: RunState, *, attempt: int = 1, deadline_ns: int = 0) -> Inflight:
    return Inflight(execution_hash(("q", run_id), 7), attempt, state, deadline_ns)


def held(*run_ids: str) -> list[HeldRun]:
    return [HeldRun("q", run_id, 1, 7) for run_id in run_ids]


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


@pytest.mark.parametrize("death", [Death.OVERRUN, Death.STOPPED])
def test_a_finished_run_that_was_not_acknowledged_is_run_again_uncharged(death: Death) -> None:
    """Its acknowledgement died with the process."""
    assert assign(held("a"), [entry("a", RunState.DONE)], death=death, now_ns=NOW) == {"a": Release.INTERRUPTED}


def test_finished_runs_of_a_crashed_process_are_suspects_too() -> None:
    """What one of them broke may have shown after it returned; called innocent, it would break the next process as well."""
    table = [entry("a", RunState.DONE), entry("b", RunState.DONE), entry("c", RunState.STARTED)]

    assert set(assign(held("a", "b", "c"), table, death=Death.CRASHED, now_ns=NOW).values()) == {Release.SUSPECT}


def test_a_finished_run_is_charged_with_the_crash_that_nobody_else_can_have_caused() -> None:
    """Alone in its process it must come to an end after ``max_crashes``."""
    table = [entry("a", RunState.DONE), entry("b", RunState.FETCHED)]

    assert assign(held("a", "b"), table, death=Death.CRASHED, now_ns=NOW) == {
        "a": Release.CRASHED,
        "b": Release.UNSTARTED,
    }


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


@pytest.mark.parametrize(
    ("cause", "last_exit", "is_out_of_memory", "text"),
    [
        (Cause.NONE, 256 + 11, False, "SIGSEGV"),
        (Cause.NONE, 3, False, "exit code 3"),
        (Cause.NONE, 256 + 9, False, "SIGKILL from outside"),
        (Cause.NONE, 256 + 9, True, "SIGKILL, out of memory"),
        (Cause.NONE, 256 + 60, False, "signal 60"),
        (Cause.NONE, None, False, "died"),
        (Cause.OVERRUN, 256 + 9, False, "killed at a hard timeout"),
        (Cause.HANG, 256 + 6, False, "killed because it hung"),
        (Cause.FORCED, 256 + 9, False, "stopped"),
    ],
)
def test_the_record_says_how_a_process_died(
    *, cause: Cause, last_exit: int | None, is_out_of_memory: bool, text: str
) -> None:
    """Whoever looks at a dead run must not have to search the logs of the machine that it died on."""
    assert describe_death(cause, last_exit, is_out_of_memory=is_out_of_memory) == text
