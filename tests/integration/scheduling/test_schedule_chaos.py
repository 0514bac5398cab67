"""Operators, deploys of one, and crashes in random order: whatever is asked when, nothing runs twice and nothing stalls."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from supervisor.store.schedules.backfills import BackfillState, Request
from tests.integration.scheduling.cluster_operator import EVERY_10S, ClusterOperator
from tests.kit.shares import share

OPERATIONS = 40
NAMES = ("tick", "other", "dyn")


def operate(here: ClusterOperator, rng: Random, number: int, begin_ms: int) -> None:
    """Do one thing to the cluster."""
    name = rng.choice(NAMES)
    match rng.choice(["upsert", "edit", "delete", "pause", "resume", "trigger", "backfill", "kill", "wait", "wait"]):
        case "upsert":
            here.upsert("dyn", every=rng.choice(["3s", "5s", "11s"]), missed=rng.choice(["all", "latest"]))
        case "edit":
            here.upsert("dyn", description=str(number))
        case "delete":
            here.run(here.definitions.delete([("dyn", None)]))
        case "pause":
            here.run(here.control.pause([name], for_ms=rng.choice([None, 5000, 20_000])))
        case "resume":
            here.run(here.control.resume([name]))
        case "trigger" if here.show(name).record is not None:
            here.trigger(name, f"k{rng.randrange(3)}")
        case "backfill":
            from_ms = begin_ms - rng.randrange(100_000)
            request = Request(from_ms=from_ms, until_ms=from_ms + rng.randrange(200_000))
            here.run(here.backfills.add(f"b{number}", name, request, limit=50, is_forced=False))
        case "kill" if here.cluster.leader is not None:
            leader = here.cluster.leader
            here.cluster.kill(leader)
            here.cluster.advance(rng.random() * 3)
            here.cluster.restart(leader)
        case _:
            here.cluster.advance(rng.random() * 8)


@pytest.mark.parametrize("seed", share(range(20), 5))
def test_no_run_is_enqueued_twice_and_no_schedule_stalls_whatever_is_done_when(desk: Any, seed: int) -> None:
    """Two leaders, three schedules, forty operations; a failure names its seed."""
    rng = Random(seed)
    here = desk(replicas=2, tick=EVERY_10S, other={**EVERY_10S, "every": "7s", "missed": "all"})
    begin_ms = here.now_ms
    for number in range(OPERATIONS):
        operate(here, rng, number, begin_ms)
    here.run(here.control.resume(NAMES))
    here.cluster.advance(90)

    assert [run for run, count in Counter(here.queued()).items() if count > 1] == []
    assert [fired for fired, count in Counter(here.cluster.fired()).items() if count > 1] == []
    assert all(each.state is not BackfillState.ACTIVE for each in here.run(here.backfills.all()))
    since = here.now_s
    here.cluster.advance(25)
    assert len(here.seconds("tick", since=since)) >= 2
