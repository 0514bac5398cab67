"""Cancelling runs: what waits goes at once, what runs is asked, and nobody else is hit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Outcome, Release
from supervisor.store.queues.control import CancelCode, Cancelled
from supervisor.store.queues.runs import EndedRun, UnwantedRun
from tests.integration.store.queues.control_calls import READY, cancel, control, outcomes, stat, wanted
from tests.kit.builders import StoreCalls, envelope, schedule

S, Z = "r.1/worker-cpu-0/1", "r.2/worker-cpu-0/1"


def test_a_run_that_waits_is_gone_at_once_and_leaves_a_line(world: StoreCalls) -> None:
    """Nothing of it stays but history, with who asked and why."""
    world.enqueue(envelope("a"), envelope("b"))

    assert cancel(world, "a", reason="not\nneeded") == [Cancelled(CancelCode.CANCELLED, "default", 0)]

    assert outcomes(world) == [("a", "cancelled", "alice: not needed")]
    assert world.state("a") == "finished"
    assert stat(world, "cancelled") == 1
    assert world.run(world.queues.counts("default")).ready_total == 1
    assert world.fsck() == []
    world.open(S)
    assert world.fetch(S) == ["b"]
    assert stat(world, "cancelled") == 1, "it is counted once"
    assert not world.raw.exists(f"{world.keys.queue('default').prefix}stale")


def test_cancelling_twice_finds_it_done(world: StoreCalls) -> None:
    """A lost reply is asked again."""
    world.enqueue(envelope("a"))
    assert [cancel(world, "a")[0].code, cancel(world, "a")[0].code] == [CancelCode.CANCELLED, CancelCode.UNKNOWN]
    assert [found.code for found in cancel(world, "a", "never")] == [CancelCode.UNKNOWN, CancelCode.UNKNOWN]
    assert len(outcomes(world)) == 1


def test_a_cancel_that_is_sent_again_hits_no_run_that_came_since(world: StoreCalls) -> None:
    """Its reply was lost, and a producer enqueued the same id anew: that is another run."""
    world.enqueue(envelope("a"))
    call = control(world).cancel([("", "a")])
    first = world.run(call)
    world.enqueue(envelope("a"))
    assert world.run(call) == first
    assert world.state("a") == "queued"


@pytest.mark.parametrize("place", ["later", "retrying", "suspect"])
def test_a_run_is_cancelled_wherever_it_waits(world: StoreCalls, place: str) -> None:
    """Its charges and its last error go with it."""
    world.open(S, Z)
    world.enqueue(envelope("a"), delays_ms=[60_000 if place == "later" else 0])
    if place == "retrying":
        world.fetch(S)
        world.ack(S, "a", Outcome.RETRY, retry_delay_ms=60_000, error={"reason": "x"})
    elif place == "suspect":
        world.fetch(S)
        world.run(world.queues.release_runs(session=S, items=[("default", "a", Release.SUSPECT)]))

    assert cancel(world, "a")[0].code is CancelCode.CANCELLED

    queue = world.keys.queue("default")
    assert [world.raw.hlen(key) for key in (queue.data, queue.att, queue.err)] == [0, 0, 0]
    assert world.turn(Z, want=1, want_suspect=True).runs == []
    assert world.fsck() == []


def test_a_cancelled_id_that_comes_again_runs_once(world: StoreCalls) -> None:
    """Its former entry is still in the list; two entries of one run would be two executions."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    cancel(world, "a")
    assert world.enqueue(envelope("a")) == [True]

    assert world.fsck() == []
    assert world.fetch(S) == ["b", "a"]
    assert world.fetch(S) == []
    assert not world.raw.exists(f"{world.keys.queue('default').prefix}stale")


def test_a_running_run_is_asked_by_its_attempt(world: StoreCalls) -> None:
    """Its agent hears of it until it ends, and the request is recorded once."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)

    assert cancel(world, "a") == cancel(world, "a") == [Cancelled(CancelCode.ASKED, "default", 1)]

    at_ms = world.fetched_ms("a")
    asked = [UnwantedRun("default", "a", S, is_killed=False, is_cancelled=True, fetched_ms=at_ms)]
    assert wanted(world, S) == wanted(world, S) == asked
    assert wanted(world, Z) == []
    world.ack(S, "a", Outcome.CANCELLED)
    assert wanted(world, S) == []
    assert world.state("a") == "finished"
    assert outcomes(world)[0] == ("a", "cancel_asked", "alice")
    assert "cancel_asked" not in [outcome for _, outcome, _ in outcomes(world)[1:]]
    assert stat(world, "cancelled") == 1


def test_a_request_does_not_hit_another_run_of_the_same_id(world: StoreCalls) -> None:
    """Whoever asked meant the one that ran then; it ended well before it heard of the request."""
    world.open(S, Z)
    world.enqueue(envelope("a"))
    world.fetch(S)
    cancel(world, "a", kill_ms=60_000)
    world.ack(S, "a")
    world.enqueue(envelope("a"))
    assert world.fetch(Z) == ["a"]

    assert wanted(world, S, Z) == []
    assert not world.raw.exists(f"{world.keys.queue('default').prefix}cancel")
    world.ack(Z, "a", Outcome.RETRY, retry_delay_ms=60_000)
    assert world.state("a") == "later"


def test_a_request_does_not_hit_a_later_attempt(world: StoreCalls) -> None:
    """One whose fence is another, because the run went on in a way that the request did not see."""
    world.open(S, Z)
    world.enqueue(envelope("a"))
    world.fetch(S)
    cancel(world, "a")
    request = f"{world.keys.queue('default').prefix}cancel"
    asked = world.raw.hget(request, "a")
    world.raw.delete(request)
    world.ack(S, "a", Outcome.RETRY, retry_delay_ms=60_000)
    world.make_due("a")
    assert world.fetch(Z) == ["a"]
    world.raw.hset(request, "a", asked)

    assert wanted(world, S, Z) == []
    assert cancel(world, "a")[0].attempt == 2


def test_one_that_does_not_end_in_time_is_let_go_of(world: StoreCalls) -> None:
    """From then on its worker's report is refused, and its process may be killed."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    cancel(world, "a")
    cancel(world, "a", kill_ms=1)
    world.raw.hset(f"{world.keys.queue('default').prefix}cancel", "a", _passed(world))

    at_ms = world.fetched_ms("a")
    killed = UnwantedRun("default", "a", S, is_killed=True, is_cancelled=True, fetched_ms=at_ms)
    ended = EndedRun("default", "a", "cancelled", 1, "tests.noop", "")
    assert wanted(world, S) == [replace(killed, ended=ended)]
    assert wanted(world, S) == wanted(world, S) == [killed]
    assert world.ack(S, "a").stale == ["a"]
    assert [outcome for _, outcome, _ in outcomes(world)] == ["cancel_asked", "cancelled"]
    assert world.fsck() == []
    world.run(world.sessions.close(S))
    assert wanted(world, S) == []
    assert not world.raw.exists(f"{world.keys.queue('default').prefix}cancel")


def _passed(world: StoreCalls) -> str:
    """Return the request for ``a`` as it is when its time is over."""
    request = world.raw.hget(f"{world.keys.queue('default').prefix}cancel", "a").decode()
    assert request.startswith("force|")
    return f"{request.rpartition('|')[0]}|1"


def test_a_dead_run_is_not_cancelled(world: StoreCalls) -> None:
    """It waits for a decision of its own: requeue or drop."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    world.ack(S, "a", Outcome.DEAD)
    assert cancel(world, "a")[0].code is CancelCode.DEAD
    assert world.state("a") == "dead"


def test_the_next_run_of_a_schedule_may_start_when_the_one_before_is_cancelled(world: StoreCalls) -> None:
    """A cancelled run must not hold its schedule up."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s")))
    item = world.item("s")
    world.run(world.fire_call(term, item))
    assert world.raw.hexists(world.keys.schedule_live, "s")

    assert cancel(world, item.run.run_id)[0].code is CancelCode.CANCELLED
    assert not world.raw.hexists(world.keys.schedule_live, "s")


def test_wrong_arguments_and_foreign_keys_change_nothing(world: StoreCalls) -> None:
    """A script that failed half-way would lose the run."""
    world.enqueue(envelope("a"))
    with pytest.raises(ValueError, match="run id"):
        control(world).cancel([("", "a b")])
    world.raw.set(world.keys.queue("default").err, "x")
    with pytest.raises(StoreRefusedError):
        cancel(world, "a")
    assert world.raw.lrange(f"{world.keys.queue('default').prefix}{READY}", 0, -1) == [b"a"]
    world.raw.delete(world.keys.queue("default").err)
    assert world.state("a") == "queued"


def test_cancelling_frees_what_the_run_held_of_limits(world: StoreCalls) -> None:
    """A unique key may be used again at once, and a run that waits for a slot leaves its place."""
    world.open(S)
    limited = {"concurrency": "k", "concurrency_max": 1}
    world.enqueue(
        envelope("u", unique="k"), envelope("a", **limited), envelope("b", **limited), envelope("c", **limited)
    )
    assert world.enqueue(envelope("v", unique="k")) == [False]
    cancel(world, "u")
    assert world.enqueue(envelope("v", unique="k")) == [True]

    assert world.fetch(S) == ["a", "v"]
    assert [world.state(run_id) for run_id in "bc"] == ["blocked", "blocked"]
    assert cancel(world, "b")[0].code is CancelCode.CANCELLED
    assert world.fsck() == []
    world.ack(S, "a")
    assert world.fetch(S) == ["c"]
    assert world.fsck() == []


@pytest.mark.parametrize("kill_ms", [0, 60_000])
@pytest.mark.parametrize("how", ["giveback", "retry", "interrupted", "crashed"])
def test_a_cancelled_run_that_comes_back_unfinished_does_not_wait_again(
    world: StoreCalls, how: str, kill_ms: int
) -> None:
    """Its worker had not begun it, failed, stopped or died before it heard of the request."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    cancel(world, "a", kill_ms=kill_ms)
    if how in {"giveback", "retry"}:
        world.ack(S, "a", Outcome(how), retry_delay_ms=60_000 if how == "retry" else 0)
    else:
        world.run(world.queues.release_runs(session=S, items=[("default", "a", Release(how))]))

    assert world.state("a") == "finished"
    assert outcomes(world)[-1][1] == "cancelled"
    assert world.fetch(S) == []
    assert wanted(world, S) == []
    assert world.fsck() == []
