"""The states of the model, and the small changes that the protocol makes of them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from supervisor.core.election.lease import SLACK_NS, ElectorEvent, Observation, State, granted, step
from supervisor.core.units import MILLISECOND_NS
from tests.model.record import DURATION, NOBODY, Answer, Campaign, Record, Request

TICK_NS = 1000 * MILLISECOND_NS
DURATION_NS = DURATION * TICK_NS
MARGIN_NS = TICK_NS
FOLLOWER, CAMPAIGNING, LEADER = State.FOLLOWER.value, State.CAMPAIGNING.value, State.LEADER.value
LAPSED, PROMOTING = State.LAPSED.value, State.PROMOTING.value
HOLDING = {LEADER, LAPSED, PROMOTING}
CONFIRMED = {"GRANTED", "RENEWED", "SAME"}
GONE = -1  # a sequence number that the record had before
NOMINALS = 2  # due times; all are due from the start


class Term(NamedTuple):
    """The term on a replica's board."""

    epoch: int = 0
    nonce: int = 0
    until: int = 0  # trusted until this tick


class Asked(NamedTuple):
    """A question whose answer is underway."""

    request: Request
    answer: Answer


class Replica(NamedTuple):
    """One replica: its board, its agent, its scheduler."""

    term: Term = Term()  # board
    next_nonce: int = 0  # board
    nonces: int = 0  # how many it drew
    state: str = FOLLOWER  # the value of a lease.State; empty: the agent is dead
    asked: Asked | None = None
    is_new: bool = True
    is_vacant: bool = False
    is_outlived: bool = False  # board: the scheduler that the term was issued to is dead
    seen: tuple[int, int, int] | None = None  # epoch, seq, the tick at which that means dead
    floor: int = 0
    renewed_at: int = -1  # one renewal in a tick is enough
    has_scheduler: bool = True
    refused: int = 0  # epoch that Redis fenced

    @property
    def held(self) -> tuple[int, int]:
        """The term without its trust."""
        return self.term.epoch, self.term.nonce


class Accepted(NamedTuple):
    """A fire that Redis accepted: kept to judge by, never read by anybody in the model."""

    nominal: int
    epoch: int
    nonce: int

    def is_of(self, record: Record) -> bool:
        """Whether it came from the term that ``record`` holds."""
        return record.holder != NOBODY and (self.epoch, self.nonce) == (record.epoch, record.nonce)


class ModelState(NamedTuple):
    """Everything."""

    now: int
    record: Record
    replicas: tuple[Replica, ...]
    late: frozenset[Request]
    faults: int  # that may still happen
    fires: tuple[Accepted, ...] = ()

    @property
    def trusting(self) -> list[int]:
        """The replicas that may act as the scheduler, as they believe."""
        return [number for number, replica in enumerate(self.replicas, 1) if replica.term.until > self.now]


@cache
def moved(state: str, event: ElectorEvent) -> str:
    """Return the state after an event, by the program's own table."""
    return step(State(state), event).value


@cache
def trusted_until(epoch: int, asked_at: int) -> int:
    """Return the tick at which a term ends that was asked for at ``asked_at``, by the program's own rule."""
    term = granted(epoch=epoch, nonce="", asked_at_ns=asked_at * TICK_NS, duration_ns=DURATION_NS, margin_ns=MARGIN_NS)
    return term.trusted_until_ns // TICK_NS


@cache
def watched(epoch: int, seq: int, remaining: int, now: int) -> tuple[int, int, int]:
    """Return what a follower saw, and the tick at which it means dead, by the program's own rule."""
    seen = Observation.of(
        epoch=epoch,
        seq=seq,
        remaining_ms=remaining * TICK_NS // MILLISECOND_NS,
        duration_ms=DURATION_NS // MILLISECOND_NS,
        now_ns=now * TICK_NS,
    )
    return epoch, seq, (seen.dead_at_ns - SLACK_NS) // TICK_NS  # the slack is far below a tick


def observe(world: ModelState, index: int, answer: Answer) -> ModelState:
    """Let a follower remember what an answer shows."""
    seen = watched(answer.epoch, answer.seq, answer.remaining, world.now)
    return put(world, index, is_new=False, is_vacant=answer.is_free, seen=seen)


def aged(me: Replica, now: int) -> Replica:
    """Make what is over equal, however long it is over."""
    term, seen = me.term, me.seen
    if term.until and term.until <= now:
        me = me._replace(term=Term(term.epoch, term.nonce, 0))
    if seen and seen[2] and seen[2] <= now:
        me = me._replace(seen=(seen[0], seen[1], 0))
    if me.asked is not None and me.asked.request.asked_at < now - DURATION:
        me = me._replace(asked=me.asked._replace(request=me.asked.request._replace(asked_at=now - DURATION)))
    return me if me.renewed_at < 0 else me._replace(renewed_at=-1)


def forget(world: ModelState, index: int) -> ModelState:
    """Nothing that was seen counts as silence."""
    return put(world, index, is_new=False, is_vacant=False, seen=None)


def failed(world: ModelState) -> ModelState:
    """One of the faults happened."""
    return world._replace(faults=world.faults - 1)


def underway(world: ModelState, request: Request) -> ModelState:
    """Nobody waits for it any more."""
    return world._replace(faults=world.faults - 1, late=world.late | {request._replace(asked_at=0)})


def stirred(world: ModelState, before: Record) -> ModelState:
    """Make every observation of an earlier (epoch, seq) equal: it never comes back. A seq is 0 (as now) or gone."""
    record = world.record
    if (record.epoch, record.seq) == (before.epoch, before.seq):
        return world
    replicas = tuple(missed(replica) for replica in world.replicas)
    late = frozenset(stale(request) for request in world.late)
    return world._replace(record=record._replace(seq=0), replicas=replicas, late=late)


def missed(me: Replica) -> Replica:
    """The record moved on from what a follower watched."""
    return me._replace(seen=(0, GONE, me.seen[2])) if me.seen else me


def stale(request: Request) -> Request:
    """The record moved on from what a campaign underway names."""
    if not isinstance(request, Campaign) or request.mode == "free":
        return request
    return request._replace(epoch_seen=0, seq_seen=GONE)


def put(world: ModelState, index: int, **fields: object) -> ModelState:
    """Return the world with fields of one replica changed."""
    replica = world.replicas[index]._replace(**fields)  # type: ignore[arg-type]  # names are fields of Replica
    return world._replace(replicas=replaced(world.replicas, index, replica))


def replaced(items: tuple, index: int, item: object) -> tuple:  # type: ignore[type-arg]
    """Return a tuple with one item replaced."""
    return (*items[:index], item, *items[index + 1 :])
