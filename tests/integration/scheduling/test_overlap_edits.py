"""What a change of overlap or timing makes of runs that are still unfinished."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.effects import drive
from supervisor.core.jobs.registry import job
from supervisor.operations.apply import compare, compared
from supervisor.store.schedules.definitions import Change
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


QUEUE, TIMING, NAME = {"queue": "other"}, {"cron": "*/2 * * * *", "every": None}, {"renamed_from": "s"}


def _applied(here: Any, *, is_static: bool, name: str, fields: dict[str, Any]) -> None:
    given = {key: value for key, value in fields.items() if value is not None}
    if is_static:
        here.reload(tick=TICK, **{name: given})
        return
    planned = drive(compare(here.views.keys, [definition_of(name, given)]), here.run)
    here.run(here.definitions.upsert([each.change for each in planned], wall_ms=here.now_ms))


@pytest.mark.parametrize("is_static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("moved", [QUEUE, TIMING, NAME, QUEUE | TIMING | NAME], ids=["queue", "timing", "name", "all"])
@pytest.mark.parametrize("is_at_once", [True, False], ids=["at_once", "one_after_the_other"])
def test_what_began_in_another_queue_by_other_times_or_under_another_name_counts(
    desk: Any, moved: dict[str, Any], *, is_static: bool, is_at_once: bool
) -> None:
    """Whether the stricter policy comes with that edit or with a later one, and however many lie in between."""
    here = desk(tick=TICK, **({"s": ALLOW} if is_static else {}))
    _applied(here, is_static=is_static, name="s", fields=ALLOW)
    here.cluster.advance("3m5s")
    began = here.seconds("s")
    assert began
    name = "t" if "renamed_from" in moved else "s"
    if not is_at_once:
        _applied(here, is_static=is_static, name=name, fields=ALLOW | moved)
    _applied(here, is_static=is_static, name=name, fields=ALLOW | moved | {"overlap": "skip"})
    begun = len(here.seconds(name))
    here.cluster.advance("10m")

    assert len(here.seconds(name)) == begun
    assert len(here.show(name).live) >= len(began)
    here.cluster.run_pending()
    here.cluster.advance("4m")
    assert len(here.seconds(name)) == begun + 1


def test_a_run_that_a_change_of_timing_caused_counts(desk: Any) -> None:
    """It is named by that timing, and by no due time."""
    weekly = ALLOW | {"every": "7d", "on_change": "run_now"}
    here = desk(tick=TICK, s=weekly)
    _applied(here, is_static=True, name="s", fields=weekly | {"every": "6d"})
    caused = [run for run in here.queued() if run.startswith("s!changed!")]
    _applied(here, is_static=True, name="s", fields=weekly | {"every": "6d", "overlap": "skip"})

    assert len(caused) == 1
    assert [run for _, run in here.show("s").live] == caused


def test_runs_of_a_follower_count(desk: Any) -> None:
    """No times of its own lead to them: those of the schedule that it follows are another's to change."""
    follower = {"job": "overlap_edits.noop", "after": {"schedule": "lead"}, "overlap": "allow"}
    here = desk(tick=TICK, lead=ALLOW, s=follower)
    here.cluster.advance("61s")
    here.cluster.run_pending()
    here.cluster.advance("10s")
    begun = [run for run in here.queued() if run.startswith("s@")]
    here.reload(tick=TICK, lead=ALLOW, s=follower | {"overlap": "skip"})

    assert len(begun) == 1
    assert [run for _, run in here.show("s").live] == begun


def test_however_often_it_is_edited_no_more_than_a_thousand_are_listed(desk: Any) -> None:
    """The newest of them: each edit adds to what those before left."""
    here = desk(tick=TICK)
    here.upsert("s", **ALLOW)
    runs = [f"s@{n}" for n in range(1, 1501)]
    data = here.views.keys.queue("default").data
    here.cluster._world.server.store.raw.hset(data, mapping=dict.fromkeys(runs, "x"))
    for n, first in enumerate(range(0, 1500, 500)):
        definition = definition_of("s", ALLOW | {"every": f"{n + 2}m"})
        change = Change(definition=definition, unlisted=[f"default {run}" for run in runs[first : first + 500]])
        here.run(here.definitions.upsert([change], wall_ms=here.now_ms))

    assert [run for _, run in here.show("s").live] == runs[500:]
