"""Replicas on a real server of their own keys."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from tests.integration.roles.role_processes import Replica
from tests.kit.servers import RealServer

FAST = {"lease_duration_s": 2.0, "renew_period_s": 0.4, "renew_timeout_s": 0.5}


@pytest.fixture
def keys() -> Keys:
    """The keys of a cluster that no other test uses."""
    return Keys(f"t-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def store(real_server: RealServer) -> Iterator[Store]:
    """A client of the server, for looking."""
    made = Store.connect(real_server.url, settings=RedisSettings(), name="test", timeout_s=20)
    yield made
    made.close()


@pytest.fixture
def replica(real_server: RealServer, keys: Keys, tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    """Return a function that makes a replica; none of its processes outlives the test."""
    made: list[Replica] = []

    def make(name: str, **spec: Any) -> Replica:
        spec = {"election": FAST, "url": real_server.url} | spec
        made.append(Replica(tmp_path, name, cluster=keys.cluster, **spec))
        return made[-1]

    yield make
    for each in made:
        each.end()
