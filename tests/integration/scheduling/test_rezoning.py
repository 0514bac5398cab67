"""A plan is made under one version of the time zone database, and kept where the next release may have another."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Never

import pytest

from supervisor.app import replica
from supervisor.app.configuration import load
from supervisor.core.cron import zones

DAILY = {"job": "demo", "cron": "0 9 * * *", "timezone": "Europe/Berlin", "overlap": "allow"}
DUE_S = 8 * 3600.0  # in winter, from midnight UTC on


def test_a_due_time_that_new_zone_data_moves_earlier_is_on_time(desk: Any) -> None:
    """A zone gives up summer time, and the plan in Redis has its former instant: not an hour late, not even once."""
    here = desk(lease="5m", daily=DAILY, paused=DAILY, utc=DAILY | {"timezone": "UTC"})
    here.run(here.control.pause(["paused"]))
    server = here.cluster._world.server
    late_ms = round(datetime(2026, 1, 1, 10, tzinfo=UTC).timestamp() * 1000)
    for is_new_data, fired in ((False, []), (True, [DUE_S])):
        here.cluster.kill("r1")
        here.cluster.advance("6m")
        server.store.raw.zadd(server.keys.schedule_next, {"daily": late_ms, "utc": late_ms})
        here.cluster._replicas["r1"].zones_version = "2027a" if is_new_data else "test"
        here.cluster.restart("r1")
        here.cluster.advance("6m")
        if is_new_data:
            here.cluster.advance("8h")
        assert here.seconds("daily") == fired
    assert here.show("paused").record.next_ms is None
    assert here.show("utc").record.next_ms == late_ms, "what follows UTC was left as it was planned"


def test_the_version_names_what_is_read() -> None:
    """The package is always there; a system's data go before it."""
    assert zones.database_version().split()[0].startswith("20")


@pytest.fixture
def system_zones(tmp_path: Path) -> Iterator[Path]:
    """The only place in which zone data of the system are looked for."""
    zoneinfo.reset_tzpath([str(tmp_path)])
    zones.database_version.cache_clear()
    yield tmp_path / "tzdata.zi"
    zoneinfo.reset_tzpath()
    zones.database_version.cache_clear()


def test_a_tree_names_the_zone_data_that_it_began_with(system_zones: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children have the tables of its start: named as newer, what they planned was never planned anew."""

    class BeforeTheFirstForkError(Exception):
        pass

    def stop() -> Never:
        raise BeforeTheFirstForkError

    monkeypatch.setattr(replica, "raise_descriptor_limit", stop)
    system_zones.write_text("# version 2031a\n")
    with pytest.raises(BeforeTheFirstForkError):
        replica.run(load(files=[], environ={}, flags={}))
    system_zones.write_text("# version 2031b\n")

    assert zones.database_version().endswith(" 2031a")
