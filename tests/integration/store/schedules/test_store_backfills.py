"""Backfills, driven as the leader drives them: what is enqueued, and what is left out."""

from __future__ import annotations

import itertools

import pytest

from supervisor.core.model import Outcome
from supervisor.roles.scheduler.backfill import HELD_NS, LOOK_NS
from supervisor.store.schedules import backfills as calls
from supervisor.store.schedules.backfills import AddCode, BackfillState, Request
from supervisor.store.schedules.definitions import Change, Definitions
from tests.integration.store.schedules.backfill_fixture import MARK_MS, MINUTE_MS, BackfilledSchedule, nominal, stretch
from tests.kit.builders import StoreCalls, schedule
from tests.kit.servers import on_both
from tests.kit.stepper import term_of


@pytest.fixture
def desk(world: StoreCalls) -> BackfilledSchedule:
    return BackfilledSchedule(world)


def test_a_backfill_enqueues_each_nominal_time_once_in_order_with_both_ends(desk: BackfilledSchedule) -> None:
    """Under the ids that the plan would have given them."""
    assert desk.add(250) is AddCode.ADDED
    done = desk.finish(desk.world.lead())

    assert desk.ready() == [f"m@{nominal(minute)}" for minute in range(1, 251)]
    assert (done.state, done.enqueued, done.skipped) == (BackfillState.DONE, 250, 0)
    assert desk.stepper.events("backfill_ended")[0]["enqueued"] == 250


def test_asking_twice_is_one_request(desk: BackfilledSchedule) -> None:
    """The reply to the first may have been lost."""
    assert (desk.add(5), desk.add(5)) == (AddCode.ADDED, AddCode.ADDED)
    assert len(desk.world.run(desk.calls.all())) == 1


def test_a_second_backfill_of_the_same_time_enqueues_nothing(desk: BackfilledSchedule) -> None:
    """Also when the runs of the first have ended: they are remembered for a week."""
    term = desk.world.lead()
    desk.add(5)
    desk.finish(term)
    desk.world.open("w")
    for run in desk.world.fetch("w"):
        desk.world.ack("w", run, Outcome.OK)
    desk.add(8, name="b2", first=3)
    again = desk.finish(term, "b2")

    assert desk.ready() == [f"m@{nominal(minute)}" for minute in range(6, 11)]
    assert (again.enqueued, again.skipped) == (5, 3)
    assert 0 < desk.world.raw.pttl(desk.world.keys.ran(f"m@{nominal(1)}")) <= calls.MEMORY_MS


def test_a_backfill_enqueues_nothing_again_under_a_new_name(desk: BackfilledSchedule) -> None:
    """Nor does one that is forced count it as new; also after a second rename, and back again."""
    term = desk.world.lead()
    desk.add(5)
    desk.finish(term)
    names = ["m", "n", "o", "m"]
    for former, name in itertools.pairwise(names):
        new = schedule(name, every_ms=MINUTE_MS, renamed_from=former)
        desk.world.run(Definitions(desk.world.keys).upsert([Change(definition=new)], wall_ms=1))
        request = Request(from_ms=nominal(3), until_ms=nominal(6), overlap="allow")
        desk.world.run(desk.calls.add(f"of {name}", name, request, limit=100, is_forced=False))
        done = desk.finish(term, f"of {name}")
        assert (done.enqueued, done.skipped) == ((1, 3) if name == "n" else (0, 4))
    assert desk.ready() == [*(f"m@{nominal(minute)}" for minute in range(1, 6)), f"n@{nominal(6)}"]
    assert desk.world.run(desk.calls.ran([f"o@{nominal(1)}", f"o@{nominal(7)}"])) == [True, False]


def test_what_the_schedule_itself_enqueued_is_left_out(desk: BackfilledSchedule) -> None:
    """Known from its decisions: fired, and started from the buffer; what was skipped or missed is run."""
    lines = [stretch("U", 9, 9), stretch("S", 8, 8), stretch("F", 3, 7), stretch("Mp", 1, 2)]
    desk.state("6 1 2 0 0 0 0 0 0 0 0 1\n" + "\n".join(lines))
    desk.add(10)
    done = desk.finish(desk.world.lead())

    assert desk.ready() == [f"m@{nominal(minute)}" for minute in (1, 2, 8, 10)]
    assert (done.enqueued, done.skipped) == (4, 6)


def test_what_waits_in_the_buffer_is_left_out(desk: BackfilledSchedule) -> None:
    """It will run by itself."""
    desk.world.raw.rpush(desk.world.keys.schedule_buffer("m"), nominal(2))
    desk.add(3)
    desk.finish(desk.world.lead())

    assert desk.ready() == [f"m@{nominal(1)}", f"m@{nominal(3)}"]


def test_what_was_started_from_the_buffer_after_the_leader_looked_is_left_out(desk: BackfilledSchedule) -> None:
    """The only part of the past that can still change, so the script looks once more."""
    role, term = desk.role(), desk.world.lead()
    desk.add(3)

    def start_buffered(script: str) -> None:
        if script == "backfill_step":
            desk.state("0 0 0 0 0 0 0 0 0 0 0 1\n" + stretch("U", 2, 2))

    desk.stepper.before = start_buffered
    done = desk.finish(term, role=role)

    assert desk.ready() == [f"m@{nominal(1)}", f"m@{nominal(3)}"]
    assert (done.enqueued, done.skipped) == (2, 1)


def test_older_than_what_is_remembered_is_left_out_unless_forced(desk: BackfilledSchedule) -> None:
    """A full memory has forgotten something; a forced run gets an id of its own, so that it cannot take the old one's."""
    lines = [stretch("FS"[minute % 2], minute, minute) for minute in range(30, 10, -1)]
    desk.state("0 0 0 0 0 0 0 0 0 0 0 1\n" + "\n".join(lines))
    term = desk.world.lead()
    desk.add(12)
    careful = desk.finish(term)
    assert desk.ready() == [f"m@{nominal(11)}"]
    assert (careful.enqueued, careful.skipped) == (1, 11)
    assert desk.stepper.events("backfill_left_out") == []

    desk.add(12, name="b2", is_forced=True)
    forced = desk.finish(term, "b2")
    assert desk.ready()[1:] == [f"m@{nominal(minute)}#{forced.number}" for minute in range(1, 13)]


def test_what_is_remembered_begins_behind_the_start_of_a_missed_stretch(desk: BackfilledSchedule) -> None:
    """There lies the due time before it, which may have run: that it did is forgotten."""
    lines = [stretch("FS"[minute % 2], minute, minute) for minute in range(30, 11, -1)]
    missed = f"Mp{nominal(9)} {2 * MINUTE_MS} 2 5 1"
    desk.state("0 0 0 0 0 0 0 0 0 0 0 1\n" + "\n".join([*lines, missed]))
    desk.add(12)
    done = desk.finish(desk.world.lead())

    assert desk.ready() == [f"m@{nominal(10)}", f"m@{nominal(11)}"]
    assert (done.enqueued, done.skipped) == (2, 10)


@on_both("runs_remembered")
def test_a_forced_backfill_that_is_repeated_runs_again_under_new_ids(desk: BackfilledSchedule) -> None:
    """That is what force means; each request is done once."""
    desk.state("0 0 0 0 0 0 0 0 0 0 0 1\n" + stretch("F", 1, 3))
    term = desk.world.lead()
    for name in ("b1", "b2"):
        desk.add(3, name=name, is_forced=True)
        assert desk.finish(term, name).enqueued == 3

    assert len(set(desk.ready())) == 6


def test_a_forced_backfill_repeats_what_an_earlier_one_enqueued(desk: BackfilledSchedule) -> None:
    """No decision names these: only the memory of backfills does. What never ran keeps its own id."""
    term = desk.world.lead()
    desk.add(3)
    desk.finish(term)
    desk.add(5, name="b2", is_forced=True)
    forced = desk.finish(term, "b2")

    again = [f"m@{nominal(minute)}#{forced.number}" for minute in (1, 2, 3)]
    assert desk.ready()[3:] == [*again, f"m@{nominal(4)}", f"m@{nominal(5)}"]
    assert (forced.enqueued, forced.skipped) == (5, 0)


def test_an_edit_that_left_the_times_alone_does_not_hide_what_ran(desk: BackfilledSchedule) -> None:
    """Decided under revision 1, asked under revision 2: as many times as then, so they are the same ones."""
    desk.state("0 0 0 0 0 0 0 0 0 0 0 1\n" + stretch("F", 1, 50))
    desk.define(description="x")
    desk.add(60)
    done = desk.finish(desk.world.lead())

    assert desk.ready() == [f"m@{nominal(minute)}" for minute in range(51, 61)]
    assert done.skipped == 50


def test_what_was_decided_under_another_timing_is_not_guessed_at(desk: BackfilledSchedule) -> None:
    """Only its ends are known for sure."""
    desk.state("0 0 0 0 0 0 0 0 0 0 0 1\n" + stretch("F", 10, 20))
    desk.define(every_ms=MINUTE_MS // 2)
    desk.add(30)
    desk.finish(desk.world.lead())

    inside = [run for run in desk.ready() if nominal(10) <= int(run.partition("@")[2]) <= nominal(20)]
    assert inside == []
    assert f"m@{nominal(20) + MINUTE_MS // 2}" in desk.ready()


def test_nothing_after_the_watermark_is_backfilled(desk: BackfilledSchedule) -> None:
    """The schedule still decides that itself; both would run it."""
    desk.add(5, first=998)
    done = desk.finish(desk.world.lead())

    assert desk.ready() == [f"m@{nominal(minute)}" for minute in (998, 999, 1000)]
    assert done.state is BackfillState.DONE


def test_nothing_before_start_at_is_backfilled(desk: BackfilledSchedule) -> None:
    """There are no nominal times before it."""
    desk.define(start_at_ms=nominal(4))
    desk.add(5)
    desk.finish(desk.world.lead())

    assert desk.ready() == [f"m@{nominal(4)}", f"m@{nominal(5)}"]


def test_the_limit_ends_it(desk: BackfilledSchedule) -> None:
    """The oldest come first."""
    desk.add(500, limit=120)
    done = desk.finish(desk.world.lead())

    assert (done.state, done.enqueued, len(desk.ready())) == (BackfillState.DONE, 120, 120)


def test_one_at_a_time_waits_for_each_run_to_end(desk: BackfilledSchedule) -> None:
    """``overlap: buffer_all``: a backfill of a job that must not run twice at once."""
    role, term = desk.role(), term_of(desk.world.lead())
    desk.add(3, overlap="buffer_all")
    desk.world.open("w")
    for minute in (1, 2, 3):
        desk.stepper.until(lambda: bool(desk.ready()), role, term, pass_ms=1100)
        for _ in range(3):
            desk.stepper.once(role, term)
            desk.stepper.now_ns += HELD_NS + LOOK_NS
        assert desk.world.fetch("w") == [f"m@{nominal(minute)}"]
        desk.world.ack("w", f"m@{nominal(minute)}", Outcome.OK)
    desk.stepper.until(lambda: desk.find().state is BackfillState.DONE, role, term, pass_ms=1100)
    assert desk.find().enqueued == 3


def test_one_at_a_time_lets_what_waits_in_the_schedules_own_buffer_go_first(desk: BackfilledSchedule) -> None:
    """Else a long backfill would take each free slot, and starve the schedule. A pause holds the buffer, not the backfill."""
    role, term = desk.role(), term_of(desk.world.lead())
    desk.state("0 0 0 1 0 0 0 1 0 0 0 0")
    desk.world.raw.rpush(desk.world.keys.schedule_buffer("m"), MARK_MS)
    desk.add(3, overlap="buffer_all")
    for _ in range(6):
        desk.stepper.once(role, term)
        desk.stepper.now_ns += HELD_NS + LOOK_NS
    assert desk.ready() == []
    desk.world.raw.hset(desk.world.keys.schedule_paused, "m", "{}")
    desk.stepper.until(lambda: bool(desk.ready()), role, term, pass_ms=1100)

    assert desk.ready() == [f"m@{nominal(1)}"]


def test_skip_leaves_out_what_an_unfinished_run_holds_up(desk: BackfilledSchedule) -> None:
    """``overlap: skip``: the first runs, the others are counted."""
    desk.add(5, overlap="skip")
    done = desk.finish(desk.world.lead())

    assert desk.ready() == [f"m@{nominal(1)}"]
    assert (done.enqueued, done.skipped) == (1, 4)


@on_both("backfill_add", "backfill_step", "schedule_delete")
def test_a_backfill_of_a_deleted_schedule_fails_and_says_so(desk: BackfilledSchedule) -> None:
    """It is not left hanging."""
    desk.add(5)
    desk.world.run(Definitions(desk.world.keys).delete([("m", None)]))
    done = desk.finish(desk.world.lead())

    assert (done.state, done.note) == (BackfillState.FAILED, "its schedule is gone")


def test_an_edit_in_between_is_used_from_the_next_chunk(desk: BackfilledSchedule) -> None:
    """The current definition counts; a chunk made from an old one is made anew."""
    role, term = desk.role(), term_of(desk.world.lead())
    desk.add(150)

    def edit(script: str) -> None:
        if script == "backfill_step" and desk.ready() == []:
            desk.define(description="x", overlap="allow")

    desk.stepper.before = edit
    desk.stepper.until(lambda: desk.find().state is BackfillState.DONE, role, term)
    assert desk.ready() == [f"m@{nominal(minute)}" for minute in range(1, 151)]


def test_requests_are_bounded(desk: BackfilledSchedule) -> None:
    """In number, and in how many runs of one schedule are remembered."""
    assert desk.add(900, limit=6000) is AddCode.ADDED
    assert desk.add(900, name="b2", limit=6000) is AddCode.CAPPED
    assert desk.add(900, name="b2", limit=6000, is_forced=True) is AddCode.ADDED
    for number in range(98):
        assert desk.add(1, name=f"x{number}", limit=1) is AddCode.ADDED
    assert desk.add(1, name="more", limit=1) is AddCode.FULL
    request = Request(from_ms=1, until_ms=2)
    desk.world.run(desk.calls.cancel("b1"))
    assert desk.world.run(desk.calls.add("y", "nobody", request, limit=1, is_forced=False)) is AddCode.UNKNOWN


def test_backfills_that_enqueued_nothing_keep_nobody_from_asking(desk: BackfilledSchedule) -> None:
    """A thousand empty requests for one schedule would shut out those for all others for a week."""
    desk.add(1)
    desk.world.run(desk.calls.cancel("b1"))
    key, record = desk.world.keys.schedule_backfills, desk.world.raw.hget(desk.world.keys.schedule_backfills, "b1")
    head, rest = record.split(b"\n", 1)
    words = head.split(b" ")

    def fill(enqueued: bytes, forced: bytes) -> None:
        ended = int(words[4])
        records = {
            f"b{n}": b" ".join([*words[:2], enqueued, words[3], b"%d" % (ended - n), *words[5:7], forced, words[8]])
            for n in range(1, 1001)
        }
        desk.world.raw.hset(key, mapping={name: line + b"\n" + rest for name, line in records.items()})

    fill(b"1", b"0")
    assert desk.add(1, name="more") is AddCode.FULL
    for enqueued, forced in ((b"0", b"0"), (b"5", b"1")):
        fill(enqueued, forced)
        assert desk.add(1, name="more") is AddCode.ADDED
        assert desk.world.raw.hlen(key) == 1000
        assert not desk.world.raw.hexists(key, "b1000")
        desk.world.raw.hdel(key, "more")


@on_both("backfill_cancel")
def test_those_that_ended_are_forgotten_after_a_week(desk: BackfilledSchedule) -> None:
    """With the runs that they enqueued."""
    desk.add(1)
    desk.world.run(desk.calls.cancel("b1"))
    stored = desk.world.raw.hget(desk.world.keys.schedule_backfills, "b1").split(b" ")
    stored[4] = str(int(stored[4]) - calls.MEMORY_MS - 1).encode()
    desk.world.raw.hset(desk.world.keys.schedule_backfills, "b1", b" ".join(stored))
    desk.add(1, name="b2")

    assert [each.id for each in desk.world.run(desk.calls.all())] == ["b2"]


def test_without_requests_it_asks_every_five_seconds_only(desk: BackfilledSchedule) -> None:
    """An idle cluster costs next to nothing; the listener wakes it for what matters."""
    role, term = desk.role(), term_of(desk.world.lead())
    for _ in range(100):
        desk.stepper.once(role, term)
        desk.stepper.now_ns += 100_000_000
    assert len(desk.stepper.asked) == 2
    desk.add(1)
    role.wake()
    assert desk.stepper.once(role, term)
