"""The protocol with one protection removed. The exploration must find the path on which that shows."""

from __future__ import annotations

from tests.model.protocol import Bounds, Protocol
from tests.model.record import NOBODY, Campaign, Fire, Record, Redis, Release, Renew
from tests.model.world import DURATION_NS, MARGIN_NS, TICK_NS, Replica


class _NoFence(Redis):
    def is_term(self, record: Record, epoch: int, nonce: int) -> bool:
        """Whoever asks, the lease is theirs."""
        return record.epoch > 0


class _FireIsNotFenced(Redis):
    def fire(self, record: Record, ask: Fire, now: int) -> tuple[Record, str]:
        """Enqueue for any term."""
        return (record._replace(mark=ask.nominal), "FIRED") if self.is_next(record, ask) else (record, "DUP")


class _WatermarkIsNotCompared(Redis):
    def is_next(self, record: Record, ask: Fire) -> bool:
        """Enqueue whatever was enqueued before."""
        return True


class _ReleaseIsNotCompared(Redis):
    def release(self, record: Record, ask: Release, now: int) -> tuple[Record, str]:
        """Free the lease, whoever holds it."""
        return record._replace(holder=NOBODY, nonce=0, until=0, released=ask.nonce), "RELEASED"


class _RenewalIsNotCompared(Redis):
    def renew(self, record: Record, ask: Renew, now: int) -> tuple[Record, str]:
        """Tell everybody that they hold the lease."""
        return record, "RENEWED"


class _ObservationIsNotCompared(Redis):
    def is_granted(self, record: Record, ask: Campaign, now: int) -> bool:
        """Believe a follower that the holder is dead."""
        return ask.mode == "expired" or super().is_granted(record, ask, now)


class _PromotionKeepsTheEpoch(Redis):
    def grant(self, record: Record, replica: int, nonce: int, floor: int, now: int) -> Record:
        """Give a holder a new nonce and the epoch it has."""
        granted = super().grant(record, replica, nonce, floor, now)
        return granted._replace(epoch=record.epoch, fence=record.fence) if record.holder == replica else granted


class _TrustCountsFromTheReply(Protocol):
    def trusted_until(self, epoch: int, asked_at: int, now: int) -> int:
        """Count when the answer was read, not when the question was asked."""
        return now + (DURATION_NS - MARGIN_NS) // TICK_NS


class _TwoDrawTheSameNonce(Protocol):
    def new_nonce(self, index: int, me: Replica) -> int:
        """Know no chance."""
        return 7


class _FollowerNeverAsks(Protocol):
    def is_patient(self, dead_at: int, now: int) -> bool:
        """Wait for a holder that is silent, for ever."""
        return True

    def is_over(self, record: Record, now: int) -> bool:
        """Believe no end."""
        return False


_SMALL = Bounds(ticks=3, faults=1)
MUTATIONS: dict[str, Protocol] = {
    "no script compares the term": Protocol(_SMALL, _NoFence()),
    "fire does not compare the term": Protocol(_SMALL, _FireIsNotFenced()),
    "fire does not compare the watermark": Protocol(_SMALL, _WatermarkIsNotCompared()),
    "release does not compare the term": Protocol(_SMALL, _ReleaseIsNotCompared()),
    "renewal does not compare the term": Protocol(_SMALL, _RenewalIsNotCompared()),
    "campaign does not compare the observation": Protocol(_SMALL, _ObservationIsNotCompared()),
    "promotion keeps the epoch": Protocol(_SMALL, _PromotionKeepsTheEpoch()),
    "trust counts from the reply": _TrustCountsFromTheReply(_SMALL),
    "two replicas draw the same nonce": _TwoDrawTheSameNonce(_SMALL),
    "a follower waits for ever": _FollowerNeverAsks(_SMALL),
}
