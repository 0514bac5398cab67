"""Jitter: how far after its nominal time a run is fired, drawn once and for ever.

The offset depends on the id of the schedule, and with ``per_fire`` on the nominal time, so
it is the same on every replica, after a restart and when it is computed again. The nominal
time, which is the identity of the run, never moves.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from supervisor.core.model import ScheduleDef

PER_FIRE = "per_fire"


def fire_at_ms(definition: ScheduleDef, nominal_ms: int, next_nominal_ms: int | None) -> int:
    """Return when the run of ``nominal_ms`` is fired: ``floor(jitter * h / 2^64)`` later.

    A jitter longer than the gap to ``next_nominal_ms`` counts as that gap, so a run is always
    fired before the next one is due, and the runs of a short interval still spread evenly.

    Args:
        definition: whose jitter it is.
        nominal_ms: when the run is due.
        next_nominal_ms: when the next one is; None: there is none.
    """
    spread = definition.jitter_ms
    if not spread:
        return nominal_ms
    if next_nominal_ms is not None:
        spread = min(spread, next_nominal_ms - nominal_ms)
    return nominal_ms + (spread * draw(definition, nominal_ms) >> 64)


def draw(definition: ScheduleDef, nominal_ms: int) -> int:
    """Return the 64 bits drawn for a run: of the id, with ``per_fire`` of id and nominal time."""
    if definition.jitter_mode == PER_FIRE:
        return _hash(f"{definition.id}\0{nominal_ms}")
    return _fixed(definition.id)


@lru_cache(maxsize=16_384)
def _fixed(schedule: str) -> int:
    return _hash(schedule)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
