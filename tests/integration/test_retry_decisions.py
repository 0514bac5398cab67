"""Jobs that decide about their next attempt: attempts and deaths are counted exactly, by both kinds of workers."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from supervisor.core.model import Outcome
from supervisor.roles.worker.attempt import failure
from supervisor.store.queues.run_records import Tallies
from supervisor.store.queues.runs import Queues
from supervisor.testing.cluster import Cluster, ClusterFactory
from tenure import Again, Context, GiveUp, Retry, job

FIRST = Again("1m")
plans: dict[str, list[str]] = {}
executions: list[tuple[str, int, int]] = []


def act(ctx: Context, plan: str) -> str:
    """Do the next thing of a plan."""
    executions.append((plan, ctx.attempt, ctx.fence))
    what = plans[plan].pop(0)
    if what == "again":
        raise Again(1, "not there yet")
    if what == "give-up":
        raise GiveUp("no such mailbox")
    if what == "fail":
        raise ConnectionError("refused")
    if what == "wrong":
        raise PermissionError("forbidden")
    return "done"


RULES = Retry(attempts=3, base_s=0, on=(OSError,), give_up_on=(PermissionError,))


@job("rules.plain", retry=RULES)
def plain(ctx: Context, plan: str) -> str:
    """A job of a sync pool."""
    return act(ctx, plan)


@job("rules.waits", retry=RULES)
async def waits(ctx: Context, plan: str) -> str:
    """A job of an async pool."""
    await asyncio.sleep(0)
    return act(ctx, plan)


@job("rules.parent")
def parent(ctx: Context, names: list[str]) -> None:
    """Spawn a child for each plan."""
    for name in names:
        ctx.spawn("rules.waits", {"plan": name})


@job("rules.once", delivery="at_most_once")
def once() -> None:
    """Ask for what it may not have."""
    raise FIRST


@job("rules.endless")
def endless() -> None:
    """Ask again for ever."""
    raise Again(0)


@pytest.fixture
def cluster(tenure_cluster: ClusterFactory) -> Cluster:
    """Return a cluster of one replica; nothing has run yet."""
    plans.clear()
    executions.clear()
    return tenure_cluster(replicas=1, lease="5m")


def asked(cluster: Cluster, call: Any) -> Any:
    """Return what the cluster's Redis answers."""
    return cluster._world.server.store.run(call)


def drained(cluster: Cluster) -> list[Any]:
    """Run everything that is enqueued to its end, one second after another."""
    found: list[Any] = []
    for _ in range(12):
        found += cluster.run_pending()
        cluster.advance("1s")
    return found


def expected(plan: list[str]) -> tuple[list[int], Outcome]:
    """Return the attempt of each execution of a plan, and how its run ends."""
    attempts, failed = [], 0
    for what in plan:
        attempts.append(failed + 1)
        failed += what == "fail"
        if what == "ok":
            return attempts, Outcome.OK
        if what in {"give-up", "wrong"} or failed == RULES.attempts:
            return attempts, Outcome.DEAD
    raise AssertionError("a plan has an end")


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["rules.plain", "rules.waits"])
def test_attempts_and_deaths_are_counted_exactly(cluster: Cluster, name: str) -> None:
    """A law: only failures are charged, each once; asking again charges nothing, and what a job sees always grows."""
    draw = Random(7)
    made = {f"p{n}": [*draw.choices(["again", "fail", "wrong", "give-up", "ok"], k=6), "ok"] for n in range(25)}
    plans.update({plan: list(steps) for plan, steps in made.items()})
    for plan in made:
        cluster.enqueue(name, {"plan": plan})

    ended = drained(cluster)

    for plan, steps in made.items():
        attempts, outcome = expected(steps)
        mine = [(attempt, fence) for seen, attempt, fence in executions if seen == plan]
        assert [attempt for attempt, _ in mine] == attempts, steps
        assert [fence for _, fence in mine] == list(range(1, len(mine) + 1))
        assert [each.outcome for each in ended if each.args["plan"] == plan][-1] is outcome, steps


def test_a_run_that_gives_up_is_dead_with_its_reason(cluster: Cluster) -> None:
    """For the person who looks at it, and without a second attempt."""
    plans["a"] = ["give-up"]
    run_id = cluster.enqueue("rules.plain", {"plan": "a"})

    drained(cluster)

    view = asked(cluster, Queues(cluster._world.server.keys).show(run_id))
    assert (view.state, view.error["type"], view.error["message"]) == ("dead", "GiveUp", "no such mailbox")


def test_a_child_that_runs_again_is_counted_once(cluster: Cluster) -> None:
    """Its parent's tally knows it as unfinished until it has ended."""
    plans.update(a=["again", "again", "ok"], b=["fail", "again", "ok"], c=["give-up"])
    run_id = cluster.enqueue("rules.parent", {"names": ["a", "b", "c"]})

    drained(cluster)

    tally = asked(cluster, Tallies(cluster._world.server.keys).read(run_id))
    assert (tally.total, tally.left, tally.outcomes) == (3, 0, {"ok": 2, "dead": 1})


def test_a_run_that_runs_at_most_once_does_not_run_again(cluster: Cluster) -> None:
    """The job's own option is stronger, and the reason says so."""
    run_id = cluster.enqueue("rules.once", {})

    ended = drained(cluster)

    assert [each.outcome for each in ended] == [Outcome.DEAD]
    view = asked(cluster, Queues(cluster._world.server.keys).show(run_id))
    assert "runs at most once" in view.error["message"]


def test_a_run_cannot_ask_again_for_ever(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is written down; the next time it is dead."""
    monkeypatch.setattr(failure, "AGAIN_MAX", 4)
    cluster.enqueue("rules.endless", {})

    ended = drained(cluster)

    assert [each.outcome for each in ended] == [Outcome.AGAIN] * 4 + [Outcome.DEAD]
    assert {each.attempt for each in ended} == {1}
