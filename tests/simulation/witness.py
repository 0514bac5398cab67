"""Looks at Redis after every call of a simulated world, for what no log shows afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from supervisor.core.schedules.triggers import trigger_of
from supervisor.store.schedules.fire import LogEntry
from supervisor.store.wire.definition import unpack_definition
from supervisor.store.wire.fire import FireCode
from supervisor.testing.world import World

COUNT_MAX, NEVER_MS = 1_000_000, 10**15


class Witness:
    """Collects what was wrong at the moment it was."""

    def __init__(self, world: World, *, changing: str) -> None:
        """Watch ``world``; ``changing`` is the schedule whose definition and pause change while it runs."""
        self._world = world
        self._changing = changing
        self._marks: dict[bytes, bytes] = {}
        self._seen = 0  # decisions
        self._stretch = _Stretch()
        self.flagged: list[bool] = []  # for each decision, whether its run says that it may have run before
        self.sent_ns: list[int] = []  # for each decision, when its request was sent, however late it arrived
        self.problems: list[str] = []
        world.on_executed.append(self._look)

    def forgive(self) -> None:
        """Redis lost data: what was there before counts no more."""
        self._marks = {}
        self._stretch = _Stretch()

    def _look(self) -> None:
        server = self._world.server
        new = server.decisions[self._seen :]
        self._judge_pause(new)
        if not new:
            return
        self._seen = len(server.decisions)
        self.sent_ns += [self._world.sent_ns] * len(new)
        marks = server.store.fields(server.keys.schedule_mark)
        self.problems += [
            f"the watermark of {name.decode()} went back from {int(before)} to {int(marks[name])}"
            for name, before in self._marks.items()
            if name in marks and int(marks[name]) < int(before)
        ]
        self._marks = marks
        waiting = server.store.fields(f"{server.keys.prefix}q:default:data")
        self.flagged += [b'"maybe_duplicate":true' in waiting.get(each.run_id.encode(), b"") for each in new]
        for decision in new:
            if decision.schedule == self._changing and decision.code is FireCode.FIRED:
                self._judge(decision.nominal_ms, decision.run_id)

    def _judge(self, nominal_ms: int, run_id: str) -> None:
        """A fire is of the definition as it stands, and not of a paused schedule, but for what it owes after a pause."""
        server, name = self._world.server, self._changing
        stored = server.store.fields(server.keys.schedule_def).get(name.encode())
        if stored is None:
            self.problems.append(f"{name}@{nominal_ms} fired without a definition")
            return
        definition = unpack_definition(stored.split(b"\n", 3)[3])
        trigger = trigger_of(definition)
        if trigger.latest_ms(nominal_ms - 1, nominal_ms) != nominal_ms:
            self.problems.append(f"{name}@{nominal_ms} fired, and {trigger.describe()} is not due then")
        data = server.store.fields(f"{server.keys.prefix}q:{definition.template.queue}:data")
        if f'"job":"{definition.template.job}"'.encode() not in data.get(run_id.encode(), b""):
            self.problems.append(f"{run_id} does not run {definition.template.job}, which is what its schedule says")
        paused = json.loads(server.store.fields(server.keys.schedule_paused).get(name.encode(), b"{}"))
        is_over = paused.get("until_ms", NEVER_MS) <= self._world.server_ms()
        if paused and not (is_over and nominal_ms <= paused.get("due_ms", 0)):
            self.problems.append(f"{name}@{nominal_ms} fired while it was paused")

    def _judge_pause(self, new: Sequence[LogEntry]) -> None:
        """What was due until a pause began is decided, or counted as missed, once it is over."""
        server, name = self._world.server, self._changing.encode()
        stored = server.store.fields(server.keys.schedule_def).get(name)
        mark_ms = int(server.store.fields(server.keys.schedule_mark).get(name, b"0"))
        paused = json.loads(server.store.fields(server.keys.schedule_paused).get(name, b"null"))
        was = self._stretch
        if stored is None or stored.split(b"\n")[1] != was.timing:  # the times of a new timing count from then on
            self._stretch = _Stretch(stored and stored.split(b"\n")[1], mark_ms, paused)
            return
        was.decided += sum(d.missed + (d.code is not FireCode.MISSED) for d in new if d.schedule == self._changing)
        if paused and not was.paused:
            was.began_ms = paused["at_ms"]
        elif was.paused and not paused:
            ended_ms = was.paused.get("until_ms", self._world.server_ms())
            until_ms = max(was.mark_ms, min(was.began_ms, ended_ms))
            due = trigger_of(unpack_definition(stored.split(b"\n", 3)[3])).count(was.from_ms, until_ms, COUNT_MAX)
            if was.began_ms and due != was.decided:
                self.problems.append(
                    f"{self._changing}: {due} due in ({was.from_ms}, {until_ms}], before a pause, {was.decided} decided"
                )
            self._stretch = was = _Stretch(was.timing, mark_ms)
        was.paused, was.mark_ms = paused, mark_ms


class _Stretch:
    """Time of one schedule from the end of a pause, or a change of its timing, to the end of the next pause."""

    def __init__(self, timing: bytes | None = None, from_ms: int = 0, paused: dict[str, Any] | None = None) -> None:
        self.timing, self.from_ms, self.mark_ms = timing, from_ms, from_ms
        self.paused, self.began_ms = paused, 0  # the pause, and when it began; 0: before this
        self.decided = 0  # due times, those that were missed among them
