"""Shared parts of the handlers of the API: operations asked, bodies read, who asks, and the line in the log."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
import structlog
from aiohttp import web

from supervisor.clock import Clock
from supervisor.core.durations import parse_duration
from supervisor.core.effects import drive_async
from supervisor.core.errors import TenureError
from supervisor.core.json_values import read_unrepeated
from supervisor.core.signing import Signer
from supervisor.operations import Computing, Delay, Effect, Keys, runs, schedules
from supervisor.operations.jobs import EnqueueEffect, Producer
from supervisor.roles.web.api.access import permit_schedule
from supervisor.roles.web.cluster_snapshot import Overviews
from supervisor.roles.web.events.handlers import EventPages
from supervisor.roles.web.responses import ADMIT, ASKER, PEER, bad_request, unavailable
from supervisor.settings.schedules.instants import parse_bound
from supervisor.settings.sections.models import Settings

Item = TypeVar("Item")
P = ParamSpec("P")
T = TypeVar("T")
BodyT = TypeVar("BodyT", bound=msgspec.Struct)
log = structlog.get_logger()
WAITING_MAX = 16
WAITING_PER_ASKER_MAX = 8
WAIT_S_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """Tools of the handlers."""

    call: Callable[[Any], Awaitable[Any]]  # of Redis, by the client of this child
    keys: Keys
    clock: Clock
    producer: Producer
    waits: RunWaiters
    overviews: Overviews
    settings: Settings
    signer: Signer | None  # of commands to replicas; None: the cluster has no key
    own_queues: frozenset[str]  # of this replica's pools: known and served also while their workers are replaced


class ApiHandlers:
    """Handlers of one subject."""

    def __init__(self, context: ApiContext) -> None:
        self._at = context
        self._keys = context.keys
        self._history = context.settings.queues.history  # how many ended attempts each queue remembers
        self._computer = ThreadPoolExecutor(1, thread_name_prefix="compute")  # makes its thread with the first work

    async def _ask(
        self,
        operation: Callable[Concatenate[Keys, P], Generator[Effect | EnqueueEffect, Any, T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Return the result of ``operation`` on this cluster; its errors are answers by their ``http_status``."""
        return await drive_async(operation(self._keys, *args, **options), self._perform)

    async def _ask_each_queue(
        self, operation: Callable[..., Generator[Effect | EnqueueEffect, Any, T]], *args: Any, **options: Any
    ) -> tuple[T, dict[str, Any]]:
        """Return the result of ``operation`` on queues, and a field with the names of those that Redis refused."""
        refused: list[str] = []
        found = await self._ask(operation, *args, tell_refused=lambda queue, _: refused.append(queue), **options)
        return found, {"refused_queues": refused} if refused else {}

    async def _each(
        self,
        items: Sequence[Item],
        change: Callable[[Sequence[Item]], Awaitable[list[tuple[Item, str]]]],
        *,
        together: bool,
    ) -> list[tuple[Item, str]]:
        """Return what became of ``items``, changed together or each by itself; one is then refused for itself."""
        if together or not items:
            return await change(items) if items else []
        done: list[tuple[Item, str]] = []
        for item in items:
            try:
                done += await change([item])
            except web.HTTPForbidden as refusal:
                done.append((item, refusal.text or refusal.reason))
            except TenureError as error:
                if error.http_status not in {404, 409}:
                    raise
                done.append((item, str(error)))
        return done

    async def _judged_revision(self, request: web.Request, schedule: str) -> int | None:
        """Return the revision of a schedule that a limited token reaches; None for a token without limits.

        Raises:
            web.HTTPForbidden: the token does not reach it.
        """
        if (permit := permit_schedule(request)) is None:
            return None
        found, definition = await self._ask(schedules.inspect, schedule)
        permit(definition)
        return found.record.revision if found.record is not None else None

    async def _perform(self, effect: Effect | EnqueueEffect) -> Any:
        if isinstance(effect, Computing):
            return await self._computed(effect.items)
        if isinstance(effect, EnqueueEffect):
            return await self._at.producer.put_async(effect.job, effect.args, **effect.options)
        return await (asyncio.sleep(effect.seconds) if isinstance(effect, Delay) else self._at.call(effect))

    async def _computed(self, items: Iterator[T]) -> list[T]:
        """Return ``items``, computed beside the loop, which answers probes; it ends when nobody waits any more."""
        is_over = threading.Event()

        def compute() -> list[T]:
            return list(itertools.takewhile(lambda _: not is_over.is_set(), items))

        try:
            return await asyncio.get_running_loop().run_in_executor(self._computer, compute)
        finally:
            is_over.set()


async def body_of(request: web.Request, kind: type[BodyT]) -> BodyT:
    """Return the body of a request, in which no object has a key twice; none is the same as {}.

    It may come seconds after the header: the request is judged again by its token as that is then.
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise bad_request("Content-Encoding", encoding, "send the body as it is")
    text = await request.read()
    request[ADMIT]()
    try:
        return read_unrepeated(text or b"{}", kind)
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"the body cannot be used: {error}") from error


def seconds_of(name: str, text: str) -> float:
    """Return the duration in the field ``name`` of a body."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise bad_request(name, text, str(error)) from error


def instant_of(name: str, text: str, *, is_end: bool = False) -> int:
    """Return the instant in the field ``name`` of a body, in milliseconds; of a day its begin, or its end."""
    try:
        return parse_bound(text, is_end=is_end)
    except ValueError as error:
        raise bad_request(name, text, str(error)) from error


def who(request: web.Request) -> str:
    """Return who asks, for the record."""
    return f"{request.get(ASKER, '')}@http"


def note(request: web.Request, event: str, **fields: str) -> None:
    """Log a change: what, and who asked for it."""
    log.info(event, by=request.get(ASKER, ""), **fields)


class RunWaiters:
    """Requests that wait for the end of a run, all by one connection of the process.

    At most ``WAITING_MAX`` wait at a time, of one token or address ``WAITING_PER_ASKER_MAX``.
    """

    def __init__(self, producer: Producer, long_answers: EventPages) -> None:
        self._producer = producer
        self._long_answers = long_answers
        self._held: Counter[str] = Counter()

    async def until_ended(self, request: web.Request, run_id: str) -> None:
        """Return when the run has ended, or the time in the query is over; at once without one.

        The request is judged again then: its token may have been taken away or narrowed meanwhile.

        Raises:
            web.HTTPException: the request is not admitted any more.
            InvalidRunError: no run can have the id.
            web.HTTPBadRequest: the time is no duration, or too long.
            web.HTTPServiceUnavailable: as many wait as may.
        """
        text = request.query.get("wait")
        if text is None:
            return
        runs.checked_runs([("", run_id)])
        try:
            wait_s = parse_duration(text)
        except ValueError as error:
            raise bad_request("wait", text, str(error)) from error
        if not 0 <= wait_s <= WAIT_S_MAX:
            raise bad_request("wait", text, f"at most {WAIT_S_MAX:g}s; ask again after that")
        with self._place(request), self._long_answers.as_stream(request):
            asking = self._producer.asking
            await asking.answer_async(asking.until_ended(run_id, "", wait_s, need="end"), run_id)
        request[ADMIT]()

    @contextmanager
    def _place(self, request: web.Request) -> Iterator[None]:
        asker = f"token {request[ASKER]}" if request[ASKER] else f"address {request[PEER]}"
        if self._held.total() >= WAITING_MAX or self._held[asker] >= WAITING_PER_ASKER_MAX:
            raise unavailable("as many requests wait for runs as may; come back later, or ask without wait")
        self._held[asker] += 1
        try:
            yield
        finally:
            self._held[asker] -= 1
            self._held = +self._held  # without those who hold none
