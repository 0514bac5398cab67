"""A worker's context, its jobs and its queues on one server, for tests of the pools."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from supervisor.clock import SystemClock
from supervisor.core.effects import Call
from supervisor.core.errors import StoreUnavailableError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Envelope, Kind, Release
from supervisor.core.supervision.slot import Cause
from supervisor.process.spawn import allocate
from supervisor.roles.child import ChildContext
from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.roles.worker.runtime import WorkerRuntime
from supervisor.settings.sections.models import PoolSettings, RedisSettings, Settings, WorkerKind
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from tests.kit.servers import Server
from tests.kit.waiting import WAIT_S_MAX


async def until(predicate: Callable[[], Any], *, what: str, bound_s: float = WAIT_S_MAX) -> Any:
    """Return the first true value of ``predicate``; fail the test after ``bound_s``."""
    async with asyncio.timeout(bound_s):
        while not (value := predicate()):  # noqa: ASYNC110 - it looks at Redis, which sets no event here
            await asyncio.sleep(0.005)
    assert value, what
    return value


class Faulty:
    """A store whose calls go wrong as the test says: ``lose`` does it and loses the reply, ``refuse`` does nothing."""

    def __init__(self, store: Any, fault: Callable[[str], str]) -> None:
        self._store = store
        self._fault = fault
        self.faults = 0

    def _raise(self, name: str) -> None:
        self.faults += 1
        raise StoreUnavailableError(f"test: no answer to {name}")

    async def run(self, call: Call[Any], **options: Any) -> Any:
        fault = self._fault(call.script)
        if fault == "refuse":
            self._raise(call.script)
        reply = await self._store.run(call, **options)
        if fault == "lose":
            self._raise(call.script)
        return reply

    async def ring(self, keys: Any, block_s: float) -> Any:
        if self._fault("ring") == "refuse":
            self._raise("ring")
        return await self._store.ring(keys, block_s)

    async def command(self, *parts: Any) -> Any:
        return await self._store.command(*parts)

    async def close(self) -> None:
        await self._store.close()


class FaultySync(Faulty):
    """The same for the synchronous client."""

    def run(self, call: Call[Any], **options: Any) -> Any:  # type: ignore[override]
        fault = self._fault(call.script)
        if fault == "refuse":
            self._raise(call.script)
        reply = self._store.run(call, **options)
        if fault == "lose":
            self._raise(call.script)
        return reply

    def ring(self, keys: Any, block_s: float) -> Any:  # type: ignore[override]
        if self._fault("ring") == "refuse":
            self._raise("ring")
        return self._store.ring(keys, block_s)

    def command(self, *parts: Any) -> Any:  # type: ignore[override]
        return self._store.command(*parts)

    def close(self) -> None:  # type: ignore[override]
        self._store.close()


class WorkerKit:
    """One pool's worth of everything, on one server."""

    def __init__(self, server: Server, registry: Registry, kind: Kind, *, concurrency: int = 5) -> None:
        self.server = server
        self.registry = registry
        self.store = server.store()
        self.queues = Queues(server.keys)
        self.sessions = Sessions(server.keys)
        pool = PoolSettings(kind=WorkerKind(kind.value), concurrency=concurrency)
        self.settings = Settings(cluster=server.keys.cluster, workers={"test": pool})
        self.parent_pid = os.getpid()  # also in a worker that is forked later
        self.board = allocate(slots=2, inflight=200)

    def ask_to_go(self, slot: int = 0) -> None:
        """Note on the board that the parent wants this worker to go, as it does before it sends a signal."""
        self.board.rows[slot].cause = Cause.RETIRED

    def child(self, slot: int = 0) -> ChildContext:
        """Return one worker's context."""
        self.board.rows[slot].generation = 1
        return ChildContext(
            settings=self.settings,
            replica="r.000001",
            name=f"worker-test-{slot}",
            slot=slot,
            generation=1,
            board=self.board,
            slot_names=("worker-test-0", "worker-test-1"),
            parent_pid=self.parent_pid,
            clock=SystemClock(),
            redis_url=self.server.real.url if self.server.real else "",
            pool="test",
        )

    def runtime(self, slot: int = 0, producer: Any = None) -> WorkerRuntime:
        """Return one worker's runtime; jitter is always its largest."""
        return WorkerRuntime(self.child(slot), self.registry, producer, uniform=lambda: 0.999)

    def producer(self) -> Producer:
        """Return one that enqueues where the workers fetch."""
        return Producer(
            RedisSettings(),
            cluster=self.server.keys.cluster,
            open_store=self.server.store,
            open_async_store=self.server.async_store,
        )

    def enqueue(self, job: str, /, delay_ms: int = 0, **args: Any) -> str:
        """Enqueue a run of a registered job."""
        return self.put(Envelope(id=uuid.uuid4().hex, template=self.registry.get(job).template(args)), delay_ms)

    def put(self, envelope: Envelope, delay_ms: int = 0) -> str:
        """Enqueue an envelope."""
        call = self.queues.enqueue(nonce=uuid.uuid4().hex, envelopes=[envelope], delays_ms=[delay_ms])
        (enqueued,) = self.store.run(call)
        assert enqueued.is_new
        return envelope.id

    def suspect(self, *run_ids: str, kind: Kind) -> None:
        """Let a process have died with these runs in it."""
        self.store.run(self.sessions.open("dead", {"pid": 1}))
        reply = self.store.run(
            self.queues.turn(session="dead", seq=1, kind=kind, queues=["default"], want=100, want_suspect=False)
        )
        assert {run.envelope.id for run in reply.runs} >= set(run_ids)
        items = [
            ("default", run.envelope.id, Release.SUSPECT if run.envelope.id in run_ids else Release.UNSTARTED)
            for run in reply.runs
        ]
        self.store.run(self.queues.release_runs(session="dead", items=items))
        self.store.run(self.sessions.close("dead"))

    def state(self, run_id: str) -> str:
        """Return where a run stands."""
        view = self.store.run(self.queues.show(run_id))
        return view.state if view else "gone"

    def history(self) -> list[tuple[str, str, int]]:
        """Return (run, outcome, attempt) of what ended, oldest first."""
        entries = self.store.run(self.queues.recent("default", 1000))
        return [(entry.run_id, entry.outcome, entry.attempt) for entry in reversed(entries)]

    def ended(self, count: int) -> bool:
        """Return whether so many attempts have ended."""
        return len(self.history()) >= count

    @asynccontextmanager
    async def worker(
        self, slot: int = 0, fault: Callable[[str], str] | None = None, producer: Any = None
    ) -> AsyncIterator[AsyncPool]:
        """Run an async pool in this loop, and drain it at the end."""
        store: Any = self.server.async_store()
        if fault is not None:
            store = Faulty(store, fault)
        pool = AsyncPool(self.runtime(slot, producer), store)
        task = asyncio.create_task(pool.run())
        try:
            yield pool
        finally:
            pool.drain()
            async with asyncio.timeout(WAIT_S_MAX):
                assert await task == 0

    def assert_clean(self, slot: int = 0) -> None:
        """Hold that nothing is left of the worker: no session, no entry, no deadline, no broken invariant."""
        assert self.store.run(self.sessions.list()) == {}
        assert list(self.board.inflight[slot].entries()) == []
        row = self.board.rows[slot]
        assert (row.busy, row.deadline_ns) == (0, 0)
        assert self.store.run(self.queues.fsck("default")) == []
