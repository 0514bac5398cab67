"""The task message: what Cloudforet's own schema accepts and rejects, and what is said of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.compat.cloudforet.tasks.schema import PROBLEMS_MAX, STAGES_MAX, TaskError, check, parse, problems_of
from tests.kit.canary import CANARY
from tests.kit.tables import table

STAGE: dict[str, Any] = {"locator": "SERVICE", "name": "A", "metadata": {}, "method": "m", "params": {}}


def task(**changes: Any) -> dict[str, Any]:
    """Return a minimal task whose only stage has these keys."""
    return {"stages": [{**STAGE, **changes}]}


# As measured with Cloudforet's own schema: origins, 2.3.
MEASURED = [
    ("minimal", task(), ""),
    ("nothing", {}, "'stages' is required"),
    ("no stages", {"stages": []}, ""),
    ("extra keys", {**task(extra=1), "stop_on_failure": False, "more": {"a": 1}}, ""),
    ("version v2", {**task(), "version": "v2"}, "version must be one of v1, got 'v2'"),
    ("metadata a list", task(metadata=[["token", CANARY]]), "stages[0].metadata must be an object, got an array"),
    (
        "locator CONNECTOR",
        task(locator="CONNECTOR"),
        "stages[0].locator must be one of SERVICE, MANAGER, got 'CONNECTOR'",
    ),
]


@pytest.mark.parametrize(("value", "problem"), [case[1:] for case in MEASURED], ids=[case[0] for case in MEASURED])
def test_the_seven_measured_cases_end_as_they_do_there(value: Any, problem: str) -> None:
    """What its producer rejects is rejected here, with the place and the value; what it takes is taken."""
    if not problem:
        assert check(value) is value
        return
    with pytest.raises(TaskError) as caught:
        check(value)
    assert problem in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("key", sorted(STAGE))
def test_every_key_of_a_stage_is_required(key: str) -> None:
    """A message without one is named by its place."""
    stage = {name: value for name, value in STAGE.items() if name != key}
    assert list(problems_of({"stages": [STAGE, stage]})) == [f"stages[1].{key} is required"]


@table(
    ("value", "problem"),
    [
        (task(name=1), "stages[0].name must be a string, got 1"),
        (task(method=None), "stages[0].method must be a string, got null"),
        (task(params=[CANARY]), "stages[0].params must be an object, got an array"),
        (task(params=CANARY), "stages[0].params must be an object, got a string"),
        (task(metadata=7), "stages[0].metadata must be an object, got a number"),
        ({"stages": {}}, "stages must be an array, got an object"),
        ({"stages": ["x"]}, "stages[0] must be an object, got a string"),
        (json.dumps(task()), "it must be an object, got a string"),
        ({"stages": json.dumps([STAGE])}, "stages must be an array, got a string"),
        ({"stages": [json.dumps(STAGE)]}, "stages[0] must be an object, got a string"),
        ({**task(), "name": []}, "name must be a string, got an array"),
        ({**task(), "executionEngine": True}, "executionEngine must be a string, got True"),
        ({**task(), "version": None}, "version must be one of v1, got null"),
        (["stages"], "it must be an object, got an array"),
        ({"stages": [STAGE] * (STAGES_MAX + 1)}, f"stages has {STAGES_MAX + 1} items, the limit is {STAGES_MAX}"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(value: Any, problem: str) -> None:
    """Metadata and params are told by their kind only: any of their values may be a secret."""
    found = "; ".join(problems_of(value))
    assert problem in found
    assert CANARY not in found


def test_many_mistakes_are_told_up_to_a_limit() -> None:
    """A message of a thousand mistakes does not fill a dead record."""
    with pytest.raises(TaskError, match=rf"and {3 * 5 - PROBLEMS_MAX} more"):
        check({"stages": [{}, {}, {}]})


def test_what_is_no_json_is_told_without_its_text() -> None:
    """Half a message may hold a token."""
    with pytest.raises(TaskError, match="no JSON at character") as caught:
        parse(f'{{"stages": [], "metadata": "{CANARY}"')
    assert CANARY not in str(caught.value)
    assert parse(json.dumps(task())) == task()


def test_a_malformed_message_is_not_tried_again() -> None:
    """The same message fails the same way every time."""
    assert TaskError.ends_run
