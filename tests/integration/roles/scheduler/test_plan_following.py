"""Schedules that follow another: one run for each nominal time whose run has ended as they ask."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from supervisor.core.model import After, Envelope, Exclusion, Kind, Outcome, ScheduleDef, Template
from supervisor.store.key_table import spell
from supervisor.store.queues.control import QueueControl
from supervisor.store.schedules.backfills import BackfillCalls, Request
from supervisor.store.schedules.definitions import Definitions
from supervisor.store.wire.envelope import pack, unpack
from supervisor.store.wire.poll import Ack, Child
from tests.integration.roles.scheduler.planned import EPOCH_MS, TEMPLATE, Planned, every, planned
from tests.integration.roles.scheduler.test_plan_faults import OneFault, dealt


def after(schedule: str = "s", name: str = "b", outcome: str = "ok", **fields: Any) -> ScheduleDef:
    """Return a schedule that follows ``schedule``."""
    fields = {"overlap": "allow", "template": TEMPLATE} | fields
    return ScheduleDef(id=name, after=After(schedule=schedule, outcome=outcome), **fields)


def run_of(second: int, schedule: str = "s") -> str:
    return f"{schedule}@{EPOCH_MS + second * 1000}"


def end_with(plan: Planned, run_id: str, *children: str, outcome: Outcome = Outcome.OK) -> None:
    """End a run of the schedule ``s`` that spawns ``children``."""
    template = Template(job="demo.child", kind=Kind.SYNC)
    envelopes = [Envelope(id=f"{run_id}/{key}", template=template, parent=run_id) for key in children]
    made = [Child(pack(each, above=len(run_id)), 0, "demo.child") for each in envelopes]
    plan._turn(acks=[Ack(run_id=run_id, queue="default", attempt=1, outcome=outcome, schedule="s", children=made)])
    plan.advance(0.2)


def test_a_follower_runs_for_the_nominal_time_of_the_run_that_ended() -> None:
    """It has that run's id, its nominal time, and the interval around it: in a chain, that of the first."""
    with planned(every(10, overlap="allow"), after(), after("b", "c"), after("c", "d")) as plan:
        plan.until(15)
        assert plan.fired("b") == []
        for former, name in (("s", "b"), ("b", "c"), ("c", "d")):
            plan.finish()
            made = unpack(plan.server.store.raw.hget(plan.keys.queue("default").data, run_of(10, name)))
            assert (made.schedule, made.cause, made.after) == (name, "after", run_of(10, former))
            assert (made.nominal_ms, made.previous_ms, made.next_ms) == (EPOCH_MS + 10_000, EPOCH_MS, EPOCH_MS + 20_000)


def test_two_of_a_chain_that_wait_at_once_have_the_interval_of_the_first() -> None:
    """What one of them follows, the other follows too."""
    with planned(every(10, overlap="allow"), after(), after("b", "c")) as plan:
        for second in (15, 21):
            plan.until(second)
            plan.finish()
        data = plan.server.store.raw.hgetall(plan.keys.queue("default").data)
        made = {(each.id, each.next_ms) for each in map(unpack, data.values())}
        assert {(run_of(10, "c"), EPOCH_MS + 20_000), (run_of(20, "b"), EPOCH_MS + 30_000)} <= made


@pytest.mark.parametrize(
    ("asked", "outcome", "is_due"),
    [
        ("ok", Outcome.OK, True),
        ("ok", Outcome.DEAD, False),
        ("ok", Outcome.EXPIRED, False),
        ("failed", Outcome.OK, False),
        ("failed", Outcome.DEAD, True),
        ("failed", Outcome.EXPIRED, True),
        ("failed", Outcome.REJECTED, True),
        ("failed", Outcome.CANCELLED, False),
        ("any", Outcome.OK, True),
        ("any", Outcome.DEAD, True),
        ("any", Outcome.CANCELLED, True),
        ("any", Outcome.REPLACED, False),
        ("any", Outcome.RETRY, False),
        ("any", Outcome.AGAIN, False),
    ],
)
def test_a_follower_is_due_by_the_outcome_it_asks_for(asked: str, outcome: Outcome, *, is_due: bool) -> None:
    """Only an end counts: a run that is tried again has not ended."""
    with planned(every(10, overlap="allow"), after(outcome=asked)) as plan:
        plan.until(15)
        plan.finish(outcome=outcome)
        assert plan.fired("b") == ([10] if is_due else [])


def test_the_last_attempt_of_a_run_decides() -> None:
    """A retry makes nothing due, its success does."""
    with planned(every(10, overlap="allow", max_runs=1), after()) as plan:
        plan.until(15)
        plan.finish(outcome=Outcome.RETRY)
        plan.advance(5)
        (again,) = plan.fetch()
        plan._turn(acks=[Ack(run_id=again, queue="default", attempt=2, outcome=Outcome.OK, schedule="s")])
        plan.advance(1)
        assert plan.fired("b") == [10]


def test_a_follower_waits_for_the_children_of_the_run() -> None:
    """A fan-out has ended with its last child; one that failed makes it a failure, until it is requeued and succeeds."""
    with planned(every(10, overlap="allow", max_runs=1), after(), after(name="f", outcome="failed")) as plan:
        plan.until(15)
        (parent,) = plan.fetch()
        end_with(plan, parent, "a", "b")
        assert plan.fired("b") == []
        assert sorted(plan.fetch()) == [f"{parent}/a", f"{parent}/b"]
        plan.end(f"{parent}/a")
        assert plan.fired("b") == []
        plan.end(f"{parent}/b", outcome=Outcome.DEAD)
        assert (plan.fired("b"), plan.fired("f")) == ([], [10])
        plan.run(QueueControl(plan.keys).requeue("default", [f"{parent}/b"]))
        assert f"{parent}/b" in plan.fetch()
        plan.end(f"{parent}/b")
        plan.advance(1)
        assert (plan.fired("b"), plan.fired("f")) == ([10], [10])


def test_a_run_that_fails_again_after_a_requeue_makes_nothing_due_a_second_time() -> None:
    """One nominal time, one run of the follower, however often the dead is tried again."""
    with planned(every(10, overlap="allow", max_runs=1), after(outcome="any")) as plan:
        plan.until(15)
        plan.finish(outcome=Outcome.DEAD)
        for outcome in (Outcome.DEAD, Outcome.OK):
            plan.run(QueueControl(plan.keys).requeue("default", [run_of(10)]))
            plan.fetch()
            plan.end(run_of(10), outcome=outcome)
        plan.advance(60)
        assert plan.fired("b") == [10]


def test_a_renamed_follower_does_not_repeat_what_a_failure_made_due() -> None:
    """The dead run is requeued after the deploy that renamed the follower, and ends once more."""
    with planned(every(10, overlap="allow", max_runs=1)) as plan:
        plan.upsert(after(outcome="any"))
        plan.until(15)
        plan.finish(outcome=Outcome.DEAD)
        for former, name in (("b", "c"), ("c", "d")):
            plan.upsert(after(name=name, outcome="any", renamed_from=former))
        plan.run(QueueControl(plan.keys).requeue("default", [run_of(10)]))
        plan.fetch()
        plan.end(run_of(10))
        plan.advance(5)
        assert (plan.fired("b"), plan.fired("c"), plan.fired("d")) == ([10], [], [])


@pytest.mark.parametrize(("on_resume", "made_up"), [("skip", []), ("catchup", [10])])
def test_ends_while_a_follower_is_paused_are_made_up_for_if_it_asks(on_resume: str, made_up: list[int]) -> None:
    """As with due times of its own."""
    with planned(every(10, overlap="allow"), after(on_resume=on_resume)) as plan:
        plan.run(plan.control.pause(["b"], reason="", by="test"))
        plan.until(15)
        plan.finish()
        plan.advance(1)
        assert plan.fired("b") == []
        plan.run(plan.control.resume(["b"]))
        plan.until(22)
        assert plan.fired("b") == made_up
        plan.finish(run_of(20))
        assert plan.fired("b") == made_up


def test_what_the_first_schedule_leaves_out_is_due_for_nobody() -> None:
    """Skipped, excluded and missed times have no run that could end."""
    excluded = (Exclusion(from_ms=EPOCH_MS + 30_000, until_ms=EPOCH_MS + 30_001),)
    with planned(every(10, overlap="skip", exclude=excluded), after(outcome="any")) as plan:
        plan.until(25)  # the second finds the first unfinished
        plan.finish()
        plan.until(45)
        plan.finish(*[run for run in plan.fetch() if run.startswith("s@")])
        assert plan.fired("b") == [10, 40]


def test_followers_heed_their_own_overlap() -> None:
    """Those that wait come one after the other, and a chain of three works."""
    follower, last = after(overlap="buffer_all"), after("b", "c")
    with planned(every(10, overlap="allow"), follower, last) as plan:
        plan.until(35)
        for run in plan.fetch():
            plan.end(run)
        assert plan.fired("b") == [10]
        plan.finish(run_of(10, "b")) if plan.fetch() else None
        assert plan.fired("b") == [10, 20]
        assert plan.fired("c") == [10]


def test_a_follower_follows_a_backfill() -> None:
    """The first run of a day makes the second due, whoever asked for the day."""
    with planned(every(10, overlap="allow", start_at_ms=EPOCH_MS), after()) as plan:
        plan.upsert(every(10, "old", overlap="allow"), after("old", "n"))
        request = Request(from_ms=EPOCH_MS - 30_000, until_ms=EPOCH_MS - 10_000, overlap="allow", by="test")
        plan.run(BackfillCalls(plan.keys).add("x", "old", request, limit=10, is_forced=False))
        plan.until(9)
        plan.finish(*[run for run in plan.fetch() if run.startswith("old@")])
        plan.advance(0.5)
        assert sorted(plan.fired("n")) == [-30, -20, -10]


def test_a_follower_that_is_deleted_or_follows_another_is_out() -> None:
    """Nothing is left of it where it was listed."""
    with planned(every(10, overlap="allow")) as plan:
        plan.upsert(after(), after(name="gone"))
        plan.upsert(after("other"))
        plan.run(Definitions(plan.keys).delete([("gone", None)]))
        assert plan.server.store.raw.hgetall(plan.keys.prefix + spell("schedule_after")) == {b"other": b"b"}
        plan.until(15)
        plan.finish()
        assert plan.fired("b") == plan.fired("gone") == []


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_a_run_that_began_under_the_old_name_is_followed_under_the_new_one(overlap: str) -> None:
    """Also where no unfinished runs are listed. A schedule that takes the old name later has runs of its own."""
    with planned(every(100, "other")) as plan:
        plan.upsert(every(10, "s", overlap=overlap), after())
        plan.until(15)
        (run,) = plan.fetch()
        plan.upsert(every(10, "new", overlap=overlap, renamed_from="s"), after("new"))
        plan.end(run)
        plan.upsert(every(10, "s", overlap=overlap))
        plan.until(25)
        plan.end(*[each for each in plan.fetch() if each == run_of(20)])
        assert plan.fired("b") == [10]


@pytest.mark.parametrize("is_ended", [True, False])
@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_children_of_a_run_of_the_old_name_are_waited_for(overlap: str, *, is_ended: bool) -> None:
    """Whether the schedule is renamed before the run itself has ended or after."""
    with planned(every(100, "other")) as plan:
        plan.upsert(every(10, "s", overlap=overlap, max_runs=1), after())
        plan.until(15)
        (parent,) = plan.fetch()
        if is_ended:
            end_with(plan, parent, "a")
        plan.upsert(every(10, "new", overlap=overlap, max_runs=1, renamed_from="s"), after("new"))
        if not is_ended:
            end_with(plan, parent, "a")
        assert plan.fired("b") == []
        plan.finish()
        assert plan.fired("b") == [10]


def test_no_end_makes_due_what_was_fired_before_the_edit_that_makes_a_schedule_follow() -> None:
    """Also edited there and back. Later nominal times are due in any order, before and after those that are dropped."""
    with planned(every(10, overlap="allow")) as plan:
        plan.upsert(every(10, "b", overlap="allow"))
        plan.until(25)
        plan.upsert(after())
        plan.until(45)
        plan.fetch()
        for second in (40, 10, 30, 20):
            plan.finish(run_of(second))
        assert plan.fired("b") == [10, 20, 40, 30]
        plan.upsert(every(10, "b", overlap="allow"))
        plan.until(55)
        plan.upsert(after())
        plan.until(65)
        plan.fetch()
        plan.finish(run_of(60))
        plan.finish(run_of(50))
        assert plan.fired("b") == [10, 20, 40, 30, 50, 60]


@pytest.mark.parametrize("former", ["b", "old"])
def test_a_schedule_that_comes_back_to_follow_another_does_not_repeat_what_it_fired(former: str) -> None:
    """After its removal, or under another name."""
    with planned(every(10, overlap="allow")) as plan:
        plan.upsert(every(10, former, overlap="allow"))
        plan.until(25)
        if former == "b":
            plan.run(Definitions(plan.keys).delete([("b", None)]))
        plan.upsert(after(renamed_from="" if former == "b" else former))
        plan.until(35)
        plan.fetch()
        for second in (30, 10, 20):
            plan.finish(run_of(second))
        assert sorted(entry.nominal_ms - EPOCH_MS for entry in plan.server.decisions if entry.schedule != "s") == [
            10_000,
            20_000,
            30_000,
        ]


def test_a_thousand_ends_wait_for_a_paused_follower_and_no_more() -> None:
    """What comes then is dropped and counted."""
    with planned(every(10, overlap="allow"), after(on_resume="catchup")) as plan:
        plan.run(plan.control.pause(["b"], reason="", by="test"))
        state = plan.keys.schedule_state
        plan.server.store.raw.hset(state, "b", "0 0 0 0 0 0 0 1000 0 0 0 0")
        plan.until(15)
        plan.finish()
        assert plan.server.store.raw.llen(plan.keys.schedule_buffer("b")) == 0
        assert plan.state("b").counters.dropped == 1


def course(plan: Planned) -> set[float]:
    """Let runs end in a changing order, some of them badly; return the nominal seconds of those that ended ok."""
    rng, running, ok = Random(7), [], set()
    for second in range(4, 26, 2):
        plan.until(second)
        running += [run for run in plan.fetch() if run.startswith("s@")]
        rng.shuffle(running)
        for run in running[: rng.randrange(3)]:
            running.remove(run)
            outcome = rng.choice([Outcome.OK, Outcome.OK, Outcome.DEAD])
            plan.end(run, outcome=outcome)
            if outcome is Outcome.OK:
                ok.add((int(run.partition("@")[2]) - EPOCH_MS) / 1000)
    plan.until(40)
    return ok


def sound(plan: Planned, ok: set[float]) -> None:
    """Assert the law: for each ok end exactly one run of the follower."""
    assert len(ok) > 2
    assert sorted(plan.fired("b")) == sorted(ok)
    ids = plan.server.store.raw.hkeys(plan.keys.queue("default").data)
    assert {each for each in ids if each.startswith(b"b@")} == {run_of(round(at), "b").encode() for at in ok}
    assert plan.state("b").counters.waiting == 0


@pytest.mark.share(2)
@pytest.mark.parametrize(("position", "fault"), dealt(0, of=range(0, 40, 5)))
def test_one_fault_neither_loses_nor_doubles_a_follower(position: int, fault: str) -> None:
    """Whatever call of the leader it hits: what waits lies in Redis, and leaves with the run."""
    with planned(every(3, overlap="allow"), after(), network=OneFault(position, fault)) as plan:
        sound(plan, course(plan))


@pytest.mark.share(3)
@pytest.mark.parametrize("position", range(0, 40, 3))
def test_a_leader_that_dies_between_two_calls_neither_loses_nor_doubles_a_follower(position: int) -> None:
    """Its replacement finds what waits."""
    with planned(every(3, overlap="allow"), after()) as plan:
        plan.replace_scheduler_after(position)
        sound(plan, course(plan))


def test_a_definition_that_follows_is_written_with_that_first() -> None:
    """The scripts look for it there, and at no argument of that name."""
    body = msgspec.json.encode(
        after(template=Template(job="x", kind=Kind.SYNC, args={"after": {"a": 1}})), order="sorted"
    )
    assert body.startswith(b'{"after":{')
