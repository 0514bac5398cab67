"""The lease: who may act as the scheduler, and until when they may believe it.

Guarantees
    A holder's trust ends before its lease can be taken from it, however slow the
    reply that granted it: trust counts from the moment the question was asked. This
    holds while two machines' clocks run at rates that differ by less than
    margin / duration.
    A follower calls a term dead only after it saw (epoch, seq) unchanged on its own
    clock, so no step of anybody's wall clock deposes a leader that renews.

Does not guarantee
    That a paused process notices in time. One that stopped between its check and its
    write still writes, so every write carries the term and the fire script refuses
    any but the newest.

Time enters as an argument, in nanoseconds of CLOCK_BOOTTIME. Nothing here reads a
clock, sleeps or logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from supervisor.core.board import Term
from supervisor.core.errors import TenureError

MS = 1_000_000
SLACK_NS = 5 * MS  # a follower waits this much longer than the record says: timers and rounding
STAGGER_NS = 15 * MS  # between two candidates that were woken by the same release
RETRY_FIRST_NS = 50 * MS
RETRY_LAST_NS = 400 * MS


class ImpossibleTransitionError(TenureError):
    """The elector met a pair of state and event that its table does not have."""


class State(Enum):
    """Where one replica stands in the election."""

    FOLLOWER = "follower"
    CAMPAIGNING = "campaigning"  # asked for the lease; the answer is not known, so the lease may be ours
    LEADER = "leader"
    LAPSED = "lapsed"  # trust ran out, nobody replaced us as far as we know; renewing goes on
    RESIGNING = "resigning"  # giving the term back; not confirmed yet
    STOPPED = "stopped"


class Event(Enum):
    """What can happen to it."""

    RESUMED = "resumed"  # the board holds a term of an agent that died
    CAMPAIGN = "campaign"  # about to ask for the lease
    ADOPTED = "adopted"  # the lease is ours since an earlier question, of unknown age
    GRANTED = "granted"  # campaign or renewal confirmed
    REFUSED = "refused"  # another term stands, or the record is gone
    TRUST_EXPIRED = "trust_expired"
    RESIGN = "resign"
    RELEASED = "released"  # the release was confirmed, or is given up to expiry
    STOP = "stop"


# Pairs that are absent are impossible, and raise. A test walks the full product.
TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.FOLLOWER, Event.RESUMED): State.LAPSED,
    (State.FOLLOWER, Event.CAMPAIGN): State.CAMPAIGNING,
    (State.FOLLOWER, Event.STOP): State.STOPPED,
    (State.CAMPAIGNING, Event.CAMPAIGN): State.CAMPAIGNING,  # unanswered: the same nonce asks again
    (State.CAMPAIGNING, Event.ADOPTED): State.LAPSED,
    (State.CAMPAIGNING, Event.GRANTED): State.LEADER,
    (State.CAMPAIGNING, Event.REFUSED): State.FOLLOWER,
    (State.CAMPAIGNING, Event.RESIGN): State.RESIGNING,  # stopped before the answer was known
    (State.LEADER, Event.GRANTED): State.LEADER,
    (State.LEADER, Event.REFUSED): State.FOLLOWER,
    (State.LEADER, Event.TRUST_EXPIRED): State.LAPSED,
    (State.LEADER, Event.RESIGN): State.RESIGNING,
    (State.LAPSED, Event.GRANTED): State.LEADER,
    (State.LAPSED, Event.REFUSED): State.FOLLOWER,
    (State.LAPSED, Event.RESIGN): State.RESIGNING,
    (State.RESIGNING, Event.RELEASED): State.FOLLOWER,
}


def step(state: State, event: Event) -> State:
    """Return the state after ``event``.

    Raises:
        ImpossibleTransitionError: the pair cannot happen, so the program is wrong.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ImpossibleTransitionError(f"{event.value} cannot happen to a {state.value} replica") from None


def granted(*, epoch: int, nonce: str, asked_at_ns: int, duration_ns: int, margin_ns: int) -> Term:
    """Return the term a reply confirms, trusted from when we *asked*, so that a slow reply cannot stretch it."""
    assert epoch > 0
    assert 0 < margin_ns < duration_ns
    return Term(epoch, nonce, asked_at_ns + duration_ns - margin_ns)


@dataclass(frozen=True, slots=True)
class Observation:
    """What a follower last saw of the lease, and when by its own clock it received that."""

    epoch: int
    seq: int
    dead_at_ns: int  # unchanged until then: dead

    @classmethod
    def of(cls, *, epoch: int, seq: int, remaining_ms: int, duration_ms: int, now_ns: int) -> Observation:
        """Build from a reply received at ``now_ns``.

        The record's remaining time is a hint by Redis' clock: outside (0, duration] that
        clock stepped or the term is overdue, and then only a full duration of silence counts.
        """
        wait_ms = remaining_ms if 0 < remaining_ms <= duration_ms else duration_ms
        return cls(epoch, seq, now_ns + wait_ms * MS + SLACK_NS)


@dataclass(frozen=True, slots=True)
class Rank:
    """What decides between candidates that wake at the same release; the smaller one goes first."""

    draining: bool
    priority: int
    started_ms: int
    replica: str

    @property
    def key(self) -> tuple[bool, int, int, str]:
        """Draining last, then the higher priority, then the youngest, so that a rolling restart converges."""
        return (self.draining, -self.priority, -self.started_ms, self.replica)


def stagger_ns(me: Rank, others: Iterable[Rank]) -> int:
    """Return how long ``me`` lets better candidates go first."""
    return STAGGER_NS * sum(other.key < me.key for other in others if other.replica != me.replica)


def retry_delay_ns(failures: int, uniform: float) -> int:
    """Return the pause after the ``failures``-th error in a row: 50 to 400 ms, half of it drawn."""
    assert failures >= 1
    ceiling = min(RETRY_LAST_NS, RETRY_FIRST_NS << min(failures - 1, 10))
    return int(ceiling * (0.5 + 0.5 * uniform))
