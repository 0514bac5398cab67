"""Who is charged when a worker process dies."""

from __future__ import annotations

from itertools import product

import pytest

from supervisor.core.model import Release
from supervisor.core.supervision.crash_blame import Death, HeldRun, assign, describe_death
from supervisor.core.supervision.scoreboard import Inflight, execution_hash
from supervisor.core.supervision.slot import Cause
from supervisor.core.supervision.states import RunState
from supervisor.core.units import SECOND_NS
from tests.kit.tables import table

NOW = 1000 * SECOND_NS


def entry(run_id: str, state: RunState, *, attempt: int = 1, deadline_ns: int = 0) -> Inflight:
    return Inflight(execution_hash(("q", run_id), 7), attempt, state, deadline_ns)


def held(*run_ids: str) -> list[HeldRun]:
    return [HeldRun("q", run_id, 1, 7) for run_id in run_ids]


def blamed(
    runs: list[HeldRun],
    table: list[Inflight] | None,
    *,
    death: Death = Death.CRASHED,
    now_ns: int = NOW,
    turned_ns: int = NOW,
) -> dict[str, Release]:
    releases = assign(runs, table, death=death, now_ns=now_ns, turned_ns=turned_ns)
    return {run.run_id: how for run, how in zip(runs, releases, strict=True)}


def test_the_only_run_that_had_begun_is_charged() -> None:
    """Its neighbours were fetched and nothing more, so they go back as if nothing had happened."""
    table = [entry("a", RunState.STARTED), entry("b", RunState.WAITING)]

    assert blamed(held("a", "b"), table, death=Death.CRASHED) == {
        "a": Release.CRASHED,
        "b": Release.UNSTARTED,
    }


def test_several_begun_runs_are_suspects() -> None:
    """Any of them may have done it; each runs alone next, and nobody is charged."""
    table = [entry("a", RunState.STARTED), entry("b", RunState.STARTED)]

    assert set(blamed(held("a", "b"), table, death=Death.CRASHED).values()) == {Release.SUSPECT}


def test_the_run_that_overran_its_deadline_is_charged_and_no_other() -> None:
    """The process was killed for it, so the cause is known."""
    table = [entry("slow", RunState.STARTED, deadline_ns=NOW), entry("b", RunState.STARTED, deadline_ns=NOW + 1)]

    assert blamed(held("slow", "b"), table, death=Death.OVERRUN) == {
        "slow": Release.CRASHED,
        "b": Release.INTERRUPTED,
    }


def test_where_the_loop_stood_still_at_a_deadline_all_are_suspects() -> None:
    """One that blocks its loop takes the time of the others: charged, they would die for it, and it would go on for ever."""
    table = [
        entry("blocks", RunState.STARTED, deadline_ns=NOW + 100 * SECOND_NS),
        entry("brief", RunState.STARTED, deadline_ns=NOW),
        entry("ended", RunState.DONE),
        entry("waits", RunState.WAITING),
    ]
    runs = held("blocks", "brief", "ended", "waits")

    assert blamed(runs, table, death=Death.OVERRUN, turned_ns=NOW - SECOND_NS) == {
        "blocks": Release.SUSPECT,
        "brief": Release.SUSPECT,
        "ended": Release.SUSPECT,  # a callback that it left behind may be what blocks
        "waits": Release.UNSTARTED,
    }
    assert blamed(runs, table, death=Death.OVERRUN, turned_ns=NOW - SECOND_NS // 4) == {
        "blocks": Release.INTERRUPTED,
        "brief": Release.CRASHED,
        "ended": Release.INTERRUPTED,
        "waits": Release.UNSTARTED,
    }


def test_a_run_that_was_alone_with_a_loop_that_stood_still_is_charged() -> None:
    """So is every run of a sync pool, whose process shows no sign of life while it executes one."""
    table = [entry("alone", RunState.STARTED, deadline_ns=NOW), entry("behind", RunState.WAITING)]

    found = blamed(held("alone", "behind"), table, death=Death.OVERRUN, turned_ns=NOW - 100 * SECOND_NS)

    assert found == {"alone": Release.CRASHED, "behind": Release.UNSTARTED}


@pytest.mark.parametrize("turned_ns", [0, NOW])
def test_where_the_run_that_overran_ended_at_that_moment_nobody_else_is_charged(turned_ns: int) -> None:
    """The parent reads its deadline and then kills; a process of a sync pool may have begun the next one by then."""
    table = [entry("slow", RunState.DONE), entry("next", RunState.STARTED, deadline_ns=NOW + SECOND_NS)]

    found = blamed(held("slow", "next"), table, death=Death.OVERRUN, turned_ns=turned_ns)

    assert found == {"slow": Release.INTERRUPTED, "next": Release.INTERRUPTED}


def test_deadlines_that_passed_after_the_kill_are_no_proof() -> None:
    """Whoever gives the runs back may come a minute later, when the time of all of them is over."""
    table = [
        entry("slow", RunState.STARTED, deadline_ns=NOW),
        entry("too", RunState.STARTED, deadline_ns=NOW + SECOND_NS // 10),
        entry("later", RunState.STARTED, deadline_ns=NOW + SECOND_NS),
    ]

    assert blamed(held("slow", "too", "later"), table, death=Death.OVERRUN, now_ns=NOW + 60 * SECOND_NS) == {
        "slow": Release.CRASHED,
        "too": Release.CRASHED,
        "later": Release.INTERRUPTED,
    }


def test_a_deadline_that_passed_after_a_crash_is_no_proof() -> None:
    """The agent may look a second after the death; only the parent knows that it killed for a deadline."""
    table = [entry("a", RunState.STARTED, deadline_ns=NOW - 1), entry("b", RunState.STARTED)]

    assert set(blamed(held("a", "b"), table, death=Death.CRASHED).values()) == {Release.SUSPECT}


def test_a_stopped_worker_charges_nobody() -> None:
    """Grace ran out: that is not the runs' fault."""
    table = [entry("a", RunState.STARTED), entry("b", RunState.FETCHED)]

    assert blamed(held("a", "b", "c"), table, death=Death.STOPPED) == {
        "a": Release.INTERRUPTED,
        "b": Release.UNSTARTED,
        "c": Release.INTERRUPTED,
    }


@pytest.mark.parametrize("death", [Death.OVERRUN, Death.STOPPED])
def test_a_finished_run_that_was_not_acknowledged_is_run_again_uncharged(death: Death) -> None:
    """Its acknowledgement died with the process."""
    assert blamed(held("a"), [entry("a", RunState.DONE)], death=death) == {"a": Release.INTERRUPTED}


def test_finished_runs_of_a_crashed_process_are_suspects_too() -> None:
    """What one of them broke may have shown after it returned; called innocent, it would break the next process as well."""
    table = [entry("a", RunState.DONE), entry("b", RunState.DONE), entry("c", RunState.STARTED)]

    assert set(blamed(held("a", "b", "c"), table, death=Death.CRASHED).values()) == {Release.SUSPECT}


def test_a_finished_run_is_charged_with_the_crash_that_nobody_else_can_have_caused() -> None:
    """Alone in its process it must come to an end after ``max_crashes``."""
    assert blamed(held("a"), [entry("a", RunState.DONE)]) == {"a": Release.CRASHED}


def test_a_run_that_was_just_being_read_is_charged_when_it_was_alone() -> None:
    """A worker notes what a turn brought before it does anything else, so one without an entry never began."""
    assert blamed(held("a"), []) == {"a": Release.CRASHED_UNSTARTED}
    assert blamed(held("a"), [entry("b", RunState.WAITING)]) == {"a": Release.CRASHED_UNSTARTED}
    assert blamed(held("a"), None) == {"a": Release.CRASHED}  # nothing is known: it may have begun


def test_runs_that_were_being_read_or_prepared_are_suspects_beside_those_that_had_begun() -> None:
    """Whichever of them it was, it runs alone next; given back as innocent it would take one process after the other."""
    table = [entry("a", RunState.STARTED), entry("b", RunState.FETCHED), entry("d", RunState.WAITING)]

    assert blamed(held("a", "b", "c", "d"), table) == {
        "a": Release.SUSPECT,
        "b": Release.SUSPECT_UNSTARTED,
        "c": Release.SUSPECT_UNSTARTED,
        "d": Release.UNSTARTED,
    }
    assert set(blamed(held("a", "b"), None).values()) == {Release.SUSPECT}


def test_where_nothing_else_was_being_done_those_that_wait_are_suspects() -> None:
    """The turn of one of them may just have come."""
    assert blamed(held("a"), [entry("a", RunState.WAITING)]) == {"a": Release.CRASHED_UNSTARTED}
    assert blamed(held("a", "b"), [entry("a", RunState.WAITING), entry("b", RunState.DONE)]) == {
        "a": Release.SUSPECT_UNSTARTED,
        "b": Release.SUSPECT,
    }


@table("states", list(product([None, *list(RunState)[1:]], repeat=3)))
def test_every_kill_of_a_loop_that_stood_still_is_charged_or_makes_suspects(
    states: tuple[RunState | None, ...],
) -> None:
    """The same for a process that was killed at a deadline which one of its runs had, and could not obey."""
    table = [entry(name, state) for name, state in zip("abc", states, strict=True) if state is not None]
    table.append(entry("d", RunState.STARTED, deadline_ns=NOW))
    found = list(blamed(held(*"abcd"), table, death=Death.OVERRUN, turned_ns=0).values())
    charged = sum(how in {Release.CRASHED, Release.CRASHED_UNSTARTED} for how in found)
    suspects = sum(how in {Release.SUSPECT, Release.SUSPECT_UNSTARTED} for how in found)
    assert (charged, suspects) == (1, 0) or (charged == 0 and suspects > 1)


@table("states", list(product([None, *list(RunState)[1:]], repeat=3)))
def test_every_death_is_charged_or_makes_suspects(states: tuple[RunState | None, ...]) -> None:
    """A death for which nobody answers is repeated without end."""
    names = "abc"
    for count in (1, 2, 3):
        known = zip(names[:count], states, strict=False)
        table = [entry(name, state) for name, state in known if state is not None]
        found = list(blamed(held(*names[:count]), table).values())
        charged = sum(how in {Release.CRASHED, Release.CRASHED_UNSTARTED} for how in found)
        suspects = sum(how in {Release.SUSPECT, Release.SUSPECT_UNSTARTED} for how in found)
        assert (charged, suspects) == (1, 0) or (charged == 0 and suspects > 1)


@pytest.mark.parametrize("death", [Death.STOPPED, Death.OVERRUN])
def test_what_a_turn_without_an_answer_brought_has_not_begun(death: Death) -> None:
    """One that leaves in an outage never read it; Redis, gone back, may hold one that ended, which was brought before."""
    table = [entry("slow", RunState.STARTED, deadline_ns=NOW)]
    for turn_ms, how in {
        6: Release.UNSTARTED,
        0: Release.UNSTARTED,
        7: Release.INTERRUPTED,
        8: Release.INTERRUPTED,
    }.items():
        found = assign(held("slow", "unread"), table, death=death, now_ns=NOW, turned_ns=NOW, turn_ms=turn_ms)
        assert found[1] is how
    assert assign(held("unread"), None, death=Death.STOPPED, now_ns=NOW) == [Release.INTERRUPTED]


def test_the_loss_of_a_node_charges_nobody() -> None:
    """Power and networks fail without any job's help."""
    found = blamed(held("a", "b"), [entry("a", RunState.STARTED)], death=Death.NODE_LOST)

    assert set(found.values()) == {Release.VANISHED}
    assert Release.VANISHED.reason == "interrupted"


@table(
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


@pytest.mark.parametrize(
    ("states", "is_after"),
    [
        ((RunState.DONE,), True),
        ((RunState.DONE, RunState.FETCHED), True),
        ((RunState.STARTED, RunState.DONE), False),
        ((RunState.STARTED,), False),
        ((RunState.FETCHED,), False),
        ((), False),
    ],
)
def test_a_hang_after_the_job_had_returned_is_told_apart(*, states: tuple[RunState, ...], is_after: bool) -> None:
    """Whoever looks for the fault in the job would look in the wrong place."""
    table = [entry(f"r{number}", state) for number, state in enumerate(states)]

    how = describe_death(Cause.HANG, 256 + 6, table=table)

    assert how == "killed because it hung" + (", after the job had returned" if is_after else "")
