"""Which runs must give way to newer ones of their schedule, as agents read it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.core.model import Outcome, Release
from supervisor.store.queues.runs import EndedRun, UnwantedRun
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import on_both

S, Z = "r.1/worker-cpu-0/1", "r.2/worker-cpu-0/1"


@pytest.fixture
def busy(world: StoreCalls) -> StoreCalls:
    """Two sessions of two replicas that hold a run each."""
    world.open(S, Z)
    world.enqueue(envelope("a"), envelope("b"))
    assert world.fetch(S, want=1) == ["a"]
    assert world.fetch(Z, want=1) == ["b"]
    return world


def ask(world: StoreCalls, how: str, run_id: str, *, ago_ms: int = 0) -> None:
    """Ask for the end of a run, as the fire script does."""
    queue = world.keys.queue("default")
    token = world.raw.hget(queue.run, run_id).decode()
    at_ms = world.run(world.leases.view()).now_ms - ago_ms
    world.raw.hset(f"{queue.prefix}cancel", run_id, f"{how}|{token}|{at_ms}")


def pending(world: StoreCalls) -> set[bytes]:
    """Return the runs that are asked to end."""
    return set(world.raw.hkeys(f"{world.keys.queue('default').prefix}cancel"))


def test_an_agent_hears_of_its_own_runs_until_they_end(busy: StoreCalls) -> None:
    """The request stands, so that one that was lost on the way comes again."""
    ask(busy, "stop", "a")
    ask(busy, "kill", "b")

    assert busy.run(busy.queues.unwanted([S])) == [
        UnwantedRun("default", "a", S, is_killed=False, fetched_ms=busy.fetched_ms("a"))
    ]
    assert busy.run(busy.queues.unwanted([S])) == [
        UnwantedRun("default", "a", S, is_killed=False, fetched_ms=busy.fetched_ms("a"))
    ]
    assert busy.run(busy.queues.unwanted([Z])) == [
        UnwantedRun("default", "b", Z, is_killed=True, fetched_ms=busy.fetched_ms("b"))
    ]
    assert busy.run(busy.queues.unwanted(["r.3/worker-cpu-0/1"])) == []
    assert pending(busy) == {b"a", b"b"}


def test_a_request_to_stop_is_forgotten_once_its_attempt_is_over(busy: StoreCalls) -> None:
    """The next attempt of the run was not meant."""
    ask(busy, "stop", "a")
    busy.run(busy.queues.release_runs(session=S, items=[("default", "a", Release.INTERRUPTED)]))
    assert busy.fetch(Z, want=1) == ["a"]

    assert busy.run(busy.queues.unwanted([S, Z])) == []
    assert pending(busy) == set()


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_request_to_kill_is_forgotten_when_nobody_is_left_to_kill(busy: StoreCalls, *, is_gone: bool) -> None:
    """Its session is gone, or had a minute."""
    ask(busy, "kill", "a", ago_ms=0 if is_gone else 61_000)
    if is_gone:
        busy.run(busy.sessions.close(S))

    assert busy.run(busy.queues.unwanted([S])) == []
    assert pending(busy) == set()


@on_both("queue_unwanted")
@pytest.mark.parametrize(("how", "outcome"), [("force", Outcome.CANCELLED), ("yield", Outcome.REPLACED)])
def test_an_agent_hears_once_how_a_run_ended_that_was_let_go_of(world: StoreCalls, how: str, outcome: Outcome) -> None:
    """Its worker reports nothing, since it is killed: events and metrics knew nothing of the run's end."""
    world.open(S)
    world.enqueue(replace(envelope("nightly@5", job="billing.send"), schedule="nightly"))
    assert world.fetch(S, want=1) == ["nightly@5"]
    ask(world, how, "nightly@5", ago_ms=-60_000)
    assert [each.ended for each in world.run(world.queues.unwanted([S]))] == [None]

    ask(world, how, "nightly@5", ago_ms=1)
    (gone,) = world.run(world.queues.unwanted([S]))
    assert gone.ended == EndedRun("default", "nightly@5", outcome.value, 1, "billing.send", "nightly")
    assert (gone.is_killed, gone.ended.outcome) == (True, outcome)
    assert [(each.is_killed, each.ended) for each in world.run(world.queues.unwanted([S]))] == [(True, None)]


def test_many_requests_are_let_go_of_page_by_page(world: StoreCalls) -> None:
    """One call that ends ten thousand runs would hold the server up for everybody."""
    world.open(S)
    runs = [f"r{n:03}" for n in range(350)]
    world.enqueue(*(envelope(run) for run in runs))
    held = [run for _ in range(4) for run in world.fetch(S, want=100)]
    assert sorted(held) == runs
    for run in runs:
        ask(world, "force", run, ago_ms=1)
    position: tuple[str, str] | None = ("", "0")
    ended, calls = 0, 0
    while position is not None or ended < len(runs):
        page = world.run(world.queues.unwanted([S], position=position or ("", "0")))
        left = world.raw.hlen(world.keys.queue("default").run)
        assert len(runs) - ended - left <= 100
        ended, position, calls = len(runs) - left, page.position, calls + 1

    assert 4 <= calls < 20


@on_both("queue_unwanted")
def test_a_queue_with_a_foreign_key_hides_no_request_of_another(busy: StoreCalls) -> None:
    """Its requests cannot be read; those of the other queues are."""
    busy.raw.sadd(busy.keys.queues, "broken")
    busy.raw.set(f"{busy.keys.queue('broken').prefix}cancel", "another program's")
    ask(busy, "stop", "a")

    asked = UnwantedRun("default", "a", S, is_killed=False, fetched_ms=busy.fetched_ms("a"))
    assert busy.run(busy.queues.unwanted([S])) == [asked]


@pytest.mark.parametrize("fetched", ["9" * 5000, "9" * 16])
def test_a_request_of_an_execution_that_never_was_hides_no_other(busy: StoreCalls, fetched: str) -> None:
    """A producer's user may write it: its number made the whole page unreadable, for as long as the session lived."""
    busy.raw.hset(f"{busy.keys.queue('default').prefix}cancel", "x", f"kill|{S}|1|{fetched}|99999999999999")
    busy.raw.hset(f"{busy.keys.queue('default').prefix}cancel", "x" * 2_000_000, f"kill|{S}|1|1|99999999999999")
    ask(busy, "stop", "a")

    asked = UnwantedRun("default", "a", S, is_killed=False, fetched_ms=busy.fetched_ms("a"))
    assert busy.run(busy.queues.unwanted([S])) == [asked]
    assert pending(busy) == {b"a"}


@pytest.mark.parametrize("name", [b"", b"\xff"])
def test_many_requests_in_a_queue_that_no_version_names_so_hide_no_other(busy: StoreCalls, name: bytes) -> None:
    """Whoever may enqueue by Redis can lay them: a page that ended there was the last of its round, or came for ever."""
    foreign = f"{busy.keys.prefix}q:".encode() + name
    ids = [f"x{n}" for n in range(1500)]
    busy.raw.sadd(busy.keys.queues, name)
    busy.raw.hset(foreign + b":run", mapping=dict.fromkeys(ids, "r.9/worker-cpu-0/1|1|1"))
    busy.raw.hset(foreign + b":cancel", mapping=dict.fromkeys(ids, "cancel|r.9/worker-cpu-0/1|1|1|1"))
    ask(busy, "cancel", "a")

    page = busy.run(busy.queues.unwanted([S]))
    assert [request.run_id for request in page] == ["a"]
    assert page.position is None or busy.run(busy.queues.unwanted([S], position=page.position)).position is None


def test_many_queues_are_looked_through_page_by_page(busy: StoreCalls) -> None:
    """Names of queues cost nothing: a call that looked at a hundred thousand kept the leader from renewing its lease."""
    busy.raw.sadd(busy.keys.queues, *(f"user-{n}" for n in range(9000)))
    ask(busy, "cancel", "a")

    heard, pages, position = [], 0, ("", "0")
    while position is not None:
        page = busy.run(busy.queues.unwanted([S], position=position))
        heard += [request.run_id for request in page]
        pages, position = pages + 1, page.position
    assert heard == ["a"]
    assert 3 <= pages <= 9
