"""Looks at Redis after every call of a simulated world, for what no log shows afterwards."""

from __future__ import annotations

from supervisor.core.schedules.triggers import trigger_of
from supervisor.store.wire.definition import unpack_definition
from supervisor.store.wire.fire import FireCode
from supervisor.testing.world import World


class Witness:
    """Collects what was wrong at the moment it was."""

    def __init__(self, world: World, *, changing: str) -> None:
        """Watch ``world``; ``changing`` is the schedule whose definition and pause change while it runs."""
        self._world = world
        self._changing = changing
        self._marks: dict[bytes, bytes] = {}
        self._seen = 0  # decisions
        self.flagged: list[bool] = []  # for each decision, whether its run says that it may have run before
        self.sent_ns: list[int] = []  # for each decision, when its request was sent, however late it arrived
        self.problems: list[str] = []
        world.on_executed.append(self._look)

    def forgive(self) -> None:
        """Redis lost data: what was there before counts no more."""
        self._marks = {}

    def _look(self) -> None:
        server = self._world.server
        new = server.decisions[self._seen :]
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
        """A fire is of the definition as it stands, and not of a paused schedule."""
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
        if name.encode() in server.store.fields(server.keys.schedule_paused):
            self.problems.append(f"{name}@{nominal_ms} fired while it was paused")
