"""The rows about what schedules cost while nothing happens, and about an outage."""

from __future__ import annotations

import time
from functools import partial

from bench.schedules_rows import Scale
from bench.schedules_table import Measure, Row, Told, percentile
from bench.schedules_world import World, schedule
from tests.kit.waiting import wait_until

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
HOURLY = 10_000
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")


def _yearly(number: int) -> str:
    """Return one of 1,440 expressions that is due once a year, never soon."""
    month = time.gmtime().tm_mon
    return f"{number % 60} {number // 60 % 24} 15 {(month + 5) % 12 + 1} *"


def cost_rows(scale: Scale, told: Told) -> list[Row]:
    """Measure memory, idle load and warm-up with many schedules of which none is due."""
    with World() as world:
        world.start_leader()
        world.win()
        time.sleep(2.0)
        leader_mib, redis_mib = world.leader_mib(), world.redis_mib()
        done = 0

        def loaded(more: int) -> None:
            nonlocal done
            done += more
            told(f"{scale.many:,} idle schedules: loaded {done:,}")

        crons = (schedule(n, cron=_yearly(n), timezone=ZONES[n % len(ZONES)]) for n in range(scale.many))
        world.load(crons, loaded)
        told("planning them")
        world.plan()
        world.lose()
        before_s = world.leader_cpu_s()
        told("warming up")
        world.win()
        warm_s = _settled_s(world, before_s)
        time.sleep(1.0)
        grown, data = world.leader_mib() - leader_mib, world.redis_mib() - redis_mib
        told("idling")
        seconds = max(10.0, scale.seconds)
        sent, cpu_s, begun = world.sent(), world.leader_cpu_s(), time.perf_counter()
        time.sleep(seconds)
        passed = time.perf_counter() - begun
        used = 100 * (world.leader_cpu_s() - cpu_s) / passed
        commands = (world.sent() - sent) / passed
    at = f"at {scale.many:,}, "
    return [
        Row(f"{at}leader memory above idle", (Measure(grown, 100, "MiB"),), f"idle {leader_mib:.0f} MiB, private"),
        Row(f"{at}memory of Redis", (Measure(data, 60, "MiB"),), f"{data * 2**20 / scale.many:.0f} bytes for each"),
        Row(f"{at}idle CPU", (Measure(used, 1, "% of a core"),)),
        Row(f"{at}idle commands", (Measure(commands, 2, "/s"),), "sent by the leader"),
        Row(
            f"{at}warm after take-over",
            (Measure(warm_s, 3, "s"),),
            "processor time until it is quiet: only what is due soon is read",
        ),
    ]


def _settled_s(world: World, before_s: float) -> float:
    """Return the processor time of the leader until it has been quiet for half a second."""
    used = world.leader_cpu_s()
    while True:
        time.sleep(0.5)
        now = world.leader_cpu_s()
        if now - used < 0.02:
            return now - before_s
        used = now


def outage_rows(scale: Scale, told: Told) -> list[Row]:
    """Measure a day without a leader: each hourly schedule catches up once, and what is on time stays on time."""
    count = min(HOURLY, scale.many)
    with World() as world:
        told(f"{count:,} hourly schedules")
        world.load(schedule(n, every_ms=HOUR_MS, phase_ms=n * HOUR_MS // count) for n in range(count))
        world.load([schedule(900_000, every_ms=500)])
        world.start_leader()
        world.win()
        world.plan()
        world.lose()
        told("a day passes")
        keys = world.keys
        for name, mark in world.raw.hgetall(keys.schedule_mark).items():
            world.raw.hset(keys.schedule_mark, name, int(mark) - DAY_MS)
            world.raw.zadd(keys.schedule_next, {name: int(mark) - DAY_MS + HOUR_MS})
        with world.listener() as listener:
            won_ms = world.win()
            begun = time.perf_counter()
            told("catching up")
            late = partial(world.raw.zcount, keys.schedule_next, "-inf", int(won_ms))
            wait_until(lambda: late() == 0, what="every schedule to catch up", bound_s=300)
            passed = time.perf_counter() - begun
            time.sleep(1.0)
            fires, caught_up = listener.fires(), listener.fires(missed=True)
    punctual = f"bench:{900_000:06d}"
    # Its first run is late by the outage itself.
    punctually = [late_ms for name, _, late_ms in fires if name == punctual][1:]
    caught = [name for name, _, _ in caught_up if name != punctual]
    assert len(set(caught)) == count, f"{len(set(caught))} of {count} schedules caught up"
    once = Measure(len(caught) / len(set(caught)), 1, "run each")
    note = f"in {passed:.1f} s, {count / passed:,.0f}/s"
    return [
        Row(f"a day's outage, {count:,} hourly schedules catch up", (once,), note),
        Row("an on-time schedule meanwhile", (Measure(percentile(punctually, 1.0), 1000, "ms", name="worst "),)),
    ]
