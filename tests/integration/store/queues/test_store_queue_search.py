"""Runs that are named without their queue: found wherever they are, at a price that does not multiply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from supervisor.core.effects import Call, drive
from supervisor.core.errors import StoreRefusedError
from supervisor.operations import runs as operations
from supervisor.operations import workers
from supervisor.operations.runs import UnknownRunError
from supervisor.store.queues.control import CancelCode, QueueControl
from supervisor.store.queues.run_records import RunEnds
from supervisor.store.queues.run_search import await_runs, search
from supervisor.store.queues.runs import Queues
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import Server

S = "r.1/w-0/1"
Ask = Callable[[StoreCalls, Sequence[tuple[str, str]]], list[str]]


def cancel(world: StoreCalls, runs: Sequence[tuple[str, str]]) -> list[str]:
    done = world.run(QueueControl(world.keys).cancel(runs, by="me", reason=""))
    return [each.queue for each in done]


def hasten(world: StoreCalls, runs: Sequence[tuple[str, str]]) -> list[str]:
    return [each.queue for each in world.run(QueueControl(world.keys).hasten(runs))]


def prioritize(world: StoreCalls, runs: Sequence[tuple[str, str]]) -> list[str]:
    return [each.queue for each in world.run(QueueControl(world.keys).set_priority(runs, 0))]


def wait_for(world: StoreCalls, runs: Sequence[tuple[str, str]]) -> list[str]:
    return drive(await_runs(RunEnds(world.keys), "ab", runs), world.run)


ASKS = pytest.mark.parametrize("ask", [cancel, hasten, prioritize, wait_for])


@ASKS
def test_a_run_is_found_in_the_first_queue_by_name_that_knows_it(world: StoreCalls, ask: Ask) -> None:
    """Short queues are looked through, of long ones the ids are asked for: both find the same."""
    for queue in ("b", "a", "c"):
        world.enqueue(envelope("twice", queue=queue), *(envelope(f"{queue}{n}", queue=queue) for n in range(5)))
    assert ask(world, [("", "twice")]) == ["a"]
    assert ask(world, [("", "c4"), ("", "nowhere"), ("b", "b0"), ("", "a1")]) == ["c", "", "b", "a"]


@pytest.mark.parametrize("key", ["data", "run"])
@ASKS
def test_a_foreign_key_of_one_queue_hides_no_run_of_another(world: StoreCalls, ask: Ask, key: str) -> None:
    """It refused the search for every run that was not in a queue before it by name."""
    world.enqueue(envelope("r", queue="b"))
    world.raw.sadd(world.keys.queues, "a")
    world.raw.set(getattr(world.keys.queue("a"), key), "another program's")
    assert ask(world, [("", "r")]) == ["b"]
    if ask is not wait_for:
        with pytest.raises(StoreRefusedError, match="another type"):
            ask(world, [("", "perhaps-there")])


@pytest.mark.parametrize("key", ["data", "run", "dead"])
def test_a_foreign_key_of_one_queue_refuses_no_wait_for_other_runs(world: StoreCalls, key: str) -> None:
    """A hundred waits are one call, and one of them that was nowhere, or in that queue, refused all, again and again."""
    world.enqueue(envelope("r", queue="b"), envelope("theirs", queue="a"))
    world.raw.delete(getattr(world.keys.queue("a"), key))
    world.raw.set(getattr(world.keys.queue("a"), key), "another program's")
    asked = [("a", "theirs"), ("", "nowhere"), ("b", "ended"), ("b", "r")]
    assert wait_for(world, asked) == ["a" if key == "run" else "", "", "", "b"]
    with pytest.raises(StoreRefusedError, match="another type"):
        world.run(world.queues.show("theirs", ["a"]))  # as who asked for it does next


@pytest.mark.parametrize("key", ["data", "run", "hist"])
def test_a_foreign_key_of_one_queue_refuses_no_search_for_a_run(world: StoreCalls, key: str) -> None:
    """A question for an id that was nowhere was refused because of a queue that it did not name."""
    world.enqueue(envelope("r", queue="b"))
    world.raw.sadd(world.keys.queues, "a")
    world.raw.set(getattr(world.keys.queue("a"), key), "another program's")
    found = drive(search(world.queues, "r"), world.run)
    assert found is not None
    assert found.queue == "b"
    assert drive(search(world.queues, "perhaps-there"), world.run) is None
    with pytest.raises(UnknownRunError):
        drive(operations.show(world.keys, "perhaps-there", is_thorough=True), world.run)
    with pytest.raises(StoreRefusedError, match="another type"):
        world.run(world.queues.show("perhaps-there", ["a"]))


def test_workers_are_listed_although_a_queue_cannot_be_read(world: StoreCalls) -> None:
    """The runs of that queue are missing beside them, and it is named."""
    world.open(S)
    world.enqueue(envelope("r", queue="b"))
    assert world.fetch(S, queues=["b"]) == ["r"]
    world.raw.sadd(world.keys.queues, "a")
    world.raw.set(world.keys.queue("a").run, "another program's")
    told: list[str] = []
    listing = workers.overview(world.keys, wait_s=0, tell_refused=lambda name, _: told.append(name))
    (found,) = drive(listing, lambda effect: world.run(effect) if isinstance(effect, Call) else None)
    assert (found.session, found.runs, told) == (S, ["r"], ["a"])


def test_many_queues_are_searched_page_by_page(world: StoreCalls) -> None:
    """Anybody can make names of queues: a search through 100,000 kept Redis from answering for three seconds."""
    world.open(S)
    world.enqueue(envelope("lives", queue="here"), envelope("ended", queue="there"))
    assert world.fetch(S, queues=["there"]) == ["ended"]
    world.ack(S, "ended", queue="there")
    world.raw.sadd(world.keys.queues, *(f"user-{n}" for n in range(9000)))
    scripts: list[str] = []

    def run(call: Call[Any]) -> Any:
        scripts.append(call.script)
        return world.run(call)

    lives, ended = (drive(search(world.queues, run_id), run) for run_id in ("lives", "ended"))
    assert lives is not None
    assert ended is not None
    assert [(view.state, view.queue) for view in (lives, ended)] == [("queued", "here"), ("finished", "there")]
    assert [entry.outcome for entry in ended.history] == ["ok"]
    assert drive(search(world.queues, "nowhere"), run) is None
    runs = [("", "lives"), ("there", "lives"), ("", "nowhere")]
    assert drive(await_runs(RunEnds(world.keys), "ab", runs), run) == ["here", "here", ""]
    assert 12 <= scripts.count("run_show") <= 27
    assert 2 <= scripts.count("runs_await") <= 9


def test_a_run_of_another_job_is_passed_over(world: StoreCalls) -> None:
    """A request that was judged by a job is for a run of it, wherever."""
    world.enqueue(envelope("r", queue="a", job="theirs"), envelope("r", queue="b", job="ours"))
    (done,) = world.run(QueueControl(world.keys).cancel([("", "r", "ours")], by="me", reason=""))
    assert (done.code, done.queue) == (CancelCode.CANCELLED, "b")


@pytest.mark.server
@ASKS
@pytest.mark.parametrize("server", ["real"], indirect=True)
def test_the_price_of_a_search_is_a_look_into_each_queue_not_one_for_each_run(server: Server, ask: Ask) -> None:
    """A hundred runs among 5,000 queues held the server for six seconds, longer than a lease."""
    world = StoreCalls(server)
    names = [f"tenant-{n}" for n in range(50)]
    world.enqueue(*(envelope(f"own-{name}", queue=name) for name in names))
    ask(world, [("", "gone")])

    def commands() -> int:
        stats: dict[str, Any] = world.raw.info("commandstats")
        return sum(each["calls"] for name, each in stats.items() if name != "cmdstat_info")

    before = commands()
    assert ask(world, [("", f"gone-{n}") for n in range(100)]) == [""] * 100
    assert commands() - before < 5 * len(names) + 150
    assert world.run(Queues(world.keys).names()) == sorted(names)


@pytest.mark.server
@pytest.mark.parametrize("server", ["real"], indirect=True)
def test_of_many_queues_each_is_searched_less_far_back_for_a_run_that_ended(server: Server) -> None:
    """A question for an id that is nowhere read a thousand lines of each of a thousand queues in one script."""
    world = StoreCalls(server)
    world.raw.sadd(world.keys.queues, "a", "b", "c", "d")
    newer = [f"other|ok|1|s|{n}|{n}|j|" for n in range(2, 50_001)]
    world.raw.rpush(world.keys.queue("a").hist, "r|ok|1|s|1|1|j|", "within|ok|1|s|1|1|j|", *newer)

    assert world.run(world.queues.show("r", scan=100_000)) is None
    assert world.run(world.queues.show("within", scan=100_000)) is not None
    assert world.run(world.queues.show("r", ["a"], scan=100_000)) is not None
