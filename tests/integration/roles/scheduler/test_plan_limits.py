"""Limits of a job hold for its runs wherever they come from: every way of making one writes the same form."""

from __future__ import annotations

import fakeredis
import msgspec

from supervisor.core.model import Envelope, Kind, Outcome, Template
from supervisor.core.schedules.manual_runs import MANUAL, extra_run
from supervisor.store.producer.job_templates import JobTemplate
from supervisor.store.queues.control import QueueControl
from supervisor.store.schedules.backfills import BackfillCalls, Request
from supervisor.store.schedules.reads import Views
from supervisor.store.wire.envelope import pack, unpack
from supervisor.store.wire.poll import Ack, Child
from tests.integration.roles.scheduler.planned import EPOCH_MS, Planned, every, planned

LIMITED = Template(
    job="demo.job",
    kind=Kind.SYNC,
    args={"tenant": "acme", "at": "{{ nominal }}"},
    concurrency="{tenant}",
    concurrency_max=1,
    rate="{tenant}",
    rate_count=100,
    rate_per_ms=1000,
)
PLAIN = msgspec.structs.replace(LIMITED, args={"tenant": "acme"})  # without a placeholder


def stored(plan: Planned) -> dict[str, bytes]:
    """Return what lies in the queues, by run id."""
    raw = fakeredis.FakeRedis(server=plan.server.store.server)
    found = {}
    for queue in raw.smembers(f"{plan.keys.prefix}queues"):
        keys = plan.keys.queue(queue.decode())
        headers = raw.hgetall(f"{keys.prefix}limits")
        for name, data in raw.hgetall(keys.data).items():
            found[name.decode()] = data
            assert headers.get(name) == data[2 : data.index(b"{")], f"{name!r} is not counted where it is limited"
    return found


def test_scheduled_runs_keep_to_the_concurrency_of_their_job() -> None:
    """Four are due and unfinished: one executes, and the next one after its end."""
    with planned(every(10, overlap="allow", template=PLAIN)) as plan:
        plan.until(45)
        assert plan.fired() == [10, 20, 30, 40]
        first = plan.fetch()
        assert first == [f"s@{EPOCH_MS + 10_000}"]
        assert plan.fetch() == []
        plan.end(*first)
        assert plan.fetch() == [f"s@{EPOCH_MS + 20_000}"]


def test_scheduled_runs_keep_to_the_unique_key_of_their_job() -> None:
    """While one is unfinished, the others end as duplicates, and the schedule goes on after it."""
    template = msgspec.structs.replace(PLAIN, unique="{tenant}", rate_count=0, concurrency_max=0)
    with planned(every(10, overlap="allow", template=template)) as plan:
        plan.until(35)
        assert plan.fetch() == [f"s@{EPOCH_MS + 10_000}"]
        plan.end(f"s@{EPOCH_MS + 10_000}")
        plan.until(45)
        assert plan.fetch() == [f"s@{EPOCH_MS + 40_000}"]


def test_every_way_of_making_a_run_writes_the_form_that_pack_writes() -> None:
    """A worker, a limit and an inspection read one form: the bytes of the packed envelope, limits in front."""
    schedules = [
        every(10, name, template=template, overlap="buffer_all", run_on_create=True, max_running=2)
        for name, template in (("plain", PLAIN), ("filled", LIMITED))
    ]
    with planned(*schedules) as plan:
        plan.until(15)
        plan.upsert(every(3600, "d", template=PLAIN))
        plan.upsert(every(7200, "d", template=PLAIN, on_change="run_now"))
        (defined,) = plan.run(Views(plan.keys).inspect(["d"]))
        revision = defined.record.revision
        manual = extra_run(schedules[0], run_id="d!manual!x", nominal_ms=7, cause=MANUAL, wall_ms=7)
        plan.run(plan.control.trigger(msgspec.structs.replace(manual, schedule="d"), revision=revision))
        plan.run(
            BackfillCalls(plan.keys).add(
                "b",
                "plain",
                Request(from_ms=EPOCH_MS - 20_000, until_ms=EPOCH_MS - 10_000),
                limit=10,
                is_forced=True,
            )
        )
        plan.world.executed()
        plan.run(plan.queues.enqueue(nonce="n", envelopes=[Envelope(id="one", template=PLAIN)]))
        job = JobTemplate(None, msgspec.structs.replace(PLAIN, args={}), dict)
        data = job.pack("many", PLAIN.args, job.tail(1, 0))
        plan.run(plan.queues.enqueue_flat(nonce="m", ids=["many"], runs=["many", "default", 0, data]))
        plan.until(25)  # the buffered times wait now

        (first,) = plan.fetch()
        children = [
            Child(pack(Envelope(id=f"{first}/{n}", template=PLAIN, parent=first), above=len(first)), 0, PLAIN.job)
            for n in range(2)
        ]
        ack = Ack(run_id=first, queue="default", attempt=1, outcome=Outcome.OK, children=children, schedule="plain")
        plan._turn(acks=[ack])
        plan.world.executed()
        plan.advance(1)
        (second,) = plan.fetch()
        control = QueueControl(plan.keys)
        plan.end(second, outcome=Outcome.DEAD)
        plan.run(control.requeue("default", [second]))
        plan.run(control.move("default", "other", "ready:s:1", count=3))

        found = stored(plan)
        causes = {unpack(data).cause for data in found.values()}
        assert causes >= {"", "buffered", "manual", "backfill", "changed"}, causes
        assert {"one", "many", second, f"{first}/0", f"{first}/1"} <= set(found)
        for run_id, data in found.items():
            above = len(first) if run_id.startswith(f"{first}/") else 0
            envelope = unpack(data)
            assert envelope.id == run_id
            assert pack(envelope, above=above).data == data
