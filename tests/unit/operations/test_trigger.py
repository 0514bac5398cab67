"""Triggering a schedule, whichever client drives it: replies are written here, and no Redis answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from supervisor.core.effects import drive, drive_async
from supervisor.core.errors import ArgumentsError, TenureError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.manual_runs import TriggerKeyError
from supervisor.operations import Operation
from supervisor.operations.schedule_control import TRIES, ScheduleChangesError, Triggered, TriggerLimitError, trigger
from supervisor.operations.schedules import NewerScheduleError, UnknownScheduleError
from supervisor.store.keys import Keys
from supervisor.store.schedules.control import TriggerCode
from supervisor.store.schedules.reads import Inspection, Record
from supervisor.store.wire.definition import pack_definition
from tests.kit.builders import schedule

Door = Callable[[Operation[Triggered], Iterable[Any]], Triggered]


def by_command(operation: Operation[Triggered], replies: Iterable[Any]) -> Triggered:
    left = iter(replies)
    return drive(operation, lambda _call: next(left))


def by_http(operation: Operation[Triggered], replies: Iterable[Any]) -> Triggered:
    left = iter(replies)

    async def answer(_call: object) -> Any:
        return next(left)

    return asyncio.run(drive_async(operation, answer))


@pytest.fixture(params=[by_command, by_http])
def door(request: pytest.FixtureRequest) -> Door:
    """Each of the two ways to ask."""
    found: Door = request.param
    return found


def stored(body: bytes | None = None, **fields: Any) -> list[Inspection]:
    """Return the reply of a read of schedule ``a``."""
    body = pack_definition(schedule("a", **fields)) if body is None else body
    record = Record(id="a", revision=1, set="dynamic", body=body, mark_ms=0, next_ms=None, pause=None)
    return [Inspection(id="a", record=record, now_ms=7)]


def asked(**options: Any) -> Operation[Triggered]:
    return trigger(Keys("c1"), "a", wall_ms=7, **options)


@pytest.mark.parametrize("code", [TriggerCode.TRIGGERED, TriggerCode.DUPLICATE, TriggerCode.SKIPPED])
def test_a_trigger_ends_with_its_code_and_the_id_of_its_run(door: Door, code: TriggerCode) -> None:
    """An earlier run that is unfinished is a result too: the door says it in its own way."""
    assert door(asked(key="k"), [stored(), code]) == Triggered(code, "a!manual!k")


def test_a_schedule_that_changes_is_read_again_ten_times_at_either_door(door: Door) -> None:
    """The run is made from the newest definition; one that never rests is given up, as worth another try."""
    changed = [stored(), TriggerCode.STALE]
    last = [stored(), TriggerCode.TRIGGERED]
    assert door(asked(key="k"), changed * (TRIES - 1) + last).code is TriggerCode.TRIGGERED
    with pytest.raises(ScheduleChangesError) as caught:
        door(asked(key="k"), changed * TRIES)
    assert (TRIES, caught.value.http_status, caught.value.is_retryable) == (10, 503, True)


@pytest.mark.parametrize(
    ("replies", "kind", "status"),
    [
        ([[Inspection(id="a", record=None, removed_ms=5)]], UnknownScheduleError, 404),
        ([stored(), TriggerCode.UNKNOWN], UnknownScheduleError, 404),  # deleted after it was read
        ([stored(b'{"id": 7}')], NewerScheduleError, 409),
        ([stored(), TriggerCode.CAPPED], TriggerLimitError, 409),
        ([stored(), TriggerCode.TAKEN], TriggerLimitError, 409),
    ],
)
def test_a_refused_trigger_says_why(door: Door, replies: list[Any], kind: type[TenureError], status: int) -> None:
    """A run that was not enqueued is never shown as one that was."""
    with pytest.raises(kind) as caught:
        door(asked(key="k"), replies)
    assert caught.value.http_status == status


def test_a_key_that_no_run_id_can_hold_is_refused_before_anything_is_read(door: Door) -> None:
    """Redis is not asked."""
    with pytest.raises(TriggerKeyError):
        door(asked(key="a b"), [])


def test_permission_and_arguments_are_judged_by_the_definition_that_is_enqueued(door: Door) -> None:
    """Also after a change; what is refused is not enqueued."""
    seen: list[Any] = []

    def permit(definition: ScheduleDef) -> None:
        seen.append(definition.max_running)
        if definition.max_running == 2:
            raise ArgumentsError("not these")

    operation = asked(args={"to": "lee"}, permit=permit, check=lambda job, args: seen.append((job, args)))
    with pytest.raises(ArgumentsError, match="not these"):
        door(operation, [stored(), TriggerCode.STALE, stored(max_running=2)])
    assert seen == [1, ("tests.noop", {"to": "lee"}), 2]
