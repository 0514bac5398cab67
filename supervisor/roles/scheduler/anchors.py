"""Memory of grids that begin when the cluster first saw their schedule: Redis keeps them, and may lose its data.

Guarantees
    Under a leader that knew its configuration to be in place before the loss, these grids go on: what is owed since
    runs, or is counted, as on every other grid.

Does not guarantee
    That a replica which leads for the first time after the loss knows them: then they begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from supervisor.core.effects import Call
from supervisor.core.election.lease import Term
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.diff import ANCHORS, settled
from supervisor.core.units import NEVER_NS
from supervisor.roles.scheduler.fenced_client import FencedClient, PeriodicQuestion
from supervisor.roles.scheduler.window import PAGE
from supervisor.store.schedules.fire import Schedules
from supervisor.store.wire.definition import unpack_definition

AGAIN_NS = 5_000_000_000  # after Redis refused to read


class Anchors(PeriodicQuestion):
    """Reads what Redis holds of schedules with such a grid, once the configuration is in place."""

    what = "anchors"

    def __init__(self, schedules: Schedules, client: FencedClient) -> None:
        self._anchored: list[str] = []
        self.stored: dict[str, bytes] = {}
        """Definitions by schedule, with the beginning of their grid."""
        super().__init__(schedules, client, period_ns=AGAIN_NS)

    def declare(self, definitions: Sequence[ScheduleDef]) -> None:
        """Bring in another configuration from now on."""
        self._anchored = [each.id for each in definitions if each.anchor in ANCHORS]
        for name in self.stored.keys() - set(self._anchored):
            del self.stored[name]

    def begin(self) -> None:
        """Start a term. Without a loss Redis has the grids, and another leader may have moved them."""
        header = self._client.board.header
        if header.restored_epoch == header.data_loss_epoch:
            self.stored.clear()
        self._unread: list[str] = []
        self.wake_ns = NEVER_NS

    def expect(self) -> None:
        """The configuration is in place."""
        self._unread = list(self._anchored)
        self.wake_ns = 0 if self._unread else NEVER_NS

    def settle(self, definitions: Sequence[ScheduleDef]) -> Sequence[ScheduleDef]:
        """Return ``definitions`` with what is known of their grids."""
        if not (known := self.stored):
            return definitions
        return [settled_by(each, known[each.id], 0) if each.id in known else each for each in definitions]

    def _question(self, _term: Term) -> Call[list[tuple[int, bytes] | None]]:
        return self._schedules.definitions(self._unread[:PAGE])

    def _take(self, reply: list[tuple[int, bytes] | None]) -> None:
        read = zip(self._unread, reply, strict=False)  # of long ones it has what could be answered in time
        self.stored.update((name, found[1]) for name, found in read if found is not None)
        del self._unread[: len(reply)]
        self.wake_ns = 0 if self._unread else NEVER_NS


def settled_by(declared: ScheduleDef, body: bytes, now_ms: int) -> ScheduleDef:
    """Return ``declared`` with the time of its first sight from ``body``, as Redis holds it; most need none."""
    if declared.anchor not in ANCHORS:
        return declared
    try:
        stored: ScheduleDef | None = unpack_definition(body)
    except msgspec.DecodeError:
        stored = None
    return settled(declared, stored, now_ms)
