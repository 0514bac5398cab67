"""Progress in Redis: the newest execution's word, for as long as somebody may ask."""

from __future__ import annotations

import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.store.queues.run_records import Progresses, ProgressItem
from supervisor.store.scripts import script
from supervisor.store.wire.envelope import pack
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import Server, on_both


def item(note: str, *, fence: int = 1, run_id: str = "s@1", ttl_ms: int = 60_000) -> ProgressItem:
    """Return what a job said."""
    return ProgressItem(run_id=run_id, fence=fence, attempt=1, at_ms=5, done=3, total=4, note=note, ttl_ms=ttl_ms)


def test_what_was_said_last_is_read(server: Server) -> None:
    """And nothing where nothing was."""
    store, subject = server.store(), Progresses(server.keys)

    assert store.run(subject.read("s@1")) is None
    assert store.run(subject.write([item("first"), item("other", run_id="r2")])) == 2
    assert store.run(subject.write([item("second")])) == 1

    found = store.run(subject.read("s@1"))
    assert found is not None
    assert (found.note, found.done, found.total) == ("second", 3, 4)
    assert 0 < store.raw.pttl(server.keys.progress("s@1")) <= 60_000


def test_an_execution_that_was_taken_for_dead_says_nothing_any_more(server: Server) -> None:
    """Its word would stand beside a result that is not its own."""
    store, subject = server.store(), Progresses(server.keys)
    store.run(subject.write([item("newer", fence=10)]))

    assert store.run(subject.write([item("older", fence=9)])) == 0
    assert store.run(subject.write([item("newest", fence=10)])) == 1


def test_a_later_life_of_an_id_begins_without_progress(server: Server) -> None:
    """The fence counts the attempts of one life: that of three kept the next one's word out, and stood for it."""
    world, subject = StoreCalls(server), Progresses(server.keys)
    world.run(subject.write([item("of a former life", fence=3, run_id="mine")]))
    packed = pack(envelope("mine"))
    runs = [packed.run_id, packed.queue, 0, packed.data, "content"]
    world.run(world.queues.enqueue_flat(nonce="a1", ids=["mine"], runs=runs, is_chosen=True))

    assert world.run(subject.read("mine")) is None
    assert world.run(subject.write([item("begun", fence=1, run_id="mine")])) == 1


@on_both("progress_read", "progress_write")
def test_a_foreign_key_in_its_place_stops_nothing(server: Server) -> None:
    """Progress is worth no run."""
    store, subject = server.store(), Progresses(server.keys)
    key = server.keys.progress("s@1")
    store.raw.rpush(key, "x")

    assert store.run(subject.read("s@1")) is None
    assert store.run(subject.write([item("said")])) == 1
    store.raw.set(key, "no number")
    assert store.run(subject.read("s@1")) is None


@pytest.mark.parametrize("items", [[], ["r"], ["r", "1", "5"], ["r", "x", "5", "{}"], ["r", "1", "0", "{}"]])
def test_malformed_items_write_nothing(server: Server, items: list[str]) -> None:
    """Every argument is looked at before the first write."""
    call = script("progress_write").call(
        keys={"prefix": server.keys.prefix}, args={"items": ["ok", "1", "5", "{}", *items] if items else []}, parse=int
    )

    with pytest.raises(StoreRefusedError, match="BADARG"):
        server.store().run(call)
    assert server.store().raw.keys("*progress*") == []
