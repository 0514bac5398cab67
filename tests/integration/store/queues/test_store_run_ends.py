"""Ends of awaited runs: told to who asked, kept for who asks later, and never those of another life or execution."""

from __future__ import annotations

import pytest

from supervisor.core.effects import drive
from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Outcome, Release
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.reads import RunView
from supervisor.store.queues.run_records import RunEnds
from supervisor.store.queues.run_search import await_runs
from supervisor.store.wire.envelope import pack
from tests.integration.store.queues.control_calls import cancel
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import on_both

S, Z = "r.1/worker-cpu-0/1", "r.2/worker-cpu-0/1"
BELL = "ab12"


def await_end(world: StoreCalls, *ids: str, bell: str = BELL) -> list[str]:
    """Ask to be told of the ends of runs; return the queue of each."""
    return drive(await_runs(RunEnds(world.keys), bell, [("", run_id) for run_id in ids]), world.run)


def told(world: StoreCalls, bell: str = BELL) -> list[str]:
    """Return the ids that a process was told of."""
    return [run_id.decode() for run_id in world.raw.lrange(world.keys.rung(bell), 0, -1)]


def shown(world: StoreCalls, run_id: str) -> RunView:
    """Return how a run stands, without a look into history."""
    view: RunView = world.run(world.queues.show(run_id, need="end"))
    return view


def enqueue_chosen(world: StoreCalls, run_id: str) -> None:
    """Enqueue a run under an id that its caller chose, whose former life is forgotten."""
    world.raw.delete(f"{world.keys.queue('default').prefix}ran:{run_id}")
    packed = pack(envelope(run_id))
    runs = [packed.run_id, packed.queue, 0, packed.data, "content"]
    (done,) = world.run(
        world.queues.enqueue_flat(nonce=run_id + str(world.raw.dbsize()), ids=[run_id], runs=runs, is_chosen=True)
    )
    assert done.is_new


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_run_that_is_known_to_have_ended_is_sought_in_no_other_queue(world: StoreCalls, *, is_awaited: bool) -> None:
    """Each caller who waits for one that was quick looked through all queues, and failed at a foreign key in any."""
    world.open(S)
    world.enqueue(envelope("a"))
    if is_awaited:
        await_end(world, "a")
    world.fetch(S)
    world.ack(S, "a", result=None if is_awaited else b"1", result_ttl_ms=0 if is_awaited else 60_000)
    world.raw.sadd(world.keys.queues, "other")
    world.raw.set(world.keys.queue("other").data, "another program's")

    assert drive(await_runs(RunEnds(world.keys), BELL, [("default", "a")]), world.run) == [""]


def test_an_awaited_end_is_told_and_kept(world: StoreCalls) -> None:
    """Also that of a run without a result, which leaves nothing else but history."""
    world.open(S)
    world.enqueue(envelope("a", args={"to": "x", "from": "y"}), envelope("b"))
    assert await_end(world, "a") == ["default"]
    world.fetch(S)
    world.ack(S, "a", Outcome.OK, job="tests.noop", started_ms=5, ended_ms=9)
    world.ack(S, "b", Outcome.OK)

    assert told(world) == ["a"]
    view = shown(world, "a")
    assert view.ended is not None
    assert (view.ended.outcome, view.ended.attempt, view.ended.has_result) == ("ok", 1, False)
    assert sorted(view.ended.args or []) == ["from", "to"]
    assert not world.raw.exists(world.keys.awaited, world.keys.ended("b"))


def test_what_nobody_awaits_leaves_nothing(world: StoreCalls) -> None:
    """Runs for which nobody waits cost neither keys nor messages."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    world.ack(S, "a", Outcome.OK)
    assert not [key for key in world.raw.keys("*") if b"ended" in key or b"rung" in key or b"awaited" in key]


def test_every_process_that_waits_is_told_once(world: StoreCalls) -> None:
    """Each has a list of its own; asking again adds nothing."""
    world.open(S)
    world.enqueue(envelope("a"))
    for bell in ("01", "02", "01"):
        await_end(world, "a", bell=bell)
    world.fetch(S)
    world.ack(S, "a", Outcome.OK, result=b"7", result_ttl_ms=60_000)
    assert (told(world, "01"), told(world, "02")) == (["a"], ["a"])
    assert shown(world, "a").result == b"7"


def test_what_has_ended_or_never_was_is_not_awaited(world: StoreCalls) -> None:
    """Who asks too late hears so at once, and reads how it ended."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("dead"))
    world.fetch(S, want=2)
    world.ack(S, "a", Outcome.OK)
    world.ack(S, "dead", Outcome.DEAD, error={"type": "ValueError"})
    assert await_end(world, "a", "dead", "never") == ["", "", ""]
    assert not world.raw.exists(world.keys.awaited)


def test_an_end_by_another_execution_is_not_told(world: StoreCalls) -> None:
    """A worker that was taken for dead reports: its result is not the run's."""
    world.open(S, Z)
    world.enqueue(envelope("a"))
    world.fetch(S)
    await_end(world, "a")
    world.run(world.queues.release_runs(session=S, items=[("default", "a", Release.INTERRUPTED)]))
    world.fetch(Z)
    world.ack(S, "a", Outcome.OK, result=b'"stale"', result_ttl_ms=60_000)
    assert told(world) == []
    assert shown(world, "a").state == "running"
    assert not world.raw.exists(world.keys.result("a"), world.keys.ended("a"))


def test_a_death_is_told_and_a_requeued_run_is_awaited_anew(world: StoreCalls) -> None:
    """The end of its first life is no end of its second."""
    world.open(S)
    world.enqueue(envelope("a"))
    await_end(world, "a")
    world.fetch(S)
    world.ack(S, "a", Outcome.DEAD, error={"type": "ValueError", "message": "no"})
    assert told(world) == ["a"]
    assert shown(world, "a").state == "dead"

    world.run(QueueControl(world.keys).requeue("default", ["a"]))
    assert await_end(world, "a") == ["default"]
    world.fetch(S)
    world.ack(S, "a", Outcome.OK, result=b"1", result_ttl_ms=60_000)
    assert told(world) == ["a", "a"]
    assert shown(world, "a").result == b"1"


@pytest.mark.parametrize("end", ["cancelled", "crashed", "cancelled while it ran"])
def test_ends_that_no_worker_reports_are_told(world: StoreCalls, end: str) -> None:
    """A person, or the reaper of a dead worker, ends runs too."""
    world.open(S)
    world.enqueue(envelope("a", max_crashes=1))
    if end != "cancelled":
        world.fetch(S)
    await_end(world, "a")
    if end != "crashed":
        cancel(world, "a")
    if end != "cancelled":
        world.run(world.queues.release_runs(session=S, items=[("default", "a", Release.CRASHED)]))
    assert told(world) == ["a"]
    view = shown(world, "a")
    assert view.state == "dead" if end == "crashed" else view.ended is not None and view.ended.outcome == "cancelled"


def test_a_result_of_an_earlier_life_is_forgotten(world: StoreCalls) -> None:
    """An id that is used again starts without the result and the end of its former run."""
    world.open(S)
    enqueue_chosen(world, "a")
    await_end(world, "a")
    world.fetch(S)
    world.ack(S, "a", Outcome.OK, result=b'"first"', result_ttl_ms=60_000)
    enqueue_chosen(world, "a")
    assert shown(world, "a").state == "queued"
    assert not world.raw.exists(world.keys.result("a"), world.keys.ended("a"))
    cancel(world, "a")
    assert shown(world, "a").result is None


def test_a_retry_is_no_end(world: StoreCalls) -> None:
    """Who waits for a run waits for its last attempt."""
    world.open(S)
    world.enqueue(envelope("a"))
    await_end(world, "a")
    world.fetch(S)
    world.ack(S, "a", Outcome.RETRY, retry_delay_ms=1, error={"type": "ValueError"})
    assert told(world) == []
    assert await_end(world, "a") == ["default"]


@on_both("runs_await")
def test_a_run_that_was_moved_is_found(world: StoreCalls) -> None:
    """The queue that the caller knows is a hint, not a place."""
    world.enqueue(envelope("a", queue="other"))
    assert drive(await_runs(RunEnds(world.keys), BELL, [("default", "a")]), world.run) == ["other"]


def test_keys_of_others_stop_no_end(world: StoreCalls) -> None:
    """A foreign key in the place of who waits costs the message, never the acknowledgement."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    world.raw.set(world.keys.awaited, "foreign")
    assert await_end(world, "a") == ["default"]
    world.ack(S, "a", Outcome.OK)
    assert await_end(world, "a") == [""]
    assert (world.raw.get(world.keys.awaited), world.raw.ttl(world.keys.awaited)) == (b"foreign", -1)
    assert world.fsck() == []
    assert world.state("a") == "finished"


@pytest.mark.parametrize("bell", ["", "no hex", "a" * 65])
def test_a_bell_that_cannot_be_part_of_a_key_is_refused(world: StoreCalls, bell: str) -> None:
    """Nothing is written for it."""
    world.enqueue(envelope("a"))
    with pytest.raises(StoreRefusedError, match="BADARG"):
        await_end(world, "a", bell=bell)
    assert not world.raw.exists(world.keys.awaited)
