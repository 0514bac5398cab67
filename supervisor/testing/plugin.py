"""pytest plugin for users: a cluster of replicas under a clock that the test drives.

Importing it costs nothing: fakeredis and the cluster are imported when a test asks for the
fixture. Install the release's wheel with its extra ``testing``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from supervisor.testing.cluster import ClusterFactory


@pytest.fixture
def tenure_cluster() -> Iterator[ClusterFactory]:
    """Return a function that starts a cluster of replicas on fakeredis; see ``Cluster`` for its methods."""
    from supervisor.testing.cluster import ClusterFactory  # noqa: PLC0415 - most tests never ask for it

    with ClusterFactory() as factory:
        yield factory
