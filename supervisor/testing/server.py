"""One Redis-compatible server inside the test: fakeredis with the project's own Lua, under a driven clock.

Guarantees
    Scripts see the driven time: TIME, stream ids and expiry all follow it.
    The scheduler's decisions are kept here too, so that they survive the emptying of the server.

Does not guarantee
    Anything about a real server's speed, persistence or memory.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from supervisor.core.effects import Call
from supervisor.core.model import ScheduleDef
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.schedules.definitions import DefineCode
from supervisor.store.schedules.fire import LogEntry
from supervisor.store.schedules.reads import Views
from supervisor.testing.scripting import QuickStore

T = TypeVar("T")
NOTHING = (0, 0)  # newest entry of a stream that has none

# The modules of fakeredis that ask for the time, each through a module global called ``time``.
_ASKING = (
    "fakeredis._helpers",
    "fakeredis._socket._base",
    "fakeredis.commands_mixins.server_mixin",
    "fakeredis.model._stream",
)
DEFINITION_FIELDS = 10  # of lib/define.lua


class _DrivenTime:
    """Replaces the module ``time`` inside fakeredis."""

    def __init__(self, read_s: Callable[[], float]) -> None:
        self.time = read_s

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextmanager
def driven_time(read_s: Callable[[], float]) -> Iterator[None]:
    """Let every fake server of this process take its time from ``read_s``."""
    modules = [import_module(name) for name in _ASKING]
    before = [vars(module)["time"] for module in modules]
    assert not any(isinstance(known, _DrivenTime) for known in before), "only one driven cluster at a time"
    for module in modules:
        vars(module)["time"] = _DrivenTime(read_s)
    try:
        yield
    finally:
        for module, known in zip(modules, before, strict=True):
            vars(module)["time"] = known


class ImmediateStore:
    """The part of an asynchronous client that producers use: calls of ``store``, from whatever event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self, call: Call[T]) -> T:
        """Make a call."""
        return self._store.run(call)

    async def close(self) -> None:
        """Keep the server: it is shared."""


class Server:
    """The server of one cluster."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.store = QuickStore()
        self.decisions: list[LogEntry] = []
        self.terms: list[int] = []  # for each decision, the epoch that stood in Redis when it was made; 0: none
        self.moments_ns: list[int] = []  # for each decision, the true time
        self.now_ns: Callable[[], int] = lambda: 0  # the true time, if the server is part of a world
        self.created_ms: dict[str, int] = {}  # schedule to its first watermark
        self.calls = 0
        self.counts: Counter[str] = Counter()  # calls of each script
        self.granted: list[int] = []  # every epoch, in the order of their grants
        self._newest_decision = self._newest_event = NOTHING
        self._events: list[tuple[str, dict[str, str]]] = []  # as in the stream, at hand for every listener

    def execute(self, call: Call[Any]) -> Any:
        """Run one call and return its reply, or raise the server's refusal."""
        self.calls += 1
        self.counts[call.script] += 1
        reply = self.store.run(call)
        if self.store.newest(self.keys.events) not in {self._newest_event, NOTHING}:
            self._read_events()
        if self.store.newest(self.keys.schedule_log) not in {self._newest_decision, NOTHING}:
            self._keep_decisions()
        if call.script == "declare_page":
            ids = call.args[4::DEFINITION_FIELDS]
            for schedule, (code, _) in zip(ids, reply.results, strict=True):
                if code is DefineCode.CREATED:
                    self.created_ms.setdefault(str(schedule), reply.now_ms)
        return reply

    def events_after(self, last_id: str) -> list[tuple[str, dict[str, str]]]:
        """Return the events of the election after ``last_id``."""
        found = []
        for event in reversed(self._events):
            if _order(event[0]) <= _order(last_id):
                break
            found.append(event)
        return found[::-1]

    def changes_after(self, last_id: str) -> list[tuple[str, dict[str, str]]]:
        """Return the changes of schedules after ``last_id``."""
        return self.entries_after(self.keys.schedule_changes, last_id)

    def entries_after(self, stream: str, last_id: str) -> list[tuple[str, dict[str, str]]]:
        """Return the entries of ``stream`` after ``last_id``."""
        after = _order(last_id)
        return self.store.entries(stream, after) if self.store.newest(stream) > after else []

    def empty(self) -> None:
        """Lose every key."""
        self.store.raw.flushall()
        self._events.clear()
        self._newest_decision = self._newest_event = NOTHING
        self.created_ms.clear()

    def snapshot(self) -> Any:
        """Return all data as it is now, for ``restore``."""
        return self.store.copy(), dict(self.created_ms)

    def restore(self, snapshot: Any) -> None:
        """Go back to ``snapshot``: writes since are lost, as by an asynchronous fail-over."""
        data, self.created_ms = snapshot[0], dict(snapshot[1])
        self.store.paste(data)
        self._events.clear()
        before = list(self.granted)
        self._read_events()
        self.granted = before
        self._newest_decision = self.store.newest(self.keys.schedule_log)

    def definitions(self) -> list[ScheduleDef]:
        """Return every stored schedule."""
        return [record.definition() for record in self.store.run(Views(self.keys).browse()).items]

    def _standing_epoch(self) -> int:
        for _, fields in reversed(self._events):
            if fields.get("who") and fields["kind"] in {"acquired", "released"}:
                return int(fields["epoch"]) if fields["kind"] == "acquired" else 0
        return 0

    def _read_events(self) -> None:
        self._newest_event = self.store.newest(self.keys.events)
        new = self.store.entries(self.keys.events, _order(self._events[-1][0]) if self._events else NOTHING)
        self._events += new
        new = [(at, fields) for at, fields in new if fields.get("who")]  # written by a script
        self.granted += [int(fields["epoch"]) for _, fields in new if fields["kind"] == "acquired"]

    def _keep_decisions(self) -> None:
        entries = self.store.entries(self.keys.schedule_log, self._newest_decision)
        self._newest_decision = self.store.newest(self.keys.schedule_log)
        lines = [line for _, fields in entries for line in fields.get("r", "").splitlines()]
        log = [entry for line in lines if (entry := LogEntry.parse(line)) is not None]
        self.decisions += log
        self.terms += [self._standing_epoch()] * len(log)
        self.moments_ns += [self.now_ns()] * len(log)


def _order(event_id: str) -> tuple[int, int]:
    milliseconds, _, number = event_id.partition("-")
    return int(milliseconds), int(number)
