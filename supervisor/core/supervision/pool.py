"""The rows of one pool of workers: which are to have a process, and who takes whose place.

Guarantees
    A worker is asked to go for a replacement only once its successor runs, so a replacement never
    leaves the pool with fewer running workers than it had. A successor that does not come up ends
    its replacement: the old worker goes on, and with it everybody else who was still to be replaced.
    The replacement of a whole pool is done when every process that came instead of one has run.
    No more than ``capacity`` rows are ever in use, and after ``stopped`` none is started.

Does not guarantee
    That a replacement starts at once: at most a quarter of the pool, and at least one, is replaced
    at a time, and each needs a free row.

Rows are numbers from 0. The state of their processes comes in as facts, looked at anew each time;
orders go out. So whatever was missed between two looks is made good by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from supervisor.core.supervision.pool_rows import MOVES, ImpossibleMoveError, Move, Order, RowState
from supervisor.core.supervision.states import SlotState

_COMING_UP = {SlotState.STOPPED, SlotState.STARTING, SlotState.RUNNING}
SURGE_DIVISOR = 4  # of the processes of a pool, this part may be replaced at once


@dataclass(frozen=True, slots=True)
class Fact:
    """The process of one row, as the parent knows it."""

    state: SlotState
    generation: int = 0
    started_ns: int = 0
    busy: int = 0  # runs it executes


@dataclass(frozen=True, slots=True)
class Pair:
    """One replacement under way."""

    old: int
    generation: int  # of the process that is to go
    new: int


class PoolReplacement(Enum):
    """State of the replacement of a whole pool."""

    NEVER = "never asked for"
    GOING = "going"
    DONE = "done"
    ABORTED = "aborted"


class News(Enum):
    """Changes of a pool that are logged."""

    REPLACING = "replacement_started"
    REPLACED = "replacement_done"
    ABORTED = "replacement_aborted"
    OUTLIVED = "replacement_overtaken"  # the old one died first; the successor has its place
    ROLLED = "roll_done"
    ROLL_ABORTED = "roll_aborted"


@dataclass(frozen=True, slots=True)
class PoolNotice:
    """One piece of news; rows only where two are concerned."""

    news: News
    pair: Pair | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One pool. ``places`` has one entry for each row."""

    name: str
    desired: int
    places: tuple[RowState, ...]
    pairs: tuple[Pair, ...] = ()
    waiting: tuple[tuple[int, int], ...] = ()  # (row, generation) of processes still to be replaced
    unproven: tuple[tuple[int, int], ...] = ()  # (row, generation) whose process, or a later one, has not run yet
    rolling: PoolReplacement = PoolReplacement.NEVER
    is_quiet: bool = False  # as a whole: places added meanwhile stay without a process too
    is_stopped: bool = False

    @property
    def capacity(self) -> int:
        """Number of rows."""
        return len(self.places)

    @property
    def most(self) -> int:
        """The most processes that it may be set to: one row is left for a successor."""
        return self.capacity - 1

    @property
    def surge(self) -> int:
        """Number of processes that may be replaced at once."""
        return max(1, self.desired // SURGE_DIVISOR)

    def rows(self, *places: RowState) -> list[int]:
        """Return the rows in one of these places."""
        return [row for row, place in enumerate(self.places) if place in places]


@dataclass(slots=True)
class PoolChange:
    """A pool while it changes and after it, the actions on its rows, in order, and the reports."""

    pool: Pool
    orders: list[tuple[int, Order]] = field(default_factory=list)
    news: list[PoolNotice] = field(default_factory=list)
    refusal: str = ""  # why nothing was changed

    def move(self, row: int, move: Move) -> None:
        """Move one row on."""
        place = self.pool.places[row]
        after = MOVES.get((place, move))
        if after is None:
            raise ImpossibleMoveError(place, move)
        places = (*self.pool.places[:row], after[0], *self.pool.places[row + 1 :])
        self.pool = replace(self.pool, places=places)
        if after[1] is not None:
            self.orders.append((row, after[1]))

    def start_again(self, row: int, facts: Sequence[Fact]) -> None:
        """Start a quiet row; while its process still leaves, which takes as long as its runs, a free one instead."""
        free = self.pool.rows(RowState.EMPTY) if facts[row].state.has_process else []
        self.move(row, Move.RETIRE if free else Move.RESUME)
        for spare in free[:1]:
            self.move(spare, Move.FILL)

    def end_pair(self, pair: Pair, news: News) -> None:
        """End one replacement, by what is reported of it."""
        self.pool = replace(self.pool, pairs=tuple(other for other in self.pool.pairs if other != pair))
        self.news.append(PoolNotice(news, pair))

    def abort(self, pair: Pair) -> None:
        """Keep the old one, and whoever waits: one that does not come up now would not come up for them either."""
        self.move(pair.new, Move.RETIRE)
        self.end_pair(pair, News.ABORTED)
        self.abort_roll()

    def abort_roll(self) -> None:
        """End the replacement of the pool, if there is one."""
        self.pool = replace(self.pool, waiting=(), unproven=())
        if self.pool.rolling is PoolReplacement.GOING:
            self.pool = replace(self.pool, rolling=PoolReplacement.ABORTED)
            self.news.append(PoolNotice(News.ROLL_ABORTED))

    def expect(self, row: int, generation: int) -> None:
        """Let the replacement of the pool wait until the process of ``row`` runs, of ``generation`` or later."""
        self.pool = replace(self.pool, unproven=(*self.pool.unproven, (row, generation)))

    def leave_pairs(self, row: int) -> None:
        """Give up the replacement of ``row``, which is not wanted any more itself."""
        for pair in self.pool.pairs:
            if pair.old == row:
                self.move(pair.new, Move.RETIRE)
                self.end_pair(pair, News.ABORTED)


def make(name: str, *, processes: int, capacity: int) -> Pool:
    """Return a pool without a process; ``settle`` fills it."""
    assert 1 <= processes < capacity
    return Pool(name=name, desired=processes, places=(RowState.EMPTY,) * capacity)


def set_processes(pool: Pool, processes: int) -> PoolChange:
    """Let the pool have so many processes; ``settle`` starts or retires the difference."""
    if not 1 <= processes <= pool.most:
        return PoolChange(pool, refusal=f"pool {pool.name} can have 1 to {pool.most} processes until the tree restarts")
    return PoolChange(replace(pool, desired=processes))


def replace_row(pool: Pool, row: int, generation: int) -> PoolChange:
    """Replace the process of ``row`` by one that is started first."""
    place = pool.places[row]
    if place is not RowState.MEMBER:
        return PoolChange(pool, refusal=f"its row is {place.value}")
    wanted = (row, generation)
    if wanted in pool.waiting or any((pair.old, pair.generation) == wanted for pair in pool.pairs):
        return PoolChange(pool)  # asked for twice
    return PoolChange(replace(pool, waiting=(*pool.waiting, wanted)))


def roll(pool: Pool, facts: Sequence[Fact]) -> PoolChange:
    """Replace every process that lives now, and wait for those that are not forked yet: they are of the new kind."""
    rows = pool.rows(RowState.MEMBER, RowState.SUCCESSOR)
    waiting = tuple((row, facts[row].generation) for row in rows if facts[row].state.has_process)
    change = PoolChange(replace(pool, waiting=waiting, unproven=(), rolling=PoolReplacement.GOING))
    for row in pool.rows(RowState.MEMBER):
        if not facts[row].state.has_process:
            change.expect(row, facts[row].generation + 1)
    return change


def abort(pool: Pool) -> PoolChange:
    """End every replacement that is under way or waits; old workers go on, also where a successor is nearly up."""
    change = PoolChange(pool)
    for pair in pool.pairs:
        change.abort(pair)
    change.abort_roll()
    return change


def quiet(pool: Pool, row: int) -> PoolChange:
    """Let the process of ``row`` finish and go, and start none in its place."""
    if unfit := _unfit(pool, row, wanted=RowState.MEMBER, already=RowState.QUIET):
        return unfit
    change = PoolChange(pool)
    change.leave_pairs(row)
    change.move(row, Move.QUIET)
    return change


def resume(pool: Pool, row: int, facts: Sequence[Fact]) -> PoolChange:
    """Start a quiet process again."""
    if unfit := _unfit(pool, row, wanted=RowState.QUIET, already=RowState.MEMBER):
        return unfit
    change = PoolChange(pool)
    change.start_again(row, facts)
    return change


def _unfit(pool: Pool, row: int, *, wanted: RowState, already: RowState) -> PoolChange | None:
    """Return the end of a change whose row is not ``wanted``: done if it is ``already``, else refused."""
    place = pool.places[row]
    if place is wanted:
        return None
    return PoolChange(pool, refusal="" if place is already else f"its row is {place.value}")


def quiet_all(pool: Pool) -> PoolChange:
    """Make the whole pool quiet, places included that it gets later."""
    change = PoolChange(replace(pool, is_quiet=True))
    for row in pool.rows(RowState.MEMBER):
        change.leave_pairs(row)
        change.move(row, Move.QUIET)
    return change


def resume_all(pool: Pool, facts: Sequence[Fact]) -> PoolChange:
    """Start everything that was made quiet, by one or by all."""
    change = PoolChange(replace(pool, is_quiet=False))
    for row in pool.rows(RowState.QUIET):
        change.start_again(row, facts)
    return change


def stopped(pool: Pool) -> Pool:
    """Return the pool once the tree stops: no order comes from it any more."""
    return replace(pool, is_stopped=True, waiting=(), unproven=(), pairs=())


def settle(pool: Pool, facts: Sequence[Fact]) -> PoolChange:
    """Bring the pool nearer to the wanted state; nothing to do is the normal case."""
    assert len(facts) == pool.capacity
    if pool.is_stopped:
        return PoolChange(pool)
    change = PoolChange(pool)
    for row in pool.rows(RowState.LEAVING):
        if not facts[row].state.has_process:
            change.move(row, Move.GONE)
    _prove(change, facts)
    for pair in pool.pairs:
        _follow(change, pair, facts)
    _resize(change, facts)
    _replace_next(change, facts)
    after = change.pool
    if after.rolling is PoolReplacement.GOING and not (after.waiting or after.pairs or after.unproven):
        change.pool = replace(change.pool, rolling=PoolReplacement.DONE)
        change.news.append(PoolNotice(News.ROLLED))
    return change


def _prove(change: PoolChange, facts: Sequence[Fact]) -> None:
    """Look at those that took a place before they ran: one that fails ends the replacement of the pool."""
    left = [entry for entry in change.pool.unproven if change.pool.places[entry[0]] is RowState.MEMBER]
    forked = {facts[row].state for row, generation in left if facts[row].generation >= generation}
    if forked - _COMING_UP:
        change.abort_roll()
    else:
        coming = tuple(
            (row, generation)
            for row, generation in left
            if facts[row].generation < generation or facts[row].state is not SlotState.RUNNING
        )
        change.pool = replace(change.pool, unproven=coming)


def _follow(change: PoolChange, pair: Pair, facts: Sequence[Fact]) -> None:
    """Carry one replacement on. Whether the successor failed is looked at first: then nothing may change."""
    old, new = facts[pair.old], facts[pair.new]
    is_old_there = old.state.has_process and old.generation == pair.generation
    if new.state not in _COMING_UP:
        change.abort(pair)
    elif old.generation != pair.generation:
        change.leave_pairs(pair.old)  # it died and came back: it is a fresh one itself
        change.expect(pair.old, old.generation)
    elif new.state is SlotState.RUNNING or not is_old_there:
        if new.state is not SlotState.RUNNING:
            change.expect(pair.new, new.generation)
        change.move(pair.new, Move.PROMOTE)
        change.move(pair.old, Move.RETIRE)
        change.end_pair(pair, News.REPLACED if is_old_there else News.OUTLIVED)


def _resize(change: PoolChange, facts: Sequence[Fact]) -> None:
    members = change.pool.rows(RowState.MEMBER, RowState.QUIET)
    surplus = len(members) - change.pool.desired
    for row in sorted(members, key=lambda row: _worth(change.pool, row, facts[row]))[: max(0, surplus)]:
        change.leave_pairs(row)
        change.move(row, Move.RETIRE)
    for row in change.pool.rows(RowState.EMPTY)[: max(0, -surplus)]:
        change.move(row, Move.RESERVE if change.pool.is_quiet else Move.FILL)


def _worth(pool: Pool, row: int, fact: Fact) -> tuple[bool, bool, bool, int]:
    """Order rows by how little is lost with them: without a process, not up yet, idle, young."""
    is_running = fact.state is SlotState.RUNNING
    return pool.places[row] is not RowState.QUIET, is_running, fact.busy > 0, -fact.started_ns


def _replace_next(change: PoolChange, facts: Sequence[Fact]) -> None:
    if not change.pool.waiting:
        return
    still: list[tuple[int, int]] = []
    for row, generation in change.pool.waiting:
        place, fact = change.pool.places[row], facts[row]
        if place is RowState.SUCCESSOR:  # of an earlier replacement, forked before this was asked for
            still.append((row, generation))
        elif place is RowState.MEMBER and fact.state.has_process and fact.generation == generation:
            free = change.pool.rows(RowState.EMPTY)
            if free and len(change.pool.pairs) + len(change.pool.unproven) < change.pool.surge:
                pair = Pair(row, generation, free[0])
                change.move(pair.new, Move.FOLLOW)
                change.pool = replace(change.pool, pairs=(*change.pool.pairs, pair))
                change.news.append(PoolNotice(News.REPLACING, pair))
            elif all(pair.old != row for pair in change.pool.pairs):
                still.append((row, generation))
        elif place is RowState.MEMBER and change.pool.rolling is PoolReplacement.GOING:
            change.expect(row, generation + 1)  # it died meanwhile, and comes back as one of the new kind
    change.pool = replace(change.pool, waiting=tuple(still))
