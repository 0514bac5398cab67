"""docs/writing-jobs.md says what the public API is, and its examples run."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import tenure
from supervisor.core.jobs.registry import Registry
from supervisor.roles.worker.attempt import middleware
from tenure import Context, job

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "writing-jobs.md").read_text()


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the examples define, in their order, in one module of their own."""
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", Registry())
    monkeypatch.setattr(middleware, "_installed", [])
    scope: dict[str, Any] = {"__name__": "examples"}
    for block in re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL):
        exec(compile(block, "writing-jobs.md", "exec", dont_inherit=True), scope)
    return scope


def test_the_examples_run_as_a_test_would_call_them(examples: dict[str, Any]) -> None:
    """Nobody forgives an example that does not work."""
    context = Context(run_id="r", job="j")

    assert asyncio.run(examples["send"](context, 7, copies=2)) == {"sent": 2}
    assert context.last_progress is not None
    assert context.last_progress.total == 2
    inventory = examples["Inventory"]()
    asyncio.run(inventory.open())
    assert asyncio.run(examples["count"](inventory)) == 2
    examples["start"]("c1", context)
    assert context.children is not None
    assert [envelope.id for envelope in context.children.envelopes] == ["r/1"]


def test_every_option_is_in_the_table() -> None:
    """An option that nobody can find is not there."""
    _, _, rest = DOCUMENT.partition("## Options")
    rows = re.findall(r"^\| `(\w+)` \|", rest.partition("## Context")[0], re.MULTILINE)

    assert sorted(rows) == sorted(inspect.signature(job).parameters)


def test_every_public_name_is_told_of() -> None:
    """There are few enough. Modules below the package are written with it."""
    assert {name for name in tenure.__all__ if not re.search(rf"`(tenure\.)?{name}`", DOCUMENT)} == set()
