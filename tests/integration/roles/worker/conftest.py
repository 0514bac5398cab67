"""An empty registry for each test, and a workshop of either kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.jobs import registry as core_registry
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind
from supervisor.roles.worker import entry
from supervisor.roles.worker.pools import async_pool, sync_pool
from tests.integration.roles.worker.forked import kill_what_is_left
from tests.integration.roles.worker.worker_fixture import WorkerKit
from tests.kit.servers import Server


@pytest.fixture(autouse=True)
def _no_worker_outlives_its_test() -> Iterator[None]:
    yield
    kill_what_is_left()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry that ``@job`` fills in this test, for workers whose last words are heard."""
    registry = Registry()
    for module in (core_registry, entry):
        monkeypatch.setattr(module, "registry", registry)
    for pool in (async_pool, sync_pool):  # each call that hands back at a quit has 0.2 s, short for a busy machine
        monkeypatch.setattr(pool, "LAST_WORDS_S", 20.0)
    return registry


@pytest.fixture
def shop(server: Server, jobs: Registry) -> WorkerKit:
    """An async pool's workshop."""
    return WorkerKit(server, jobs, Kind.ASYNC)


@pytest.fixture
def sync_shop(server: Server, jobs: Registry) -> WorkerKit:
    """A sync pool's workshop."""
    return WorkerKit(server, jobs, Kind.SYNC)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as entries:
        yield entries
