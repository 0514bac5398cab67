"""A stage for an executor, and what it logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.jobs.registry import Registry, job
from tenure import Context
from tests.unit.roles.worker.executor_stage import Stage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """One job, ``work``, that takes a number."""
    registry = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", registry)

    @job("work")
    def work(context: Context, number: int = 0) -> int:
        return number

    @job("coroutine")
    async def coroutine() -> None: ...

    return Stage(registry)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as entries:
        yield entries
