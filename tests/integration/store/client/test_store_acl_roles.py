"""Users of one Redis: what the rules of each role let through, and what they keep out."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec
import pytest
import redis
from msgspec import structs

from supervisor.core.effects import drive
from supervisor.core.errors import StoreRefusedError
from supervisor.core.events import Event
from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.model import Kind, Outcome, Template
from supervisor.operations import queues as operations
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client import preflight
from supervisor.store.client.preflight import PRODUCER_WRITES, AclRole, acl_rules
from supervisor.store.client.sync_client import Store
from supervisor.store.election.commands import Command, Commands, Word
from supervisor.store.election.leases import LeaseCode, Leases
from supervisor.store.event_log import EventLog
from supervisor.store.keys import Keys
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.control import QueueControl, RequeueCode
from supervisor.store.queues.run_records import Tallies
from supervisor.store.queues.runs import Enqueued, Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.fire import Schedules
from supervisor.store.wire.envelope import pack
from tenure import Run
from tenure.errors import RunIdTakenError, RunTimeoutError
from tests.integration.store.fanout.test_store_tallies import child, end, follow
from tests.integration.store.limits.limit_checks import limited, rated, unique
from tests.kit.builders import envelope
from tests.kit.servers import RealServer

pytestmark = pytest.mark.server
KEYS = Keys("roles")


class Users:
    """Clients of a server, each as a user with the rules of its role."""

    def __init__(self, real: RealServer, admin: redis.Redis, stack: ExitStack) -> None:
        self._real, self._admin, self._stack = real, admin, stack

    def settings(self, role: AclRole) -> RedisSettings:
        self._admin.execute_command("ACL", "SETUSER", role, "reset", "on", ">pw", *acl_rules("roles", role))
        self._stack.callback(self._admin.execute_command, "ACL", "DELUSER", role)
        return RedisSettings.model_validate({"url": self._real.url, "username": role, "password": "pw"})

    def store(self, role: AclRole) -> Store:
        store = Store.connect(self._real.url, settings=self.settings(role), name="t", timeout_s=20)
        self._stack.callback(store.close)
        return store


@pytest.fixture
def users(real_server: RealServer) -> Iterator[Users]:
    """Users of an empty server; both are removed afterwards."""
    with ExitStack() as stack:
        admin = stack.enter_context(redis.Redis(unix_socket_path=str(real_server.socket), protocol=2))
        stack.callback(admin.flushall)
        yield Users(real_server, admin, stack)


def refused(store: Store, *calls: object) -> bool:
    """Say whether the server refuses each of the calls for want of a right."""
    for call in calls:
        with pytest.raises(StoreRefusedError, match=r"(?i)permission|NOPERM|ACL"):
            store.run(call) if not isinstance(call, tuple) else store.command(*call)
    return True


def test_a_producer_enqueues_with_limits_and_reads_its_runs(users: Users) -> None:
    """What a program that only enqueues needs, by the scripts and by the producer that people call."""
    store, queues = users.store("producer"), Queues(KEYS)
    put = [envelope("plain"), unique("one"), unique("two"), limited("three"), rated("four")]

    assert store.run(queues.enqueue(envelopes=put, delays_ms=[0] * len(put), nonce="n"))[1:3] == [
        Enqueued("one", is_new=True),
        Enqueued("one", is_new=False, is_duplicate=True),
    ]
    card = JobCard(template=Template(job="mail", kind=Kind.ASYNC, queue="mail"))
    users.store("tree").run(Sessions(KEYS).publish_jobs({"mail": msgspec.json.encode(card).decode()}))
    producer = Producer(users.settings("producer"), cluster="roles")
    try:
        run_id = producer.enqueue("mail")
        with pytest.raises(RunTimeoutError, match="it is waiting"):
            Run(run_id, producer=producer).result(timeout="10ms")
        assert Run(run_id, producer=producer).cancel()
        run_id = producer.enqueue("mail", run_id="chosen")
    finally:
        producer.close()
    assert store.run(queues.show(run_id)).queue == "mail"
    assert store.run(queues.counts("default")).stats["in"] == 4


@pytest.mark.parametrize("version", ["this", "earlier"])
def test_a_producer_that_enqueues_an_id_again_leaves_nothing_of_its_former_life(
    users: Users, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Else its result is taken for that of the new one. Users have the rights of the version that made them."""
    if version == "earlier":
        monkeypatch.setattr(preflight, "PRODUCER_WRITES", [key for key in PRODUCER_WRITES if key != "progress:*"])
    store, tree, packed = users.store("producer"), users.store("tree"), pack(envelope("mine"))
    for kind in ("result", "ended", "progress"):
        tree.command("EVAL", "return redis.call('SET', KEYS[1], 'former')", "1", f"{KEYS.prefix}{kind}:mine")

    runs = [packed.run_id, packed.queue, 0, packed.data, "content"]
    store.run(Queues(KEYS).enqueue_flat(nonce="a1", ids=["mine"], runs=runs, is_chosen=True))

    left = [
        kind
        for kind in ("result", "ended", "progress")
        if tree.command("EVAL", "return redis.call('EXISTS', KEYS[1])", "1", f"{KEYS.prefix}{kind}:mine")
    ]
    assert left == (["progress"] if version == "earlier" else [])


@pytest.mark.parametrize("role", ["producer", "reader"])
def test_who_leads_and_what_happened_is_for_all_who_may_read(users: Users, role: AclRole) -> None:
    """``tenure.leadership()`` of a program, and ``tenure status``: keys that a script declares count as written ones."""
    tree = users.store("tree")
    tree.run(Leases(KEYS).clear_hold(by="a"))
    told = Event(
        reason="reload_done", level="info", subject="", note="", count=1, first_ms=1, last_ms=1, replica="r", role="web"
    )
    tree.run(EventLog(KEYS).add([told], writer="w", batch=1, kept=10))
    store = users.store(role)

    assert store.run(Leases(KEYS).view()).code is LeaseCode.VIEW
    assert store.run(Leases(KEYS).view(with_presence=True)).holder == ""
    assert store.run(Leases(KEYS).history(5)) == tree.run(Leases(KEYS).history(5))
    assert [each.event.reason for each in store.run(EventLog(KEYS).read())] == [told.reason]


FIRED = "s@1700000000000"


def counted(tree: Store, *more: str) -> Queues:
    """Put a run that a fan-out counts, one that a schedule made, and others that nobody counts; both are followed."""
    queues = Queues(KEYS)
    tree.run(Sessions(KEYS).open("r.1/w-0/1", {"slot": "w-0"}))
    tree.run(queues.enqueue(envelopes=[envelope("p")], delays_ms=[0], nonce="n"))
    turn = functools.partial(queues.turn, session="r.1/w-0/1", kind=Kind.ASYNC, queues=["default"], want_suspect=False)
    (fetched,) = tree.run(turn(seq=1, want=1)).runs
    ack = end("p", Outcome.OK, child("p", "a"), attempt=fetched.attempt, keep=60_000, then=[follow("p>next")])
    tree.run(turn(seq=2, want=0, acks=[structs.replace(ack, fetched_ms=fetched.fetched_ms)]))
    put = [structs.replace(envelope(FIRED), schedule="s"), *map(envelope, more)]
    tree.run(queues.enqueue(envelopes=put, delays_ms=[0] * len(put), nonce="m"))
    told = f"return redis.call('HSET', KEYS[1], 's', 'default {FIRED}')"
    tree.command("EVAL", told, "1", f"{KEYS.prefix}schedule:live")
    return queues


def test_a_producer_ends_no_run_whose_end_others_must_learn_of(users: Users) -> None:
    """The run would be gone, and what counts it would wait for its end for ever. What nobody counts it may end."""
    tree, alike = users.store("tree"), "other@1700000000000"
    queues = counted(tree, alike)
    producer = Producer(users.settings("producer"), cluster="roles")
    try:
        for run_id in ("p/a", FIRED):
            with pytest.raises(StoreRefusedError, match=f"another run counts {run_id}, which is for users of trees"):
                Run(run_id, producer=producer).cancel()
            assert tree.run(queues.show(run_id)).state == "queued"
        assert Run(alike, producer=producer).cancel()
    finally:
        producer.close()

    tree.run(QueueControl(KEYS).cancel([("", "p/a", ""), ("", FIRED, "")], by="operator"))
    assert tree.run(Tallies(KEYS).read("p")).left == 0
    assert tree.run(queues.show("p>next")).state == "queued"


def test_a_producer_takes_no_id_of_a_schedules_run(users: Users) -> None:
    """It may read which schedules there are, and a fire whose id another run has does not happen."""
    tree = users.store("tree")
    card = JobCard(template=Template(job="mail", kind=Kind.ASYNC))
    tree.run(Sessions(KEYS).publish_jobs({"mail": msgspec.json.encode(card).decode()}))
    tree.command("EVAL", "return redis.call('HSET', KEYS[1], 's', '1')", "1", f"{KEYS.prefix}schedule:def")
    producer = Producer(users.settings("producer"), cluster="roles")
    try:
        with pytest.raises(RunIdTakenError, match=r"by schedule s, which gives its own runs such ids"):
            producer.enqueue("mail", run_id=FIRED, queue="elsewhere", delay="366d")
    finally:
        producer.close()


@pytest.mark.parametrize(("what", "job"), [("purge", ""), ("purge", "tests.noop"), ("move", "")])
def test_a_producer_changes_no_page_of_a_queue_in_which_others_count_runs(users: Users, what: str, job: str) -> None:
    """The script ended half-way: runs that it had taken out of their list waited in none. Others it may change."""
    tree, store, control = users.store("tree"), users.store("producer"), QueueControl(KEYS)
    queues = counted(tree, "plain")

    def change(by: Store) -> int:
        if what == "move":
            return by.run(control.move("default", "other", "ready:a:1")).moved
        return by.run(control.purge("default", "ready:a:1", job=job)).ended

    with pytest.raises(StoreRefusedError, match=r"another run counts \S+, which is for users of trees to"):
        change(store)

    assert tree.run(queues.fsck("default")) == []
    assert tree.run(queues.counts("default")).ready_total == 3
    assert tree.run(Tallies(KEYS).read("p")).left == 1
    tree.run(control.cancel([("", "p/a", ""), ("", FIRED, "")], by="operator"))
    assert change(store) == 2  # and what follows the fan-out
    assert tree.run(queues.fsck("default")) == []


def test_a_producer_purges_and_moves_no_delayed_run_that_others_count(users: Users) -> None:
    """They wait in another place, from which they go one by one."""
    tree, store, control = users.store("tree"), users.store("producer"), QueueControl(KEYS)
    queues = Queues(KEYS)
    tree.run(queues.enqueue(envelopes=[envelope("first"), envelope(FIRED)], delays_ms=[60_000, 90_000], nonce="m"))
    told = f"return redis.call('HSET', KEYS[1], 's', 'default {FIRED}')"
    tree.command("EVAL", told, "1", f"{KEYS.prefix}schedule:live")

    assert refused(store, control.purge("default", "later"), control.purge("default", "later", job="tests.noop"))
    assert refused(store, control.move("default", "other", "later"))

    assert tree.run(queues.fsck("default")) == []
    assert tree.run(queues.counts("default")).later == 2
    assert store.run(control.purge("default", "later", job="another")).ended == 0


def test_a_producer_moves_a_run_that_only_another_run_counts(users: Users) -> None:
    """The tally does not hold the queue."""
    tree, store = users.store("tree"), users.store("producer")
    queues = counted(tree)
    tree.run(QueueControl(KEYS).cancel([("", FIRED, "")], by="operator"))

    assert store.run(QueueControl(KEYS).move("default", "other", "ready:a:1")).moved == 1
    assert tree.run(queues.fsck("other")) == []


def test_a_producer_revives_and_mends_nothing_that_others_count(users: Users) -> None:
    """A tally that missed it would start too early what waits for all of its runs."""
    tree, store, control = users.store("tree"), users.store("producer"), QueueControl(KEYS)
    counted(tree, "plain")
    give_up = "redis.call('ZADD', KEYS[1], 1, 'p/a') redis.call('ZADD', KEYS[1], 1, 'plain') return redis.call('DEL', KEYS[2])"
    places = (f"{KEYS.prefix}q:default:dead", f"{KEYS.prefix}q:default:ready:a:1")
    tree.command("EVAL", give_up, "2", *places)

    assert refused(store, control.requeue("default", ["plain", "p/a"]))
    assert tree.run(Queues(KEYS).counts("default")).dead == 2
    assert [each.code for each in store.run(control.requeue("default", ["plain"]))] == [RequeueCode.REQUEUED]
    with pytest.raises(StoreRefusedError, match="for users of trees to mend"):
        drive(operations.verify(KEYS, ["default"], is_mending=True), store.run)
    assert FIRED in {each.what for each in drive(operations.verify(KEYS, ["default"]), store.run)}


def test_a_producer_cannot_command_lead_or_define(users: Users) -> None:
    """Whoever may enqueue must not stop a replica, take the lease or replace a schedule."""
    store, lease = users.store("producer"), Leases(KEYS)
    stop = Commands(KEYS).send("r", "c", Command(word=Word.STOP))

    assert refused(store, stop, lease.withdraw("r"), Sessions(KEYS).publish_jobs({"a": "{}"}))
    for key in ("lease", "schedule:def", "commands:r", "jobs", "sessions"):
        assert refused(
            store, ("EVAL", "return redis.call('HSET', KEYS[1] .. ARGV[1], 'f', 'v')", "1", KEYS.prefix, key)
        )


def test_a_reader_reads_and_changes_nothing(users: Users) -> None:
    """A program that shows runs needs no right to make one."""
    users.store("tree").run(Queues(KEYS).enqueue(envelopes=[envelope("a")], delays_ms=[0], nonce="n"))
    store = users.store("reader")

    assert store.run(Queues(KEYS).show("a")).queue == "default"
    assert store.run(Queues(KEYS).counts("default")).stats["in"] == 1
    assert store.run(Leases(KEYS).history(5)) == store.run(Schedules(KEYS).log(5)) == []
    assert refused(
        store,
        QueueControl(KEYS).pause("default"),
        Queues(KEYS).enqueue(envelopes=[envelope("b")], delays_ms=[0], nonce="m"),
    )
    assert refused(store, ("EVAL", "return redis.call('SET', KEYS[1], 'v')", "1", KEYS.prefix))


@pytest.mark.parametrize("role", ["tree", "producer", "reader"])
def test_the_documented_rights_reach_nothing_of_another_tenant(users: Users, role: AclRole) -> None:
    """Keys and channels of other clusters and programs are refused, in commands and in scripts; so is the server itself."""
    store, other = users.store(role), "{tenure:other}:q:default:data"

    assert refused(store, ("EVAL", "return redis.call('HGET', KEYS[1], 'f')", "1", other))
    assert refused(store, ("EVAL", f"return redis.call('HGET', '{other}', 'f')", "1", KEYS.prefix))
    for words in (
        "PUBSUB CHANNELS",
        "KEYS *",
        "CONFIG GET *",
        "FLUSHALL",
        "MONITOR",
        "CLIENT LIST",
        "SCRIPT FLUSH",
        "SCAN 0",
    ):
        assert refused(store, tuple(words.split()))
