"""Pause, resume and trigger: by Redis' time, once however often asked, and without moving the plan."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Outcome
from supervisor.core.schedules.manual_runs import MANUAL, TriggerKeyError, extra_run, manual_run_id
from supervisor.store.schedules.control import Control, PauseCode, ResumeCode, TriggerCode
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.reads import Inspection, Pause, Views
from tests.kit.builders import StoreCalls, envelope, schedule
from tests.kit.servers import on_both


class ControlledSchedule:
    """One dynamic schedule ``a``, and what people do to it."""

    def __init__(self, world: StoreCalls) -> None:
        self.world = world
        self.control = Control(world.keys)

    def define(self, **fields: Any) -> None:
        change = Change(definition=schedule("a", **fields))
        self.world.run(Definitions(self.world.keys).upsert([change], wall_ms=1))
        self.world.raw.zadd(self.world.keys.schedule_next, {"a": 10**13})
        self.world.raw.hset(self.world.keys.schedule_mark, "a", 5)

    def show(self) -> Inspection:
        return self.world.run(Views(self.world.keys).inspect(["a"]))[0]

    def pause(self, **fields: Any) -> Pause:
        assert self.codes(self.control.pause(["a"], **fields)) == [PauseCode.PAUSED]
        record = self.show().record
        assert record is not None
        assert record.pause is not None
        return record.pause

    def codes(self, call: Any) -> list[PauseCode]:
        return [code for code, _ in self.world.run(call).results]

    def resume(self) -> ResumeCode:
        return self.world.run(self.control.resume(["a"])).results[0][0]

    @property
    def mark(self) -> int:
        return int(self.world.raw.hget(self.world.keys.schedule_mark, "a"))

    @property
    def score(self) -> float | None:
        return self.world.raw.zscore(self.world.keys.schedule_next, "a")

    def trigger(self, key: str, *, revision: int = 1, **options: Any) -> TriggerCode:
        return self.world.run(self.trigger_call(key, revision=revision, **options))

    def trigger_call(self, key: str, *, revision: int = 1, **options: Any) -> Any:
        run_id = manual_run_id("a", key)
        run = extra_run(schedule("a"), run_id=run_id, nominal_ms=7, cause=MANUAL, wall_ms=7)
        return self.control.trigger(run, revision=revision, **options)


@pytest.fixture
def desk(world: StoreCalls) -> ControlledSchedule:
    desk = ControlledSchedule(world)
    desk.define()
    return desk


def test_a_paused_schedule_is_out_of_the_plan_until_somebody_resumes_it(desk: ControlledSchedule) -> None:
    """Who, why and when are kept for whoever asks later."""
    paused = desk.pause(reason='say "no"\nlater', by="kim")

    assert (paused.reason, paused.by, paused.until_ms) == ('say "no"\nlater', "kim", None)
    assert abs(paused.at_ms - desk.show().now_ms) < 60_000
    assert desk.score is None
    assert desk.mark == 5


@pytest.mark.parametrize("form", ["until_ms", "for_ms"])
def test_a_pause_may_end_by_itself(desk: ControlledSchedule, form: str) -> None:
    """The leader looks again at that time, by Redis' clock."""
    now_ms = desk.show().now_ms
    paused = desk.pause(**{form: now_ms + 60_000 if form == "until_ms" else 60_000})

    assert paused.until_ms is not None
    assert now_ms + 60_000 <= paused.until_ms <= now_ms + 120_000
    assert desk.score == paused.until_ms


def test_a_pause_that_is_over_already_is_refused(desk: ControlledSchedule) -> None:
    """It would look as if it had been set."""
    with pytest.raises(StoreRefusedError, match="until_ms is over"):
        desk.world.run(desk.control.pause(["a"], until_ms=1000))
    assert desk.score == 10**13


def test_pausing_again_replaces_the_reason(desk: ControlledSchedule) -> None:
    """And a repeated call, whose reply was lost, does nothing more."""
    desk.pause(reason="one", for_ms=60_000)
    first, second = desk.world.twice(desk.control.pause(["a"], reason="two"))

    assert (first.results, second.results) == ([(PauseCode.PAUSED, None)], [(PauseCode.PAUSED, None)])
    record = desk.show().record
    assert record is not None
    assert record.pause is not None
    assert (record.pause.reason, record.pause.until_ms) == ("two", None)


def test_a_pause_that_is_sent_again_is_no_longer_and_does_not_come_back(desk: ControlledSchedule) -> None:
    """Its reply was lost. Whoever ended it meanwhile meant it."""
    call = desk.control.pause(["a"], for_ms=60_000)
    first = desk.world.run(call)
    assert desk.world.run(call) == first
    desk.resume()
    assert desk.world.run(call) == first
    record = desk.show().record
    assert record is not None
    assert record.pause is None


def test_unknown_schedules_are_named(desk: ControlledSchedule) -> None:
    """The others are paused all the same."""
    assert desk.codes(desk.control.pause(["nobody", "a"])) == [PauseCode.UNKNOWN, PauseCode.PAUSED]
    results = desk.world.run(desk.control.resume(["nobody", "a"])).results
    assert [code for code, _ in results] == [ResumeCode.UNKNOWN, ResumeCode.RESUMED]
    assert desk.world.raw.hlen(desk.world.keys.schedule_paused) == 0


@on_both("schedule_resume")
def test_a_request_that_was_judged_by_another_revision_changes_nothing(desk: ControlledSchedule) -> None:
    """Who asks was permitted by what the schedule was, which is not what it is."""
    assert desk.codes(desk.control.pause(["a", "nobody"], revision=2)) == [PauseCode.STALE, PauseCode.UNKNOWN]
    assert desk.world.raw.hlen(desk.world.keys.schedule_paused) == 0
    assert desk.codes(desk.control.pause(["a"], revision=1)) == [PauseCode.PAUSED]
    codes = [desk.world.run(desk.control.resume(["a"], revision=each)).results[0][0] for each in (2, 1)]
    assert codes == [ResumeCode.STALE, ResumeCode.RESUMED]


def test_the_time_of_a_pause_does_not_count_as_missed(desk: ControlledSchedule) -> None:
    """Resuming sets the watermark to Redis' now; once, however often it is asked for."""
    desk.pause()
    now_ms = desk.show().now_ms
    assert desk.resume() is ResumeCode.RESUMED
    assert desk.mark >= now_ms
    assert desk.score is not None
    assert desk.score <= 0
    desk.world.raw.hset(desk.world.keys.schedule_mark, "a", 5)
    assert desk.resume() is ResumeCode.RUNNING
    assert desk.mark == 5


def test_on_resume_catchup_treats_a_pause_as_an_outage(desk: ControlledSchedule) -> None:
    """The watermark stays; only the field of the definition itself counts, not an argument of that name."""
    desk.define(on_resume="catchup")
    desk.pause()
    desk.resume()
    assert desk.mark == 5

    template = schedule("a").template
    desk.define(template=type(template)(job="j", kind=template.kind, args={"on_resume": "catchup"}))
    desk.pause()
    desk.resume()
    assert desk.mark > 5


def test_of_a_schedule_with_jitter_the_leader_ends_the_pause(desk: ControlledSchedule) -> None:
    """It alone can tell what still waits. Nobody is shown a pause meanwhile, and one that begins is a pause."""
    desk.define(jitter_ms=1000)
    desk.pause()
    resumed = desk.world.run(desk.control.resume(["a"]))
    assert resumed.results == [(ResumeCode.RESUMED, resumed.now_ms - 1000)]  # nothing older waits: for a backfill
    assert desk.show().record.pause is None  # type: ignore[union-attr]  # it is there
    assert desk.score is not None
    assert desk.score <= 0
    assert desk.pause(by="kim").by == "kim"
    assert desk.score is None

    desk.define(jitter_ms=1000, on_resume="catchup")
    desk.resume()
    assert not desk.world.raw.hexists(desk.world.keys.schedule_paused, "a")


def test_a_pause_that_ended_by_itself_ended_then_however_late_it_is_resumed(desk: ControlledSchedule) -> None:
    """What became due after its end is owed."""
    desk.pause(for_ms=60_000)
    over = b'{"reason":"","by":"","at_ms":1,"until_ms":4000}'
    desk.world.raw.hset(desk.world.keys.schedule_paused, "a", over)
    desk.resume()

    assert desk.mark == 4000


@on_both("schedule_drop")
def test_what_waits_in_a_buffer_can_be_dropped(desk: ControlledSchedule) -> None:
    """It counts as dropped; the leader looks at the schedule anew. A repeated call drops nothing more."""
    desk.world.raw.rpush(desk.world.keys.schedule_buffer("a"), 7, 8)
    desk.world.raw.hset(desk.world.keys.schedule_state, "a", "3 0 0 2 1 0 0 2 9 0 0 1\nB7 1 2 0 1")

    assert desk.world.twice(desk.control.drop_buffered(["a", "nobody"])) == ([2, 0], [0, 0])
    assert desk.show().buffered == 0
    assert desk.show().state == b"3 0 0 2 3 0 0 0 0 0 0 1\nB7 1 2 0 1"
    assert desk.score is not None
    assert desk.score <= 0


@on_both("run_show", "schedule_inspect", "schedule_pause", "schedule_trigger", "schedule_upsert")
def test_a_trigger_runs_now_and_moves_nothing_of_the_plan(desk: ControlledSchedule) -> None:
    """Watermark, next time, counters and pause stay."""
    desk.pause()
    assert desk.trigger("k1") is TriggerCode.TRIGGERED

    assert desk.world.state("a!manual!k1") == "queued"
    assert (desk.mark, desk.score, desk.show().state, desk.show().live) == (5, None, b"", [])
    assert desk.show().record.pause is not None  # type: ignore[union-attr]  # it is there


def test_the_same_key_is_the_same_run_for_a_day(desk: ControlledSchedule) -> None:
    """Also when the run has ended since, and also when the definition changed since."""
    first, second = desk.world.twice(desk.trigger_call("k1"))
    assert (first, second) == (TriggerCode.TRIGGERED, TriggerCode.DUPLICATE)
    desk.world.open("w")
    assert desk.world.fetch("w") == ["a!manual!k1"]
    desk.world.ack("w", "a!manual!k1", Outcome.OK)
    desk.define(description="x")

    assert desk.trigger("k1", revision=1) is TriggerCode.DUPLICATE
    assert desk.world.state("a!manual!k1") != "queued"
    assert 0 < desk.world.raw.pttl(desk.world.keys.ran("a!manual!k1")) <= 24 * 3_600_000
    assert desk.trigger("k2", revision=2) is TriggerCode.TRIGGERED


def test_a_key_whose_id_another_run_has_is_refused(desk: ControlledSchedule) -> None:
    """A program took it: nothing of the schedule would run, and that run is not its."""
    desk.world.enqueue(envelope("a!manual!k1"))
    assert desk.trigger("k1") is TriggerCode.TAKEN
    assert desk.trigger("k2") is TriggerCode.TRIGGERED


def test_a_key_whose_run_is_dead_or_unfinished_stays_the_same_run(desk: ControlledSchedule) -> None:
    """Longer than it is remembered: nothing could be enqueued beside it, and saying so would be a lie."""
    assert desk.trigger("k1") is TriggerCode.TRIGGERED
    desk.world.raw.delete(desk.world.keys.ran("a!manual!k1"))
    assert desk.trigger("k1") is TriggerCode.DUPLICATE
    desk.world.open("w")
    desk.world.fetch("w")
    desk.world.ack("w", "a!manual!k1", Outcome.DEAD)

    assert desk.trigger("k1", heeds_overlap=True) is TriggerCode.DUPLICATE
    assert desk.show().live == []


def test_a_run_made_from_an_old_definition_is_not_enqueued(desk: ControlledSchedule) -> None:
    """The caller reads again, and asks again."""
    desk.define(description="x")

    assert desk.trigger("k1", revision=1) is TriggerCode.STALE
    assert desk.trigger("k1", revision=2) is TriggerCode.TRIGGERED


def test_a_trigger_heeds_overlap_only_when_asked(desk: ControlledSchedule) -> None:
    """With it, the run counts as unfinished too, so two triggers do not run together."""
    assert desk.trigger("k1", heeds_overlap=True) is TriggerCode.TRIGGERED
    assert desk.show().live == [("default", "a!manual!k1")]
    assert desk.trigger("k2", heeds_overlap=True) is TriggerCode.SKIPPED
    assert desk.trigger("k3", heeds_overlap=True, max_running=2) is TriggerCode.TRIGGERED
    assert desk.trigger("k4") is TriggerCode.TRIGGERED


def test_keys_of_triggers_are_capped_for_each_schedule(
    desk: ControlledSchedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is remembered for a day, and a client in a loop makes them without end."""
    monkeypatch.setattr("supervisor.store.schedules.control.KEYED_MAX", 2)
    codes = [desk.trigger(key) for key in ("k1", "k1", "k2", "k3", "k1")]
    assert [code.value for code in codes] == ["TRIGGERED", "DUPLICATE", "TRIGGERED", "CAPPED", "DUPLICATE"]
    assert desk.trigger("drawn", is_keyed=False) is TriggerCode.TRIGGERED

    raw, prefix = desk.world.raw, desk.world.keys.prefix
    (counter,) = raw.keys(f"{prefix}schedule:keyed:*")
    assert raw.get(counter) == b"2"
    assert 86_000_000 < raw.pttl(counter) <= 86_400_000
    (drawn,) = raw.keys(f"{prefix}ran:*drawn")
    assert raw.pttl(drawn) <= 600_000
    raw.delete(counter)  # as if the day had passed
    assert desk.trigger("k3") is TriggerCode.TRIGGERED


def test_a_trigger_of_nobody_is_unknown(world: StoreCalls) -> None:
    """A deleted schedule cannot be run."""
    assert ControlledSchedule(world).trigger("k1") is TriggerCode.UNKNOWN


@pytest.mark.parametrize("key", ["", "a b", "a|b", "a,b", "x" * 41, "é", "a#1", "a@1"])
def test_a_key_that_cannot_stand_in_a_run_id_is_refused(key: str) -> None:
    """It is part of an identity: nothing is cut or escaped."""
    with pytest.raises(TriggerKeyError, match="must be 1 to 40"):
        manual_run_id("a", key)
