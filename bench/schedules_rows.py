"""The rows of the schedule benchmark: each builds its world, measures, and says what it found."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from bench.schedules_table import Measure, Row, Told, percentile
from bench.schedules_world import TEMPLATE, World, due_at, schedule, spread, wall_ms
from supervisor.core.model import FIRE_BATCH_MAX, Envelope, scheduled_run_id
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.fire import FireCode, FireItem
from tests.kit.waiting import wait_until

FIRST_LEAD_S = 8.0  # how far ahead of the loading a common instant lies; doubled until everything is planned by then
MANY = 100_000
DAY_MS = 86_400_000
ALLOW = "allow 1 1 30000 - - -"  # as store.schedule_items.policy_text writes it


@dataclass(frozen=True, slots=True)
class Scale:
    """How long and how often to measure."""

    many: int = MANY
    seconds: float = 10.0
    rounds: int = 100
    takeovers: int = 30


QUICK = Scale(many=10_000, seconds=3.0, rounds=20, takeovers=8)


def lateness(world: World, scale: Scale) -> tuple[float, float, list[int]]:
    """Return p50 and p99 in ms of what fires within the measured time, and the due times that were fired."""
    with world.listener() as listener:
        time.sleep(scale.seconds + 1.0)
        fires = listener.fires()
    begin_ms = min(nominal for _, nominal, _ in fires) + 500  # what was due before the listener listened
    counted = [(nominal, late_ms) for _, nominal, late_ms in fires if nominal >= begin_ms]
    late = [late_ms for _, late_ms in counted]
    pairs = [(name, nominal) for name, nominal, _ in fires]
    assert len(pairs) == len(set(pairs)), "a due time was enqueued twice"
    return percentile(late, 0.5), percentile(late, 0.99), [nominal for nominal, _ in counted]


def rate_row(scale: Scale, told: Told, *, rate: int, p50: float, p99: float) -> list[Row]:
    """Measure lateness while ``rate`` runs a second are due, evenly."""
    with World() as world:
        told(f"{rate}/s: loading")
        world.load(spread(rate, 1000))
        world.start_leader()
        world.win()
        world.plan()
        time.sleep(1.0)
        told(f"{rate}/s: measuring")
        before_s, begun_s = world.leader_cpu_s(), time.perf_counter()
        middle, late, nominals = lateness(world, scale)
        used = (world.leader_cpu_s() - before_s) / (time.perf_counter() - begun_s)
    measures = (Measure(middle, p50, "ms", name="p50 "), Measure(late, p99, "ms", name="p99 "))
    owed = rate * (max(nominals) - min(nominals)) / 1000 + 1
    note = f"{len(nominals)} fires, {min(1.0, len(nominals) / owed):.1%} of the due; leader {used:.0%} of a core"
    return [Row(f"lateness at {rate:,}/s", measures, note)]


def burst_row(scale: Scale, told: Told, *, count: int, goal_s: float) -> list[Row]:
    """Measure how long after their common instant the last of ``count`` runs is enqueued."""
    count = min(count, scale.many)
    lead_s = FIRST_LEAD_S * max(1.0, count / 10_000)
    while True:
        with World() as world:
            at_ms = int(wall_ms() + lead_s * 1000)
            told(f"{count} at once: loading")
            world.load(due_at(count, at_ms))
            world.start_leader()
            world.win()
            world.plan()
            if wall_ms() > at_ms - 2000:
                lead_s *= 2
                continue
            told(f"{count} at once: waiting for their instant")
            before_s, server_s = world.leader_cpu_s(), world.server_cpu_s()
            wait_until(lambda: world.enqueued() > 0, what="the first fire", bound_s=2 * lead_s + 30)
            first_ms = wall_ms()
            wait_until(lambda: world.enqueued() >= count, what="the last fire", bound_s=600)
            last_s = (wall_ms() - at_ms) / 1000
            cpu_us = (world.leader_cpu_s() - before_s) / count * 1e6
            server_us = (world.server_cpu_s() - server_s) / count * 1e6
            assert world.enqueued() == count
        break
    note = f"first after {first_ms - at_ms:.0f} ms"
    rows = [Row(f"{count:,} due at one instant, the last", (Measure(last_s, goal_s, "s"),), note)]
    if count >= 10_000:
        rows.append(Row(f"leader CPU for each fire, {count:,} in batches", (Measure(cpu_us, 60, "µs"),)))
        note = f"server {server_us:.0f} µs each; together {count / last_s:,.0f}/s"
        rows[-1] = Row(rows[-1].name, rows[-1].measures, note)
    return rows


def fire_row(scale: Scale, told: Told) -> list[Row]:
    """Measure the fenced script with a bare client: full batches, each schedule's next due time after the other."""
    batches = scale.rounds // 2
    with World() as world:
        world.load(due_at(FIRE_BATCH_MAX, int(wall_ms())))
        term = world.campaign()
        marks = {name.decode(): int(mark) for name, mark in world.raw.hgetall(world.keys.schedule_mark).items()}
        told("fenced fires")
        calls = []
        for number in range(batches):
            items = [_item(name, mark + number, world.clock.wall_ms()) for name, mark in marks.items()]
            calls.append(world.schedules.fire(term, items=items))
        before_s, begun = world.server_cpu_s(), time.perf_counter()
        replies = [world.store.run(call) for call in calls]
        passed = time.perf_counter() - begun
        count = batches * FIRE_BATCH_MAX
        server_us = (world.server_cpu_s() - before_s) / count * 1e6
    assert all(result.code is FireCode.FIRED for reply in replies for result in reply.results)
    rate = Measure(count / passed, 20_000, "/s", at_least=True)
    return [
        Row(f"fenced fires, batches of {FIRE_BATCH_MAX}", (rate,), f"a bare client; server {server_us:.0f} µs each")
    ]


def _item(name: str, mark_ms: int, now_ms: int) -> FireItem:
    nominal_ms = mark_ms + 1
    envelope = Envelope(id=scheduled_run_id(name, nominal_ms), template=TEMPLATE, schedule=name, nominal_ms=nominal_ms)
    return FireItem(name, 1, mark_ms, nominal_ms, nominal_ms, now_ms + DAY_MS, pack(envelope), policy=ALLOW)


def many_rows(scale: Scale, told: Told) -> list[Row]:
    """Measure what must not depend on the number of schedules: lateness, take-over, and changes."""
    few = 1000
    with World() as world:
        told("100/s of 1,000 schedules")
        world.load(spread(few, few * 10))
        world.start_leader()
        world.win()
        world.plan()
        time.sleep(1.0)
        base, _, _ = lateness(world, scale)
    with World() as world:
        done = 0

        def loaded(more: int) -> None:
            nonlocal done
            done += more
            told(f"100/s of {scale.many:,} schedules: loaded {done:,}")

        begun = time.perf_counter()
        world.load(spread(scale.many, scale.many * 10), loaded)
        load_s = time.perf_counter() - begun
        world.start_leader()
        world.win()
        plan_s = world.plan()
        time.sleep(1.0)
        told(f"100/s of {scale.many:,} schedules: measuring")
        middle, late, _ = lateness(world, scale)
        note = f"{base:.2f} and {middle:.2f} ms, p99 {late:.1f} ms; loaded in {load_s:.1f} s, planned in {plan_s:.1f} s"
        ratio = Measure(middle / base, 1.5, "x")
        rows = [Row(f"p50 at {scale.many:,} schedules to that at 1,000", (ratio,), note)]
        return rows + takeover_rows(world, scale, told) + change_rows(world, scale, told)


def takeover_rows(world: World, scale: Scale, told: Told) -> list[Row]:
    """Measure the time from a lease won to the first fire, with a second's worth of runs waiting."""
    found = []
    for number in range(scale.takeovers):
        told(f"take-over {number + 1} of {scale.takeovers}")
        world.lose()
        time.sleep(1.0)
        with world.listener() as listener:
            won_ms = world.win()
            wait_until(lambda: listener.first_ms is not None, what="the first fire")
            assert listener.first_ms is not None
            found.append(listener.first_ms - won_ms)
        world.plan()
    late = Measure(percentile(found, 0.99), 50, "ms", name="p99 ")
    note = f"p50 {median(found):.1f} ms, {len(found)} take-overs"
    return [Row(f"lease won to first due fire at {scale.many:,}", (late,), note)]


def change_rows(world: World, scale: Scale, told: Told) -> list[Row]:
    """Measure the time from the call that adds a schedule until the leader has planned it."""
    found = []
    for number in range(scale.rounds):
        told(f"change {number + 1} of {scale.rounds}")
        new = schedule(1_000_000 + number, every_ms=86_400_000)
        begun = time.perf_counter()
        world.load([new])
        while (world.raw.zscore(world.keys.schedule_next, new.id) or 0) <= 0:
            assert time.perf_counter() - begun < 30, "the leader did not notice a new schedule"
            time.sleep(0.0005)
        found.append((time.perf_counter() - begun) * 1e3)
        time.sleep(0.02)
    late = Measure(percentile(found, 0.99), 100, "ms", name="p99 ")
    return [Row("change to effective", (late,), f"p50 {median(found):.1f} ms, {len(found)} changes, while 100/s fire")]
