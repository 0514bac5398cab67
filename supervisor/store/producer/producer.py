"""Enqueue runs from any program that can reach Redis.

Guarantees
    One run for each call, although a lost reply is tried again: the batch carries a nonce
    that Redis remembers. A given ``run_id`` is not enqueued twice in its queue while its run
    exists, nor within an hour of the call that enqueued it, also when the run has ended since.
    Arguments are checked before anything is sent: against the signature when the job's
    module is imported here, else by name against the descriptions that the workers' replicas published.

Does not guarantee
    That a worker knows the job: a run of an unknown job waits, and is dead after ten minutes.

Connections are one for each thread, and one for each event loop, with which it ends; a forked child makes its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack
from weakref import WeakKeyDictionary

from supervisor.clock import Clock, SystemClock
from supervisor.core.durations import Duration, delay_to_ms
from supervisor.core.effects import drive, drive_async
from supervisor.core.errors import QueueFullError, RunIdTakenError, StoreRefusedError, StoreUnavailableError
from supervisor.core.model import ENTROPY_BYTES, Template, fresh_run_ids
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.units import SECOND_NS
from supervisor.store.client.async_client import TurnError
from supervisor.store.client.redis_options import RedisOptions
from supervisor.store.client.sync_client import AsyncStore, Store
from supervisor.store.keys import CLUSTERS, Keys
from supervisor.store.producer import substitute
from supervisor.store.producer.batching import EnqueueBatcher, PackedRun
from supervisor.store.producer.bulk import BatchStream, Totals
from supervisor.store.producer.destination import Destination
from supervisor.store.producer.job_templates import JobTemplates
from supervisor.store.producer.loop_stores import LoopStores
from supervisor.store.producer.options import Args, Each, EnqueueOptions, JobRef, ManyOptions, unknown_option
from supervisor.store.producer.run_asking import RunQueries
from supervisor.store.producer.thread_stores import ThreadStores
from supervisor.store.producer.tracing import traceparent_of
from supervisor.store.producer.waiting import RunWaits
from supervisor.store.queues.reads import Served
from supervisor.store.queues.runs import Enqueued, Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.scripts import Call
from supervisor.store.wire.codec import texts
from supervisor.store.wire.envelope import check_run_id

if TYPE_CHECKING:
    from supervisor.settings.sections.queues import QueueSettings

TRIES = 2  # a connection that died while idle fails once; the second try has a fresh one
AGAIN_NS_MAX = 300 * SECOND_NS  # Redis remembers a nonce for ten minutes; a machine may sleep between two tries

T = TypeVar("T")
M = TypeVar("M", PackedRun, BatchStream)
Command: TypeAlias = tuple[str, str]


class Producer:
    """Enqueues runs into one cluster. Safe to share between threads, event loops and forks."""

    def __init__(
        self,
        settings: RedisOptions,
        *,
        cluster: str = "default",
        clock: Clock | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        on_enqueued: Callable[[Template, int], None] | None = None,
        limits: QueueSettings | None = None,
        open_store: Callable[[], Store] | None = None,
        open_async_store: Callable[[], AsyncStore] | None = None,
        follow: Board | None = None,
        destination: Destination | None = None,
        in_place_of_waiting: Callable[[float | None], object] | None = None,
    ) -> None:
        self.clock = self._clock = clock or SystemClock()
        self._entropy = entropy
        self._on_enqueued = on_enqueued or (lambda _template, _count: None)
        self.keys = Keys(cluster)
        self._limits = limits
        self._queues = Queues(self.keys)
        self._sessions = Sessions(self.keys)
        url = settings.url.get_secret_value()
        name = f"{cluster}:producer"
        self._is_real = open_store is None
        self._open: Callable[..., Store] = open_store or partial(
            Store.connect, url, settings=settings, name=name, follow=follow
        )
        self._open_async = open_async_store or (
            lambda: AsyncStore.connect(url, settings=settings, name=name, follow=follow)
        )
        self._destination = destination  # None: what it enqueues is executed where it comes from
        self.simulate_leadership: Callable[..., Any] | None = None  # executes leaderships under the clock of a test
        self._in_place_of_waiting = in_place_of_waiting  # for results, where nobody else executes runs: in tests
        self._templates = JobTemplates()
        self._forget()

    def _forget(self) -> None:
        # A connection that two processes share gives each the other's replies.
        self._pid = os.getpid()
        self._thread_stores = ThreadStores(self._open)
        self._loop_stores = LoopStores(self._open_async)
        self._batchers: WeakKeyDictionary[Any, EnqueueBatcher] = WeakKeyDictionary()
        waits = RunWaits(self.keys, open_store=self._open, clock=self._clock, entropy=self._entropy)
        self._asking = RunQueries(
            self.keys,
            clock=self._clock,
            run=self.run,
            run_async=self.run_async,
            waits=waits,
            in_place_of_waiting=self._in_place_of_waiting,
        )

    @property
    def limits(self) -> QueueSettings:
        """Numbers and ages that queues keep, for the jobs that look after them."""
        from supervisor.settings.sections.queues import QueueSettings  # noqa: PLC0415 - no other producer needs pydantic

        return self._limits or QueueSettings()

    @property
    def asking(self) -> RunQueries:
        """Questions about runs, for their handles."""
        if self._pid != os.getpid():
            self._forget()
        return self._asking

    def enqueue(self, job: JobRef, args: Args | None = None, **options: Unpack[EnqueueOptions]) -> str:
        """Enqueue a run; see ``tenure.enqueue``."""
        return self.put(job, args, **options).run_id

    async def enqueue_async(self, job: JobRef, args: Args | None = None, **options: Unpack[EnqueueOptions]) -> str:
        """Enqueue a run without blocking the event loop; see ``tenure.enqueue``."""
        return (await self.put_async(job, args, **options)).run_id

    def put(self, job: JobRef, args: Args | None = None, **options: Unpack[EnqueueOptions]) -> Enqueued:
        """Enqueue a run as ``enqueue`` does; return its id and whether it is new, was there, or is a duplicate.

        Raises:
            QueueFullError: as many runs wait in its queue as ``queues.length_max`` allows.
            RunIdTakenError: the ``run_id`` is that of another job's run, or of a schedule's, or has other arguments.
        """
        run: PackedRun = drive(self._prepared(job, partial(self._packed, job, args, **options)), self._ask)
        nonce, is_chosen = self._entropy(16).hex(), options.get("run_id") is not None
        call = self._queues.enqueue_flat(nonce=nonce, ids=run[:1], runs=run.values(is_chosen), is_chosen=is_chosen)
        return self._count(run, self.run(call)[0])

    async def put_async(self, job: JobRef, args: Args | None = None, **options: Unpack[EnqueueOptions]) -> Enqueued:
        """Do the same without blocking the event loop; concurrent calls of its tasks share a script call."""
        prepared = self._prepared(job, partial(self._packed, job, args, **options))
        run: PackedRun = await drive_async(prepared, self._ask_async)
        return self._count(run, await self._batcher().put(run, is_chosen=options.get("run_id") is not None))

    def enqueue_many(self, job: JobRef, many: Iterable[Args], **options: Unpack[ManyOptions]) -> Totals:
        """Enqueue a run of ``job`` for each of ``many``, in their order, in batches; return the counts by result.

        Args:
            job: the job's name or function.
            many: arguments; any number, of which at most a thousand are held in memory.
            **options: ``queue``, ``priority``, ``delay``, ``at``, ``run_id``, ``each``, …; see ``ManyOptions``.

        Raises:
            PartlyEnqueuedError: it stopped before the end, at the place it names; its cause is the reason.
        """
        stream = drive(self._prepared(job, partial(self._stream, job, many, **options)), self._ask)

        def pack() -> None:
            self._thread_stores.aside(stream.pack)  # types of arguments may have checks that ask Redis

        return drive(stream.batches(), lambda call: self.run(call, meanwhile=pack))

    async def enqueue_many_async(self, job: JobRef, many: Iterable[Args], **options: Unpack[ManyOptions]) -> Totals:
        """Enqueue as ``enqueue_many`` without blocking the event loop for longer than packing a batch takes."""
        stream = await drive_async(self._prepared(job, partial(self._stream, job, many, **options)), self._ask_async)

        async def send(call: Call[bytes]) -> bytes:
            sending = asyncio.get_running_loop().create_task(self.run_async(call))
            try:
                await asyncio.sleep(0)  # it is on its way before the next one is packed
                stream.pack()
                return await sending
            finally:
                sending.cancel()  # if this was: else it is over

        return await drive_async(stream.batches(), send)

    def _stream(
        self,
        job: JobRef,
        many: Iterable[Args],
        *,
        queue: str | None = None,
        priority: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        run_id: Callable[[Args], str] | None = None,
        each: Each | None = None,
        traceparent: str | None = None,
    ) -> BatchStream:
        template = self._templates.of(job, queue=queue, priority=priority)
        wall_ms = self._clock.wall_ms()
        delay_ms = delay_to_ms(delay, at, now_ms=wall_ms)
        return BatchStream(
            template,
            many,
            queues=self._queues,
            run_id=run_id,
            delay_ms=delay_ms,
            due_ms=None if at is None else wall_ms + delay_ms,
            wall_ms=self._clock.wall_ms,
            entropy=self._entropy,
            on_new=lambda new: self._on_enqueued(template.template, new),
            each=each,
            traceparent=traceparent_of(traceparent),
        )

    def _count(self, run: PackedRun, enqueued: Enqueued) -> Enqueued:
        if enqueued.is_full:
            raise QueueFullError(run.queue)
        if enqueued.is_taken:
            raise RunIdTakenError(enqueued.run_id, run.queue, schedule=enqueued.schedule)
        if enqueued.is_new and run.template is not None:
            self._on_enqueued(run.template, 1)
        return enqueued

    def close(self) -> None:
        """Drop this thread's connection, and that of waiting if nobody waits. The producer may be used again."""
        self.asking.waits.close()
        self._thread_stores.close()

    async def close_async(self) -> None:
        """Drop this event loop's connection, and that of waiting if nobody waits. The producer may be used again."""
        await self.asking.waits.close_async()
        await self._loop_stores.close()

    def _prepared(self, job: JobRef, make: Callable[[], M]) -> Generator[Call[Any] | Command, Any, M]:
        """Make one or many runs of ``job``, with its card at hand if it needs one, and check their destination."""
        if self._templates.needs_cards(job, self._clock.elapsed_ns()):
            self._templates.remember((yield self._sessions.read_jobs()), self._clock.elapsed_ns())
        made = make()
        asked_ns = self._clock.elapsed_ns()
        if self._destination is not None and self._destination.is_due(made.queue, asked_ns):
            served, others = (yield self._queues.served(made.queue)), []
            if served is Served.NO_CLUSTER:
                # No right to it, or another node of a Redis Cluster has it: others are not known then.
                with suppress(StoreRefusedError, StoreUnavailableError):
                    others = texts((yield "HKEYS", CLUSTERS))
            self._destination.judge(made.queue, served, others, asked_ns=asked_ns)
        return made

    def _ask(self, effect: Call[Any] | Command) -> Any:
        return self._store().command(*effect) if isinstance(effect, tuple) else self.run(effect)

    async def _ask_async(self, effect: Call[Any] | Command) -> Any:
        return await (self._async_store().command(*effect) if isinstance(effect, tuple) else self.run_async(effect))

    def _packed(
        self,
        job: JobRef,
        args: Args | None,
        *,
        queue: str | None = None,
        priority: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        run_id: str | None = None,
        traceparent: str | None = None,
        **unknown: Any,
    ) -> PackedRun:
        for name in unknown:
            raise unknown_option(name)
        args = {} if args is None else args
        wall_ms = self._clock.wall_ms()
        delay_ms = delay_to_ms(delay, at, now_ms=wall_ms)
        template = self._templates.of(job, queue=queue, priority=priority)
        name = fresh_run_ids(wall_ms, self._entropy(ENTROPY_BYTES))[0] if run_id is None else check_run_id(run_id)
        data = template.pack(name, args, template.tail(wall_ms, delay_ms, traceparent_of(traceparent)))
        content = "" if run_id is None else template.content(args)
        return PackedRun(name, template.template.queue, delay_ms, data, content, template.template)

    def run(self, call: Call[T], *, timeout_s: float | None = None, meanwhile: Callable[[], None] | None = None) -> T:
        """Make a call of the store. It may be made twice, if a reply is lost.

        Args:
            call: which must bear being made twice.
            timeout_s: bound of each; None: the connection's own.
            meanwhile: done between question and answer.
        """
        until_ns = self._clock.elapsed_ns() + AGAIN_NS_MAX
        for tries_left in reversed(range(TRIES)):
            try:
                return self._store().run(call, timeout_s=timeout_s, meanwhile=meanwhile)
            except StoreUnavailableError:
                if not tries_left or self._clock.elapsed_ns() > until_ns:
                    raise
        raise AssertionError("unreachable")

    async def run_async(self, call: Call[T]) -> T:
        """Make a call as ``run`` does, without blocking the event loop."""
        until_ns = self._clock.elapsed_ns() + AGAIN_NS_MAX
        for tries_left in reversed(range(TRIES)):
            try:
                return await self._async_store().run(call)
            except StoreUnavailableError as error:
                # One that waited a minute for others does not line up behind them again.
                if not tries_left or isinstance(error.__cause__, TurnError) or self._clock.elapsed_ns() > until_ns:
                    raise
        raise AssertionError("unreachable")

    def new_store(self) -> Store:
        """Return a client of its own, for a thread that is no caller's. Opens no connection yet.

        It follows a fail-over of Sentinel while that happens, as a tree does: what it asks of a master that is being
        replaced would be lost.
        """
        self._refuse_in_tests()
        return self._open(publish=lambda _address: None) if self._is_real else self._open()

    def _refuse_in_tests(self) -> None:
        if substitute.refusal and self._is_real:
            raise StoreRefusedError(substitute.refusal)

    def _store(self) -> Store:
        self._refuse_in_tests()
        if self._pid != os.getpid():
            self._forget()
        return self._thread_stores.current()

    def _batcher(self) -> EnqueueBatcher:
        if self._pid != os.getpid():
            self._forget()
        loop = asyncio.get_running_loop()
        if (batcher := self._batchers.get(loop)) is None:
            batcher = self._batchers[loop] = EnqueueBatcher(self._queues, send=self.run_async, entropy=self._entropy)
        return batcher

    def _async_store(self) -> AsyncStore:
        self._refuse_in_tests()
        if self._pid != os.getpid():
            self._forget()
        return self._loop_stores.current()
