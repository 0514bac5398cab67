"""A pool and processes that do as they are told, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from supervisor.core.supervision import pool as pools
from supervisor.core.supervision.pool import Fact, News, Pool, PoolChange
from supervisor.core.supervision.pool_rows import Order
from supervisor.core.supervision.states import SlotState

UP = SlotState.RUNNING
EMPTY = Fact(SlotState.STOPPED)


@dataclass
class SimulatedPool:
    """A pool and processes that do as they are told, step by step."""

    pool: Pool
    facts: list[Fact] = field(default_factory=list)
    wanted: set[int] = field(default_factory=set)
    news: list[News] = field(default_factory=list)
    clock: int = 0

    @classmethod
    def of(cls, processes: int, *, capacity: int = 0) -> SimulatedPool:
        capacity = capacity or 2 * processes + 2
        world = cls(pools.make("io", processes=processes, capacity=capacity), [EMPTY] * capacity)
        world.settle()
        world.run()
        return world

    def take(self, outcome: PoolChange) -> str:
        self.pool = outcome.pool
        self.news += [item.news for item in outcome.news]
        for row, order in outcome.orders:
            fact = self.facts[row]
            if order is Order.START:
                self.wanted.add(row)
            else:
                self.wanted.discard(row)
                after = SlotState.STOPPING if fact.state.has_process else SlotState.STOPPED
                if fact.state is not SlotState.KILLING:
                    self.facts[row] = replace(fact, state=after)
        return outcome.refusal

    def settle(self) -> None:
        self.take(pools.settle(self.pool, self.facts))

    def set(self, row: int, state: SlotState) -> None:
        self.facts[row] = replace(self.facts[row], state=state)

    def fork(self, row: int) -> None:
        self.clock += 1
        self.facts[row] = Fact(SlotState.STARTING, self.facts[row].generation + 1, self.clock)

    def die(self, row: int) -> None:
        self.set(row, SlotState.BACKOFF if row in self.wanted else SlotState.STOPPED)

    def run(self, turns: int = 60) -> None:
        """Let everything happen that good processes do, until nothing changes."""
        for _ in range(turns):
            before = (self.pool, tuple(self.facts))
            for row, fact in enumerate(self.facts):
                if not fact.state.has_process and row in self.wanted:
                    self.fork(row)
                elif fact.state is SlotState.STARTING:
                    self.set(row, UP)
                elif fact.state in {SlotState.STOPPING, SlotState.KILLING}:
                    self.die(row)
            self.settle()
            if before == (self.pool, tuple(self.facts)):
                return
        raise AssertionError("it never comes to rest")

    def run_once(self) -> None:
        """Let one step of a start happen, and nothing that was told to go go."""
        for row, fact in enumerate(self.facts):
            if not fact.state.has_process and row in self.wanted:
                self.fork(row)
            elif fact.state is SlotState.STARTING:
                self.set(row, UP)
        self.settle()

    @property
    def up(self) -> list[int]:
        return [row for row, fact in enumerate(self.facts) if fact.state is UP]
