"""A link that carries 1 MiB within the time of a call: long definitions and long runs get through in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import StoreUnavailableError
from supervisor.core.model import ScheduleDef
from supervisor.roles.scheduler.schedule_cache import CompiledSchedule
from supervisor.store.schedules.backfills import BackfillCalls, Request
from supervisor.store.schedules.reads import RecordPage
from supervisor.store.wire.envelope import Packed
from supervisor.testing.world import EPOCH_MS
from tests.integration.roles.scheduler.planned import FOR_HOURS, TEMPLATE, Planned, every, planned

ONE_CALL_MAX = 1 << 20
COUNT = 60
LONG = msgspec.structs.replace(TEMPLATE, args={"text": "x" * 50_000})


def long(seconds: float, name: str, **fields: Any) -> ScheduleDef:
    return every(seconds, name, template=LONG, overlap="allow", **fields)


def weight(values: Any) -> int:
    """Return how many bytes a call or a reply carries, about."""
    if isinstance(values, RecordPage):
        return sum(len(record.body) for record in values.items)
    if isinstance(values, list | tuple):
        return sum(map(weight, values))
    return len(values) if isinstance(values, bytes | str) else 0


def narrow(plan: Planned) -> None:
    """Let no longer call or reply through from now on."""
    execute: Callable[[Call[Any]], Any] = plan.server.execute

    def bounded(call: Call[Any]) -> Any:
        reply = None if weight(call.args) > ONE_CALL_MAX else execute(call)
        if reply is None or weight(reply) > ONE_CALL_MAX:
            raise StoreUnavailableError("no answer in time")
        return reply

    plan.server.execute = bounded  # type: ignore[method-assign]


def test_long_definitions_are_read_and_fired_in_parts() -> None:
    """All are due at once. The leader asked for all of them in one call, in vain, and fired nothing any more."""
    names = [f"t{n}" for n in range(COUNT)]
    with planned(every(3600, "short"), **FOR_HOURS) as plan:
        narrow(plan)
        plan.upsert(*[long(30, name) for name in names])
        plan.until(70)
        assert all(plan.fired(name) == [30.0, 60.0] for name in names)


def test_initial_runs_and_missed_ones_begin_in_parts() -> None:
    """Of one schedule many are made up for, of many the initial run begins."""
    names = [f"t{n}" for n in range(COUNT)]
    with planned(every(3600, "short"), **FOR_HOURS) as plan:
        narrow(plan)
        plan.upsert(long(10, "missed", missed="all"), *[long(3600, name, run_on_create=True) for name in names])
        plan.until(5)
        waiting = plan.server.store.raw.hkeys(plan.keys.queue("default").data)
        assert sorted(waiting) == sorted(f"{name}!initial".encode() for name in names)
        plan.leader.kill()
        plan.until(10 * COUNT + 5)
        plan.leader.start()
        plan.advance(140)
        assert plan.fired("missed")[:COUNT] == [10.0 * (n + 1) for n in range(COUNT)]


def test_no_more_runs_are_made_than_one_call_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain of long ones all were made for each part, while what others owed waited."""
    made: list[str] = []
    make = CompiledSchedule.run

    def counted(known: CompiledSchedule, schedule: str, *args: Any, **options: Any) -> Packed:
        made.append(schedule)
        return make(known, schedule, *args, **options)

    with planned(long(10, "missed", missed="all"), **FOR_HOURS) as plan:
        plan.until(15)
        plan.leader.kill()
        plan.until(10 * COUNT + 5)
        monkeypatch.setattr(CompiledSchedule, "run", counted)
        plan.leader.start()
        plan.advance(70)
        fired = plan.fired("missed")[1:]
        assert len(fired) >= COUNT - 1
        assert len(made) == len(fired)


@pytest.mark.share(2)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_configuration_with_long_definitions_is_brought_in_in_parts(*, is_known: bool) -> None:
    """Whether they are new or are compared with what is stored."""
    names = [f"t{n}" for n in range(COUNT)]
    made = [long(30, name) for name in names]
    with planned(*(made if is_known else [every(3600, "short")]), **FOR_HOURS) as plan:
        plan.until(2)
        plan.leader.stop()
        plan.advance(1)
        narrow(plan)
        plan.leader.definitions = (*made, every(3600, "other"))
        plan.leader.start()
        plan.until(200)
        stored = plan.server.store.raw.hkeys(plan.keys.schedule_def)
        assert sorted(stored) == sorted([*(name.encode() for name in names), b"other"])
        assert plan.server.store.raw.hget(plan.keys.schedule_sets, "#applied")


def test_a_backfill_of_long_runs_goes_on_in_parts() -> None:
    """A step of a hundred did not get through, and was repeated as it was."""
    with planned(long(10, "past"), **FOR_HOURS) as plan:
        plan.until(5)
        narrow(plan)
        request = Request(from_ms=EPOCH_MS - 10_000 * COUNT, until_ms=EPOCH_MS - 1)
        plan.run(BackfillCalls(plan.keys).add("b", "past", request, limit=COUNT, is_forced=False))
        plan.world.executed()
        plan.until(120)
        (done,) = plan.run(BackfillCalls(plan.keys).all())
        assert (done.state.value, done.enqueued) == ("done", COUNT)
