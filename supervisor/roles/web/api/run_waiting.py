"""Requests that wait for the end of a run: bounded in number and time, all by one connection of the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from supervisor.core.durations import parse_duration
from supervisor.operations import runs
from supervisor.operations.enqueueing import Producer
from supervisor.roles.web.events.handlers import EventPages
from supervisor.roles.web.responses import ADMIT, ASKER, PEER, bad_request, unavailable

WAITING_MAX = 16
WAITING_PER_ASKER_MAX = 8
WAIT_S_MAX = 60.0


class RunWaiters:
    """At most ``WAITING_MAX`` requests wait at a time, of one token or address ``WAITING_PER_ASKER_MAX``."""

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
        with self._place(request):
            self._long_answers.on_stream(request)
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
