"""Calls that move task messages between our queues and the lists of SpaceONE.

Guarantees
    A message that is moved in leaves their list in the step in which it becomes a run.
    A run pushes its message out once, however often it is attempted within ``MEMORY_MS``.

Does not guarantee
    Any handling of a message by SpaceONE's workers: they take it out before they work on it.

Both need the list to be where our keys are: the same server and database, and no Redis Cluster, since the name of
their list carries no hash tag.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from supervisor.core.model import PAYLOAD_BYTES_MAX, Envelope, Template
from supervisor.core.names import check_name
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.envelope import pack

INGEST_MAX = 200
MEMORY_MS = 86_400_000
_ID, _VALUE = "tenure-id", "tenure-value"


class Ingested(NamedTuple):
    """Counts of one ingest call."""

    moved: int
    set_aside: int
    left: int


class Bridges(CallBuilder):
    """Builds the calls."""

    def ingest(
        self, *, channel: str, queue: str, run: Template, refused: Template, now_ms: int, most: int = INGEST_MAX
    ) -> Call[Ingested]:
        """Move messages from the list ``channel`` into ``queue``.

        Args:
            channel: their list.
            queue: ours.
            run: the run that executes a message; its argument ``message`` is the text of it.
            refused: the run in place of a message that is too large; its argument ``reason`` is the reason.
            now_ms: by the wall clock, for people.
            most: how many.
        """
        assert 0 < most <= INGEST_MAX
        assert run.kind is refused.kind
        before, between, after = _parts(run, queue, "message", now_ms)
        _, aside_between, aside_after = _parts(refused, queue, "reason", now_ms)
        args: dict[str, Any] = {
            "queue": check_name("queue", queue), "most": most, "bytes_max": PAYLOAD_BYTES_MAX, "before": before,
            "between": between, "after": after, "aside_between": aside_between, "aside_after": aside_after,
        }  # fmt: skip
        return self._call("bridge_ingest", args, lambda reply: Ingested(*map(int, reply)), keys={"list": channel})

    def emit(self, *, channel: str, run_id: str, message: str) -> Call[bool]:
        """Push ``message`` to the list ``channel``; False: this run did so before."""
        args = {"run": run_id, "memory_ms": MEMORY_MS, "message": message}
        return self._call("bridge_emit", args, lambda reply: reply == b"PUSHED", keys={"list": channel})


def _parts(template: Template, queue: str, argument: str, now_ms: int) -> tuple[bytes, bytes, bytes]:
    """Return the data of a run of ``template`` around the value of its id and that of one argument."""
    routed = msgspec.structs.replace(template, queue=queue, args={**template.args, argument: _VALUE})
    late_ms = None if template.start_deadline_s is None else now_ms + round(1000 * template.start_deadline_s)
    data = pack(Envelope(id=_ID, template=routed, enqueued_ms=now_ms, not_after_ms=late_ms)).data
    before, _, rest = data.partition(f'"{_ID}"'.encode())
    between, _, after = rest.partition(f'"{_VALUE}"'.encode())
    assert after
    return before, between, after
