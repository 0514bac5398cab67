"""Zone tables: the offsets of the tz database, at every instant, without holes."""

from __future__ import annotations

import struct
import zoneinfo
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.cron import zones
from supervisor.core.cron.zones import UnknownZoneError, zone
from tests.kit.tables import table

RESTLESS = (
    "Africa/Cairo", "Africa/Casablanca", "America/Boa_Vista", "America/Noronha", "America/Recife", "Antarctica/Casey",
    "Antarctica/Troll", "Asia/Gaza", "Asia/Hebron", "Australia/Lord_Howe", "Pacific/Apia",
)  # fmt: skip
BEGIN, END = 631_152_000, 2_208_988_800  # 1990 to 2040


def offset(name: str, at: int) -> int:
    found = datetime.fromtimestamp(at, UTC).astimezone(zoneinfo.ZoneInfo(name)).utcoffset()
    assert found is not None
    return round(found.total_seconds())


def changes_in_file(name: str) -> list[int]:
    """Read the instants at which a zone file changes the offset (RFC 8536, version 2 data)."""
    path = next((found for root in zoneinfo.TZPATH if (found := Path(root) / name).is_file()), None)
    content = path.read_bytes() if path else resources.files("tzdata").joinpath("zoneinfo", name).read_bytes()
    isutc, isstd, leap, times, types, chars = struct.unpack_from(">6I", content, 20)
    start = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isutc
    isutc, isstd, leap, times, types, chars = struct.unpack_from(">6I", content, start + 20)
    instants = struct.unpack_from(f">{times}q", content, start + 44)
    return [at for at in instants if BEGIN <= at < END and offset(name, at) != offset(name, at - 1)]


@table("name", RESTLESS)
def test_every_change_of_a_restless_zone_is_a_border(name: str) -> None:
    """Tables are found by looking at one instant every three days; no change may slip through."""
    changes = changes_in_file(name)
    assert changes
    for at in changes:
        assert zone(name).at(at).start == at
        assert zone(name).at(at).offset == offset(name, at)
        assert zone(name).at(at - 1).end == at


@given(
    name=st.sampled_from(
        ["Europe/London", "Asia/Tehran", "America/Caracas", "Africa/Monrovia", "Etc/GMT+5", *RESTLESS]
    ),
    at=st.integers(-2_500_000_000, 7_000_000_000),
)
def test_the_offset_is_that_of_the_database_at_any_instant(name: str, at: int) -> None:
    """Before 1970, with seconds in the offset, and far ahead by rule."""
    segment = zone(name).at(at)
    assert segment.start <= at < segment.end
    assert segment.offset == offset(name, at)
    assert zone(name).at(segment.end).start == segment.end


def test_a_table_is_made_of_some_hundred_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question about due times may have 250 of them made, and a leader is killed as hanging after two seconds."""
    asked: list[int] = []
    inner = zones._offset

    def counted(info: zoneinfo.ZoneInfo, at: int) -> int:
        asked.append(at)
        return inner(info, at)

    monkeypatch.setattr(zones, "_offset", counted)
    zones._segments.cache_clear()
    for name in ("Europe/Berlin", "Africa/Casablanca", "Asia/Gaza"):
        asked.clear()
        zones._segments(name, BEGIN + 1_200_000_000 >> zones._BLOCK_BITS)
        assert len(asked) < 1000


def test_an_overlap_across_the_border_of_two_tables_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first pass ran must not be run again because a table ended in between."""
    monkeypatch.setattr(zones, "_BLOCK_BITS", 9)  # tables of 512 s: seven borders in an hour
    zones._segments.cache_clear()
    change = 1_792_890_000  # 2026-10-25T01:00Z, Berlin sets its clocks back from 03:00 to 02:00
    try:
        berlin = zones.Zone("Europe/Berlin")
        for at in range(change - 7200, change + 7200, 60):
            segment = berlin.at(at)
            assert segment.start <= at < segment.end <= (at | 511) + 1
            in_overlap = change <= segment.start < change + 3600
            assert segment.first_local == (change + 7200 if in_overlap else segment.start + segment.offset)
    finally:
        zones._segments.cache_clear()


def test_zones_are_shared_and_unknown_ones_refused() -> None:
    """One table per zone, however many schedules name it."""
    assert zone("Europe/Berlin") is zone("Europe/Berlin")
    with pytest.raises(UnknownZoneError, match="Mars/Olympus"):
        zone("Mars/Olympus")
