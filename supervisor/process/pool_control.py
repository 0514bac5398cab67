"""Carries out decisions of the pools of workers: which rows have a process, and who replaces whom.

The decisions are those of ``supervisor.core.supervision.pool``; they are asked for again on every turn of the
parent, with the states of that moment, so nothing that happens in between is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from supervisor.core.supervision import pool as pools
from supervisor.core.supervision.pool import Fact, News, Pool, PoolChange, PoolNotice, PoolReplacement
from supervisor.core.supervision.pool_rows import Order, RowState
from supervisor.core.supervision.slot import SlotEvent, forgiven
from supervisor.process.process_table import ProcessTable
from supervisor.process.slots import LiveSlot

_LEVELS = {News.ABORTED: "warning", News.ROLL_ABORTED: "error"}


class PoolBook:
    """All pools of one tree. A slot without a pool is none of its business."""

    def __init__(self, tree: ProcessTable, processes: Mapping[str, int]) -> None:
        """Build it; ``processes`` is how many each pool is to have, in the order of the configuration."""
        self._tree = tree
        self._rows: dict[str, list[LiveSlot]] = {name: [] for name in processes}
        for live in tree.slots:
            if live.spec.pool is not None:
                self._rows[live.spec.pool].append(live)
                live.is_up = False
        self._pools = {
            name: pools.make(name, processes=count, capacity=len(self._rows[name])) for name, count in processes.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The pools, in the order of the configuration."""
        return tuple(self._pools)

    @property
    def is_quiet(self) -> bool:
        """True if all pools were made quiet together."""
        return any(pool.is_quiet for pool in self._pools.values())

    def processes(self, name: str) -> int:
        """Return how many processes a pool is to have now."""
        return self._pools[name].desired

    def rolling(self, name: str) -> PoolReplacement:
        """Return the progress of the replacement of a whole pool."""
        return self._pools[name].rolling

    def describe(self, name: str) -> dict[str, object]:
        """Return the state of the pool, for the log."""
        pool = self._pools[name]
        places = {live.spec.name: place.value for live, place in zip(self._rows[name], pool.places, strict=True)}
        return {
            "pool": name,
            "desired": pool.desired,
            "rolling": pool.rolling.value,
            "waiting": len(pool.waiting),
            "places": {slot: place for slot, place in places.items() if place != RowState.EMPTY.value},
        }

    def fits(self, name: str, processes: int) -> str:
        """Return why a pool cannot have so many processes; empty when it can."""
        pool = self._pools.get(name)
        return f"there is no pool {name}" if pool is None else pools.set_processes(pool, processes).refusal

    def set_processes(self, name: str, processes: int) -> str:
        """Let a pool have so many processes from the next turn on; return why not, or an empty string."""
        if problem := self.fits(name, processes):
            return problem
        was = self._pools[name].desired
        self._change(name, pools.set_processes(self._pools[name], processes))
        if was != processes:
            self._tree.log("pool_resized", pool=name, processes=processes, was=was)
        return ""

    def add(self, difference: int) -> str:
        """Add to the first pool of the configuration, or take from it; return why not, or an empty string."""
        if not self._pools:
            return "there is no pool"
        name = self.names[0]
        return self.set_processes(name, self._pools[name].desired + difference)

    def roll(self, names: Iterable[str]) -> None:
        """Replace every process of some pools, successors first. Failed ones that wait are tried again at once."""
        for name in names:
            for live in self._rows[name]:
                live.slot = forgiven(live.slot)
            self._change(name, pools.roll(self._pools[name], self._facts(name)))

    def abort(self, names: Iterable[str], now_ns: int) -> None:
        """End the replacements in some pools: no successor started before now takes a place."""
        for name in names:
            self._change(name, pools.abort(self._pools[name]), now_ns)

    def replace(self, live: LiveSlot) -> str:
        """Replace one process, its successor first; return why not, or an empty string."""
        return self._change_one(live, lambda pool, row: pools.replace_row(pool, row, live.slot.generation))

    def quiet(self, live: LiveSlot, now_ns: int) -> str:
        """Let one process finish and go, and start none in its place; return why not, or an empty string."""
        return self._change_one(live, pools.quiet, now_ns)

    def resume(self, live: LiveSlot, now_ns: int) -> str:
        """Start a quiet slot again, or a free one if its process still leaves; return why not, or an empty string."""
        return self._change_one(live, lambda pool, row: pools.resume(pool, row, self._facts(pool.name)), now_ns)

    def _change_one(self, live: LiveSlot, change: Callable[[Pool, int], PoolChange], now_ns: int = 0) -> str:
        name = live.spec.pool
        if name is None:
            return "it is in no pool"
        return self._change(name, change(self._pools[name], self._rows[name].index(live)), now_ns)

    def quiet_all(self, now_ns: int) -> None:
        """Let every worker finish and go, and start none until asked."""
        for name, pool in self._pools.items():
            self._change(name, pools.quiet_all(pool), now_ns)
        self._tree.log("workers_quiet")

    def resume_all(self, now_ns: int) -> None:
        """Start every worker that was made quiet."""
        for name, pool in self._pools.items():
            self._change(name, pools.resume_all(pool, self._facts(name)), now_ns)
        self._tree.log("workers_resumed")

    def restart(self, slot_name: str, now_ns: int) -> str:
        """Replace the process of a slot without a spare row, old one first; return why not, or an empty string."""
        for live in self._tree.slots:
            if live.spec.name == slot_name:
                live.slot = forgiven(live.slot)
                if live.has_process:
                    self._tree.step(live, SlotEvent.RESTART, now_ns)
                return ""
        return "no such slot"

    def settle(self, now_ns: int) -> None:
        """Bring every pool nearer to its wanted state. Once a turn, before anything is started."""
        for name in self._pools:
            if self._tree.is_stopping:
                self._pools[name] = pools.stopped(self._pools[name])
            self._change(name, pools.settle(self._pools[name], self._facts(name)), now_ns)

    def _facts(self, name: str) -> list[Fact]:
        return [
            Fact(live.slot.state, live.slot.generation, live.slot.started_ns, live.row.busy)
            for live in self._rows[name]
        ]

    def _change(self, name: str, outcome: PoolChange, now_ns: int = 0) -> str:
        """Take up a decision: the book first, then the rows, then the log."""
        rows, pool = self._rows[name], outcome.pool
        if pool is not self._pools[name]:
            self._pools[name] = pool
            for row, live in enumerate(rows):
                live.is_quiet = pool.places[row] is RowState.QUIET
        for row, order in outcome.orders:
            self._carry_out(rows[row], order, now_ns)
        for item in outcome.news:
            self._tell(pool, item)
        return outcome.refusal

    def _carry_out(self, live: LiveSlot, order: Order, now_ns: int) -> None:
        live.is_up = order is Order.START
        if order is Order.STOP:
            self._tree.step(live, SlotEvent.RETIRE, now_ns)
        else:
            live.mirror(is_wanted=self._tree.is_wanted(live))

    def _tell(self, pool: Pool, item: PoolNotice) -> None:
        rows, fields = self._rows[pool.name], {}
        if item.pair is not None:
            fields = {"old": rows[item.pair.old].spec.name, "new": rows[item.pair.new].spec.name}
        self._tree.log(item.news.value, level=_LEVELS.get(item.news, "info"), pool=pool.name, **fields)
