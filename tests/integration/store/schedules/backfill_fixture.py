"""A schedule with a past, and the leader that backfills it, step by step."""

from __future__ import annotations

from typing import Any

from supervisor.roles.scheduler.backfill import Backfills
from supervisor.store.election.leases import LeaseView
from supervisor.store.schedules import backfills as calls
from supervisor.store.schedules.backfills import AddCode, Backfill, BackfillState, Request
from supervisor.store.schedules.definitions import Change, Definitions
from tests.kit.builders import StoreCalls, schedule
from tests.kit.stepper import Stepper, term_of

OTHER = "cd" * 16
MINUTE_MS = 60_000
START_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
MARK_MS = START_MS + 1000 * MINUTE_MS


class BackfilledSchedule:
    """A schedule ``m``, due each minute, whose watermark is 1000 minutes into 2026."""

    def __init__(self, world: StoreCalls) -> None:
        self.world = world
        self.stepper = Stepper(world)
        self.calls = calls.BackfillCalls(world.keys)
        self.define()

    def define(self, **fields: Any) -> None:
        change = Change(definition=schedule("m", **{"every_ms": MINUTE_MS} | fields))
        self.world.run(Definitions(self.world.keys).upsert([change], wall_ms=1))
        self.world.raw.hset(self.world.keys.schedule_mark, "m", MARK_MS)

    def add(self, minutes: int, *, name: str = "b1", first: int = 1, **options: Any) -> AddCode:
        request = Request(
            from_ms=START_MS + first * MINUTE_MS,
            until_ms=START_MS + (first + minutes - 1) * MINUTE_MS,
            overlap=options.pop("overlap", "allow"),
        )
        defaults = {"limit": 1000, "is_forced": False}
        return self.world.run(self.calls.add(name, "m", request, **defaults | options))

    def role(self, **options: Any) -> Backfills:
        return Backfills(self.world.keys, clock=self.stepper, report=self.stepper.report, **options)

    def find(self, name: str = "b1") -> Backfill:
        return next(each for each in self.world.run(self.calls.all()) if each.id == name)

    def finish(self, view: LeaseView, name: str = "b1", role: Backfills | None = None) -> Backfill:
        worker, term = role or self.role(), term_of(view)
        worker.wake()
        self.stepper.until(lambda: self.find(name).state is not BackfillState.ACTIVE, worker, term)
        return self.find(name)

    def ready(self) -> list[str]:
        """What waits in the queue, oldest first."""
        return [each.decode() for each in self.world.raw.lrange(self.world.keys.prefix + "q:default:ready:a:1", 0, -1)]

    def state(self, text: str) -> None:
        self.world.raw.hset(self.world.keys.schedule_state, "m", text)


def nominal(minute: int) -> int:
    return START_MS + minute * MINUTE_MS


def stretch(code: str, first: int, last: int, revision: int = 1) -> str:
    count = last - first + 1
    return f"{code}{nominal(first)} {nominal(last) - nominal(first)} {count} 5 {revision}"
