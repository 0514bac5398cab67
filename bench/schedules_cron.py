"""The rows about the cron engine, out of its own benchmark."""

from __future__ import annotations

from collections.abc import Callable

from bench.cron import COMMON, COMPILE_GOAL_US, NEXT_GOAL, compile_us, rates
from bench.schedules_table import Measure, Row


def cron_rows(_scale: object, told: Callable[[str], None]) -> list[Row]:
    """Measure next() and the compilation of common expressions; the slowest of each counts."""
    names = [f"{expression} {zone}" for expression, zone in COMMON]
    told("next()")
    found = rates()
    slowest = min(names, key=lambda name: found[name])
    told("compile")
    compiled = compile_us()
    longest = max(names, key=lambda name: compiled[name])
    return [
        Row("cron next()", (Measure(found[slowest], NEXT_GOAL, "/s", at_least=True),), f"slowest: {slowest}"),
        Row("cron compile", (Measure(compiled[longest], COMPILE_GOAL_US, "µs"),), f"slowest: {longest}"),
    ]
