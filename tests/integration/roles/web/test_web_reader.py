"""The look at Redis, on both servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.errors import StoreUnavailableError
from supervisor.core.model import Envelope, Kind, ScheduleDef, Template
from supervisor.roles.web.cluster_snapshot import QUEUES_MAX, Overview, StoreReader
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.election.leases import CandidateInfo, Leases
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.reads import LATE_MS
from tests.kit.servers import Server, on_both

NONCE = "ab" * 16


@pytest.fixture
async def reader(server: Server) -> AsyncIterator[StoreReader]:
    """A reader of the test's cluster."""
    store = server.async_store()
    made = StoreReader(store, server.keys)
    yield made
    await made.close()


def run(name: str, kind: Kind, queue: str, priority: int) -> Envelope:
    """Return a run."""
    return Envelope(id=name, template=Template(job="j", kind=kind, queue=queue, priority=priority))


@on_both("queues_served", "queues_unserved")
async def test_an_empty_redis_shows_an_empty_overview(reader: StoreReader) -> None:
    """The first start of the first replica."""
    assert await reader.read() == Overview(queues=(), leader=None, next_due=(), served={})


async def test_it_shows_the_leader_the_queues_and_what_is_due(server: Server, reader: StoreReader) -> None:
    """The three things that the board does not know."""
    store: Any = server.store()
    info = CandidateInfo(replica="r1", host="h1", pid=1, version="0", started_ms=0)
    lease = store.run(
        Leases(server.keys).campaign(
            replica="r1",
            nonce=NONCE,
            duration_ms=5000,
            floor=0,
            mode="cold",
            observed_epoch=0,
            observed_seq=0,
            info=info,
        )
    )
    queues = Queues(server.keys)
    store.run(Sessions(server.keys).open("r1/w-0/1", {"kind": "async", "queues": "default"}))
    store.run(
        queues.enqueue(
            nonce="cd" * 16,
            envelopes=[
                run("a", Kind.ASYNC, "default", 0),
                run("b", Kind.SYNC, "default", 1),
                run("c", Kind.ASYNC, "x", 2),
            ],
            delays_ms=[0, 0, 60_000],
        )
    )
    definition = ScheduleDef(id="s1", template=Template(job="j", kind=Kind.ASYNC), every_ms=60_000)
    store.run(Definitions(server.keys).upsert([Change(definition=definition)], wall_ms=1))
    with server.raw() as raw:
        raw.zadd(server.keys.schedule_next, {"s1": 4711})

    seen = await reader.read()

    assert seen.leader is not None
    assert (seen.leader.holder, seen.leader.epoch, seen.leader.host) == ("r1", lease.epoch, "h1")
    assert seen.next_due == (("s1", 4711),)
    default, x = seen.queues
    assert (default.queue, default.running, default.later, default.dead, default.paused) == (
        "default",
        0,
        0,
        0,
        None,
    )
    assert {key: count for key, count in default.ready.items() if count} == {(Kind.ASYNC, 0): 1, (Kind.SYNC, 1): 1}
    assert (x.queue, sum(x.ready.values()), x.later) == ("x", 0, 1)
    assert seen.served == {"default": (Kind.ASYNC,)}


async def test_it_shows_which_replicas_have_other_static_schedules(server: Server, reader: StoreReader) -> None:
    """A replica that never leads replaces nobody's."""
    store: Any = server.store()
    for replica, digest, participates in (("r1", "d1", True), ("r2", "d2", True), ("r3", "d3", False)):
        info = CandidateInfo(replica=replica, schedules_digest=digest, participates=participates)
        store.run(Leases(server.keys).campaign(
            replica=replica, nonce=NONCE, duration_ms=5000, floor=0, mode="cold", observed_epoch=0, observed_seq=0,
            info=info,
        ))  # fmt: skip

    assert (await reader.read()).differing == "2 sets that differ, of r1 - r2"


async def test_a_broken_queue_hides_no_other(server: Server, reader: StoreReader) -> None:
    """A foreign key in one queue must not take the numbers of all others from the scrape."""
    runs = [run("a", Kind.ASYNC, "default", 0), run("b", Kind.ASYNC, "broken", 0)]
    server.store().run(Queues(server.keys).enqueue(nonce="cd" * 16, envelopes=runs))
    with server.raw() as raw:
        raw.set(server.keys.queue("broken").later, "foreign")

    with capture_logs() as lines:
        looks = [await reader.read(), await reader.read()]

    assert [[depth.queue for depth in look.queues] for look in looks] == [["default"], ["default"]]
    told = [line["part"] for line in lines if line["event"] == "overview_part_refused"]
    assert sorted(told) == sorted(set(told))  # once, not every five seconds
    assert "broken" in told


async def test_queues_that_somebody_invents_push_no_served_one_out(server: Server) -> None:
    """A hundred names that sort first are easily made."""
    with server.raw() as raw:
        raw.sadd(server.keys.queues, "mail", *(f"0{n:03}" for n in range(QUEUES_MAX)))
    reader = StoreReader(server.async_store(), server.keys, first={"mail"})

    shown = [depth.queue for depth in (await reader.read()).queues]
    await reader.close()

    assert (len(shown), shown[:2]) == (QUEUES_MAX, ["mail", "0000"])


async def test_a_redis_that_is_away_is_said_to_be(server: Server, tmp_path: Any) -> None:
    """The page turns this into an absence; nothing else may come out."""
    store = AsyncStore.connect(f"unix://{tmp_path}/absent.sock", settings=RedisSettings(), name="t")

    with pytest.raises(StoreUnavailableError):
        await StoreReader(store, server.keys).read()


async def test_the_ten_schedules_that_are_due_first_are_shown(server: Server, reader: StoreReader) -> None:
    """The earliest first; a page has no room for thousands."""
    server.store().raw.zadd(server.keys.schedule_next, {f"s{n:02}": 12_000 - n for n in range(12)})

    assert (await reader.read()).next_due == tuple((f"s{n:02}", 12_000 - n) for n in range(11, 1, -1))


async def test_a_due_time_that_is_no_moment_is_left_out(server: Server, reader: StoreReader) -> None:
    """Whoever may write the plan cannot hide the others' due times behind an error."""
    scores = {"early": float("-inf"), "good": 1_800_000_000_000, "far": 1e300, "never": float("inf")}
    server.store().raw.zadd(server.keys.schedule_next, scores)

    assert (await reader.read()).next_due == (("good", 1_800_000_000_000),)


async def test_names_that_nobody_can_have_written_are_left_out_or_told_as_text(
    server: Server, reader: StoreReader
) -> None:
    """Who may enqueue by Redis wrote lines of their own into /readyz?verbose, and one byte made every page a 500."""
    names = (b"\x1b[31mred", b"a\n[-]redis failed", b"long" * 100, b"\xff", b"mail")
    with server.raw() as raw:
        for name in names:
            raw.sadd(server.keys.queues, name)
            raw.lpush(server.keys.queues.removesuffix("queues").encode() + b"q:" + name + b":ready:a:1", "r1")
        raw.zadd(server.keys.schedule_promised, {b"night\xff": LATE_MS, b"!day": LATE_MS})

    seen = await reader.read()

    assert seen.unserved == (("mail", Kind.ASYNC, 1),)
    assert seen.late == ("day", "night\N{REPLACEMENT CHARACTER}")
