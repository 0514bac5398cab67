"""Concurrent enqueues of one event loop, joined into one script call.

Guarantees
    One call is on its way at a time. A run that is enqueued meanwhile travels with the next one; alone it leaves at
    the end of the loop's turn, with no delay added.
    Each caller gets its own answer or its own error. A run that the server refuses fails its caller alone.
    A caller that is cancelled before its call leaves takes its run back, and no other is affected; afterwards it is
    not known whether its run was enqueued.
    After a lost connection no caller waits for a second one to time out: those that queued behind the lost call
    fail with it.

Does not guarantee
    An order between runs of callers that choose ids and runs of those that do not: they travel in separate calls.

Waiting runs are bounded by the tasks of the loop: each waits for its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from supervisor.core.errors import StoreRefusedError, TenureError
from supervisor.core.model import Template
from supervisor.store.producer.bulk import BATCH_BYTES
from supervisor.store.queues.runs import ENQUEUE_MAX, Enqueued, Queues
from supervisor.store.scripts import Argument, Call


class PackedRun(NamedTuple):
    """A run as the script takes it."""

    run_id: str
    queue: str
    delay_ms: int
    data: bytes
    content: str = ""  # see content_of; empty: the id was drawn
    template: Template | None = None  # for those who count

    def values(self, is_chosen: bool) -> Sequence[Any]:  # noqa: FBT001 - as in the call
        """Return its part of the script's arguments."""
        return self[: 5 if is_chosen else 4]


class _Caller(NamedTuple):
    run: PackedRun
    answer: asyncio.Future[Enqueued]


Send = Callable[[Call[list[Enqueued]]], Coroutine[Any, Any, list[Enqueued]]]
"""Makes one call of the store, again if its reply is lost."""


class EnqueueBatcher:
    """Enqueues of one event loop."""

    def __init__(self, queues: Queues, *, send: Send, entropy: Callable[[int], bytes]) -> None:
        self._queues = queues
        self._send = send
        self._entropy = entropy
        self._lanes: dict[bool, deque[_Caller]] = {False: deque(), True: deque()}
        self._sending: asyncio.Task[None] | None = None

    def put(self, run: PackedRun, *, is_chosen: bool) -> asyncio.Future[Enqueued]:
        """Enqueue ``run`` with the next call; the future has the answer.

        Args:
            run: the run.
            is_chosen: the caller made its id, so that it is new to its queue once in an hour.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Enqueued] = loop.create_future()
        self._lanes[is_chosen].append(_Caller(run, answer))
        if self._sending is None or self._sending.done():  # done: by a loop whose tasks begin as they are made
            self._sending = loop.create_task(self._drain())
        return answer

    async def _drain(self) -> None:
        try:
            while any(self._lanes.values()):
                for is_chosen, lane in self._lanes.items():
                    batch = _take(lane)
                    behind = len(lane)
                    lost = await self._deliver(batch, is_chosen=is_chosen) if batch else None
                    if lost is not None:
                        _refuse([lane.popleft() for _ in range(behind)], lost)
        finally:
            self._sending = None
            for lane in self._lanes.values():  # only where this task was cancelled: its loop ends
                while lane:
                    lane.popleft().answer.cancel()

    async def _deliver(self, batch: Sequence[_Caller], *, is_chosen: bool) -> TenureError | None:
        """Send a batch and answer its callers; return the error if the server did not answer."""
        ids = [caller.run.run_id for caller in batch]
        runs: list[Argument] = [value for caller in batch for value in caller.run.values(is_chosen)]
        call = self._queues.enqueue_flat(nonce=self._entropy(16).hex(), ids=ids, runs=runs, is_chosen=is_chosen)
        try:
            for caller, enqueued in zip(batch, await self._send(call), strict=True):
                if not caller.answer.done():
                    caller.answer.set_result(enqueued)
        except StoreRefusedError as error:
            if len(batch) == 1 or error.concerns_client:
                _refuse(batch, error)
                return None
            # Refused before anything was written: one of them is the reason, the others are enqueued without it.
            half = len(batch) // 2
            lost = await self._deliver(batch[:half], is_chosen=is_chosen)
            if lost is None:
                return await self._deliver(batch[half:], is_chosen=is_chosen)
            _refuse(batch[half:], lost)
            return lost
        except TenureError as error:
            _refuse(batch, error)
            return error
        except BaseException as error:
            if isinstance(error, Exception):
                _refuse(batch, error)
            for caller in batch:
                caller.answer.cancel()
            raise
        return None


def _take(lane: deque[_Caller]) -> list[_Caller]:
    """Remove and return as many callers as one script call may carry, without those that were cancelled."""
    batch: list[_Caller] = []
    size = 0
    while lane and len(batch) < ENQUEUE_MAX and size < BATCH_BYTES:
        caller = lane.popleft()
        if not caller.answer.cancelled():
            batch.append(caller)
            size += len(caller.run.data)
    return batch


def _refuse(callers: Sequence[_Caller], error: Exception) -> None:
    """Give each caller an error of its own: a shared one would collect the tracebacks of all."""
    for caller in callers:
        if caller.answer.done():
            continue
        own = type(error).__new__(type(error), *error.args)
        own.__dict__.update(error.__dict__)
        own.__cause__ = error.__cause__
        caller.answer.set_exception(own)
