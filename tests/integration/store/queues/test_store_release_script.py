"""Giving back what a worker cannot acknowledge any more."""

from __future__ import annotations

import pytest

from supervisor.core.effects import drive
from supervisor.core.model import Outcome, Release
from supervisor.operations.queues import verify
from tests.kit.builders import StoreCalls, envelope, schedule

S, Z = "r.1/w-0/1", "r.2/w-0/1"


def release(world: StoreCalls, *items: tuple[str, Release], session: str = S, queue: str = "default") -> int:
    call = world.queues.release_runs(session=session, items=[(queue, run, how) for run, how in items])
    count: int = world.run(call).count
    return count


def held(world: StoreCalls, session: str = S) -> list[tuple[str, int]]:
    page = world.run(world.queues.held(session=session, queue="default"))
    assert [at for _, _, at in page.items] == [world.fetched_ms(run_id) for run_id, _, _ in page.items]
    return sorted((run_id, attempt) for run_id, attempt, _ in page.items)


def test_a_dead_workers_runs_go_back_and_run_elsewhere(world: StoreCalls) -> None:
    """Condemn, read what it held, give back, bury: the way every agent does it."""
    world.open(S, Z)
    world.enqueue(*(envelope(f"r{i}") for i in range(3)))
    world.fetch(S, want=3)

    assert world.run(world.sessions.condemn(S, None))
    assert held(world) == [("r0", 1), ("r1", 1), ("r2", 1)]
    assert release(world, *((f"r{i}", Release.UNSTARTED) for i in range(3))) == 3
    world.run(world.sessions.bury(S))
    assert [(run.envelope.id, run.attempt) for run in world.turn(Z, want=9).runs] == [("r0", 1), ("r1", 1), ("r2", 1)]
    assert world.fsck() == []
    assert world.run(world.sessions.dying()) == []


@pytest.mark.parametrize("how", list(Release))
def test_two_reapers_give_back_once(world: StoreCalls, how: Release) -> None:
    """Agents of two replicas may reap the same session, and each may repeat a call."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    world.fetch(S)

    call = world.queues.release_runs(session=S, items=[("default", "a", how), ("default", "b", how)])
    assert [released.count for released in world.twice(call)] == [2, 0]
    assert world.fsck() == []
    counts = world.run(world.queues.counts("default"))
    assert counts.running == 0
    assert counts.ready_total + counts.later + sum(counts.suspects.values()) == 2


def test_a_release_after_somebody_else_took_the_run_does_nothing(world: StoreCalls) -> None:
    """The second reaper is late: the run already runs elsewhere."""
    world.open(S, Z)
    world.enqueue(envelope("a"))
    world.fetch(S)
    release(world, ("a", Release.UNSTARTED))
    assert world.fetch(Z) == ["a"]

    assert release(world, ("a", Release.CRASHED)) == 0
    assert world.ack(Z, "a").stale == []


def test_a_session_whose_name_begins_like_anothers_is_another(world: StoreCalls) -> None:
    """w-1 must not give back what w-10 holds."""
    world.open("w-1", "w-10")
    world.enqueue(envelope("a"))
    world.fetch("w-10")

    assert release(world, ("a", Release.UNSTARTED), session="w-1") == 0
    assert held(world, "w-1") == []


def test_an_interruption_charges_no_attempt(world: StoreCalls) -> None:
    """A deploy must not use up a run's retries."""
    world.open(S, Z)
    world.enqueue(envelope("a"))
    world.fetch(S)
    release(world, ("a", Release.INTERRUPTED))

    run = world.turn(Z, want=1).runs[0]
    assert (run.attempt, run.crashes, run.interrupts) == (1, 0, 1)
    assert world.run(world.queues.recent("default"))[0].outcome == "interrupted"


def test_a_run_that_takes_its_replicas_down_runs_alone_and_ends_dead(world: StoreCalls) -> None:
    """From outside it is a lost machine each time: two charge nothing, and the sixth in a row is no accident."""
    world.open(S)
    world.enqueue(envelope("a", max_crashes=1))
    for loss in range(6):
        is_alone = loss > 2
        assert not is_alone or world.fetch(S) == [], "nobody else is in its process from the third loss on"
        run = world.turn(S, want=1, want_suspect=is_alone).runs[0]
        assert (run.attempt, run.crashes, run.interrupts, run.suspect) == (1, 0, loss, is_alone)
        release(world, ("a", Release.VANISHED))

    dead = world.run(world.queues.dead("default"))[0]
    assert (dead.error["reason"], dead.crashes) == ("crashed", 0)
    assert [entry.outcome for entry in world.run(world.queues.recent("default"))] == ["crashed", *["interrupted"] * 5]
    assert world.fsck() == []


def test_lost_replicas_are_counted_from_the_last_failure_on(world: StoreCalls) -> None:
    """Who failed or ended in between did not take them down. What is known of that failure stays."""
    world.open(S)
    world.enqueue(envelope("a"))
    for attempt in range(1, 5):
        for _ in range(2):
            world.fetch(S)
            release(world, ("a", Release.VANISHED))
        assert world.turn(S, want=1).runs[0].attempt == attempt
        error = {"message": "no route"}
        world.ack(S, "a", attempt=attempt, outcome=Outcome.RETRY, error=error, retry_delay_ms=60_000)
        world.make_due("a")

    world.fetch(S)
    release(world, ("a", Release.VANISHED))
    record = world.raw.hget(world.keys.queue("default").err, "a")
    assert b"no route" in record
    assert record.endswith(b',"losses":1}')
    assert world.run(world.queues.dead("default")) == []


@pytest.mark.parametrize("how", ["again", "interrupted"])
def test_lost_replicas_are_counted_in_a_row(world: StoreCalls, how: str) -> None:
    """An execution that ends by itself or by a stop in between took no replica down; a run that polls for days meets many."""
    world.open(S)
    world.enqueue(envelope("a"))
    for _ in range(4):
        for _ in range(2):
            assert world.fetch(S) == ["a"]
            release(world, ("a", Release.VANISHED))
        assert world.fetch(S) == ["a"]
        if how == "again":
            world.ack(S, "a", Outcome.AGAIN, retry_delay_ms=60_000)
            world.make_due("a")
        else:
            release(world, ("a", Release.INTERRUPTED))

    assert world.raw.hget(world.keys.queue("default").err, "a") == b'{"reason":"interrupted","attempt":1}'
    assert world.fetch(S) == ["a"]
    assert world.run(world.queues.dead("default")) == []


@pytest.mark.parametrize("how", [Release.CRASHED, Release.VANISHED])
@pytest.mark.parametrize("attempt", ["9" * 400, "0" * 20])
def test_a_fence_that_nobody_wrote_costs_no_run_its_place(world: StoreCalls, how: Release, attempt: str) -> None:
    """Its number is beyond all that a record can hold; the script ended half-way, and the run was in no place."""
    world.open(S)
    world.enqueue(envelope("a", at_most_once=True), envelope("b"))
    world.fetch(S)
    world.raw.hset(world.keys.queue("default").run, "a", f"{S}|{attempt}|1")

    assert release(world, ("a", how), ("b", how)) == 2
    assert [(dead.run_id, dead.error["attempt"]) for dead in world.run(world.queues.dead("default"))] == [("a", 0)]
    assert world.fsck() == []


def test_crashes_are_charged_delayed_and_end_dead(world: StoreCalls) -> None:
    """A poisonous run takes down at most max_crashes workers, ever more rarely; one that a machine cut off begins at once."""
    world.open(S)
    world.enqueue(envelope("a", max_crashes=4, job="bad"))
    delays = []
    for crash in range(4):
        assert not crash or world.fetch(S) == [], "it took neighbours with it"
        run = world.turn(S, want=1, want_suspect=True).runs[0]
        assert (run.attempt, run.crashes, run.suspect) == (1, crash, crash > 0)
        release(world, ("a", Release.CRASHED))
        counts = world.run(world.queues.counts("default"))
        if counts.later:
            delays.append(round((counts.next_due_ms - counts.now_ms) / 1000))
            world.make_due("a")

    assert delays == [5, 30]
    dead = world.run(world.queues.dead("default"))[0]
    assert (dead.error["reason"], dead.crashes) == ("crashed", 4)
    assert {entry.job for entry in world.run(world.queues.recent("default"))} == {"bad"}
    assert world.fsck() == []


@pytest.mark.parametrize("most", [b"9007199254740992", b"1e999", b"NaN", b"[1]"])
def test_no_envelope_lets_a_run_take_processes_down_for_ever(world: StoreCalls, most: bytes) -> None:
    """Whoever may write to Redis wrote the bound on crashes, too."""
    world.open(S)
    world.enqueue(envelope("a", max_crashes=4))
    keys = world.keys.queue("default")
    world.raw.hset(keys.data, "a", world.raw.hget(keys.data, "a").replace(b'"max_crashes":4', b'"max_crashes":' + most))
    world.raw.hset(keys.att, "a", "0,999,0")
    world.raw.hset(keys.run, "a", f"{S}|1|1")
    release(world, ("a", Release.CRASHED))
    assert world.raw.zrange(keys.dead, 0, -1) == [b"a"]


def test_a_suspect_runs_alone_and_only_for_a_worker_that_is_idle(world: StoreCalls) -> None:
    """The one that killed its process must not take neighbours with it again."""
    world.open(S, Z)
    world.enqueue(envelope("a"), envelope("b"), envelope("c"))
    world.fetch(S, want=2)
    release(world, ("a", Release.SUSPECT), ("b", Release.SUSPECT))

    assert world.fetch(Z, want=1) == ["c"]
    alone = world.turn(Z, want=10, want_suspect=True).runs
    assert len(alone) == 1
    assert alone[0].suspect
    assert (alone[0].attempt, alone[0].crashes) == (1, 0)
    again = world.turn(Z, want=10, want_suspect=True, seq=world.sequences[Z]).runs
    assert [run.envelope for run in again] == [run.envelope for run in alone]
    assert world.fsck() == []


@pytest.mark.parametrize("how", [Release.UNSTARTED, Release.INTERRUPTED, "giveback", "fsck"])
def test_a_run_that_ended_a_process_stays_alone_when_it_is_given_back(world: StoreCalls, how: Release | str) -> None:
    """A deploy cut it off, its worker gave it back, or a check found it in no place: it would take neighbours with it."""
    world.open(S, Z)
    world.enqueue(envelope("a"), envelope("z"))
    world.fetch(S, want=2)
    release(world, ("z", Release.CRASHED), ("a", Release.CRASHED))
    assert world.fetch(Z, want_suspect=True) == ["a"]
    if isinstance(how, Release):
        release(world, ("a", how), session=Z)
    elif how == "giveback":
        world.ack(Z, "a", Outcome.GIVEBACK)
    else:
        world.raw.hdel(world.keys.queue("default").run, "a")
        drive(verify(world.keys, ["default"], is_mending=True), world.run)
    world.enqueue(envelope("b"))

    assert world.fetch(S) == ["b"]
    alone = world.turn(Z, want=10, want_suspect=True).runs
    assert [(run.envelope.id, run.suspect, run.crashes) for run in alone] == [("a", True, 1)], "it keeps its place"
    assert world.fsck() == []


BEGAN = {Release.INTERRUPTED, Release.VANISHED, Release.CRASHED, Release.SUSPECT}


@pytest.mark.parametrize(("how", "state"), [(how, "dead" if how in BEGAN else "queued") for how in Release])
def test_a_run_that_must_not_run_twice_is_dead_unless_it_never_began(
    world: StoreCalls, how: Release, state: str
) -> None:
    """at_most_once: lost is reported as lost, never tried again."""
    world.open(S)
    world.enqueue(envelope("a", at_most_once=True))
    world.fetch(S)
    release(world, ("a", how))

    assert world.state("a") == state
    if state == "dead":
        assert world.run(world.queues.dead("default"))[0].error["reason"] == "lost"


def test_a_cancelled_run_is_not_given_back(world: StoreCalls) -> None:
    """Its data is gone; only its traces are left to clear."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    world.cancel("a")

    assert release(world, ("a", Release.CRASHED)) == 1
    assert world.run(world.queues.counts("default")).running == 0
    assert world.fsck() == []


def test_an_unreadable_envelope_is_given_back_by_the_defaults(world: StoreCalls) -> None:
    """A reaper must not stumble over what another version wrote."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    world.raw.hset(world.keys.queue("default").data, "a", "a1[1,2")

    assert release(world, ("a", Release.CRASHED)) == 1
    assert world.state("a") == "queued"


def test_a_dead_run_of_a_schedule_frees_it(world: StoreCalls) -> None:
    """A schedule must not wait for ever for a run that was given up by a reaper."""
    world.open(S)
    term = world.lead()
    world.run(world.declare_call(term, schedule("s")))
    item = world.item("s")
    world.run(world.fire_call(term, item))
    world.fetch(S)
    for _ in range(3):
        release(world, (item.run.run_id, Release.CRASHED))
        if world.state(item.run.run_id) == "later":
            world.make_due(item.run.run_id)
        world.fetch(S, want_suspect=True)

    assert world.state(item.run.run_id) == "dead"
    assert not world.raw.exists(world.keys.schedule_live)


def test_orphans_are_found_and_given_back(world: StoreCalls) -> None:
    """A session that was buried too early must not keep a run for ever."""
    world.open(S, Z)
    world.enqueue(envelope("a"), envelope("b"))
    world.fetch(S, want=1)
    world.fetch(Z, want=1)
    world.run(world.sessions.close(S))

    assert world.run(world.queues.orphans(queue="default")).items == [(S, "a", 1)]
    assert "neither open nor dying" in world.fsck()[0]
    assert release(world, ("a", Release.UNSTARTED)) == 1
    assert world.fsck() == []


def test_what_a_session_holds_is_read_to_the_end(world: StoreCalls) -> None:
    """A reaper that stops at the first page leaves runs behind for ever."""
    world.open(S, Z)
    for i in range(0, 1200, 200):
        world.enqueue(*(envelope(f"r{n}") for n in range(i, i + 200)))
        world.fetch(Z if i == 400 else S, want=200)

    seen, cursor = set(), None
    while cursor != "0":
        page = world.run(world.queues.held(session=S, queue="default", cursor=cursor or "0"))
        cursor = page.cursor
        seen |= {run_id for run_id, *_ in page.items}
    assert len(seen) == 1000


def test_a_late_acknowledgement_after_a_release_is_lost_or_stale(world: StoreCalls) -> None:
    """The worker was only frozen: its report must not complete the run that is another's now."""
    world.open(S, Z)
    world.enqueue(envelope("a"))
    world.fetch(S)
    world.run(world.sessions.condemn(S, None))
    release(world, ("a", Release.INTERRUPTED))
    world.run(world.sessions.bury(S))
    assert world.fetch(Z) == ["a"]

    assert world.ack(S, "a", Outcome.DEAD).lost
    world.open(S)
    assert world.ack(S, "a", Outcome.DEAD).stale == ["a"]
    assert world.state("a") == "running"
