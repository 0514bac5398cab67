"""Stacks of live processes: off unless ``web.debug`` is on, and then for tokens with ``admin`` alone.

Guarantees
    A stack is files, lines and functions, never values. So many threads and tasks are shown, each so deep.
    Workers are asked as `tenure worker stacks` asks them: their answers are in the log. A token with limits asks none.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from itertools import chain, islice
from types import FrameType
from typing import Any
from uuid import uuid4

import structlog
from aiohttp import web

from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.roles.child import ChildContext
from supervisor.roles.web.access.auth import needs
from supervisor.roles.web.api.access import must_be_unlimited
from supervisor.roles.web.responses import ASKER, redis_failed, text_response, unavailable
from supervisor.settings.web.tokens import Scope
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.election.commands import Command, Commands, Word
from supervisor.store.keys import Keys
from supervisor.telemetry.masking import mask_text

PATH = "/debug/stacks"
THREADS_MAX = 100
TASKS_MAX = 200
FRAMES_MAX = 40
log = structlog.get_logger()


def routes(child: ChildContext, store: AsyncStore) -> list[web.RouteDef]:
    """Return the routes; none where they are off."""
    if not child.settings.web.debug:
        return []
    pages = DebugPages(child, store)
    return [web.get(PATH, pages.stacks), web.post(PATH, pages.ask_workers)]


class DebugPages:
    """The handlers."""

    def __init__(self, child: ChildContext, store: AsyncStore) -> None:
        self._child = child
        self._store = store
        self._commands = Commands(Keys(child.settings.cluster))

    @needs(Scope.ADMIN)
    async def stacks(self, request: web.Request) -> web.Response:
        """Show every thread and task of this process."""
        log.info("debug_stacks", by=request[ASKER], of="web")
        return text_response("\n".join(map(mask_text, chain(_threads(), _tasks()))))

    @needs(Scope.ADMIN)
    async def ask_workers(self, request: web.Request) -> web.Response:
        """Have every worker of this replica write the stacks of its threads to the log."""
        must_be_unlimited(request)
        child, command_id = self._child, str(uuid4())
        signer = child.settings.commands.signer(child.settings.cluster)
        command = Command(word=Word.STACKS, by=f"{request[ASKER]}@http")
        command = command.signed(signer, child.replica, command_id, child.clock.wall_ms())
        try:
            is_sent = await self._store.run(self._commands.send(child.replica, command_id, command))
        except (StoreUnavailableError, StoreRefusedError) as error:
            raise redis_failed(error) from error
        if not is_sent:
            raise unavailable("too many commands wait for this replica")
        return web.Response(status=202, text="asked: the stacks of all workers come into the log of this replica\n")


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = sys._current_frames()  # noqa: SLF001 - documented; there is no other way
    for ident, frame in islice(found.items(), THREADS_MAX):
        lines = "".join(traceback.format_stack(frame, FRAMES_MAX))
        yield f"thread {names.get(ident, 'of a library')} ({ident})\n{lines}"
    yield from _more("threads", len(found) - THREADS_MAX)


def _tasks() -> Iterator[str]:
    found = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    for task in islice(found, TASKS_MAX):
        places = [(frame, frame.f_lineno) for frame in islice(_awaits(task.get_coro()), FRAMES_MAX)]
        lines = "".join(traceback.StackSummary.extract(iter(places)).format())
        yield f"task {task.get_name()}\n{lines}"
    yield from _more("tasks", len(found) - TASKS_MAX)


def _more(what: str, count: int) -> Iterator[str]:
    if count > 0:
        yield f"and {count} more {what}\n"


def _awaits(waiting: Any) -> Iterator[FrameType]:
    """Yield the frame of a coroutine, of its awaited object, and so on: a task itself shows the first alone."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
