"""How many due times a second the cron engine computes."""

from __future__ import annotations

from supervisor.clock import SystemClock
from supervisor.core.cron import compile_cron

START_S = 1_790_000_000
STEPS = 20_000
EXPRESSIONS = (
    ("* * * * *", "UTC"),
    ("*/5 * * * *", "Europe/Berlin"),
    ("30 2 * * *", "Europe/Berlin"),
    ("0 9 * * 1-5", "UTC"),
    ("0 0 29 2 *", "UTC"),
)


def rates() -> dict[str, float]:
    """Return calls of ``next`` per second, by expression and zone."""
    clock = SystemClock()
    found = {}
    for expression, zone in EXPRESSIONS:
        cron = compile_cron(expression, zone)
        at_s, begun_ns = START_S, clock.elapsed_ns()
        for _ in range(STEPS):
            # Back to the start when a rare expression leaves the range that is searched.
            at_s = cron.next(at_s) or START_S
        found[f"{expression} {zone}"] = STEPS / ((clock.elapsed_ns() - begun_ns) / 1e9)
    return found
