"""A run that was asked to make room for a newer one, and that a person cancels: the cancel decides, whichever came first."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.model import Outcome, Release
from supervisor.store.queues.control import CancelCode
from supervisor.store.queues.runs import UnwantedRun
from tests.integration.store.queues.control_calls import cancel, outcomes, stat, wanted
from tests.kit.builders import StoreCalls, envelope, schedule

S, Z = "r.1/worker-cpu-0/1", "r.2/worker-cpu-0/1"
DEMANDS = ["replace", "cancel_other"]


def begin(world: StoreCalls, demand: str) -> str:
    """Let a run begin that a newer one may ask to end."""
    world.open(S, Z)
    if demand == "replace":
        world.enqueue(envelope("old", **_key()))
    else:
        world.run(world.declare_call(world.lead(), schedule("s", overlap="cancel_other", cancel_grace_ms=600_000)))
        world.run(world.fire_call(world.run(world.leases.view()), world.item("s")))
    (run_id,) = world.fetch(S)
    return run_id


def come(world: StoreCalls, demand: str) -> None:
    """Let the newer one come, for which the other is asked to end."""
    if demand == "replace":
        world.enqueue(envelope("new", **_key()))
    else:
        world.run(world.fire_call(world.run(world.leases.view()), world.item("s")))


def _key() -> dict[str, Any]:
    return {"concurrency": "k", "concurrency_max": 1, "concurrency_replaces": True}


def ask_both(world: StoreCalls, demand: str, *, is_cancel_first: bool, kill_ms: int = 0) -> str:
    """Let a run begin, and both ask it to end; return its id."""
    run_id = begin(world, demand)
    if not is_cancel_first:
        come(world, demand)
        assert [request.is_cancelled for request in wanted(world, S)] == [False]
    assert cancel(world, run_id, kill_ms=kill_ms)[0].code is CancelCode.ASKED
    if is_cancel_first:
        come(world, demand)
    return run_id


@pytest.mark.parametrize("kill_ms", [0, 60_000])
@pytest.mark.parametrize("is_cancel_first", [False, True])
@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize("how", ["giveback", "retry", "again", "interrupted", "vanished", "crashed"])
def test_a_cancelled_run_that_was_to_make_room_does_not_wait_again(
    world: StoreCalls, how: str, demand: str, *, is_cancel_first: bool, kill_ms: int
) -> None:
    """Its worker stopped, or had not begun it: it came back, and was executed although a person had cancelled it."""
    run_id = ask_both(world, demand, is_cancel_first=is_cancel_first, kill_ms=kill_ms)
    if how in {"giveback", "retry", "again"}:
        world.ack(S, run_id, Outcome(how), schedule=_schedule(demand))
    else:
        world.run(world.queues.release_runs(session=S, items=[("default", run_id, Release(how))]))

    assert world.state(run_id) == "finished"
    assert [what for name, what, _ in outcomes(world) if name == run_id] == ["cancel_asked", "cancelled"]
    assert run_id not in world.fetch(Z)
    assert stat(world, "cancelled") == 1
    assert world.fsck() == []


def _schedule(demand: str) -> str:
    return "s" if demand == "cancel_other" else ""


@pytest.mark.parametrize("is_cancel_first", [False, True])
@pytest.mark.parametrize("demand", DEMANDS)
def test_the_agent_hears_of_the_cancel(world: StoreCalls, demand: str, *, is_cancel_first: bool) -> None:
    """Its worker is told why, and the history who asked."""
    run_id = ask_both(world, demand, is_cancel_first=is_cancel_first)

    asked = UnwantedRun("default", run_id, S, is_killed=False, is_cancelled=True, fetched_ms=world.fetched_ms(run_id))
    assert wanted(world, S) == [asked]
    cancel(world, run_id)
    assert outcomes(world) == [(run_id, "cancel_asked", "alice")]


@pytest.mark.parametrize("demand", DEMANDS)
def test_a_cancelled_run_that_ends_as_replaced_was_cancelled(world: StoreCalls, demand: str) -> None:
    """Its worker had heard only of the newer run when it ended."""
    run_id = ask_both(world, demand, is_cancel_first=False)
    world.ack(S, run_id, Outcome.REPLACED, schedule=_schedule(demand))

    assert [what for name, what, _ in outcomes(world) if name == run_id] == ["cancel_asked", "cancelled"]
    assert (stat(world, "cancelled"), stat(world, "replaced")) == (1, 0)


@pytest.mark.parametrize(
    ("is_cancel_first", "kill_ms", "longest_ms"),
    [(False, 0, 30_000), (False, 1_000, 1_000), (False, 60_000, 30_000), (True, 0, 30_000), (True, 1_000, 1_000)],
)
def test_a_newer_run_waits_no_longer_for_one_that_is_cancelled_too(
    world: StoreCalls, *, is_cancel_first: bool, kill_ms: int, longest_ms: int
) -> None:
    """It is let go of after the half a minute that it has to make room, or sooner where the cancel says so."""
    before_ms = world.run(world.leases.view()).now_ms
    run_id = ask_both(world, "replace", is_cancel_first=is_cancel_first, kill_ms=kill_ms)
    after_ms = world.run(world.leases.view()).now_ms

    requests = f"{world.keys.queue('default').prefix}cancel"
    request, _, at_ms = world.raw.hget(requests, run_id).decode().rpartition("|")
    assert before_ms + longest_ms <= int(at_ms) <= after_ms + longest_ms
    world.raw.hset(requests, run_id, f"{request}|1")  # its time has passed
    (late,) = wanted(world, S)
    assert (late.run_id, late.is_killed, late.is_cancelled) == (run_id, True, True)
    assert world.fetch(Z) == ["new"]
    assert world.ack(S, run_id).stale == [run_id]
