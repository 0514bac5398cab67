"""Acknowledgements that Redis refused, until they are sent again.

Guarantees
    None is lost, and none is sent before it is time. The others of its turn have no part in it. Of a queue with
    ``KEPT_MAX`` of them nothing more is fetched: each has a place in this process, which runs of other queues need.

Does not guarantee
    That they get through while this process lives: with its session its agent gives back their runs.

Time enters as an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from supervisor.core.units import SECOND_NS
from supervisor.store.wire.poll import Ack, TurnReply

KEPT_MAX = 4
SEND_AGAIN_NS = 2 * SECOND_NS


class RefusedAcks:
    """Refused acknowledgements of one worker process."""

    def __init__(self) -> None:
        self._kept: list[Ack] = []
        self._due_ns = 0
        self.closed: frozenset[str] = frozenset()
        """Queues from which nothing more is fetched."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._kept)

    def sift(self, acks: list[Ack], reply: TurnReply) -> list[Ack]:
        """Return those of ``acks`` that ``reply`` settled, and keep the others."""
        if not (reply.refused or self.closed):
            return acks
        self._kept += [ack for ack in acks if (ack.queue, ack.run_id) in reply.refused]
        counts = Counter(ack.queue for ack in self._kept)
        self.closed = frozenset(queue for queue, count in counts.items() if count >= KEPT_MAX)
        return [ack for ack in acks if (ack.queue, ack.run_id) not in reply.refused]

    def take(self) -> Sequence[Ack]:
        """Return all, the oldest first; the next answer says which remain."""
        taken, self._kept = self._kept, []
        return taken

    def is_due(self, now_ns: int) -> bool:
        """Return whether it is time to send them again."""
        return bool(self._kept) and now_ns >= self._due_ns

    def answered(self, reply: TurnReply, now_ns: int) -> None:
        """Note when a turn was answered."""
        if reply.refused:
            self._due_ns = now_ns + SEND_AGAIN_NS
