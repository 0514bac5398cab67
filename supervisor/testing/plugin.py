"""pytest plugin for users: a cluster of replicas under a clock that the test drives, and no real Redis by accident.

Importing it costs nothing: fakeredis and the cluster are imported when a test asks for a fixture. Install the
release's wheel with its extra ``testing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from supervisor.store.producer.substitute import refused

if TYPE_CHECKING:
    from supervisor.testing.cluster import Cluster, ClusterFactory
    from supervisor.testing.runs import EnqueuedRun

MARKER = "tenure_redis"
REFUSAL = (
    "a test would enqueue into a real Redis; use a fixture, tenure_cluster, tenure_inline or enqueued, and connect() "
    "in the test, not before it; or mark the test @pytest.mark.tenure_redis, or all of them: tenure_redis = true"
)

REMEDY = "install the wheel of a release with its extra: pip install './tenure-X-py3-none-any.whl[testing]'"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for projects whose tests have a Redis of their own."""
    parser.addini(MARKER, "whether all tests may enqueue into a real Redis", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", f"{MARKER}: this test may enqueue into a real Redis")


@pytest.fixture(autouse=True)
def _tenure_refuses_real_servers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have producers refuse to connect, unless the test asks for a real server."""
    is_asked = request.config.getini(MARKER) or request.node.get_closest_marker(MARKER) is not None
    with refused("" if is_asked else REFUSAL):
        yield


@pytest.fixture
def tenure_cluster() -> Iterator[ClusterFactory]:
    """Return a function that starts a cluster of replicas on fakeredis; see ``Cluster`` for its methods.

    From then on ``connect`` and ``enqueue`` of the application under test are the cluster's.
    """
    try:
        from supervisor.testing.cluster import ClusterFactory  # noqa: PLC0415 - most tests never ask for it
    except ModuleNotFoundError as error:
        if error.name not in {"fakeredis", "lupa"}:
            raise
        pytest.fail(f"{error}; {REMEDY}", pytrace=False)

    with ClusterFactory() as factory:
        yield factory


@pytest.fixture
def tenure_inline(tenure_cluster: ClusterFactory) -> Cluster:
    """Execute each run before ``enqueue`` returns; ``finished`` lists the attempts. Delays and retries: ``advance``."""
    return tenure_cluster(replicas=0, inline=True)


@pytest.fixture
def enqueued(tenure_cluster: ClusterFactory) -> Callable[..., list[EnqueuedRun]]:
    """Execute nothing unless somebody waits; calling it returns what was enqueued and waits, all or of one job."""
    return tenure_cluster(replicas=0).enqueued
