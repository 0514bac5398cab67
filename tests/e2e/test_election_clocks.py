"""A Redis whose wall clock steps. Collected where a C compiler is found: see conftest.py.

The simulation shows the same on every machine; here a real server and real trees do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.clock import SystemClock
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from tests.e2e.clock_shim import ClockShim
from tests.e2e.clusters import Cluster
from tests.e2e.pairs import RENEWALS
from tests.e2e.servers import Server
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
HOUR_S = 3600
CLOCK = SystemClock()


@pytest.fixture
def shim(short_directory: Path) -> ClockShim:
    """The clock of this test's server."""
    return ClockShim(short_directory)


@pytest.fixture
def cluster(start: Callable[..., Tree], short_directory: Path, shim: ClockShim) -> Iterator[Cluster]:
    """Two replicas on a server whose clock the test holds."""
    server = Server(short_directory, environ=shim.environ)
    store = Store.connect(server.url, settings=RedisSettings(), name="e2e", timeout_s=20)
    yield Cluster(start, short_directory, server.url, store)
    store.close()
    server.kill()


@pytest.mark.long
@pytest.mark.parametrize("offsets_s", [(-HOUR_S, 0), (HOUR_S, -HOUR_S, 0)], ids=str)
def test_steps_of_redis_clock_depose_nobody_and_double_nothing(
    cluster: Cluster, shim: ClockShim, offsets_s: tuple[int, ...]
) -> None:
    """Followers judge by their own clock whether a leader is silent, so no step looks like silence."""
    before = cluster.view()
    for offset_s in offsets_s:
        shim.step(offset_s)
        expected_ms = CLOCK.wall_ms() + 1000 * offset_s
        wait_until(lambda at=expected_ms: abs(cluster.view().now_ms - at) < HOUR_S * 500, what="the step to be seen")
        seq = cluster.view().seq
        wait_until(lambda since=seq: cluster.view().seq >= since + RENEWALS, what="renewals by the stepped clock")
        assert (cluster.view().epoch, cluster.view().transitions) == (before.epoch, before.transitions)
    cluster.wait_for_fires(4)

    cluster.prove()
