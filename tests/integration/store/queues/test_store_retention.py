"""What queues keep goes by its age as well as by its number, little by little; and nothing else is left behind."""

from __future__ import annotations

import pytest

from supervisor.core.model import Kind, Outcome
from supervisor.roles.agent.maintenance import Retention
from supervisor.settings.sections.queues import QueueSettings
from supervisor.store.queues.control import QueueControl
from supervisor.store.wire.poll import Ack
from tests.integration.store.fanout.test_store_tallies import child, end, follow
from tests.integration.store.limits.limit_checks import limited
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import leaks, on_both

S = "r.1/w-0/1"
DAY_MS = 86_400_000
PAGE = 500


def line(run_id: str, ended_ms: int) -> str:
    """Return one ended attempt of the history."""
    return f"{run_id}|ok|1|{S}|{ended_ms}|{ended_ms}|tests.noop|"


def remember(world: StoreCalls, queue: str, ages_ms: list[int]) -> int:
    """Let runs have ended so long ago, the oldest first, and died so too; return the server's time."""
    now_ms = int(world.run(world.leases.view()).now_ms)
    keys = world.keys.queue(queue)
    world.raw.sadd(world.keys.queues, queue)
    world.raw.rpush(keys.hist, *(line(f"h{n}", now_ms - age) for n, age in enumerate(ages_ms)))
    for number, age_ms in enumerate(ages_ms):
        world.raw.zadd(keys.dead, {f"d{number}": now_ms - age_ms})
        world.raw.hset(keys.data, f"d{number}", "a1{}")
    return now_ms


@pytest.mark.parametrize("queue", ["default", "other"])
def test_what_is_older_than_its_age_goes_and_the_rest_stays(world: StoreCalls, queue: str) -> None:
    """Sixty days of jobs and ninety of failures, however many there are."""
    remember(world, queue, [3 * DAY_MS, 2 * DAY_MS, DAY_MS // 2, 0])
    keys = world.keys.queue(queue)
    trim = {"history_age_ms": DAY_MS, "dead_age_ms": round(2.5 * DAY_MS)}
    assert world.run(world.queues.trim(queue, **trim)) == 3
    assert [entry.run_id for entry in world.run(world.queues.recent(queue))] == ["h3", "h2"]
    assert world.raw.zrange(keys.dead, 0, -1) == [b"d1", b"d2", b"d3"]
    assert set(world.raw.hkeys(keys.data)) == {b"d1", b"d2", b"d3"}
    assert world.run(world.queues.trim(queue, **trim)) == 0


def test_one_call_drops_a_bounded_number(world: StoreCalls) -> None:
    """A store that nobody ever trimmed is brought down without holding the server up."""
    remember(world, "default", [3 * DAY_MS] * (2 * PAGE + 1))
    trim = world.queues.trim("default", history_age_ms=DAY_MS, dead_age_ms=DAY_MS)
    assert [world.run(trim) for _ in range(4)] == [2 * PAGE, 2 * PAGE, 2, 0]


def test_the_agent_looks_where_an_age_is_set(world: StoreCalls) -> None:
    """Without one it asks nothing; with one, every queue, once for each look."""
    remember(world, "default", [3 * DAY_MS, 0])
    remember(world, "other", [3 * DAY_MS, 0])
    assert Retention.of(run=world.run, queues=world.queues, limits=QueueSettings()) is None
    duty = Retention.of(run=world.run, queues=world.queues, limits=QueueSettings(history_age_s=86_400.0))
    assert duty is not None
    duty.run(0)
    for queue in ("default", "other"):
        assert [entry.run_id for entry in world.run(world.queues.recent(queue))] == ["h1"]
        assert world.raw.zcard(world.keys.queue(queue).dead) == 2


def test_trees_of_runs_leave_nothing_that_does_not_expire(world: StoreCalls) -> None:
    """Tallies, what follows, headers of children: all of it goes, or says when."""
    world.open(S)
    for number in range(20):
        world.enqueue(envelope(f"p{number}", kind=Kind.ASYNC))
        world.fetch(S)
        kids = [child(f"p{number}", key) for key in "abc"]
        world.turn(S, acks=[end(f"p{number}", Outcome.OK, *kids, then=[follow(f"p{number}/then")], counts={"n": 1})])
        fetched = world.fetch(S)
        acks = [Ack(run_id=run_id, queue="default", attempt=1, outcome=Outcome.OK) for run_id in fetched]
        assert len(acks) == 3
        assert world.fetch(S, acks=acks) == [f"p{number}/then"]
        world.turn(S, acks=[end(f"p{number}/then")])
    world.run(world.sessions.close(S))
    assert leaks(world.server) == []
    tallies = world.raw.keys(f"{world.keys.prefix}tally:*")
    assert len(tallies) == 20
    assert all(0 < world.raw.pttl(key) <= DAY_MS for key in tallies)


def test_an_empty_queue_that_nobody_serves_is_forgotten_after_a_day(world: StoreCalls) -> None:
    """One queue for each tenant that ever was: each would be asked about for ever."""
    session = "r.1/w-0/1"
    world.open(session)
    world.enqueue(envelope("a"))
    assert world.fetch(session) == ["a"]
    assert world.run(world.queues.forget(idle_ms=0)).items == []
    world.ack(session, "a")
    now_ms = world.run(world.leases.view()).now_ms
    world.raw.rpush(world.keys.queue("default").hist, f"a|ok|1|{session}|{now_ms}|{now_ms}||")
    assert world.run(world.queues.forget()).items == []
    world.run(world.queues.forget(idle_ms=0))

    assert world.run(world.queues.names()) == []
    assert world.raw.keys(f"{world.keys.prefix}q:*") == []


def test_what_waited_for_a_concurrency_key_goes_with_its_queue(world: StoreCalls) -> None:
    """A key for each order: with no worker left nobody looks at their lists again, and each had two keys for ever."""
    world.open(S)
    world.enqueue(*(limited(f"{order}.{n}", key=f"order-{order}") for order in range(5) for n in (0, 1)))
    held = world.fetch(S, want=20)
    world.run(world.queues.release_runs(session=S, items=[("default", run_id, "unstarted") for run_id in held]))
    world.run(world.sessions.close(S))
    everything = [("default", f"{order}.{n}") for order in range(5) for n in (0, 1)]
    world.run(QueueControl(world.keys).cancel(everything, by="me", reason="the pool is gone"))
    assert len(world.raw.keys(f"{world.keys.prefix}q:default:wait:*")) == 5
    world.raw.sadd(f"{world.keys.prefix}q:default:woken", *(f"k{number}" for number in range(PAGE)))
    world.run(world.queues.forget(idle_ms=0))
    assert world.run(world.queues.names()) == ["default"], "a call looks at so many keys at most"
    world.run(world.queues.forget(idle_ms=0))

    assert world.run(world.queues.names()) == []
    assert world.raw.keys(f"{world.keys.prefix}q:*") == world.raw.keys(f"{world.keys.prefix}limit:*") == []


def test_a_queue_that_is_served_paused_or_holds_a_run_is_kept(world: StoreCalls) -> None:
    """Forgetting must cost nobody anything."""
    world.run(world.sessions.open("r.1/w-0/1", {"kind": "async", "queues": "served"}))
    world.raw.sadd(world.keys.queues, "served", "paused", "empty", "broken")
    world.raw.set(world.keys.queue("paused").paused, "{}")
    world.raw.set(world.keys.queue("broken").data, "another program's")
    world.enqueue(envelope("a"))
    world.run(world.queues.forget(idle_ms=0))

    assert world.run(world.queues.names()) == ["broken", "default", "paused", "served"]


@on_both("jobs_publish", "queues_forget")
def test_a_job_that_nobody_publishes_for_a_week_is_forgotten(world: StoreCalls) -> None:
    """Names of releases long gone; one that an older version publishes is noted when it is first met."""
    world.raw.hset(world.keys.jobs, "old", "{}")
    world.run(world.sessions.publish_jobs({"new": "{}"}))
    world.run(world.queues.forget())
    assert set(world.run(world.sessions.read_jobs())) == {"old", "new"}
    for name in ("old", "new"):
        world.raw.hset(world.keys.jobs_seen, name, 1)
    world.run(world.sessions.publish_jobs({"new": "{}"}))
    world.run(world.queues.forget())

    assert set(world.run(world.sessions.read_jobs())) == {"new"}


def test_a_burst_of_removed_schedules_is_forgotten_although_none_is_removed_after_it(world: StoreCalls) -> None:
    """Purging only with the next removal keeps the last burst for ever."""
    day_ms = 86_400_000
    now_ms = world.run(world.leases.view()).now_ms
    for n in range(300):
        world.raw.hset(world.keys.schedule_gone, f"s{n}", f"{now_ms - day_ms - 1000} 1 0 0 0\n")
    world.raw.hset(world.keys.schedule_gone, "fresh", f"{now_ms} 1 0 0 0\n")
    for _ in range(20):
        world.run(world.queues.forget())

    assert world.raw.hkeys(world.keys.schedule_gone) == [b"fresh"]
