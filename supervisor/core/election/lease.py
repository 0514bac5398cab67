"""The lease: who may act as the scheduler, and until when they may believe it.

Guarantees
    A holder's trust ends before its lease can be taken from it, however slow the
    reply that granted it: trust counts from the moment the question was asked. This
    holds while two machines' clocks run at rates that differ by less than
    margin / duration.
    A follower calls a term dead only after it saw (epoch, seq) unchanged on its own
    clock, so no step of anybody's wall clock deposes a leader that renews.
    A Redis that lost data is noticed by earlier observations of it, and the highest term
    seen is waited out before anybody asks for another.

Does not guarantee
    That a paused process notices in time. One that stopped between its check and its
    write still writes, so every write carries the term and the fire script refuses
    any but the newest.

Time enters as an argument, in nanoseconds of CLOCK_BOOTTIME. Nothing here reads a
clock, sleeps or logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from supervisor.core.errors import TenureError
from supervisor.core.units import MILLISECOND_NS

SLACK_NS = 5 * MILLISECOND_NS  # a follower waits this much longer than the record says: timers and rounding
STAGGER_NS = 15 * MILLISECOND_NS  # between two candidates that were woken by the same release
STAGGER_NS_MAX = 1000 * MILLISECOND_NS  # for all of them: who is listed may be anybody, and need not live
PREFER_NS = 250 * MILLISECOND_NS  # how long the others leave a released lease to the one that was asked for
RETRY_FIRST_NS = 50 * MILLISECOND_NS
RETRY_LAST_NS = 400 * MILLISECOND_NS


class ImpossibleTransitionError(TenureError):
    """The elector met a pair of state and event that its table does not have."""


class State(Enum):
    """State of one replica in the election."""

    FOLLOWER = "follower"
    CAMPAIGNING = "campaigning"  # asked for the lease; the answer is not known, so the lease may be ours
    LEADER = "leader"
    PROMOTING = "promoting"  # asked for a later epoch of its own term; either may stand. Not trusted meanwhile
    LAPSED = "lapsed"  # trust ran out, nobody replaced us as far as we know; renewing goes on
    RESIGNING = "resigning"  # giving the term back; not confirmed yet
    STOPPED = "stopped"


class ElectorEvent(Enum):
    """Events that change the state of a replica in the election."""

    RESUMED = "resumed"  # the board holds a term of an agent that died
    CAMPAIGN = "campaign"  # about to ask for the lease
    ADOPTED = "adopted"  # the lease is ours since an earlier question, of unknown age
    GRANTED = "granted"  # campaign or renewal confirmed
    REFUSED = "refused"  # another term stands, or the record is gone
    TRUST_EXPIRED = "trust_expired"
    PROMOTE = "promote"  # its scheduler died: about to ask for a later epoch
    RESIGN = "resign"
    RELEASED = "released"  # the release was confirmed, or is given up to expiry
    STOP = "stop"


# Pairs that are absent are impossible, and raise: a program that gets there believes something false about its lease.
# A test names each of them and walks the full product.
TRANSITIONS: dict[tuple[State, ElectorEvent], State] = {
    (State.FOLLOWER, ElectorEvent.RESUMED): State.LAPSED,
    (State.FOLLOWER, ElectorEvent.CAMPAIGN): State.CAMPAIGNING,
    (State.FOLLOWER, ElectorEvent.STOP): State.STOPPED,
    (State.CAMPAIGNING, ElectorEvent.CAMPAIGN): State.CAMPAIGNING,  # unanswered: the same nonce asks again
    (State.CAMPAIGNING, ElectorEvent.ADOPTED): State.LAPSED,
    (State.CAMPAIGNING, ElectorEvent.GRANTED): State.LEADER,
    (State.CAMPAIGNING, ElectorEvent.REFUSED): State.FOLLOWER,
    (State.CAMPAIGNING, ElectorEvent.RESIGN): State.RESIGNING,  # stopped before the answer was known
    (State.LEADER, ElectorEvent.GRANTED): State.LEADER,
    (State.LEADER, ElectorEvent.REFUSED): State.FOLLOWER,
    (State.LEADER, ElectorEvent.TRUST_EXPIRED): State.LAPSED,
    (State.LEADER, ElectorEvent.PROMOTE): State.PROMOTING,
    (State.LEADER, ElectorEvent.RESIGN): State.RESIGNING,
    (State.PROMOTING, ElectorEvent.PROMOTE): State.PROMOTING,  # unanswered: the same nonce asks again
    (State.PROMOTING, ElectorEvent.GRANTED): State.LEADER,
    (State.PROMOTING, ElectorEvent.REFUSED): State.FOLLOWER,
    (State.PROMOTING, ElectorEvent.RESIGN): State.RESIGNING,
    (State.LAPSED, ElectorEvent.GRANTED): State.LEADER,
    (State.LAPSED, ElectorEvent.REFUSED): State.FOLLOWER,
    (State.LAPSED, ElectorEvent.PROMOTE): State.PROMOTING,
    (State.LAPSED, ElectorEvent.RESIGN): State.RESIGNING,
    (State.RESIGNING, ElectorEvent.RELEASED): State.FOLLOWER,
}


def step(state: State, event: ElectorEvent) -> State:
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
    """Last lease that a follower saw, and the local time until which it counts as alive if it does not change."""

    epoch: int
    seq: int
    dead_at_ns: int  # unchanged until then: dead

    @classmethod
    def of(cls, *, epoch: int, seq: int, remaining_ms: int, duration_ms: int, now_ns: int) -> Observation:
        """Return the observation of a reply.

        The record's remaining time is a hint by Redis' clock: outside (0, duration] that clock stepped or the term is
        overdue, and then only a full duration of silence counts.

        Args:
            epoch: of the term.
            seq: counts its renewals.
            remaining_ms: until the record ends, by Redis' clock; any number.
            duration_ms: of the lease, from the record, above 0.
            now_ns: elapsed time of this machine when the reply arrived.
        """
        wait_ms = remaining_ms if 0 < remaining_ms <= duration_ms else duration_ms
        return cls(epoch, seq, now_ns + wait_ms * MILLISECOND_NS + SLACK_NS)


class Loss(StrEnum):
    """Kind of data loss in Redis that a reply reveals."""

    DATA = "data"  # another data set than before, or an empty one
    ROLLED_BACK = "rolled_back"  # the same one, at an earlier moment: an asynchronous fail-over, a restored copy


class DataLoss(StrEnum):
    """Response of a leader to a loss of data in Redis."""

    RESUME = "resume"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a replica about the lease, whatever becomes of Redis."""

    floor: int = 0  # highest epoch ever seen; a campaign must win a higher one
    believed_ns: int = 0  # for so long from its last renewal on another replica believes in that term; 0: none does
    epoch: int = 0  # of the last reply
    seq: int = 0
    genesis: str = ""  # identity of the data set of the last reply; empty: it had none yet

    def learn(self, seen: Sight) -> tuple[Memory, Loss | None]:
        """Return the memory after a reply, and the loss of data that it shows, if any.

        A loss is found once: the last sight is compared with this one, and this one is remembered.
        """
        believed_ns = self.believed_ns
        if seen.epoch >= self.floor:
            believed_ns = seen.duration_ns if seen.is_held and not seen.is_ours else 0
        floor = max(self.floor, seen.epoch)
        return Memory(floor, believed_ns, seen.epoch, seen.seq, seen.genesis), self._loss(seen)

    def heard_release(self, epoch: int) -> Memory:
        """Return the memory once the holder of ``epoch`` announced its end: nobody believes in it."""
        return replace(self, believed_ns=0) if epoch >= self.floor else self

    def _loss(self, seen: Sight) -> Loss | None:
        is_empty = seen.epoch == 0 and seen.genesis == "" and self.epoch > 0
        if is_empty or self.genesis not in {"", seen.genesis}:
            return Loss.DATA
        seq_min = self.seq + seen.is_renewal
        if seen.epoch < self.epoch or (seen.epoch == self.epoch and seen.seq < seq_min):
            return Loss.ROLLED_BACK
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Lease as one reply shows it."""

    epoch: int
    seq: int
    genesis: str
    duration_ns: int
    is_held: bool
    is_ours: bool
    is_renewal: bool  # the question itself raised the sequence number


@dataclass(frozen=True, slots=True)
class Rank:
    """Order of candidates that wake at the same release; the smaller one goes first."""

    draining: bool
    is_skewed: bool  # its wall clock is not Redis'
    priority: int
    version: str
    started_ms: int
    replica: str

    @property
    def key(self) -> tuple[bool, bool, int, tuple[int, ...], int, str]:
        """Draining last, then wrong clocks; the higher priority, the newer version, the younger: restarts converge."""
        newest_first = tuple(-number for number in version_key(self.version))
        return (self.draining, self.is_skewed, -self.priority, newest_first, -self.started_ms, self.replica)


_NUMBER = r"\d{1,18}"  # int() refuses thousands of digits, which a stranger's entry may hold
_VERSION = re.compile(rf"v?({_NUMBER})(?:\.({_NUMBER}))?(?:\.({_NUMBER}))?(?:\.({_NUMBER}))?(.*)", re.ASCII)
_PRE_RELEASE = re.compile(r"[._-]?(a|b|c|rc|alpha|beta|pre|preview|dev)[._-]?(\d{0,18})", re.ASCII)


def version_key(version: str) -> tuple[int, ...]:
    """Return a sort key of versions by number, a pre-release before its release (PEP 440's sense, not its letter).

    Versions that cannot be read are older than all others.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0, 0, 0, 0)
    numbers = tuple(int(part or 0) for part in found.groups()[:4])
    before = _PRE_RELEASE.match(found[5])
    if before is None:
        return (*numbers, 0, 0)
    kind = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2}.get(before[1], -1)
    return (*numbers, kind, int(before[2] or 0))


def stagger_ns(me: Rank, others: Iterable[Rank]) -> int:
    """Return how long ``me`` lets better candidates go first."""
    better = sum(other.key < me.key for other in others if other.replica != me.replica)
    return min(STAGGER_NS * better, STAGGER_NS_MAX)


def is_named(replica: str, name: str) -> bool:
    """Return whether ``name``, a replica's own name or its full id, means ``replica`` (``name.suffix``)."""
    return name in {replica, replica.rpartition(".")[0]} and name != ""


def retry_delay_ns(failures: int, uniform: float) -> int:
    """Return the pause after the ``failures``-th error in a row: 50 to 400 ms, half of it drawn."""
    assert failures >= 1
    ceiling = min(RETRY_LAST_NS, RETRY_FIRST_NS << min(failures - 1, 10))
    return int(ceiling * (0.5 + 0.5 * uniform))


@dataclass(frozen=True, slots=True)
class Term:
    """One term of leadership. ``epoch`` 0: none."""

    epoch: int
    nonce: str  # 32 hex digits
    trusted_until_ns: int

    def is_trusted(self, now_ns: int) -> bool:
        """Return whether its holder may still act on it."""
        return self.epoch > 0 and now_ns < self.trusted_until_ns


NO_TERM = Term(epoch=0, nonce="0" * 32, trusted_until_ns=0)
