"""Work of one decision, whatever a definition is made of: 100 triggers, 1,000 exclusions, ten thousand due times."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.calendars import search_limit
from supervisor.core.calendars.days import DAY_S, DaySet, OverExcludedError, day_sets, free_of_all
from supervisor.core.cron import zones
from supervisor.core.model import CalendarDays, CalendarInterval, Exclusion, Kind, ScheduleDef, Template, When
from supervisor.core.schedules import exclusions
from supervisor.core.schedules.backfill import EnqueuedSpan, SchedulePast, chunks
from supervisor.core.schedules.catchup import Owed, owed
from supervisor.core.schedules.diff import kept_mark_ms, unlisted_runs
from supervisor.core.schedules.trigger_kinds import CronTrigger, Every
from supervisor.core.schedules.triggers import trigger_of

TEMPLATE = Template(job="a.b", kind=Kind.SYNC)
NOW_MS = 1_795_500_000_000
MINUTE, DAY = 60_000, DAY_S * 1000
ALL = {"missed": "all", "max_catchup": 10_000}
EVEN, ODD = Exclusion(cron="*/2 * * * * *"), Exclusion(cron="1-59/2 * * * * *")


def schedule(**fields: Any) -> ScheduleDef:
    return ScheduleDef(id="s", template=TEMPLATE, **fields)


def days(count: int) -> tuple[Exclusion, ...]:
    first = NOW_MS // DAY - 3000
    return tuple(
        Exclusion(days=CalendarDays(dates=((first + n * 3000 // count, 1, ""),))) for n in range(count)
    )  # fmt: skip


COSTLY = {
    "a thousand expressions": schedule(
        every_ms=100, exclude=tuple(Exclusion(cron=f"{n % 60} {n // 60} 1 1 *") for n in range(1000)), **ALL
    ),
    "a hundred triggers": schedule(when=tuple(When(cron=f"{n % 60} {n % 24} * * *") for n in range(100)), **ALL),
    "a hundred triggers at the same seconds": schedule(
        when=tuple(When(cron=f"* * * * * {n % 7},{n // 7 % 7},{n // 49}") for n in range(100)), **ALL
    ),
    "triggers of which every second due time is excluded": schedule(
        when=tuple(When(cron=f"* * * * * {n % 7},{n // 7 % 7},{n // 49}") for n in range(100)), exclude=(EVEN,)
    ),
    "triggers that are excluded but once a year": schedule(
        when=(*(When(cron=f"*/2 * * * {n % 12 + 1} *") for n in range(99)), When(cron="1 0 0 1 1 *")), exclude=(EVEN,)
    ),
    "days that move": schedule(cron="0 * * * *", exclude=days(990), on_excluded="previous", **ALL),
    "days that move far": schedule(
        cron="* * * * *", exclude=(Exclusion(days=CalendarDays(weekdays=(0, 1, 2, 3, 4))),), on_excluded="next", **ALL
    ),
    "all but some, per jitter": schedule(every_ms=1000, exclude=(EVEN,), jitter_ms=500, jitter_mode="per_fire", **ALL),
}


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.long)], ids=["a fifth of the bound", "the bound"])
def bound(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bound the looks of a decision: what keeps to a fifth of the bound keeps to all of it, in a fifth of the time."""
    looks = search_limit.LOOKS_MAX // request.param
    monkeypatch.setattr(search_limit, "LOOKS_MAX", looks)
    return looks


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, bound: int) -> list[None]:
    """Return a list that grows with every trigger and every exclusion that is asked."""
    found: list[None] = []

    def counted(of: type, name: str) -> None:
        inner: Callable[..., Any] = getattr(of, name)

        def asked(*args: Any) -> Any:
            found.append(None)
            return inner(*args)

        monkeypatch.setattr(of, name, asked)

    for of in (Every, CronTrigger):
        counted(of, "next_ms")
        counted(of, "latest_ms")
    for name in ("free_from", "free_until", "taken_from"):
        counted(exclusions._Readings, name)
    counted(DaySet, "free")
    return found


@pytest.mark.share(3)
@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("passed_ms", [1500, 20 * MINUTE, DAY, 3000 * DAY])
def test_a_decision_takes_a_bounded_number_of_looks(name: str, passed_ms: int, looks: list[None]) -> None:
    """One definition that was accepted kept the leader busy for 9 to 44 s after an outage, then each of the others."""
    definition = COSTLY[name]
    try:
        owed(
            definition, trigger_of(definition), mark_ms=NOW_MS - passed_ms, now_ms=NOW_MS, on_time_grace_ms=1000
        )  # fmt: skip
    except OverExcludedError as error:
        assert "exclude less" in str(error) or "narrow" in str(error)  # noqa: PT017 - both ends are right
    assert len(looks) <= 5 * search_limit.LOOKS_MAX


@pytest.mark.share(3)
@pytest.mark.parametrize("name", COSTLY)
def test_an_edit_takes_a_bounded_number_of_looks(name: str, looks: list[None]) -> None:
    """Old and new timing are compared since the watermark."""
    old, new = COSTLY[name], schedule(every_ms=MINUTE)
    kept_mark_ms(old, new, mark_ms=NOW_MS - 30 * DAY, now_ms=NOW_MS)
    unlisted_runs(schedule(when=old.when, exclude=old.exclude, overlap="allow", cron="0 0 1 1 *"), new, mark_ms=NOW_MS)
    assert len(looks) <= 5 * search_limit.LOOKS_MAX


def decided(definition: ScheduleDef, *, passed_ms: int) -> Owed:
    found = owed(
        definition, trigger_of(definition), mark_ms=NOW_MS - passed_ms, now_ms=NOW_MS, on_time_grace_ms=1000
    )  # fmt: skip
    assert found is not None
    return found


def test_of_more_due_times_than_can_be_looked_at_the_newest_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are looks for, and at least one more is counted as missed."""
    definition = schedule(cron="* * * * *", exclude=(ODD,), **ALL)
    decided(definition, passed_ms=DAY)  # the tables of its zones are read, which takes looks too
    monkeypatch.setattr(search_limit, "LOOKS_MAX", 100)
    found = decided(definition, passed_ms=DAY)
    newest = NOW_MS // MINUTE * MINUTE
    assert found.nominals == tuple(range(newest - (len(found.nominals) - 1) * MINUTE, newest + 1, MINUTE))
    assert 10 < len(found.nominals) < 100
    assert found.missed == {"cap": 1}
    assert (found.new_mark_ms, found.next_ms) == (newest, newest + MINUTE)


@pytest.mark.parametrize(
    ("policy", "nominals", "missed"),
    [
        ({}, 1, {"cap": 1}),
        ({"missed": "earliest"}, 1, {"cap": 1}),
        ({"missed": "skip"}, 0, {"policy": 1}),
        ({"catchup_window_ms": 1000}, 0, {"window": 1}),
        ({"catchup_window_ms": 10 * MINUTE}, 1, {"cap": 1}),
    ],
)
def test_without_looks_for_the_others_the_newest_is_decided_alone(
    monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], nominals: int, missed: dict[str, int]
) -> None:
    """By its own lateness. The watermark passes all of them, so nothing is decided twice."""
    definition = schedule(cron="30 * * * * *", exclude=(ODD,), **policy)
    trigger = trigger_of(definition)
    monkeypatch.setattr("supervisor.core.schedules.catchup._Case.decide", _exhausted)
    found = owed(definition, trigger, mark_ms=NOW_MS - DAY, now_ms=NOW_MS, on_time_grace_ms=1000)
    assert found is not None
    assert found.nominals == (NOW_MS - 30_000,) * nominals
    assert (found.missed, found.new_mark_ms) == (missed, NOW_MS - 30_000)


def test_a_backfill_goes_on_in_chunks_as_large_as_looks_allow(looks: list[None]) -> None:
    """A chunk of two thousand due times took the leader two seconds; none is left out or run twice."""
    trigger = trigger_of(COSTLY["a thousand expressions"])
    begin_ms, ran_ms = NOW_MS - 40_000, NOW_MS - 3000
    ran = EnqueuedSpan(from_ms=begin_ms, to_ms=ran_ms, count=371, revision=1)
    found: list[int] = []
    for chunk in chunks(
        trigger, SchedulePast(1, NOW_MS, enqueued=(ran,)), from_ms=begin_ms, until_ms=NOW_MS, limit=10_000
    ):
        assert len(looks) <= 2 * search_limit.LOOKS_MAX
        looks.clear()
        found += chunk.run
    assert found == list(range(ran_ms + 100, NOW_MS + 1, 100))


ZONES = sorted(name for name in zoneinfo.available_timezones() if name.startswith(("America/", "Asia/")))[:100]
YEARS = {
    "days that move over thousands of years": schedule(
        when=(When(calendar_interval=CalendarInterval(from_day=NOW_MS // DAY, months=12)),),
        exclude=(Exclusion(days=CalendarDays(dates=((NOW_MS // DAY + 30, 2_900_000, ""),))),),
        on_excluded="next",
        timezone="Africa/Casablanca",
    ),
    "days of each year that move": schedule(
        cron="0 0 1 1 *",
        exclude=(Exclusion(days=CalendarDays(dates=((NOW_MS // DAY + 30, 2_900_000, ""),))),),
        on_excluded="next",
        timezone="Europe/Berlin",
    ),
    "a hundred zones": schedule(at_ms=NOW_MS, when=tuple(When(cron="0 0 29 2 */7", timezone=name) for name in ZONES)),
}


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, bound: int) -> set[tuple[str, int]]:
    """Return the tables of zones that are asked for, each of four years."""
    found: set[tuple[str, int]] = set()
    inner = zones._segments

    def asked(name: str, block: int) -> tuple[zones.Segment, ...]:
        found.add((name, block))
        return inner(name, block)

    monkeypatch.setattr(zones, "_segments", asked)
    return found


@pytest.mark.share(3)
@pytest.mark.parametrize("name", YEARS)
def test_a_question_has_a_bounded_number_of_tables_of_zones_made(name: str, tables: set[tuple[str, int]]) -> None:
    """Each takes 2 ms: one definition that was accepted took 11 s, and every leader was killed as hanging."""
    trigger = trigger_of(YEARS[name])
    for ask in (lambda: trigger.next_ms(NOW_MS + DAY), lambda: trigger.latest_ms(-1, NOW_MS)):
        tables.clear()
        try:
            ask()
        except OverExcludedError as error:
            assert "exclude less" in str(error)  # noqa: PT017 - both ends are right
        assert len(tables) <= search_limit.LOOKS_MAX // search_limit.TABLE_LOOKS + 1


def test_a_daily_due_time_in_each_of_a_hundred_zones_is_within_the_bound() -> None:
    """A table for each zone is what that takes, two where one ends."""
    trigger = trigger_of(schedule(when=tuple(When(cron="0 9 * * *", timezone=name) for name in ZONES)))
    at_ms = (NOW_MS // 1000 >> zones._BLOCK_BITS << zones._BLOCK_BITS) * 1000
    for begin_ms in (NOW_MS, at_ms):
        following = trigger.next_ms(begin_ms)
        assert following is not None
        assert trigger.neighbours(following).previous_ms is not None


def _exhausted(case: Any) -> Any:
    raise search_limit.SearchLimitError("no looks are left")


@given(
    parts=st.lists(
        st.sampled_from(["*/7 * * * *", "0 * * * *", "30 2 * * *", "5-50/9 1-3 * * *"]), min_size=2, max_size=4
    ),
    every=st.sampled_from([None, MINUTE, 17 * MINUTE]),
    limit=st.integers(0, 30),
    hours=st.integers(0, 60),
)
def test_the_newest_of_several_triggers_are_the_last_of_all(
    parts: list[str], every: int | None, limit: int, hours: int
) -> None:
    """Also around a change of the clock, and for due times that triggers have in common."""
    whens = [When(cron=cron, timezone="Europe/Berlin") for cron in parts]
    found = trigger_of(schedule(when=(*whens, *([When(every_ms=every)] if every else ()))))
    until_ms = 1_792_890_000_000  # 2026-10-25T01:00Z
    after_ms = until_ms - hours * 60 * MINUTE
    every_time = list(found.nominals(after_ms, until_ms))
    assert found.newest(after_ms, until_ms, limit) == tuple(every_time[max(0, len(every_time) - limit) :])
    assert every_time == sorted(set(every_time))


DATES = st.lists(st.tuples(st.integers(20_700, 20_730), st.integers(1, 4)), max_size=4)


@given(
    calendars=st.lists(st.tuples(DATES, st.sets(st.integers(0, 6), max_size=3), st.booleans()), max_size=4),
    day=st.integers(20_690, 20_740),
    step=st.sampled_from([1, -1]),
)
def test_days_that_several_calendars_exclude_are_those_of_each(
    calendars: list[tuple[list[tuple[int, int]], set[int], bool]], day: int, step: int
) -> None:
    """Those that exclude are one set; those that name the only days stay as they are."""
    given_days = [
        CalendarDays(dates=tuple((*date, "") for date in dates), weekdays=tuple(sorted(weekdays)), is_only=is_only)
        for dates, weekdays, is_only in calendars
    ]
    apart, together = tuple(DaySet(each) for each in given_days), day_sets(given_days)
    assert len(together) <= 1 + sum(each.is_only for each in given_days)
    assert nearest(apart, day, step) == nearest(together, day, step)


def nearest(sets: tuple[DaySet, ...], day: int, step: int) -> int | str:
    try:
        return free_of_all(sets, day, step)
    except OverExcludedError:
        return "none"
