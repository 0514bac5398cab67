"""Deals tests out to the workers of pytest: one by one, those of a group to one worker.

pytest-xdist names a group by a suffix of the test's identity, in an attribute that pytest 9.2 does not read; and it counts
all that a worker has had whenever a test ends, which costs more than some tests.
"""

from __future__ import annotations

import pytest
from _pytest.nodeid import NodeId
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


def name_groups(items: list[pytest.Item]) -> None:
    """Add the group of each test to its identity, as the scheduler reads it."""
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(suffix := f"@{group.args[0]}"):
            item._id = NodeId.parse(item.nodeid + suffix)


class Dealing(LoadGroupScheduling):
    """Forgets what has ended."""

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Note the end of a test, and give its worker another one."""
        nodeid = self.registered_collections[node][item_index]
        assigned, scope = self.assigned_work[node], self._split_scope(nodeid)
        assigned[scope][nodeid] = True
        if all(assigned[scope].values()):
            del assigned[scope]
        self._reschedule(node)
