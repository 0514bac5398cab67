"""Assertions for tests of a simulated cluster. A failure shows the history of the cluster, not only the fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.triggers import trigger_of
from supervisor.core.units import SECOND_NS
from supervisor.store.schedules.fire import LogEntry
from supervisor.store.wire.fire import FireCode
from supervisor.testing.replica import Replica, Trust
from supervisor.testing.world import World

HISTORY_LINES_MAX = 60
QUIET = {"election_answer", "candidates", "plan", "twins"}
LATE_MS_MAX = 1500  # a due time that is younger need not have been decided
COUNT_MAX = 1_000_000


def history(world: World) -> list[str]:
    """Return the actions of the replicas, one line each, without repetitions while nothing changes."""
    return [str(told) for told in world.history if told.event not in QUIET and told.fields.get("failures", 1) == 1]


def fail(world: World, problem: str) -> AssertionError:
    """Return the error of a failed assertion: the problem, and how it came to it."""
    lines = history(world)
    omitted = [f"… {len(lines) - HISTORY_LINES_MAX} earlier lines"] if len(lines) > HISTORY_LINES_MAX else []
    shown = [*omitted, *lines[-HISTORY_LINES_MAX:]]
    return AssertionError("\n".join([problem, f"history (seconds, who, what), seed {world.seed}:", *shown]))


def single_leader(world: World, replicas: Iterable[Replica]) -> None:
    """Raise unless exactly one replica leads now, and never two did at the same time."""
    known = list(replicas)
    leading = [replica.name for replica in known if replica.is_leading]
    if len(leading) != 1:
        raise fail(world, f"expected one leader, found {', '.join(leading) or 'none'}")
    trusts = sorted((trust for replica in known for trust in replica.trusts), key=lambda trust: trust.from_ns)
    found = _overlap(trusts)
    if found is not None:
        early, late = found
        raise fail(
            world,
            f"{late.replica} led from {late.from_ns / SECOND_NS:.3f} s (epoch {late.epoch}) while {early.replica} "
            f"still did until {early.until_ns / SECOND_NS:.3f} s (epoch {early.epoch})",
        )


def _overlap(trusts: Sequence[Trust]) -> tuple[Trust, Trust] | None:
    for index, early in enumerate(trusts):
        for late in trusts[index + 1 :]:
            if late.from_ns >= early.until_ns:
                break
            if late.replica != early.replica:
                return early, late
    return None


def fired_once(world: World, schedule: str, at: Sequence[datetime]) -> None:
    """Raise unless ``schedule`` fired, each due time once, and those in ``at`` among them."""
    fired = Counter(
        entry.nominal_ms
        for entry in world.server.decisions
        if entry.schedule == schedule and entry.code is FireCode.FIRED
    )
    if not fired:
        raise fail(world, f"{schedule!r} did not fire")
    twice = [_when(nominal_ms) for nominal_ms, times in sorted(fired.items()) if times > 1]
    if twice:
        raise fail(world, f"{schedule!r} fired more than once for {', '.join(twice)}")
    absent = [moment.isoformat() for moment in at if round(moment.timestamp() * 1000) not in fired]
    if absent:
        there = ", ".join(_when(nominal_ms) for nominal_ms in sorted(fired))
        raise fail(world, f"{schedule!r} did not fire for {', '.join(absent)}; it did for {there}")


def no_gap(world: World, definitions: Sequence[ScheduleDef], schedule: str, missed_max: int) -> None:
    """Raise unless every due time of ``schedule`` until now was decided, with at most ``missed_max`` counted as missed.

    Decided: fired, or skipped or made to wait by the overlap policy.
    """
    definition = next((item for item in definitions if item.id == schedule), None)
    if definition is None:
        raise fail(
            world, f"there is no schedule {schedule!r}; there are {', '.join(d.id for d in definitions) or 'none'}"
        )
    trigger, server = trigger_of(definition), world.server
    created_ms = server.created_ms.get(schedule, world.server_ms())
    mark_ms = int(server.store.fields(server.keys.schedule_mark).get(schedule.encode(), b"0"))
    until_ms = world.server_ms() - LATE_MS_MAX - (definition.jitter_ms or 0)
    behind_ms = trigger.latest_ms(max(created_ms, mark_ms), until_ms)
    if behind_ms is not None:
        raise fail(world, f"{schedule!r} is behind: {_when(behind_ms)} was due and is not decided")
    decided, missed = _account([entry for entry in server.decisions if entry.schedule == schedule])
    owed = trigger.count(created_ms, max(created_ms, mark_ms), COUNT_MAX)
    if owed != decided + missed:
        raise fail(world, f"{schedule!r} has a gap: {owed} times due, {decided} decided, {missed} counted as missed")
    if missed > missed_max:
        raise fail(world, f"{schedule!r} missed {missed} due times, {missed_max} are allowed")


def _account(entries: Sequence[LogEntry]) -> tuple[int, int]:
    """Return how many due times were decided, and how many were counted as missed."""
    decided = missed = 0
    waiting: set[int] = set()
    for entry in entries:
        if entry.nominal_ms in waiting:  # it was decided when it began to wait
            waiting.discard(entry.nominal_ms)
            continue
        if entry.code is FireCode.INITIAL:
            continue
        missed += entry.missed
        decided += entry.code is not FireCode.MISSED
        if entry.code is FireCode.BUFFERED:
            waiting.add(entry.nominal_ms)
    return decided, missed


def _when(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
