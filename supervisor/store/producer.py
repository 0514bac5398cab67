"""Enqueue runs from any program that can reach Redis.

Guarantees
    One run for each call, although a lost reply is tried again: the batch carries a nonce
    that Redis remembers. A given ``run_id`` that exists already is not enqueued twice.
    Arguments are checked before anything is sent: against the signature when the job's
    module is imported here, else by name against what the workers' replicas published.

Does not guarantee
    That a worker knows the job: a run of an unknown job waits, and is dead after ten minutes.

Connections are one for each thread, and one for each event loop; a forked child makes its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from supervisor.clock import Clock, SystemClock
from supervisor.core.errors import (
    EXIT_CONFIG,
    ArgumentsError,
    PayloadTooLargeError,
    StoreUnavailableError,
    TenureError,
    UnknownJobError,
)
from supervisor.core.model import PAYLOAD_BYTES_MAX, PRIORITIES, Envelope, Template, fresh_run_id
from supervisor.core.registry import JobCard, registry
from supervisor.settings.durations import delay_to_ms
from supervisor.settings.models import QueueSettings, RedisSettings
from supervisor.store.client import AsyncStore, Store
from supervisor.store.codec import check_run_id
from supervisor.store.keys import Keys, check_name
from supervisor.store.queues import Queues
from supervisor.store.resolver import Signpost
from supervisor.store.scripts import Call
from supervisor.store.sessions import Sessions

CARDS_AGE_NS_MAX = 60 * 1_000_000_000  # how long a published job is believed before it is read again
TRIES = 2  # a connection that died while idle fails once; the second try has a fresh one

JobRef = str | Callable[..., Any]
T = TypeVar("T")


class NoRedisError(TenureError):
    """Nothing says where Redis is."""

    exit_code = EXIT_CONFIG

    def __init__(self) -> None:
        super().__init__(
            "no Redis is configured for this program: set TENURE_REDIS__URL, or call supervisor.connect(url); "
            "for a tree with `redis.url: embedded` that is unix:// and the absolute path of the socket in its data_dir"
        )


class Producer:
    """Enqueues runs into one cluster. Safe to share between threads, event loops and forks."""

    def __init__(
        self,
        settings: RedisSettings,
        *,
        cluster: str = "default",
        clock: Clock | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        on_enqueued: Callable[[Template], None] | None = None,
        limits: QueueSettings | None = None,
        open_store: Callable[[], Store] | None = None,
        open_async_store: Callable[[], AsyncStore] | None = None,
        follow: Signpost | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._entropy = entropy
        self._on_enqueued = on_enqueued or (lambda _template: None)
        self.keys = Keys(cluster)
        self.limits = limits or QueueSettings()  # what queues keep, for the jobs that look after them
        self._queues = Queues(self.keys)
        self._sessions = Sessions(self.keys)
        url = settings.url.get_secret_value()
        name = f"{cluster}:producer"
        self._open = open_store or (lambda: Store.connect(url, settings=settings, name=name, follow=follow))
        self._open_async = open_async_store or (
            lambda: AsyncStore.connect(url, settings=settings, name=name, follow=follow)
        )
        self._cards: dict[str, JobCard] = {}
        self._cards_read_ns = 0
        self._forget()

    def _forget(self) -> None:
        # A connection that two processes share gives each the other's replies.
        self._pid = os.getpid()
        self._local = threading.local()
        self._by_loop: WeakKeyDictionary[Any, AsyncStore] = WeakKeyDictionary()

    def enqueue(
        self,
        job: JobRef,
        args: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: str | None = None,
        delay: float | str | None = None,
        run_id: str | None = None,
    ) -> str:
        """Enqueue a run; see ``supervisor.enqueue``."""
        delay_ms = delay_to_ms(delay)
        if self._needs_cards(job):
            self._remember(self._run(self._sessions.read_jobs()))
        envelope = self._envelope(job, args, queue=queue, priority=priority, run_id=run_id)
        self._run(self._enqueue(envelope, delay_ms))
        self._on_enqueued(envelope.template)
        return envelope.id

    async def enqueue_async(
        self,
        job: JobRef,
        args: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: str | None = None,
        delay: float | str | None = None,
        run_id: str | None = None,
    ) -> str:
        """Enqueue a run without blocking the event loop; see ``supervisor.enqueue``."""
        delay_ms = delay_to_ms(delay)
        if self._needs_cards(job):
            self._remember(await self._run_async(self._sessions.read_jobs()))
        envelope = self._envelope(job, args, queue=queue, priority=priority, run_id=run_id)
        await self._run_async(self._enqueue(envelope, delay_ms))
        self._on_enqueued(envelope.template)
        return envelope.id

    def close(self) -> None:
        """Drop this thread's connection. The producer may be used again."""
        store: Store | None = self._local.__dict__.pop("store", None)
        if store is not None:
            store.close()

    async def close_async(self) -> None:
        """Drop this event loop's connection. The producer may be used again."""
        store = self._by_loop.pop(asyncio.get_running_loop(), None)
        if store is not None:
            await store.close()

    def _needs_cards(self, job: JobRef) -> bool:
        if not isinstance(job, str) or job in registry:
            return False
        return job not in self._cards or self._clock.elapsed_ns() - self._cards_read_ns > CARDS_AGE_NS_MAX

    def _remember(self, published: Mapping[str, bytes]) -> None:
        self._cards = {}
        for name, card in published.items():
            # One that a newer version wrote in a new form is unknown here, and hides no other.
            with suppress(msgspec.DecodeError):
                self._cards[name] = msgspec.json.decode(card, type=JobCard)
        self._cards_read_ns = self._clock.elapsed_ns()

    def _envelope(
        self,
        job: JobRef,
        args: Mapping[str, Any] | None,
        *,
        queue: str | None,
        priority: str | None,
        run_id: str | None,
    ) -> Envelope:
        if queue is not None:
            check_name("queue", queue)
        if priority is not None and priority not in PRIORITIES:
            raise ValueError(f"priority must be one of {', '.join(PRIORITIES)}, got {priority!r}")
        if run_id is not None:
            check_run_id(run_id)
        template = self._template(job, args or {}, queue=queue, priority=PRIORITIES[priority] if priority else None)
        now_ms = self._clock.wall_ms()
        envelope = Envelope(id=run_id or fresh_run_id(now_ms, self._entropy(10)), template=template, enqueued_ms=now_ms)
        _check_size(envelope)
        return envelope

    def _template(self, job: JobRef, args: Mapping[str, Any], **overrides: Any) -> Template:
        if not isinstance(job, str):
            return registry.find(job).template(args, **overrides)
        if job in registry:
            return registry.get(job).template(args, **overrides)
        if job in self._cards:
            return self._cards[job].instantiate(args, **overrides)
        known = ", ".join(sorted({*registry.names(), *self._cards})) or "none"
        raise UnknownJobError(f"no job is called {job!r}, here or on any replica of the cluster; known: {known}")

    def _enqueue(self, envelope: Envelope, delay_ms: int) -> Call[list[bool]]:
        return self._queues.enqueue(
            nonce=self._entropy(16).hex(), envelopes=[envelope], delays_ms=[delay_ms] if delay_ms else None
        )

    def run(self, call: Call[T]) -> T:
        """Make a call of the store from a job that looks after queues. It may be made twice, if a reply is lost."""
        reply: T = self._run(call)
        return reply

    def _run(self, call: Call[Any]) -> Any:
        for tries_left in reversed(range(TRIES)):
            try:
                return self._store().run(call)
            except StoreUnavailableError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def _run_async(self, call: Call[Any]) -> Any:
        for tries_left in reversed(range(TRIES)):
            try:
                return await self._async_store().run(call)
            except StoreUnavailableError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _store(self) -> Store:
        if self._pid != os.getpid():
            self._forget()
        store: Store | None = getattr(self._local, "store", None)
        if store is None:
            store = self._local.store = self._open()
        return store

    def _async_store(self) -> AsyncStore:
        if self._pid != os.getpid():
            self._forget()
        loop = asyncio.get_running_loop()
        store = self._by_loop.get(loop)
        if store is None:
            store = self._by_loop[loop] = self._open_async()
        return store


def _check_size(envelope: Envelope) -> None:
    job = envelope.template.job
    try:
        size = len(msgspec.json.encode(envelope))
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentsError(f"job {job}: its arguments cannot be written as JSON: {error}") from None
    if size > PAYLOAD_BYTES_MAX:
        raise PayloadTooLargeError(
            f"a run of {job} would take {size} bytes, the limit is {PAYLOAD_BYTES_MAX}; "
            f"store the data elsewhere and pass a reference to it"
        )


def settings_from_environment(environment: Mapping[str, str]) -> RedisSettings:
    """Return the connection that ``TENURE_REDIS__…`` variables describe.

    Raises:
        NoRedisError: no URL, or ``embedded``, which only the tree that runs the server can resolve.
    """
    prefix = "TENURE_REDIS__"
    names = {field.alias or name for name, field in RedisSettings.model_fields.items()}
    given = {key.removeprefix(prefix).lower(): value for key, value in environment.items() if key.startswith(prefix)}
    if given.get("url", "embedded") == "embedded":
        raise NoRedisError
    return RedisSettings.model_validate({key: value for key, value in given.items() if key in names})


_default: Producer | None = None


def connect(url: str, *, cluster: str = "default") -> None:
    """Say where ``enqueue`` and ``enqueue_async`` of this process send runs.

    Not needed inside a worker, nor where TENURE_REDIS__URL and TENURE_CLUSTER are set. Opens nothing yet.
    """
    use(Producer(RedisSettings.model_validate({"url": url}), cluster=cluster))


def use(producer: Producer | None) -> None:
    """Make ``producer`` the one that this process enqueues with."""
    global _default  # noqa: PLW0603 - one per process, as the environment is
    _default = producer


def current() -> Producer:
    """Return the producer of this process, made from the environment when nobody chose one.

    Raises:
        NoRedisError: nothing says where Redis is.
    """
    if _default is None:
        settings = settings_from_environment(os.environ)
        use(Producer(settings, cluster=os.environ.get("TENURE_CLUSTER", "default")))
    assert _default is not None
    return _default


def enqueue(
    job: JobRef,
    args: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
    priority: str | None = None,
    delay: float | str | None = None,
    run_id: str | None = None,
) -> str:
    """Enqueue one run of ``job`` and return its id.

    Args:
        job: the job's name, or the function that ``@job`` registered.
        args: its arguments by name; JSON values, with all else at most 64 KiB.
        queue: the queue; default: the job's.
        priority: ``high``, ``normal`` or ``low``; default: the job's.
        delay: seconds, or a duration such as ``"5m"``, before it may start; by Redis' clock.
        run_id: its identity; a run that exists under it is left alone. Default: a fresh UUIDv7.

    Raises:
        NoRedisError: nothing says where Redis is.
        UnknownJobError: neither this program nor any replica knows the job.
        ArgumentsError: the arguments do not fit the job.
        PayloadTooLargeError: the run would be larger than 64 KiB.
        StoreUnavailableError: Redis did not answer; whether it enqueued is not known. Calling again
            with a ``run_id`` of your own cannot enqueue it twice.
    """
    return current().enqueue(job, args, queue=queue, priority=priority, delay=delay, run_id=run_id)


async def enqueue_async(
    job: JobRef,
    args: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
    priority: str | None = None,
    delay: float | str | None = None,
    run_id: str | None = None,
) -> str:
    """Enqueue one run of ``job`` and return its id, without blocking the event loop; see ``enqueue``."""
    return await current().enqueue_async(job, args, queue=queue, priority=priority, delay=delay, run_id=run_id)
