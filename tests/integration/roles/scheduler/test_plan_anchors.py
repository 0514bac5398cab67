"""Grids that begin when the cluster first saw their schedule, and Redis that loses its data under a leader that lives."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from supervisor.core.model import ScheduleDef
from supervisor.roles.scheduler.scheduler import Scheduler
from tests.integration.roles.scheduler.planned import Planned, every, planned

MANY = 8


def anchored(seconds: float, schedule_id: str = "s", **fields: Any) -> ScheduleDef:
    return every(seconds, schedule_id, **{"anchor": "first_seen", "overlap": "allow", "missed": "all"} | fields)


def fired(plan: Planned, schedule: str = "s") -> list[int]:
    """Return the seconds of due times, whose grid begins some milliseconds after one."""
    return [int(second) for second in plan.fired(schedule)]


def empty(plan: Planned, since_s: float, until_s: float) -> None:
    """Take Redis away, and bring it back without data."""
    plan.until(since_s)
    plan.world.is_server_up = False
    plan.until(until_s)
    plan.server.empty()
    plan.world.is_server_up = True


def test_its_grid_outlives_the_data_of_redis() -> None:
    """What was due meanwhile is made up, and what follows is due when it would have been."""
    with planned(anchored(10)) as plan:
        empty(plan, 35, 66)
        plan.until(105)
        assert fired(plan) == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
        assert len({round(nominal % 10, 3) for nominal in plan.fired()}) == 1


@pytest.mark.parametrize("is_replaced", [False, True])
def test_it_is_due_also_where_the_data_go_more_often_than_it_is_due(
    monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    """A daily one beside a Redis that forgets each night. A scheduler that did not begin the grid has read it."""
    monkeypatch.setattr("supervisor.roles.scheduler.anchors.PAGE", 3)
    with planned(anchored(60), *(anchored(100, f"s{number}") for number in range(MANY))) as plan:
        for second in range(25, 225, 25):
            if is_replaced:
                plan.until(second - 5)
                plan.leader.kill_scheduler()
                plan.leader.start_scheduler()
            plan.until(second)
            plan.server.empty()
        plan.until(215)
        assert fired(plan) == [60, 120, 180]
        assert all(fired(plan, f"s{number}") == [100, 200] for number in range(MANY))


class _Reloaded(Scheduler):
    made: ClassVar[list[Scheduler]] = []

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.made.append(self)


def test_after_reloads_the_grids_go_on_that_redis_had_before_its_loss() -> None:
    """Another interval begins another grid; so does a schedule that was removed and comes again."""
    kept, changed, back = anchored(40, "kept"), anchored(40, "changed"), anchored(40, "back")
    with planned(kept, changed, back, scheduler_class=_Reloaded) as plan:
        for second, definitions in ((10, (kept, changed)), (20, (kept, anchored(50, "changed"), back))):
            plan.until(second)
            plan.leader.definitions = definitions
            plan.leader.bring()
            _Reloaded.made[-1].redeclare(definitions)
            plan.leader.scheduler.wake()
        empty(plan, 30, 35)
        plan.until(126)
        assert [fired(plan, each) for each in ("kept", "changed", "back")] == [[40, 80, 120], [70, 120], [60, 100]]
