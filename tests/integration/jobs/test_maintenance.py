"""maintenance.*: what is dropped, what stays, and what is noticed, on both servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.clock import SystemClock
from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Envelope, Kind, Template
from supervisor.settings.sections.models import RedisSettings
from supervisor.settings.sections.queues import QueueSettings
from supervisor.store.producer import connection, producer
from supervisor.store.queues.reads import QueueReads
from supervisor.store.queues.runs import Queues
from tenure import Context
from tenure.jobs.maintenance import QueueInvariantError, trim_history, verify_queues

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def connected(server: Any) -> Iterator[None]:
    """Make jobs of this test look after ``server``, as they look after a worker's own."""
    store = server.store()
    made = producer.Producer(RedisSettings(), limits=QueueSettings(history=3, dead=2), open_store=lambda: store)
    made.keys = server.keys
    connection.use(made)
    yield
    connection.use(None)


def enqueue(server: Any, queue: str, *run_ids: str) -> None:
    """Enqueue runs."""
    template = Template(job="a.job", kind=Kind.SYNC, queue=queue)
    envelopes = [Envelope(id=run_id, template=template) for run_id in run_ids]
    server.store().run(Queues(server.keys).enqueue(nonce="".join(run_ids), envelopes=envelopes, delays_ms=None))


def make_dead(server: Any, queue: str, run_id: str, died_ms: int) -> None:
    """Leave a dead run behind, as a worker would have."""
    enqueue(server, queue, run_id)
    keys, raw = server.keys.queue(queue), server.raw()
    raw.lrem(keys.ready(Kind.SYNC, 1), 0, run_id)
    raw.zadd(keys.dead, {run_id: died_ms})
    raw.close()


def make_history(server: Any, queue: str, entries: int) -> None:
    """Leave ended runs behind."""
    raw = server.raw()
    for number in range(entries):
        raw.rpush(server.keys.queue(queue).hist, f"run-{number}|ok|1|s|1|2|a.job|")
    raw.close()


def test_every_queue_is_trimmed_to_the_configuration(ctx: Context, server: Any) -> None:
    """Idle queues as well, which nobody trims by working on them; what waits is not touched."""
    now_ms = SystemClock().wall_ms()
    for queue in ("busy", "idle"):
        enqueue(server, queue, f"{queue}-waiting")
        make_history(server, queue, 5)
        for number in range(4):
            make_dead(server, queue, f"{queue}-{number}", now_ms - 1000 + number)

    assert trim_history(ctx) == {"queues": 2, "dropped": 2 * (2 + 2), "complete": True}

    raw = server.raw()
    for queue in ("busy", "idle"):
        keys = server.keys.queue(queue)
        assert raw.llen(keys.hist) == 3
        assert raw.zrange(keys.dead, 0, -1) == [f"{queue}-2".encode(), f"{queue}-3".encode()]
        assert raw.lrange(keys.ready(Kind.SYNC, 1), 0, -1) == [f"{queue}-waiting".encode()]
        assert sorted(raw.hkeys(keys.data)) == sorted(f"{queue}-{name}".encode() for name in ("waiting", 2, 3))
    raw.close()
    assert trim_history(ctx)["dropped"] == 0
    assert verify_queues(ctx) == {"queues": 2, "violations": []}


def test_a_job_that_connects_elsewhere_changes_nothing_for_the_clean_up(server: Any) -> None:
    """``connect(url)`` in another job of the process had all queues trimmed, or judged, by the limits of no file."""
    of_worker, store = connection.current(), server.store()
    connection.use(producer.Producer(RedisSettings(), cluster="elsewhere", open_store=lambda: store))
    make_history(server, "default", 5)
    enqueue(server, "default", "one")
    in_worker = Context(run_id="r", job="j", producer=of_worker)

    assert trim_history(in_worker) == {"queues": 1, "dropped": 2, "complete": True}
    assert verify_queues(in_worker)["queues"] == 1


def test_dead_runs_can_be_given_an_age(ctx: Context, server: Any) -> None:
    """Younger ones stay up to their cap."""
    now_ms = SystemClock().wall_ms()
    make_dead(server, "default", "old", now_ms - 8 * DAY_MS)
    make_dead(server, "default", "young", now_ms - 6 * DAY_MS)

    assert trim_history(ctx)["dropped"] == 0
    assert trim_history(ctx, dead_days=7)["dropped"] == 1
    assert [run.run_id for run in server.store().run(QueueReads(server.keys).dead("default"))] == ["young"]


def test_trimming_stops_before_its_deadline(server: Any) -> None:
    """And says that it did."""
    clock = SystemClock()
    hurried = Context(run_id="r", job="j", clock=clock, soft_deadline_ns=clock.elapsed_ns() + 4_900_000_000)
    make_history(server, "default", 5)
    enqueue(server, "default", "one")

    assert trim_history(hurried) == {"queues": 1, "dropped": 0, "complete": False}


def test_a_queue_that_cannot_be_trimmed_holds_up_no_other(ctx: Context, server: Any) -> None:
    """And the run tells of it."""
    for queue in ("broken", "idle"):
        make_history(server, queue, 5)
        enqueue(server, queue, f"{queue}-waiting")
    raw = server.raw()
    raw.set(server.keys.queue("broken").dead, "x")

    with pytest.raises(StoreRefusedError, match="holds another type"):
        trim_history(ctx)
    assert raw.llen(server.keys.queue("idle").hist) == 3
    raw.close()


def test_a_queue_that_cannot_be_verified_is_a_violation_beside_others(ctx: Context, server: Any) -> None:
    """One key of another program hid what is wrong in all queues behind it."""
    enqueue(server, "broken", "one")
    enqueue(server, "later", "two")
    raw = server.raw()
    raw.zadd(server.keys.queue("later").later, {"two": 1})
    raw.delete(server.keys.queue("broken").data)
    raw.set(server.keys.queue("broken").data, "x")
    raw.close()

    with pytest.raises(QueueInvariantError, match=r"^broken: queue: cannot be verified: .*\nlater: two: in several"):
        verify_queues(ctx)


@pytest.mark.parametrize("days", [0, -1, 4000, float("nan")])
def test_an_age_outside_its_range_is_refused(ctx: Context, days: float) -> None:
    """Zero would drop what died a moment ago."""
    with pytest.raises(ValueError, match="dead_days must be above 0 and at most 3650"):
        trim_history(ctx, dead_days=days)


def test_a_queue_that_contradicts_itself_fails_the_run(ctx: Context, server: Any) -> None:
    """The run's error names the queue, the run and the contradiction; the sound queue is not mentioned."""
    enqueue(server, "sound", "one")
    enqueue(server, "broken", "two")
    raw = server.raw()
    raw.zadd(server.keys.queue("broken").later, {"two": 1})
    raw.close()

    with pytest.raises(QueueInvariantError, match=r"^broken: two: in several places: later and ready"):
        verify_queues(ctx)


def test_a_cluster_without_queues_is_sound(ctx: Context, server: Any) -> None:
    """The first night after the installation."""
    assert verify_queues(ctx) == {"queues": 0, "violations": []}
    assert trim_history(ctx) == {"queues": 0, "dropped": 0, "complete": True}
