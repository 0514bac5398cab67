"""Jitter: drawn once, below the gap to the next due time, and the same for ever."""

from __future__ import annotations

from hashlib import blake2b
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.model import Exclusion, Kind, ScheduleDef, Template
from supervisor.core.schedules.catchup import fire_at_ms, fire_of, mark_at
from supervisor.core.schedules.triggers import trigger_of

TEMPLATE = Template(job="a.b", kind=Kind.ASYNC)
HOUR = 3_600_000


def schedule(name: str, jitter_ms: int, mode: str = "fixed") -> ScheduleDef:
    return ScheduleDef(id=name, template=TEMPLATE, every_ms=HOUR, jitter_ms=jitter_ms, jitter_mode=mode)


def hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def test_without_jitter_a_run_is_fired_when_it_is_due() -> None:
    """To the millisecond."""
    assert fire_at_ms(schedule("a", 0), 5 * HOUR, 6 * HOUR) == 5 * HOUR


@given(name=st.text(min_size=1, max_size=20), jitter_ms=st.integers(1, 7 * 86_400_000), nominal=st.integers(0, 10**13))
def test_the_offset_is_the_hash_of_the_id_in_parts_of_the_jitter(name: str, jitter_ms: int, nominal: int) -> None:
    """``floor(J * h / 2^64)`` with blake2b-64: any release and any language can compute it."""
    offset = jitter_ms * hashed(name) // 2**64
    assert fire_at_ms(schedule(name, jitter_ms), nominal, None) == nominal + offset
    per_fire = fire_at_ms(schedule(name, jitter_ms, "per_fire"), nominal, None)
    assert per_fire == nominal + jitter_ms * hashed(f"{name}\0{nominal}") // 2**64


def test_fixed_jitter_keeps_the_distance_of_runs_and_per_fire_does_not() -> None:
    """A run each hour stays a run each hour; per_fire spreads one schedule over time."""
    fixed = [fire_at_ms(schedule("a", HOUR // 2), n * HOUR, (n + 1) * HOUR) - n * HOUR for n in range(50)]
    assert len(set(fixed)) == 1
    spread = {fire_at_ms(schedule("a", HOUR // 2, "per_fire"), n * HOUR, (n + 1) * HOUR) - n * HOUR for n in range(50)}
    assert len(spread) > 45


@given(
    name=st.text(min_size=1, max_size=8),
    jitter_ms=st.integers(0, 10**9),
    gap=st.integers(1, 10**8),
    mode=st.sampled_from(["fixed", "per_fire"]),
)
def test_a_run_is_fired_before_the_next_one_is_due(name: str, jitter_ms: int, gap: int, mode: str) -> None:
    """However long the jitter: so fires keep the order of their nominal times."""
    fire = fire_at_ms(schedule(name, jitter_ms, mode), 1000, 1000 + gap)
    assert 1000 <= fire < 1000 + gap


@pytest.mark.parametrize("mode", ["fixed", "per_fire"])
def test_many_schedules_spread_evenly(mode: str) -> None:
    """A thundering herd at :00 is what it is for."""
    buckets = [0] * 10
    for n in range(5000):
        buckets[fire_at_ms(schedule(f"s{n}", HOUR, mode), 0, None) * 10 // HOUR] += 1
    assert max(buckets) < 600
    assert min(buckets) > 400


@pytest.mark.parametrize("mode", ["fixed", "per_fire"])
@pytest.mark.parametrize("jitter_ms", [0, 1, HOUR // 2, 3 * HOUR])
def test_after_a_pause_all_is_due_that_is_fired_later_and_nothing_else(jitter_ms: int, mode: str) -> None:
    """Against going through every nominal time: what was decided before stays decided."""
    definition = schedule("a", jitter_ms, mode)
    trigger = trigger_of(definition)
    fires = {n * HOUR: fire_of(definition, trigger, n * HOUR) for n in range(9)}
    edges = [at + around for at in (*fires, *fires.values()) for around in (-1, 0, 1) if at > 0]
    for mark_ms, ends_ms in product(edges, edges):
        found = mark_at(definition, trigger, mark_ms, ends_ms)
        due = [at for at, fire_ms in fires.items() if at > mark_ms and fire_ms > ends_ms]
        assert [at for at in fires if at > found] == due
        assert found >= mark_ms


def test_after_a_pause_nothing_waits_where_exclusions_leave_nothing() -> None:
    """The planner says so when it looks for the next one."""
    never = ScheduleDef(
        id="a", template=TEMPLATE, cron="* * * * *", jitter_ms=HOUR, exclude=(Exclusion(cron="* * * * *"),)
    )
    assert mark_at(never, trigger_of(never), 0, 5 * HOUR) == 5 * HOUR
