"""How late a run is counts from its fire: jitter makes nobody late."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.schedules.catchup import fire_of
from supervisor.core.schedules.triggers import trigger_of
from supervisor.store.wire.envelope import unpack
from tests.integration.scheduling.cluster_operator import definition_of

HOURLY = {"job": "demo", "every": "1h", "overlap": "allow", "jitter": "40m"}


@pytest.mark.share(2)
@pytest.mark.parametrize("mode", ["fixed", "per_fire"])
def test_a_healthy_leader_loses_nothing_by_a_jitter_longer_than_the_window(desk: Any, mode: str) -> None:
    """With the nominal time as the measure, most of such schedules never ran."""
    names = [f"s{number}" for number in range(4)]
    entry = HOURLY | {"jitter_mode": mode, "catchup_window": "1m"}
    here = desk(lease="5m", **dict.fromkeys(names, entry))
    here.cluster.advance("3h45m")

    assert {name: here.seconds(name) for name in names} == {name: [3600.0, 7200.0, 10800.0] for name in names}


def test_the_window_is_over_so_long_after_the_fire(desk: Any) -> None:
    """A minute before its end the run is made up for, a minute after it is missed."""
    entry = HOURLY | {"catchup_window": "20m"}
    definition = definition_of("s", entry)
    here = desk(s=entry)
    first_ms = here.now_ms - here.now_ms % 3_600_000 + 3_600_000
    for nominal_ms, late_minutes in ((first_ms, 19), (first_ms + 3_600_000, 21)):
        back_ms = fire_of(definition, trigger_of(definition), nominal_ms) + late_minutes * 60_000
        here.cluster.advance((nominal_ms - here.now_ms) / 1000)
        here.cluster.kill("r1")
        here.cluster.advance((back_ms - here.now_ms) / 1000 - 35)
        here.cluster.restart("r1")
        here.cluster.advance(40)

    assert here.seconds("s") == [3600.0]


def test_a_start_deadline_counts_from_the_fire(desk: Any) -> None:
    """A run that jitter moves by more than its deadline would be expired before it was enqueued."""
    entry = HOURLY | {"start_deadline": "1m"}
    definition = definition_of("s", entry)
    here = desk(s=entry)
    here.cluster.advance("1h45m")
    raw, prefix = here.cluster._world.server.store.raw, here.cluster._world.server.keys.prefix
    (data,) = raw.hvals(f"{prefix}q:default:data")
    run = unpack(data)
    assert run.nominal_ms is not None

    fire_ms = fire_of(definition, trigger_of(definition), run.nominal_ms)
    assert fire_ms > run.nominal_ms + 60_000, "the id must have an offset for this test"
    assert run.not_after_ms == fire_ms + 60_000
