"""The task message of SpaceONE: its required form, place by place.

Guarantees
    Messages that Cloudforet's producer accepts are accepted, and those it rejects are rejected.
    A problem names the place and the value there, never a value of ``metadata`` or of ``params``, nor a text where
    none belongs: one in place of an object may be all of it, encoded twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from supervisor.core.errors import TenureError

STAGES_MAX = 100
PROBLEMS_MAX = 10
TEXT_CHARS_MAX = 80
VERSIONS = ("v1",)
LOCATORS = ("SERVICE", "MANAGER")
_STAGE = {"locator": str, "name": str, "metadata": dict, "method": str, "params": dict}
_WORDS = {dict: "an object", list: "an array", str: "a string", bool: "a truth value", type(None): "null"}


class TaskError(TenureError):
    """A task message that is malformed. The same one will be so next time."""

    ends_run = True


def check(task: Any) -> dict[str, Any]:
    """Return ``task`` if it is a task message.

    Raises:
        TaskError: names every wrong place, ten at most.
    """
    problems = list(problems_of(task))
    if problems:
        more = len(problems) - PROBLEMS_MAX
        told = "; ".join([*problems[:PROBLEMS_MAX], *([f"and {more} more"] if more > 0 else [])])
        raise TaskError(f"the task message is rejected: {told}")
    found: dict[str, Any] = task
    return found


def parse(message: str | bytes) -> dict[str, Any]:
    """Return the task in the JSON text ``message``.

    Raises:
        TaskError: it is no JSON, or no task message.
    """
    try:
        task = json.loads(message)
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise TaskError(f"the task message is rejected: it is no JSON{where}, {len(message)} characters long") from None
    return check(task)


def problems_of(task: Any) -> Iterator[str]:
    """Yield the problems of ``task``: place, rule and the value found."""
    if not isinstance(task, Mapping):
        yield f"it must be an object, got {_kind(task)}"
        return
    for key in ("name", "executionEngine"):
        if key in task and not isinstance(task[key], str):
            yield f"{key} must be a string, got {_shown(task[key])}"
    if "version" in task and task["version"] not in VERSIONS:
        yield f"version must be one of {', '.join(VERSIONS)}, got {_shown(task['version'])}"
    if "stages" not in task:
        yield "'stages' is required: an array of stages, which may be empty"
        return
    stages = task["stages"]
    if not isinstance(stages, list):
        yield f"stages must be an array, got {_kind(stages)}"
        return
    if len(stages) > STAGES_MAX:
        yield f"stages has {len(stages)} items, the limit is {STAGES_MAX}; split the task"
        return
    for number, stage in enumerate(stages):
        yield from _stage_problems(f"stages[{number}]", stage)


def _stage_problems(place: str, stage: Any) -> Iterator[str]:
    if not isinstance(stage, Mapping):
        yield f"{place} must be an object, got {_kind(stage)}"
        return
    for key, kind in _STAGE.items():
        if key not in stage:
            yield f"{place}.{key} is required"
            continue
        value = stage[key]
        if not isinstance(value, kind):
            got = _shown(value) if kind is str else _kind(value)
            yield f"{place}.{key} must be {_WORDS[kind]}, got {got}"
        elif key == "locator" and value not in LOCATORS:
            yield f"{place}.locator must be one of {', '.join(LOCATORS)}, got {_shown(value)}"


def _shown(value: Any) -> str:
    """Return a value where one of a few words belongs."""
    if isinstance(value, str):
        return repr(value if len(value) <= TEXT_CHARS_MAX else f"{value[:TEXT_CHARS_MAX]}…")
    return repr(value)[:TEXT_CHARS_MAX] if isinstance(value, int | float) else _kind(value)


def _kind(value: Any) -> str:
    return "a number" if type(value) in {int, float} else _WORDS.get(type(value), type(value).__name__)
