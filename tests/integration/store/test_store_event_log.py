"""The stream of events: a batch once, capped, read from anywhere in it."""

from __future__ import annotations

import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.core.events import Event
from supervisor.store.event_log import BATCH_MAX, TTL_MS, EventLog, listened
from tests.kit.builders import StoreCalls
from tests.kit.servers import on_both


@pytest.fixture
def log(world: StoreCalls) -> EventLog:
    """Return the calls of one cluster."""
    return EventLog(world.keys)


def event(number: int = 0) -> Event:
    """Return an event with a number as its subject."""
    return Event("run_failed", "warning", str(number), "why", 1, 1, 2, "r1", "worker-io-0", {"run": "x"})


def subjects(world: StoreCalls, log: EventLog, **arguments: object) -> list[str]:
    """Return what is read."""
    return [kept.event.subject for kept in world.run(log.read(**arguments))]  # type: ignore[arg-type]


def test_a_batch_is_added_once_however_often_it_is_sent(world: StoreCalls, log: EventLog) -> None:
    """The reply may be lost; an event that stands there twice is a second failure to whoever reads."""
    assert world.twice(log.add([event(1), event(2)], writer="w", batch=1, kept=100)) == (2, 0)
    assert world.twice(log.add([event(3)], writer="w", batch=2, kept=100)) == (1, 0)
    assert world.run(log.add([event(4)], writer="other", batch=1, kept=100)) == 1

    assert subjects(world, log) == ["1", "2", "3", "4"]
    assert 0 < world.raw.pttl(world.keys.event_writer("w")) <= TTL_MS


def test_the_stream_is_capped(world: StoreCalls, log: EventLog) -> None:
    """About: the server drops whole nodes of its list, a hundred entries each."""
    for batch in range(1, 11):
        world.run(log.add([event(number) for number in range(BATCH_MAX)], writer="w", batch=batch, kept=100))

    assert 100 <= world.raw.xlen(world.keys.event_log) <= 300


def test_events_are_read_after_one_or_the_newest_oldest_first(world: StoreCalls, log: EventLog) -> None:
    """A client that comes back goes on; one that comes new sees the latest."""
    world.run(log.add([event(number) for number in range(5)], writer="w", batch=1, kept=100))
    found = world.run(log.read())

    assert subjects(world, log, count=2) == ["3", "4"]
    assert subjects(world, log, after=found[2].id) == ["3", "4"]
    assert subjects(world, log, after=found[0].id, count=2) == ["1", "2"]
    assert subjects(world, log, after=found[4].id) == []
    assert subjects(world, log, since_ms=int(found[0].id.partition("-")[0])) == ["0", "1", "2", "3", "4"]
    assert subjects(world, log, since_ms=10**14) == []
    assert world.run(log.read(since_ms=10**14)).last_id == found[4].id, "a follower goes on behind what there is"
    assert world.run(log.read(after=found[4].id)).last_id == found[4].id


def test_it_can_be_waited_for(world: StoreCalls, log: EventLog) -> None:
    """Followers block on the stream."""
    world.run(log.add([event(7)], writer="w", batch=1, kept=100))

    assert [kept.event for kept in listened(world.store.listen(log.key, "0-0", 20))] == [event(7)]


@on_both("event_add", "event_read")
def test_what_is_no_event_is_passed_over(world: StoreCalls, log: EventLog) -> None:
    """A newer version may add kinds; a stranger may write anything."""
    world.raw.xadd(world.keys.event_log, {"e": "no json"})
    world.raw.xadd(world.keys.event_log, {"e": '{"reason": 1}'})
    world.run(log.add([event(1)], writer="w", batch=1, kept=100))

    assert subjects(world, log) == ["1"]
    last_id = world.raw.xadd(world.keys.event_log, {"e": "{}"}).decode()
    page = world.run(log.read(count=2))
    assert ([kept.event.subject for kept in page], page.last_id, page.entries) == (["1"], last_id, 2)


def test_an_empty_stream_has_no_events(world: StoreCalls, log: EventLog) -> None:
    """Before the first one there is no key."""
    assert subjects(world, log) == []
    assert world.run(log.read()).last_id == "0-0"


@pytest.mark.parametrize("after", ["x", "1", "-", "1-", "$"])
def test_a_place_that_is_none_is_refused(world: StoreCalls, log: EventLog, after: str) -> None:
    """Redis' own shorthands mean other things here."""
    with pytest.raises(StoreRefusedError):
        world.run(log.read(after=after))
