"""Deployments that the tests of a module share: each takes two seconds to come together."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.store.routing import sentinel_watch
from tests.kit.clients import Clients
from tests.kit.topologies import Cluster, Sentinels


@pytest.fixture(autouse=True)
def _watches_end_with_their_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of a watch looks for its listener so often."""
    monkeypatch.setattr(sentinel_watch, "QUIET_S", 0.2)
    monkeypatch.setattr(sentinel_watch, "PAUSE_S", 0.1)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """A directory for the servers' data."""
    path = Path(tempfile.mkdtemp(prefix="tenure-topology-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def deployed(directory: Path) -> Iterator[Sentinels]:
    """A master with two replicas under three sentinels; each test may use up one master."""
    deployment = Sentinels(directory, replicas=2)
    yield deployment
    deployment.close()


@pytest.fixture
def sentinels(deployed: Sentinels) -> Sentinels:
    """The same, whole again: no test begins in the middle of the fail-over that an earlier one began."""
    deployed.revive()
    return deployed


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[Cluster]:
    """Three masters and a replica."""
    deployment = Cluster(directory, spare=1)
    yield deployment
    deployment.close()


@pytest.fixture(params=["blocking", "asynchronous"])
def connect(request: pytest.FixtureRequest) -> Iterator[Clients]:
    """Clients of one kind, then of the other."""
    clients = Clients(request.param)
    yield clients
    clients.close()
