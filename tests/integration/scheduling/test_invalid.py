"""A stored schedule that the leader cannot use is seen as invalid wherever schedules are shown."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.cli.schedule.format import record_row
from supervisor.core.model import ScheduleDef, Template
from supervisor.operations.due_times import coming
from supervisor.roles.web.api.reads import _schedule
from supervisor.store.schedules.definitions import Change
from supervisor.store.schedules.fire import Schedules
from supervisor.store.wire.fire import DuePage
from tests.integration.scheduling.cluster_operator import EVERY_10S, definition_of


def test_a_schedule_that_cannot_fire_says_so_until_it_is_mended_or_gone(desk: Any) -> None:
    """It was shown as active, and as its next time the one at which the leader looks at it again."""
    here = desk(tick=EVERY_10S)
    good = definition_of("sync", EVERY_10S)
    limited = Template(job="demo", kind=good.template.kind, concurrency="{p}", concurrency_max=1)
    bad = ScheduleDef(id="sync", template=limited, every_ms=10_000)

    def store(definition: ScheduleDef) -> None:
        here.run(here.definitions.upsert([Change(definition=definition)], wall_ms=here.now_ms))
        here.cluster.advance(5)

    def shown() -> tuple[str, Any, bool]:
        found = here.show("sync")
        (browsed,) = [each for each in here.run(here.views.browse()).items if each.id == "sync"]
        row, api = record_row(browsed, here.now_ms), _schedule(found.record, here.now_ms)
        assert browsed.invalid == found.record.invalid == (api["invalid"] or "")
        return row["status"], row["next_ms"] or api["next_ms"], any(coming(found))

    def counted() -> int:
        schedules = Schedules(here.cluster._world.server.keys)
        return int(here.run(schedules.due(DuePage(after_ms=0, until_ms=0, late_ms=0, limit=0))).invalid)

    store(bad)
    status, *times = shown()
    assert status.startswith("invalid: job demo: the key '{p}' of a limit names 'p', which this run does not have")
    assert times == [None, False]
    assert counted() == 1
    store(good)
    assert (shown()[0], counted()) == ("active", 0)
    store(bad)
    here.cluster.kill("r1")
    here.cluster.restart("r1")
    here.cluster.advance(70)
    assert (shown()[0][:7], counted()) == ("invalid", 1)
    here.run(here.definitions.delete([("sync", None)]))
    assert counted() == 0
    assert here.seconds("tick"), "the others go on"


@pytest.mark.share(2)
@pytest.mark.parametrize("more", [{}, {"jitter": "5s"}], ids=["plain", "jitter"])
def test_the_last_due_time_before_exclusions_that_leave_nothing_is_fired(desk: Any, more: dict[str, str]) -> None:
    """Only behind it shows that nothing is left; the schedule was set aside with that time still to come."""
    here = desk(tick=EVERY_10S)
    when = [{"at": "2026-01-01T00:01:00Z"}, {"cron": "30 2 5 1 *"}, {"cron": "0 3 * * *"}]
    here.upsert("last", every=None, when=when, exclude=["* 2-3 * * *"], **more)
    here.cluster.advance(45)
    assert here.show("last").record.invalid == ""
    here.cluster.advance(30)
    assert here.seconds("last") == [60]
    assert "over-excluded" in here.show("last").record.invalid
    assert here.seconds("tick", since=60), "the others go on"
