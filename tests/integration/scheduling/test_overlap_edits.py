"""What a change of overlap or timing makes of runs that are still unfinished."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.jobs.registry import job
from supervisor.operations.apply import compared
from tests.integration.scheduling.cluster_operator import definition_of


@job("overlap_edits.noop")
def noop() -> None:
    """Be a job that does nothing."""


TICK = {"job": "overlap_edits.noop", "every": "1h"}
ALLOW = {"job": "overlap_edits.noop", "every": "1m", "overlap": "allow"}


def test_from_allow_to_skip_what_is_unfinished_counts(desk: Any) -> None:
    """The usual answer to a pile-up must not let one more begin beside it."""
    here = desk(tick=TICK, static=ALLOW)
    here.upsert("dyn", **ALLOW)
    here.cluster.advance("3m5s")
    assert (len(here.seconds("static")), len(here.seconds("dyn"))) == (3, 3)
    found = here.show("dyn")
    change = compared(definition_of("dyn", ALLOW | {"overlap": "skip"}), found.record, found.now_ms).change
    here.run(here.definitions.upsert([change], wall_ms=here.now_ms))
    here.reload(tick=TICK, static=ALLOW | {"overlap": "skip"})
    here.cluster.advance("2m")
    for name in ("static", "dyn"):
        assert here.seconds(name) == [60, 120, 180]
        assert len(here.show(name).live) == 3
    here.cluster.run_pending()
    here.cluster.advance("1m")

    assert len(here.seconds("static")) == len(here.seconds("dyn")) == 4


def test_only_what_is_still_there_is_listed_and_as_many_as_the_new_policy_asks_for(desk: Any) -> None:
    """With max_running: 120 and 149 unfinished, none may begin until fewer are left."""
    here = desk(tick=TICK)
    here.upsert("dyn", **ALLOW | {"every": "1s"})
    here.cluster.advance(30)
    here.cluster.run_pending()
    here.cluster.advance(149)
    before = len(here.seconds("dyn"))
    found = here.show("dyn")
    wanted = definition_of("dyn", ALLOW | {"every": "1s", "overlap": "skip", "max_running": 120})
    here.run(here.definitions.upsert([compared(wanted, found.record, found.now_ms).change], wall_ms=here.now_ms))
    here.cluster.advance(60)

    assert len(here.seconds("dyn")) == before
    assert len(here.show("dyn").live) == 120


@pytest.mark.parametrize(("overlap", "changed"), [("skip", 0), ("buffer_all", 0), ("allow", 1)])
def test_the_run_that_a_change_of_timing_causes_heeds_the_overlap_policy(desk: Any, overlap: str, changed: int) -> None:
    """`on_change: run_now` is no reason to run beside an unfinished one, and counts as unfinished itself."""
    fields = {"on_change": "run_now", "overlap": overlap}
    here = desk(tick={"job": "overlap_edits.noop", "every": "7d"})
    here.upsert("x", job="overlap_edits.noop", every="1m", **fields)
    here.cluster.advance(61)
    here.upsert("x", job="overlap_edits.noop", every="1h", **fields)
    here.cluster.advance(1)
    assert [run.partition("!")[1:2] for run in here.queued()].count(("!",)) == changed
    assert here.show("x").state.split(b" ")[1] == str(int(overlap != "allow")).encode()
    here.cluster.run_pending()
    here.upsert("x", job="overlap_edits.noop", every="2h", **fields)
    here.cluster.advance(1)

    assert len(here.queued()) == 1
    assert len(here.show("x").live) == int(overlap != "allow")
