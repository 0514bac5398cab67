"""A program that enqueues runs and asks for them, and the worker that a test plays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from supervisor.core.model import Outcome
from supervisor.store.producer.producer import Producer
from tenure import Run
from tests.kit.builders import StoreCalls
from tests.kit.servers import Server
from tests.kit.waiting import wait_until

S = "r.1/worker-io-0/1"
LONG_S = 60.0


@dataclass(frozen=True)
class Report:
    """A result that is more than JSON values."""

    path: str
    pages: int


class Shop:
    """A program that enqueues ``report``, and a worker that the test plays."""

    def __init__(self, server: Server, producer: Producer) -> None:
        self.calls = StoreCalls(server)
        self.producer = producer
        self.calls.open(S)

    def enqueue(self, **options: Any) -> Run[Any]:
        return Run(self.producer.enqueue("report", {"month": 7}, **options), "report", "default", self.producer)

    def end(self, run: Run[Any], outcome: Outcome = Outcome.OK, **fields: Any) -> None:
        """Execute a run, as a worker does."""
        self.calls.fetch(S, queues=["default"])
        if "result" in fields:
            fields |= {"result_ttl_ms": 60_000}
        now_ms = self.calls.run(self.calls.queues.counts("default")).now_ms
        times = {"started_ms": now_ms - 5, "ended_ms": now_ms}
        self.calls.ack(S, run.id, outcome, **{"job": "report"} | times | fields)

    def later(self, run: Run[Any], act: Callable[[], object]) -> threading.Thread:
        """Do ``act`` as soon as somebody waits for ``run``."""

        def watch() -> None:
            wait_until(lambda: self.calls.raw.hexists(self.calls.keys.awaited, run.id), what="somebody to wait")
            act()

        thread = threading.Thread(target=watch)
        thread.start()
        return thread
