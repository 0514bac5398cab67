"""Pausing and resuming schedules: replies are written here, and no Redis answers."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.effects import Call, drive
from supervisor.core.errors import ArgumentsError
from supervisor.core.model import ScheduleDef
from supervisor.operations import InvalidRequestError, Operation
from supervisor.operations.schedule_control import PauseTerms, pause, resume
from supervisor.operations.schedules import UnknownScheduleError
from supervisor.store.keys import Keys
from supervisor.store.schedules.control import BATCH_MAX, REASON_MAX, PauseCode, Paused, ResumeCode, Resumed
from supervisor.store.schedules.reads import Inspection, Record
from supervisor.store.wire.definition import pack_definition
from tests.kit.builders import schedule

KEYS = Keys("c1")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"reason": "x" * (REASON_MAX + 1)}, "reason"),
        ({"for_s": 0.0}, "for"),
        ({"for_s": -1.0}, "for"),
        ({"for_s": 36_600 * 86_400 + 1.0}, "for"),
        ({"for_s": 1.0, "until_ms": 1}, "for"),
    ],
)
def test_terms_that_would_be_cut_or_end_at_once_are_refused(fields: dict[str, Any], field: str) -> None:
    """The command names the option, the API answers 400: one rule for both."""
    with pytest.raises(InvalidRequestError) as caught:
        PauseTerms(by="kim", **fields)
    assert (caught.value.field, caught.value.http_status, caught.value.exit_code) == (field, 400, 2)


def test_any_number_of_schedules_is_paused_and_resumed_in_their_order() -> None:
    """In calls as large as the script takes."""
    names = [f"s{number}" for number in range(BATCH_MAX + 1)]
    sizes: list[int] = []

    def paused(call: Call[Any]) -> Any:
        ids = [word for word in call.args if str(word).startswith("s")]
        sizes.append(len(ids))
        return Paused([(PauseCode.UNKNOWN if name == "s3" else PauseCode.PAUSED, 7) for name in ids], 1)

    done = drive(pause(KEYS, names, PauseTerms(by="kim")), paused)
    assert [each.schedule for each in done] == names
    assert [each.schedule for each in done if each.code is PauseCode.UNKNOWN] == ["s3"]
    assert sizes == [BATCH_MAX, 1]

    def resumed(call: Call[Any]) -> Any:
        return Resumed([(ResumeCode.RESUMED, 0)] * len([word for word in call.args if str(word).startswith("s")]), 1)

    assert drive(resume(KEYS, names), resumed) == [(name, ResumeCode.RESUMED) for name in names]


def test_nothing_is_paused_or_resumed_that_the_asker_may_not_or_that_is_not_there() -> None:
    """Permission is asked before the change, and only reads are made."""

    def refuse(_definition: object) -> None:
        raise ArgumentsError("not yours")

    def absent(call: Call[Any]) -> Any:
        assert call.script == "schedule_inspect"
        return [Inspection(id="a", record=None)]

    for operation in (pause(KEYS, ["a"], PauseTerms(by="kim"), permit=refuse), resume(KEYS, ["a"], permit=refuse)):
        with pytest.raises(UnknownScheduleError):
            drive(operation, absent)


@pytest.mark.parametrize("change", ["pause", "resume"])
def test_permission_is_asked_again_for_a_definition_that_changed_since(change: str) -> None:
    """A token for one team pauses no schedule that another team took over between the two steps."""
    owners = ["ours", "ours", "theirs"]
    asked: list[str] = []
    revisions: list[int] = []

    def permit(definition: ScheduleDef) -> None:
        asked.append(definition.owner)
        if definition.owner == "theirs":
            raise ArgumentsError("not yours")

    def answer(call: Call[Any]) -> Any:
        if call.script == "schedule_inspect":
            body = pack_definition(schedule("a", owner=owners[len(asked)]))
            record = Record(
                id="a", revision=len(asked) + 1, set="dynamic", body=body, mark_ms=0, next_ms=None, pause=None
            )
            return [Inspection(id="a", record=record)]
        revisions.append(next(word for word in call.args if isinstance(word, int)))
        return Paused([(PauseCode.STALE, None)], 1) if change == "pause" else Resumed([(ResumeCode.STALE, 0)], 1)

    terms = PauseTerms(by="kim")
    operation: Operation[Any] = (
        pause(KEYS, ["a"], terms, permit=permit) if change == "pause" else resume(KEYS, ["a"], permit=permit)
    )
    with pytest.raises(ArgumentsError):
        drive(operation, answer)
    assert (asked, revisions) == (owners, [1, 2])
