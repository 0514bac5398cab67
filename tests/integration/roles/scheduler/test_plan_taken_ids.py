"""Ids of a schedule's runs in the hands of others: a program that enqueued past the check, as older versions do."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.model import Envelope, Kind, Outcome, Template
from supervisor.store.queues.control import QueueControl
from supervisor.store.schedules.reads import Views
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.fire import FireCode
from supervisor.store.wire.poll import Ack, Child
from tests.integration.roles.scheduler.planned import EPOCH_MS, SESSION, TEMPLATE, Planned, every, planned
from tests.integration.roles.scheduler.test_plan_following import after, run_of

FORGED = Template(job="demo.job", kind=Kind.SYNC, args={"schedule": "s", "x": '},"schedule":"s"}'})
"""Arguments may have any name: only the envelope's own field says whose run it is."""


def take(plan: Planned, *run_ids: str, template: Template = FORGED, delay_ms: int = 0) -> None:
    """Enqueue runs of no schedule under ids of one, as a version does that lets a program do so."""
    envelopes = [Envelope(id=run_id, template=template) for run_id in run_ids]
    delays_ms = [delay_ms] * len(run_ids)
    plan.run(plan.queues.enqueue(nonce=f"take {run_ids[0]}", envelopes=envelopes, delays_ms=delays_ms))


def end(plan: Planned, run_id: str, outcome: Outcome, **fields: Any) -> None:
    """End a run of no schedule, as its worker does."""
    plan._turn(acks=[Ack(run_id=run_id, queue="default", attempt=1, outcome=outcome, **fields)])
    plan.world.executed()
    plan.advance(0.5)


def missed(plan: Planned) -> list[tuple[tuple[str, ...], int]]:
    """Return why due times passed without a run, and how many, the latest first."""
    return [(each.reasons, each.count) for each in plan.state().stretches if each.code == "M"]


def told(plan: Planned) -> list[tuple[str, int, str]]:
    """Return what was told of due times without a run: the first one's id, how many, and why."""
    decided = [each for told in plan.world.history if told.event == "fires" for each in told.fields["decided"]]
    return [(each.item.run.run_id, each.item.missed, each.item.why) for each in decided if each.code is FireCode.MISSED]


@pytest.mark.parametrize("overlap", ["skip", "allow", "buffer_one", "buffer_all", "cancel_other", "terminate_other"])
def test_a_due_time_whose_id_another_run_has_is_missed_and_later_ones_run(overlap: str) -> None:
    """It counted as fired though it never ran, and what held its id kept all later ones back, for a year if need be."""
    with planned(every(10, overlap=overlap)) as plan:
        take(plan, run_of(20), delay_ms=366 * 86_400_000)
        for second in (12, 22, 32):
            plan.until(second)
            plan.finish()

        assert plan.decided() == [("FIRED", 10), ("MISSED", 20), ("FIRED", 30)]
        assert (plan.state().counters.fired, plan.state().counters.missed) == (2, 1)
        assert missed(plan) == [(("id_taken",), 1)]
        assert told(plan) == [(run_of(20), 1, "t")]
        (found,) = plan.run(Views(plan.keys).inspect(["s"]))
        assert found.live == []


def test_a_due_time_that_is_taken_is_missed_with_those_before_it() -> None:
    """After an outage it is the one that would have run, and the policy left the others out."""
    with planned(every(10, overlap="allow")) as plan:
        plan.until(12)
        take(plan, run_of(40))
        plan.leader.kill()
        plan.until(42)
        plan.leader.start()
        plan.until(52)

        assert plan.fired() == [10, 50]
        assert (plan.state().counters.fired, plan.state().counters.missed) == (2, 3)
        assert missed(plan) == [(("policy", "id_taken"), 3)]


def test_what_waits_in_a_buffer_and_whose_id_is_taken_is_missed() -> None:
    """It leaves the buffer, and what waits behind it starts."""
    with planned(every(10, overlap="buffer_all")) as plan:
        plan.until(32)
        take(plan, run_of(20), delay_ms=86_400_000)
        plan.finish(*plan.fetch())
        plan.advance(1)

        assert plan.decided()[-2:] == [("MISSED", 20), ("FIRED", 30)]
        assert (plan.state().counters.missed, plan.state().counters.waiting) == (1, 0)
        assert missed(plan) == [(("id_taken",), 1)]


def test_an_initial_run_whose_id_is_taken_is_missed() -> None:
    """It is counted, not repeated, and what is due follows."""
    with planned() as plan:
        take(plan, "s!initial", delay_ms=86_400_000)
        plan.upsert(every(10, run_on_create=True))
        plan.advance(12)

        assert [code for code, _ in plan.decided()] == ["MISSED", "FIRED"]
        assert plan.state().counters.missed == 1
        assert missed(plan) == [(("id_taken",), 1)]


def test_a_run_of_the_schedule_itself_is_fired_again_as_one() -> None:
    """Redis lost the watermark and not the run: it is no other's."""
    with planned(every(10, overlap="allow")) as plan:
        own = Envelope(id=run_of(20), template=TEMPLATE, schedule="s", nominal_ms=EPOCH_MS + 20_000)
        plan.run(plan.queues.enqueue(nonce="own", envelopes=[own]))
        plan.until(22)

        assert plan.decided() == [("FIRED", 10), ("FIRED", 20)]
        assert sorted(plan.fetch()) == [run_of(10), run_of(20)]


@pytest.mark.parametrize("way", ["is acknowledged", "takes its worker down"])
def test_runs_of_others_pause_no_schedule_by_their_failures(way: str) -> None:
    """Three runs under invented ids died, and the schedule was paused without an end."""
    ids = [run_of(second) for second in (7, 8, 9)]
    with planned(every(100, overlap="allow", pause_after_failures=3), after(outcome="failed")) as plan:
        take(plan, *ids, template=Template(job="demo.job", kind=Kind.SYNC, max_crashes=1))
        assert sorted(plan.fetch()) == ids
        if way == "takes its worker down":
            plan.run(plan.sessions.condemn(SESSION, counter=None))
            items = [("default", run_id, "crashed") for run_id in ids]
            assert len(plan.run(plan.queues.release_runs(session=SESSION, items=items)).ended) == 3
        else:
            for run_id in ids:
                end(plan, run_id, Outcome.DEAD)
        plan.advance(2)

        assert plan.state().counters.failed == 0
        assert plan.run(Views(plan.keys).inspect(["s"]))[0].record.pause is None  # type: ignore[union-attr]
        assert plan.fired("b") == []


@pytest.mark.parametrize("has_children", [False, True])
def test_a_run_of_others_that_ends_ok_is_followed_by_nothing_and_keeps_no_promise(*, has_children: bool) -> None:
    """It started a run of each follower, at times that never were, and silenced the alarm of a schedule that failed."""
    run_id = run_of(7)
    with planned(every(100, overlap="allow", expect_success_every_ms=20_000), after()) as plan:
        take(plan, run_id)
        plan.advance(1)
        assert plan.fetch() == [run_id]
        below = Envelope(id=f"{run_id}/k", template=TEMPLATE, parent=run_id)
        children = [Child(pack(below, above=len(run_id)), 0, "demo.job")] if has_children else []
        end(plan, run_id, Outcome.OK, children=children)
        if has_children:
            assert plan.fetch() == [below.id]
            end(plan, below.id, Outcome.OK)
        plan.advance(1)

        assert plan.fired("b") == []
        expected = plan.run(Views(plan.keys).inspect(["s"]))[0].record.expected  # type: ignore[union-attr]
        assert (expected.ok_ms, expected.ok_nominal_ms) == (0, 0)


def test_a_run_of_others_that_is_cancelled_is_followed_by_nothing() -> None:
    """A person clears it away: that is no end of the schedule's run."""
    with planned(every(100), after(outcome="cancelled")) as plan:
        take(plan, run_of(7))
        assert plan.run(QueueControl(plan.keys).cancel([("default", run_of(7))], by="kim"))
        plan.advance(1)
        assert plan.fired("b") == []


def test_a_run_in_another_queue_is_not_taken_for_the_unfinished_one() -> None:
    """Its end let the next run start beside the one that is executed."""
    with planned(every(10, overlap="buffer_one")) as plan:
        plan.until(22)
        plan.fetch()
        other = Envelope(id=run_of(10), template=Template(job="demo.job", kind=Kind.SYNC, queue="other"))
        plan.run(plan.queues.enqueue(nonce="n", envelopes=[other]))
        assert plan.run(QueueControl(plan.keys).cancel([("other", run_of(10))], by="kim"))
        plan.advance(2)
        assert plan.fired() == [10]
        plan.finish(run_of(10))
        assert plan.fired() == [10, 20]
