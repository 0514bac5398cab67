"""What keeps a server from carrying a cluster is found at the start, all of it, each with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from supervisor.core.effects import drive
from supervisor.core.errors import Problem, StoreUnavailableError
from supervisor.core.model import Outcome, Release
from supervisor.operations.queues import verify
from supervisor.settings.sections.models import RedisSettings, Settings
from supervisor.store.client.preflight import CLUSTERS_MAX, acl_rules, check, known_clusters, note_cluster
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import CLUSTERS
from supervisor.store.queues.control import QueueControl
from tests.kit.builders import StoreCalls, envelope, schedule
from tests.kit.servers import RealServer, Server, on_both

S = "r.1/w-0/1"


def settings(world_or_cluster: str, **fields: object) -> Settings:
    return Settings(cluster=world_or_cluster, redis=RedisSettings(**fields))


def take_control(world: StoreCalls) -> None:
    """Do everything that people do to queues."""
    keys = type(world.keys)("small")
    control = QueueControl(keys)
    world.enqueue(envelope("c"), envelope("d"))
    for call in (
        control.set_priority([("", "c")], 0),
        control.hasten([("", "z")]),
        control.cancel([("", "d")]),
        control.move("default", "other", "ready:a:1"),
        control.purge("default", "later", job="tests.noop"),
        control.requeue("default", ["x"]),
        control.drop("default", ["x"]),
        control.pause("default"),
        control.resume("default"),
        world.queues.unwanted([S]),
        world.queues.blocked("default"),
        world.queues.dead_page("default"),
    ):
        world.run(call)
    assert drive(verify(keys, ["default"]), world.run) == []


@contextmanager
def configured(raw: redis.Redis, **values: object) -> Iterator[None]:
    """Set options of the server for a while."""
    names = {name: name.replace("_", "-") for name in values}
    before = {name: raw.config_get(names[name])[names[name]] for name in values}
    for name, value in values.items():
        raw.config_set(names[name], value)
    yield
    for name, value in before.items():
        raw.config_set(names[name], value)


@on_both("preflight")
def test_a_fit_server_has_no_problem(server: Server) -> None:
    """Fakeredis knows neither INFO nor CONFIG: what cannot be asked is not wrong."""
    assert check(server.store(), settings(server.keys.cluster)) == []
    raw = server.raw()
    assert [key for key in raw.keys("*") if not raw.pttl(key) > 0] == []
    raw.close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_an_evicting_server_is_refused_unless_allowed(server: Server, policy: str) -> None:
    """It would drop runs when its memory is full, without a word."""
    if not server.is_real:
        return  # fakeredis evicts nothing and has no such setting
    raw = server.raw()
    with configured(raw, maxmemory=10**9, maxmemory_policy=policy):
        found = check(server.store(), settings("c"))
        assert [problem.path for problem in found] == ["redis.allow_eviction"]
        assert policy in found[0].message
        assert check(server.store(), settings("c", allow_eviction=True)) == []
    with configured(raw, maxmemory_policy=policy):
        assert check(server.store(), settings("c")) == []  # without a limit nothing is ever evicted
    raw.close()


def test_a_server_that_does_not_answer_is_not_a_problem_of_the_configuration() -> None:
    """It may come; the tree starts unready."""
    store = Store.connect("unix:///nonexistent/redis.sock", settings=RedisSettings(), name="t")
    with pytest.raises(StoreUnavailableError):
        check(store, settings("c"))


@contextmanager
def acl_user(real: RealServer, *rules: str) -> Iterator[Store]:
    """A user with these rights, and a client that is it."""
    with redis.Redis(unix_socket_path=str(real.socket), protocol=2) as admin:
        admin.execute_command("ACL", "SETUSER", "small", "reset", "on", ">pw", *rules)
        store = Store.connect(real.url, settings=RedisSettings(username="small", password="pw"), name="t", timeout_s=20)
        yield store
        store.close()
        admin.execute_command("ACL", "DELUSER", "small")


@pytest.mark.server
def test_the_documented_rights_are_enough_for_every_call(real_server: RealServer) -> None:
    """A user with these and no other goes through a whole life of a cluster."""
    with acl_user(real_server, *acl_rules("small")) as store:
        assert check(store, settings("small")) == []
        world = StoreCalls(Server(real_server))
        world.raw.close()
        world.store.close()
        world.store = store
        for part in ("leases", "queues", "schedules", "sessions"):
            setattr(world, part, type(getattr(world, part))(type(world.keys)("small")))
        world.keys = type(world.keys)("small")
        term = world.lead()
        world.run(world.leases.renew(term, duration_ms=5000))
        world.run(world.declare_call(term, schedule("s"), schedule("t")))
        world.run(world.remove_call(term, "t"))
        world.run(world.fire_call(term, world.item("s")))
        world.open(S)
        world.enqueue(envelope("x"), envelope("y"), envelope("z"), delays_ms=[0, 0, 5])
        runs = world.fetch(S, want=2)
        world.ack(S, runs[0], Outcome.DEAD)
        world.run(world.queues.release_runs(session=S, items=[("default", runs[1], Release.CRASHED)]))
        world.run(world.sessions.beat([S]))
        world.run(world.sessions.publish_jobs({"a": "{}"}))
        for call in (
            world.queues.counts("default"),
            world.queues.running("default"),
            world.queues.dead("default"),
            world.queues.recent("default"),
            world.queues.show("x"),
            world.queues.fsck("default"),
            world.queues.trim("default", dead_cap=0),
            world.queues.held(session=S, queue="default"),
            world.schedules.log(5),
            world.sessions.condemn(S, None),
            world.sessions.dying(),
            world.sessions.bury(S),
            world.leases.candidates(),
            world.leases.release(term, reason="x"),
        ):
            world.run(call)
        keys = type(world.keys)("small")
        take_control(world)
        assert store.listen(keys.events, "0-0", 20)
        bell = f"{keys.prefix}q:none:bell:a"
        world.raw.rpush(bell, "1")
        assert store.ring([bell], 20) == bell


@pytest.mark.server
@pytest.mark.parametrize(
    ("missing", "named"),
    [("-zadd", "zadd"), ("-evalsha", "evalsha"), ("-hset", "hset"), ("resetkeys", "key"), ("-@all", "ping")],
)
def test_a_missing_right_is_named_with_the_rule_that_grants_it(
    real_server: RealServer, missing: str, named: str
) -> None:
    """One line to copy, not one error for each start."""
    with acl_user(real_server, *acl_rules("small"), missing) as store:
        found = check(store, settings("small"))
    assert len(found) == 1
    assert named in str(found[0]).lower()
    if named != "ping":
        assert "~{tenure:small}:*" in found[0].remedy


@pytest.mark.server
def test_a_wrong_password_is_one_problem(real_server: RealServer) -> None:
    """Exit code 78, at once, and without the password."""
    with acl_user(real_server, *acl_rules("small")):
        wrong = RedisSettings(username="small", password="not-it")
        store = Store.connect(real_server.url, settings=wrong, name="t")
        found = check(store, settings("small"))
    assert [type(problem) for problem in found] == [Problem]
    assert "not-it" not in str(found[0])
    assert re.search("password", str(found[0]))
    store.close()


class OldServer:
    """Answers as a server too old for the scripts would."""

    def ping(self) -> None: ...
    def command(self, *parts: str) -> object:
        return b"redis_version:6.0.16\r\n" if parts[-1] == "server" else b""

    def run(self, call: object) -> list[str]:
        return []


def test_an_old_server_is_refused() -> None:
    """Below 6.2 LPOP with a count and others are missing; no such server is at hand, so its answer is given."""
    found = check(OldServer(), settings("c"))  # type: ignore[arg-type]
    assert [problem.message for problem in found] == ["the server is version 6.0.16"]


def test_a_start_writes_the_name_of_its_cluster_beside_others(world: StoreCalls) -> None:
    """Producers that name another cluster by mistake are told which ones there are."""
    world.raw.delete(CLUSTERS)
    try:
        note_cluster(world.store, "shop", 5)
        note_cluster(world.store, "mailer", 6)
        note_cluster(world.store, "shop", 7)
        assert world.raw.hgetall(CLUSTERS) == {b"shop": b"7", b"mailer": b"6"}
        assert sorted(known_clusters(world.store)) == ["mailer", "shop"]

        world.raw.hset(CLUSTERS, mapping={f"c{n}": "1" for n in range(CLUSTERS_MAX)})
        note_cluster(world.store, "one-more", 8)
        assert not world.raw.hexists(CLUSTERS, "one-more")
    finally:
        world.raw.delete(CLUSTERS)
