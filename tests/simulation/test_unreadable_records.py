"""Rubbish in what the election reads: every field of every record, every reader, and nobody dies of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.schedules.reads import Views
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import World
from tests.simulation.cluster import Replicas

TICK = ScheduleDef(id="tick", template=Template(job="sim.job", kind=Kind.SYNC), every_ms=1000, overlap="allow")
LEASE_S = 5
RUBBISH = (
    b"", b"rubbish", b"-1", b"0", b"1e300", b"nan", b" 7", b"9" * 5000, b"\xff\xfe", b"0" * 32, b"F" * 32,
    b"999999999999999", b"99999999999999",
)  # fmt: skip
FIELDS = (
    "epoch", "nonce", "holder", "seq", "until", "duration", "acquired", "renewed", "transitions", "host", "pid",
    "version", "presence", "roster", "released", "released_at", "resign_epoch", "resign_to", "resign_by",
)  # fmt: skip
CANDIDATES = (
    b"", b"rubbish", b"x {}", b"1 []", b"1 {", b"1 {}", b"-1 {}", b"9" * 400 + b" {}", b"999999999999999 {}",
    b'1 {"replica":"x","pid":"y"}', b'999999999999 {"replica":"x","version":"' + b"9" * 5000 + b'"}',
    b'1795356190862 {"replica":"x","priority":99999999999999999999999}', b'1 {"replica":"x","schedules_digest":[1]}',
)  # fmt: skip


def odd_values(fields: Sequence[str]) -> list[Any]:
    """Return each field with a sixth of the odd values, another sixth for the next one; with all for the long tests."""
    shares = [pytest.param(field, RUBBISH[n % 6 :: 6], id=field) for n, field in enumerate(fields)]
    return shares + [pytest.param(field, RUBBISH, id=f"{field}, all", marks=pytest.mark.long) for field in fields]


class Cluster(Replicas):
    """Two replicas and a schedule of a second."""

    def __init__(self, *others: ScheduleDef) -> None:
        super().__init__(World(Server(Keys("rubbish")), seed=1), 2, TICK, *others)

    def begin(self) -> None:
        for replica in self.replicas:
            replica.start()
        self.pass_s(3)

    @property
    def leaders(self) -> list[str]:
        return [replica.name for replica in self.replicas if replica.is_leading]

    def warnings(self) -> int:
        return sum(told.event == "lease_unreadable" for told in self.world.history)

    def write(self, key: str, field: str, value: bytes) -> None:
        self.world.server.store.raw.hset(key, field, value)

    def check(self, what: str) -> None:
        """Everybody lives, one leads, what is due was fired, and every reader reads."""
        fired = len(self.world.server.decisions)
        self.pass_s(3)
        assert all(r.elector.is_alive and r.scheduler.is_alive for r in self.replicas), what
        assert len(self.leaders) == 1, what
        assert len(self.world.server.decisions) - fired >= 2, what
        leases = Leases(self.world.server.keys)
        for call in (leases.view(), leases.candidates(), leases.history(100)):
            self.world.server.execute(call)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster in which somebody leads."""
    cluster = Cluster()
    with driven_time(cluster.world.server_time_s):
        cluster.begin()
        yield cluster


@pytest.mark.share(2)
@pytest.mark.parametrize(("field", "values"), odd_values(FIELDS))
def test_no_field_of_the_lease_ends_a_process_or_the_fires(
    cluster: Cluster, field: str, values: Sequence[bytes]
) -> None:
    """The leader heals it, or the record counts as expired after a whole default duration."""
    for value in values:
        before, kept = cluster.warnings(), len(cluster.world.server.granted)
        cluster.write(cluster.world.server.keys.lease, field, value)
        cluster.pass_s(LEASE_S + 1.5)
        cluster.check(f"{field}={value[:20]!r}")
        assert cluster.warnings() - before <= len(cluster.replicas), "each replica says so once"
        assert len(cluster.world.server.granted) - kept <= 3, "it settles"


def test_a_standby_named_as_the_holder_takes_no_term_of_another(cluster: Cluster) -> None:
    """By the nonce that it reads it would hold the very term of the leader: both renew it, and the fence takes both."""
    raw, lease = cluster.world.server.store.raw, cluster.world.server.keys.lease
    (leader,) = cluster.leaders
    (standby,) = {name for name in raw.hkeys(cluster.world.server.keys.candidates) if name != raw.hget(lease, "holder")}
    for _ in range(10 * LEASE_S):
        raw.hset(lease, "holder", standby)  # the leader's next renewal corrects it
        cluster.pass_s(0.13)
        assert cluster.leaders == [leader]
    cluster.check("the standby's name")

    next(replica for replica in cluster.replicas if replica.name == leader).kill()
    raw.hset(lease, "holder", standby)
    cluster.pass_s(2 * LEASE_S + 0.5)
    assert cluster.leaders == [name for name in ("r0", "r1") if name != leader], "a dead leader's term ends by silence"


def test_a_number_that_is_made_unreadable_after_each_renewal_ends_no_term(cluster: Cluster) -> None:
    """A standby sees by the end of the record that the leader renewed it."""
    raw, lease = cluster.world.server.store.raw, cluster.world.server.keys.lease
    (leader,) = cluster.leaders
    for _ in range(10 * LEASE_S):
        raw.hset(lease, "seq", b"x")
        cluster.pass_s(0.13)
        assert cluster.leaders == [leader]
    assert len(cluster.world.server.granted) == 1


@pytest.mark.share(2)
@pytest.mark.parametrize(("field", "values"), odd_values(["epoch", "nonce", "holder", "seq", "until", "duration"]))
def test_what_a_dead_leader_left_unreadable_ends_by_silence(
    cluster: Cluster, field: str, values: Sequence[bytes]
) -> None:
    """Nobody renews it, so nobody could heal it: a whole default duration on the own clock, and a standby leads."""
    for value in values:
        (name,) = cluster.leaders
        dead = next(replica for replica in cluster.replicas if replica.name == name)
        dead.kill()
        cluster.write(cluster.world.server.keys.lease, field, value)
        cluster.pass_s(2 * LEASE_S + 0.5)  # the standby had read it up to a duration ago
        assert len(cluster.leaders) == 1, f"{field}={value[:20]!r}"
        dead.start()
        cluster.pass_s(1)
        cluster.check(f"{field}={value[:20]!r}")


def test_no_candidate_ends_a_process_or_takes_part(cluster: Cluster) -> None:
    """A stranger's entry is there, and that is all that anybody knows."""
    for number, value in enumerate(CANDIDATES):
        cluster.write(cluster.world.server.keys.candidates, f"stranger.{number}", value)
    cluster.pass_s(LEASE_S + 1.5)
    (leader,) = cluster.leaders
    next(replica for replica in cluster.replicas if replica.name == leader).replace_scheduler()
    cluster.pass_s(2)
    cluster.check("candidates")


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["fence", "genesis"])
def test_neither_the_fence_nor_the_genesis_ends_a_process(cluster: Cluster, name: str) -> None:
    """An unreadable fence counts as none, since the record and every replica remember epochs too."""
    key = getattr(cluster.world.server.keys, name)
    for value in RUBBISH:
        cluster.world.server.store.raw.set(key, value)
        (leader,) = cluster.leaders
        next(replica for replica in cluster.replicas if replica.name == leader).replace_scheduler()
        cluster.pass_s(2 * LEASE_S)
        cluster.check(f"{name}={value[:20]!r}")
        epochs = cluster.world.server.granted
        assert epochs == sorted(epochs)


def test_the_events_of_a_stranger_end_nothing(cluster: Cluster) -> None:
    """A standby reads every entry of the stream; another version may add kinds, a person may add anything."""
    for fields in ({"a": "b"}, {"kind": "released"}, {"kind": "released", "epoch": "x"}, {"kind": "acquired"}):
        cluster.world.server.store.raw.xadd(cluster.world.server.keys.events, fields)
        cluster.pass_s(LEASE_S + 1)
        cluster.check(str(fields))


VICTIMS = (
    ScheduleDef(id="v.waits", template=Template(job="sim.job", kind=Kind.SYNC), every_ms=1000, overlap="buffer_all"),
    ScheduleDef(id="v.skips", template=Template(job="sim.job", kind=Kind.SYNC), cron="* * * * * *", overlap="skip"),
    ScheduleDef(id="v.rests", template=Template(job="sim.job", kind=Kind.SYNC), every_ms=1000, paused=True),
)
VALUES = (b"", b"rubbish", b"-1", b"9" * 400, b"\xff\xfe")
SCORES = ("inf", "-inf", 1e300, 0.5)
OF_ELECTION = {"lease", "fence", "genesis", "candidates", "events"}
SHARES = 3
"""Tests that walk all places together. Each comes to every place, since it may have more values than there are tests."""


def foreign_writes(raw: Any, key: bytes) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each odd value that each place of ``key`` may have, but for what the schedule ``tick`` has there."""
    kind, places = raw.type(key), list[tuple[object, Callable[[], object]]]()
    if kind == b"hash":
        places = [(f"{f!r} {v!r}", partial(raw.hset, key, f, v)) for f in raw.hkeys(key) for v in VALUES]
    elif kind == b"zset":
        members = raw.zrange(key, 0, -1)
        places = [(f"{m!r} {score}", partial(raw.zadd, key, {m: score})) for m in members for score in SCORES]
    adds = {
        b"zset": lambda value: raw.zadd(key, {value: 1}),
        b"list": lambda value: raw.lpush(key, value),
        b"set": lambda value: raw.sadd(key, value),
        b"string": lambda value: raw.set(key, value),
        b"stream": lambda value: raw.xadd(key, {value: value}),
        b"hash": lambda value: raw.hset(key, value, value),
    }
    places += [(value, partial(adds[kind], value)) for value in VALUES]
    return ((str(place)[:40], write) for place, write in places if "tick" not in str(place))


@pytest.mark.parametrize("share", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, SHARES))])
def test_no_value_of_a_key_stops_other_schedules(share: int) -> None:
    """Each place of each key in turn holds what nobody would write: the rest is fired, read and declared as before."""
    cluster = Cluster(*VICTIMS)
    server = cluster.world.server
    views, walked = Views(server.keys), 0
    with driven_time(cluster.world.server_time_s):
        cluster.begin()
        cluster.pass_s(3)
        raw = server.store.raw
        for key in sorted(raw.keys()):
            name = key.decode().removeprefix(server.keys.prefix)
            if name in OF_ELECTION:
                continue
            for place, write in islice(foreign_writes(raw, key), share, None, SHARES):
                kept = raw.dump(key)
                write()
                if name == "schedule:sets":
                    (leader,) = cluster.leaders
                    next(replica for replica in cluster.replicas if replica.name == leader).replace_scheduler()
                    cluster.pass_s(1)
                cluster.check(f"{name} {place}")
                server.execute(views.browse(count=10))
                server.execute(views.inspect([each.id for each in VICTIMS]))
                raw.restore(key, 0, kept, replace=True)
                cluster.pass_s(1)
                walked += 1
    assert walked > 150 // SHARES
