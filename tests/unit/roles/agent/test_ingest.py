"""The agent takes task messages out of lists: how much at a time, and what it does with a list that refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supervisor.clock import SystemClock
from supervisor.compat.cloudforet import jobs
from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError
from supervisor.core.jobs.registry import registry
from supervisor.roles.agent.maintenance import CALLS_MAX, REFUSED_PERIOD_NS, Ingest
from supervisor.store.keys import Keys
from supervisor.store.queues.bridges import INGEST_MAX, Bridges, Ingested
from supervisor.telemetry.metrics import CLOUDFORET_INGESTED


class Lists:
    """What lies in each list, in place of Redis."""

    def __init__(self, **lengths: int) -> None:
        self.lengths = lengths
        self.asked: list[str] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.refuses = ""

    def run(self, call: Call[Any]) -> Ingested:
        """Move what one call moves."""
        channel = call.keys[1]
        self.asked.append(channel)
        if channel == self.refuses:
            raise StoreRefusedError("list: its key holds a string")
        moved = min(INGEST_MAX, self.lengths[channel])
        self.lengths[channel] -= moved
        return Ingested(moved, 1 if channel == "large" and moved else 0, self.lengths[channel])

    def report(self, event: str, **fields: Any) -> None:
        """Note what was told."""
        self.told.append((event, fields))


def ingest(lists: Lists) -> Callable[[int], None]:
    """Return the duty, for a queue of each list."""
    assert jobs.__name__
    channels = {f"{name}_q": name for name in lists.lengths}
    return Ingest(
        call=lists.run,
        bridges=Bridges(Keys("c")),
        channels=channels,
        registry=registry,
        clock=SystemClock(),
        report=lists.report,
    ).run


def test_an_empty_list_costs_one_call() -> None:
    """Twice a second, whatever else the agent does."""
    lists = Lists(idle=0)
    ingest(lists)(0)
    assert lists.asked == ["idle"]


def test_a_long_list_is_emptied_in_bounded_looks() -> None:
    """The agent beats for its parent between two of them, and looks at the other lists too."""
    lists = Lists(long=INGEST_MAX * CALLS_MAX + 1, short=3)
    drain = ingest(lists)
    drain(0)
    assert lists.asked == ["long"] * CALLS_MAX + ["short"]
    drain(1)
    assert lists.lengths == {"long": 0, "short": 0}


def test_a_list_that_refuses_is_told_and_left_alone_for_a_while() -> None:
    """A key of another type, or a right that is missing: a person has to act, and the other lists go on."""
    lists = Lists(bad=1, good=1)
    lists.refuses = "bad"
    drain = ingest(lists)
    for now_ns in (0, 1, REFUSED_PERIOD_NS):
        drain(now_ns)
    assert lists.asked == ["bad", "good", "good", "bad", "good"]
    assert [(event, fields["channel"]) for event, fields in lists.told] == [("ingest_refused", "bad")] * 2


def test_a_message_that_was_set_aside_is_told() -> None:
    """Its run is dead, and somebody should look; it does not count as moved."""
    lists, moved = Lists(large=3), CLOUDFORET_INGESTED.labels("large_q", "moved")
    before = moved._value.get()
    ingest(lists)(0)
    assert moved._value.get() - before == 2
    assert lists.told == [("messages_set_aside", {"queue": "large_q", "channel": "large", "count": 1})]
