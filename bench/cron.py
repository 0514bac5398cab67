"""How many due times a second the cron engine computes, and how long it takes to compile an expression.

In seconds of this thread's CPU time: what else the machine does at the moment says nothing about the engine.
"""

from __future__ import annotations

import time
from statistics import median

from rich.console import Console
from rich.table import Table

from supervisor.core.cron import expression as engine
from supervisor.core.cron.days import days_of
from supervisor.core.cron.expression import compile_cron

START_S = 1_790_000_000
STEPS = 20_000
ROUNDS = 5
NEXT_GOAL = 200_000  # calls a second, for common expressions
COMPILE_GOAL_US = 30.0

COMMON = (
    ("* * * * *", "UTC"),
    ("*/5 * * * *", "Europe/Berlin"),
    ("0 * * * *", "Europe/Berlin"),
    ("30 2 * * *", "Europe/Berlin"),
    ("30 2 * * *", "America/New_York"),
    ("0 9 * * 1-5", "UTC"),
    ("15,45 8-18 * * MON-FRI", "Asia/Kolkata"),
    ("*/10 * * * * *", "UTC"),
    ("0 0 1 * *", "UTC"),
)
RARE = (
    ("0 0 L * *", "Europe/Berlin"),
    ("0 0 15W * *", "UTC"),
    ("0 0 * * 1#2", "Europe/Berlin"),
    ("0 0 29 2 *", "UTC"),
)
EXPRESSIONS = (*COMMON, *RARE)


def rates() -> dict[str, float]:
    """Return calls of ``next`` per second, the median of some rounds, by expression and zone."""
    return {f"{expression} {zone}": _rate(expression, zone) for expression, zone in EXPRESSIONS}


def _rate(expression: str, zone: str) -> float:
    cron = compile_cron(expression, zone)
    found = []
    for _ in range(ROUNDS):
        at_s, begun_ns = START_S, time.thread_time_ns()
        for _ in range(STEPS):
            # Back to the start when a rare expression leaves the range that is searched.
            at_s = cron.next(at_s) or START_S
        found.append(STEPS / ((time.thread_time_ns() - begun_ns) / 1e9))
    return median(found)


def compile_us() -> dict[str, float]:
    """Return the microseconds that it takes to compile an expression that was not met before, by expression."""
    parse_anew = engine._compile.__wrapped__  # noqa: SLF001 - past the cache, which would answer
    found = {}
    for expression, zone in EXPRESSIONS:
        times = []
        for _ in range(500):
            days_of.cache_clear()
            begun_ns = time.thread_time_ns()
            parse_anew(expression, zone, "run", "first")
            times.append((time.thread_time_ns() - begun_ns) / 1e3)
        found[f"{expression} {zone}"] = median(times)
    return found


def table() -> Table:
    """Return the whole table, with ratios to the goals: above 1 is better than the goal."""
    shown = Table("expression and zone", "next() a second", "of goal", "compile", "of goal")
    compiled = compile_us()
    common = {f"{expression} {zone}" for expression, zone in COMMON}
    for name, rate in rates().items():
        shown.add_row(
            name,
            f"{rate / 1e3:.0f} k",
            f"{rate / NEXT_GOAL:.1f} x" if name in common else "",
            f"{compiled[name]:.0f} us",
            f"{COMPILE_GOAL_US / compiled[name]:.1f} x",
        )
    return shown


if __name__ == "__main__":
    Console().print(table())
