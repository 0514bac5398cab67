"""Renames that are rolled back, brought again, or come while a leader is busy: nothing under the new name is forgotten."""

from __future__ import annotations

import pytest

from supervisor.core.effects import drive
from supervisor.core.election.lease import Term
from supervisor.core.model import Kind, Outcome, ScheduleDef, Template, When
from supervisor.operations import apply
from supervisor.store.queues.control import QueueControl
from supervisor.store.schedules.backfills import BackfillCalls, Request
from supervisor.store.schedules.definitions import BeginCode, Change, DefineCode, Definitions
from supervisor.store.schedules.reads import Views
from supervisor.store.wire.codec import text
from supervisor.testing.world import EPOCH_MS
from tests.integration.roles.scheduler.planned import TEMPLATE, Planned, every, planned
from tests.integration.roles.scheduler.test_plan_following import after, end_with, run_of
from tests.integration.roles.scheduler.test_plan_lives import delete, pass_a_day


def every_ten(name: str, **fields: object) -> ScheduleDef:
    return every(10, name, overlap="allow", **fields)


def work(plan: Planned) -> list[str]:
    """Execute what waits, and return the ids."""
    if fetched := plan.fetch():
        plan.end(*fetched)
    return list(fetched)


def pause(plan: Planned, name: str) -> None:
    plan.run(plan.control.pause([name], reason="it does harm"))
    plan.world.executed()


def is_paused(plan: Planned, name: str) -> bool:
    (seen,) = plan.run(Views(plan.keys).inspect([name]))
    return seen.record is not None and seen.record.pause is not None


def backfill(plan: Planned, name: str, until_s: int) -> None:
    request = Request(from_ms=EPOCH_MS + 5_000, until_ms=EPOCH_MS + until_s * 1000, overlap="allow", by="test")
    plan.run(BackfillCalls(plan.keys).add("x", name, request, limit=10, is_forced=False))


@pytest.mark.parametrize("former", ["old", ""])
def test_a_renamed_schedule_that_is_added_again_keeps_its_pause_and_its_count(former: str) -> None:
    """Also while its definition still says what it was called before."""
    with planned() as plan:
        plan.upsert(every_ten("old"))
        plan.until(15)
        plan.upsert(every_ten("new", renamed_from="old"))
        plan.until(35)
        pause(plan, "new")
        delete(plan, "new")
        plan.until(45)
        plan.upsert(every_ten("new", renamed_from=former))
        plan.until(72)

        assert is_paused(plan, "new")
        assert plan.fired("new") == [20, 30]
        assert plan.state("new").counters.fired == 3


@pytest.mark.parametrize(
    ("steps", "is_resumed"),
    [
        ("renamed", True),
        ("renamed back", True),
        ("removed, added", True),
        ("removed, renamed", True),
        ("removed, added", False),
        ("edited, renamed", True),
    ],
)
def test_no_rename_and_no_deploy_without_a_schedule_undoes_a_resume(steps: str, *, is_resumed: bool) -> None:
    """Of a definition that says ``paused``; one that begins to say so pauses."""
    with planned(every(1000, "far")) as plan:
        plan.upsert(every_ten("a", paused=True))
        plan.until(5)
        if is_resumed:
            plan.run(plan.control.resume(["a"]))
        name = "b" if steps.endswith("renamed") else "a"
        if steps == "edited, renamed":
            plan.upsert(every_ten("a"))
        elif steps == "renamed back":
            plan.upsert(every_ten("b", paused=True, renamed_from="a"))
            delete(plan, "b")
        elif steps != "renamed":
            delete(plan, "a")
        plan.upsert(every_ten(name, paused=True, renamed_from="a" if name == "b" else ""))
        plan.until(25)

        is_paused_now = not is_resumed or steps.startswith("edited")
        assert is_paused(plan, name) == is_paused_now
        assert plan.fired(name) == ([] if is_paused_now else [10, 20])


def test_another_job_under_a_former_name_is_paused_as_its_definition_says() -> None:
    """Somebody resumed what goes on under the new name, and nobody this one."""
    with planned(every(1000, "far")) as plan:
        plan.upsert(every_ten("a", paused=True))
        plan.run(plan.control.resume(["a"]))
        plan.upsert(every_ten("b", paused=True, renamed_from="a"))
        plan.upsert(every_ten("a", paused=True, template=Template(job="other.job", kind=Kind.SYNC)))
        plan.until(15)

        assert (is_paused(plan, "a"), is_paused(plan, "b")) == (True, False)
        assert (plan.fired("a"), plan.fired("b")) == ([], [10])


def test_a_schedule_that_was_completed_and_comes_again_is_paused_as_its_definition_says() -> None:
    """It is another one, whatever somebody did with the one before."""
    with planned(every(1000, "far")) as plan:
        plan.upsert(every_ten("a", paused=True, max_runs=1, retain_completed_ms=0))
        plan.run(plan.control.resume(["a"]))
        plan.until(12)
        plan.finish()
        plan.until(100)
        plan.upsert(every_ten("a", paused=True, max_runs=1, retain_completed_ms=0))

        assert plan.fired("a") == [10]
        assert is_paused(plan, "a")


@pytest.mark.parametrize("first", ["removed", "added"])
@pytest.mark.parametrize("name", ["old", "new"])
def test_a_rename_that_is_rolled_back_goes_on_from_the_new_name(first: str, name: str) -> None:
    """Whether a deploy adds or removes first; a backfill then runs nothing again, nor does one after the next rename."""
    with planned(every(1000, "far")) as plan:
        ran = []
        plan.upsert(every_ten("old"))
        plan.until(15)
        ran += work(plan)
        plan.upsert(every_ten("new", renamed_from="old"))
        plan.until(35)
        ran += work(plan)
        pause(plan, "new")
        if first == "removed":
            delete(plan, "new")
        plan.upsert(every_ten("old"))
        if first == "added":
            delete(plan, "new")
        plan.until(55)
        if name == "new":
            plan.upsert(every_ten("new", renamed_from="old"))
            plan.until(65)
        assert is_paused(plan, name)
        backfill(plan, name, until_s=35)
        plan.until(68)
        ran += work(plan)

    assert ran == [f"{name}@{EPOCH_MS + at * 1000}" for name, at in (("old", 10), ("new", 20), ("new", 30))]


def test_a_rename_twice_that_is_rolled_back_at_once_goes_on_from_the_last_name() -> None:
    """Only what the last one did is the present."""
    with planned() as plan:
        plan.upsert(every_ten("a"))
        plan.upsert(every_ten("b", renamed_from="a"))
        plan.until(15)
        plan.upsert(every_ten("c", renamed_from="b"))
        plan.until(25)
        pause(plan, "c")
        delete(plan, "c")
        plan.upsert(every_ten("a"))
        plan.until(45)

        assert is_paused(plan, "a")
        assert plan.fired("a") == []
        assert plan.state("a").counters.fired == 2


def test_names_that_move_up_by_one_take_over_from_those_before_them() -> None:
    """``b`` was removed when it became ``c``; what is called ``b`` now was ``a``, and goes on from that."""
    with planned() as plan:
        plan.upsert(every_ten("a"), every_ten("b"))
        pause(plan, "b")
        plan.until(15)
        plan.upsert(every_ten("c", renamed_from="b"))
        plan.upsert(every_ten("b", renamed_from="a"))
        plan.until(35)

        assert is_paused(plan, "c")
        assert not is_paused(plan, "b")
        assert (plan.fired("a"), plan.fired("b"), plan.fired("c")) == ([10], [20, 30], [])


def test_a_former_name_that_is_used_for_something_else_is_not_paused_with_the_new_one() -> None:
    """It was taken for the rename that is rolled back; so was a follower, for which all ends had been."""
    other = Template(job="other.job", kind=Kind.SYNC)
    with planned(every(3600, "far")) as plan:
        plan.upsert(every_ten("a"), every_ten("b", template=other))
        plan.until(15)
        plan.upsert(every_ten("c", renamed_from="a"), every_ten("d", renamed_from="b", template=other))
        pause(plan, "c")
        pause(plan, "d")
        plan.upsert(every(7, "a", overlap="allow"), every_ten("b"))
        plan.until(36)

        assert not is_paused(plan, "a")
        assert not is_paused(plan, "b")
        assert plan.fired("a")[1:] == [21, 28, 35]
        assert plan.fired("b") == [10, 20, 30]


def test_a_life_of_its_own_outlives_the_memory_of_the_former_name() -> None:
    """Taken out 23 hours after the rename and put back two hours later: that of the former name, too old, came first."""
    with planned(every(3600, "far")) as plan:
        plan.upsert(every_ten("old"))
        plan.upsert(every_ten("new", renamed_from="old"))
        plan.until(25)
        pause(plan, "new")
        delete(plan, "new")
        raw, gone = plan.server.store.raw, plan.keys.schedule_gone
        raw.delete(plan.keys.ran("old@>"))
        at, rest = (raw.hget(gone, "old") or b"").split(b" ", 1)
        raw.hset(gone, "old", b"%d %s" % (int(at) - 86_400_001, rest))
        plan.upsert(every_ten("new", renamed_from="old"))
        plan.until(45)

        assert is_paused(plan, "new")
        assert plan.state("new").counters.fired == 2


@pytest.mark.parametrize("name", ["new", "old"])
def test_a_rename_keeps_when_the_run_after_the_end_of_the_last_one_is_due(name: str) -> None:
    """It began again at once."""

    def after_its_end(name: str, renamed_from: str = "") -> ScheduleDef:
        return ScheduleDef(
            id=name, template=TEMPLATE, when=(When(after_completion_ms=100_000),), renamed_from=renamed_from
        )

    with planned(every(10_000, "far")) as plan:
        plan.until(1)
        plan.upsert(after_its_end("old"))
        plan.until(105)
        fetched = plan.fetch()
        plan.until(185)
        plan.end(*fetched)
        plan.until(215)
        if name == "new":
            plan.upsert(after_its_end("new", renamed_from="old"))
        plan.until(300)
        assert plan.fired("old") + plan.fired("new") == [101, 285]


@pytest.mark.parametrize("name", ["new", "old"])
def test_a_rename_keeps_until_when_the_run_in_the_way_may_take(name: str) -> None:
    """What waited for it never ran."""

    def gives_way(name: str, **fields: object) -> ScheduleDef:
        return every(
            300, name, overlap="cancel_other", cancel_grace_ms=30_000, start_at_ms=EPOCH_MS + 300_000, **fields
        )

    with planned(every(100_000, "far")) as plan:
        plan.until(1)
        plan.upsert(gives_way("old"))
        plan.until(305)
        assert plan.fetch()
        plan.until(605)
        if name == "new":
            plan.upsert(gives_way("new", renamed_from="old"))
        plan.until(640)
        assert plan.fired("old") + plan.fired("new") == [300, 600]


def test_a_follower_waits_with_the_rename_of_what_it_follows_while_a_leader_is_busy() -> None:
    """It followed the new name at once, and the end of a run under the former one made nothing due."""
    with planned(every(1000, "far")) as plan:
        plan.upsert(every_ten("a"), after("a", "f"))
        plan.until(15)
        definitions, set_of_another = Definitions(plan.keys), "ab" * 16
        changes = [every_ten("b", renamed_from="a"), after("b", "f")]
        call = definitions.upsert([Change(definition=each) for each in changes], wall_ms=plan.clock.wall_ms())
        epoch, nonce = plan.server.store.raw.hmget(plan.keys.lease, "epoch", "nonce")
        term = Term(int(epoch or 0), text(nonce), 1 << 62)
        assert plan.run(definitions.begin(term, digest=set_of_another, lease_ms=5000)).code is BeginCode.NEEDED
        assert [code for code, _ in plan.run(call).results] == [DefineCode.BUSY, DefineCode.BUSY]
        work(plan)
        plan.advance(0.2)
        assert plan.run(definitions.end(term, digest=set_of_another, is_applied=False))
        assert [code for code, _ in plan.run(call).results] == [DefineCode.CREATED, DefineCode.CHANGED]
        plan.world.executed()
        plan.until(25)
        work(plan)
        plan.until(33)
        assert plan.fired("f") == [10, 20]


def requeue(plan: Planned, run_id: str) -> None:
    plan.run(QueueControl(plan.keys).requeue("default", [run_id]))
    assert run_id in plan.fetch()


@pytest.mark.parametrize("days", [0, 1, 89])
@pytest.mark.parametrize("left", ["a child", "a dead run"])
def test_what_is_left_of_the_old_name_is_followed_after_the_last_listed_run_of_it(left: str, days: int) -> None:
    """The word of the new name went with that one, or a day after the rename."""
    with planned(every(1000, "far")) as plan:
        plan.upsert(every(10, overlap="skip"), after())
        plan.until(15)
        if left == "a child":
            end_with(plan, *plan.fetch(), "a")
        else:
            plan.finish(outcome=Outcome.DEAD)
        plan.until(21)
        plan.fetch()
        plan.upsert(every(10, "new", overlap="skip", renamed_from="s"), after("new"))
        plan.end(run_of(20))
        for _ in range(days):
            pass_a_day(plan)
        if left == "a child":
            plan.end(f"{run_of(10)}/a")
        else:
            requeue(plan, run_of(10))
            plan.end(run_of(10))
        plan.advance(1)
        assert plan.fired("b") == [20, 10]


def test_a_dead_run_is_followed_also_if_its_schedule_has_its_former_name_again() -> None:
    """Where runs of that name alone were listed, nothing told what the other one had become."""
    with planned(every(1000, "far")) as plan:
        plan.upsert(every(10, overlap="skip", max_running=3), after())
        plan.until(15)
        plan.fetch()
        plan.upsert(every(10, "new", overlap="skip", max_running=3, renamed_from="s"), after("new"))
        plan.until(25)
        plan.finish(outcome=Outcome.DEAD)
        plan.upsert(every(10, overlap="skip", max_running=3, renamed_from="new"), after())
        requeue(plan, run_of(20, "new"))
        plan.end(run_of(20, "new"))
        plan.advance(1)
        assert plan.fired("b") == [20]


def test_what_a_configuration_defines_is_renamed_by_no_apply_and_may_be_followed() -> None:
    """An apply was refused because of it."""
    with planned(every_ten("a"), every(3600, "far")) as plan:
        plan.until(5)
        wanted = [every_ten("b", renamed_from="a"), after("a", "f")]
        change = drive(apply.plan(plan.keys, wanted), plan.run)

        assert [each.difference for each in change.compared] == ["created", "created"]
