"""One replica's declaration of its schedules, driven to its end."""

from __future__ import annotations

from typing import Any

from supervisor.core.model import ScheduleDef
from supervisor.roles.scheduler.config_sync import ConfigSync
from supervisor.store.election.leases import LeaseView
from supervisor.store.schedules.definitions import Change, DefineCode, Definitions
from tests.kit.builders import StoreCalls
from tests.kit.stepper import Stepper, term_of

OTHER = "cd" * 16
HOUR_MS = 3_600_000


class Declaration:
    """One replica's declaration, driven to its end."""

    def __init__(self, world: StoreCalls) -> None:
        self.world = world
        self.stepper = Stepper(world)

    def declaring(self, *definitions: ScheduleDef, **options: Any) -> ConfigSync:
        return ConfigSync(
            self.world.keys, definitions, lease_ms=5000, clock=self.stepper, report=self.stepper.report, **options
        )

    def declare(self, view: LeaseView, *definitions: ScheduleDef, **options: Any) -> dict[str, Any]:
        """Declare the whole set; return what was told."""
        declaring, term = self.declaring(*definitions, **options), term_of(view)
        self.stepper.until(lambda: declaring.is_done(term), declaring, term)
        told = self.stepper.events("schedules_declared")
        return told[-1] if told else {}

    def mark(self, name: str) -> int:
        return int(self.world.raw.hget(self.world.keys.schedule_mark, name) or 0)

    def set_mark(self, name: str, mark_ms: int) -> None:
        self.world.raw.hset(self.world.keys.schedule_mark, name, mark_ms)

    def dump(self) -> dict[bytes, Any]:
        """Everything that a declaration may change."""
        keys, raw = self.world.keys, self.world.raw
        hashes = (keys.schedule_def, keys.schedule_mark, keys.schedule_state, keys.schedule_paused, keys.schedule_gone)
        found: dict[bytes, Any] = {key.encode(): raw.hgetall(key) for key in hashes}
        return found | {b"next": raw.zrange(keys.schedule_next, 0, -1, withscores=True)}

    def upsert(self, *definitions: ScheduleDef) -> list[DefineCode]:
        changes = [Change(definition=each) for each in definitions]
        reply = self.world.run(Definitions(self.world.keys).upsert(changes, wall_ms=1))
        return [code for code, _ in reply.results]
