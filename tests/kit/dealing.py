"""Deals tests out to the workers of pytest: some at a time, those of a group to one worker.

pytest-xdist names a group by a suffix of the test's identity, in an attribute that pytest 9.2 does not read; it counts
all that a worker has had whenever a test ends, and sends seven messages for each test: both cost more than some tests.
"""

from __future__ import annotations

from typing import Any

import pytest
from _pytest.nodeid import NodeId
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

UNITS_MAX = 8
"""How many units of work one message brings: tests, and groups of tests."""
TOLD_S_MIN = 0.1
"""How long a phase that passed must have taken to be told by a worker, for the list of the slowest."""


def name_groups(items: list[pytest.Item]) -> None:
    """Add the group of each test to its identity, as the scheduler reads it."""
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(suffix := f"@{group.args[0]}"):
            item._id = NodeId.parse(item.nodeid + suffix)


def tell_briefly(interactor: Any) -> None:
    """Have a worker tell of each test that passes once, instead of its start, its end and each of its phases."""
    send = interactor.sendevent

    def send_briefly(name: str, **fields: Any) -> None:
        told = fields["data"] if name == "testreport" else {}
        is_told = told.get("when") == "call" or told.get("outcome") != "passed" or told["duration"] > TOLD_S_MIN
        if is_told and name not in {"logstart", "logfinish"}:
            send(name, **fields)

    interactor.sendevent = send_briefly


class Dealing(LoadGroupScheduling):
    """Forgets what has ended, and sends several units at a time."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Send a worker its next units: the fewer, the fewer there are, so that all workers end together."""
        left = len(self.workqueue)
        count = min(left, UNITS_MAX, 2 + left // (UNITS_MAX * len(self.nodes)))
        units = dict(self.workqueue.popitem(last=False) for _ in range(count))
        self.assigned_work.setdefault(node, {}).update(units)
        known = self.registered_collections[node]
        waiting = [nodeid for unit in units.values() for nodeid, is_done in unit.items() if not is_done]
        node.send_runtest_some([known.index(nodeid) for nodeid in waiting])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Note the end of a test, and give its worker another one."""
        nodeid = self.registered_collections[node][item_index]
        assigned, scope = self.assigned_work[node], self._split_scope(nodeid)
        assigned[scope][nodeid] = True
        if all(assigned[scope].values()):
            del assigned[scope]
        self._reschedule(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Send a worker more, or tell it that nothing follows: it begins no test before it knows what comes after it."""
        super()._reschedule(node)
        if not self.workqueue and not node.shutting_down:
            node.shutdown()
