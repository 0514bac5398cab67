"""The lease in Redis: calls for the election.

Guarantees
    Epochs only grow, also when the lease itself was deleted. Every reply carries the whole
    record, so one round trip teaches a caller the world. Each call may be sent twice.

Does not guarantee
    That a holder still believes it holds. Trust is counted by the holder on its own clock
    from when it asked; what it writes is fenced by (epoch, nonce).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Literal

import msgspec

from supervisor.store.codec import number, pairs, text
from supervisor.store.keys import Keys
from supervisor.store.scripts import Call, script

Mode = Literal["cold", "expired", "free"]
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)


class LeaseCode(StrEnum):
    """What became of a call."""

    GRANTED = "GRANTED"
    SAME = "SAME"  # granted before to this nonce; renewed now, so trust counts from this question
    DENIED = "DENIED"
    RENEWED = "RENEWED"
    RECLAIMED = "RECLAIMED"  # it had run out, nobody took it
    MISSING = "MISSING"  # there is no lease: the data set was emptied
    LOST = "LOST"
    RELEASED = "RELEASED"
    ALREADY = "ALREADY"  # released before
    VIEW = "VIEW"


class CandidateInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A replica that could lead."""

    replica: str
    host: str = ""
    pid: int = 0
    version: str = ""
    started_ms: int = 0
    priority: int = 0
    draining: bool = False
    schedules_digest: str = ""
    seen_ms: int = 0  # Redis' time of its last campaign or renewal


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """The lease as Redis holds it, and what became of the call."""

    code: LeaseCode
    epoch: int
    nonce: str
    holder: str  # empty: free
    seq: int
    remaining_ms: int  # by Redis' time; negative when it has run out
    duration_ms: int
    now_ms: int
    genesis: str
    last_event: str  # id of the newest event; listen from here
    host: str = ""
    pid: int = 0
    version: str = ""
    acquired_ms: int = 0
    transitions: int = 0

    @property
    def is_ours(self) -> bool:
        """Whether the caller holds the term after this call."""
        return self.code in {LeaseCode.GRANTED, LeaseCode.SAME, LeaseCode.RENEWED, LeaseCode.RECLAIMED}


class Leases:
    """Builds the calls."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._record = {"lease": keys.lease, "genesis": keys.genesis, "events": keys.events}

    def campaign(
        self,
        *,
        replica: str,
        nonce: str,
        duration_ms: int,
        floor: int,
        mode: Mode,
        observed_epoch: int,
        observed_seq: int,
        info: CandidateInfo,
    ) -> Call[LeaseView]:
        """Ask for the lease, and register as a candidate.

        Args:
            replica: who asks.
            nonce: 32 hex digits, drawn once for each term and kept for retries.
            duration_ms: of the term.
            floor: highest epoch the caller has ever seen.
            mode: ``expired`` asserts that (observed_epoch, observed_seq) stood still for a whole duration on the
                caller's clock; ``cold`` lets Redis' time decide, for a caller without any observation; ``free`` wins
                only where nobody holds.
            observed_epoch: see mode.
            observed_seq: see mode.
            info: what others may know about the caller.
        """
        assert _NONCE.fullmatch(nonce), "a nonce is 32 hex digits"
        assert duration_ms > 0
        args = {
            "replica": replica,
            "nonce": nonce,
            "duration_ms": duration_ms,
            "floor": floor,
            "mode": mode,
            "epoch_seen": observed_epoch,
            "seq_seen": observed_seq,
            "host": info.host,
            "pid": info.pid,
            "version": info.version,
            "info": msgspec.json.encode(msgspec.structs.replace(info, replica=replica, seen_ms=0)),
        }
        keys = {**self._record, "fence": self._keys.fence, "candidates": self._keys.candidates}
        return script("lease_campaign").call(keys=keys, args=args, parse=_view)

    def renew(self, *, epoch: int, nonce: str, duration_ms: int) -> Call[LeaseView]:
        """Extend the caller's own term; never anybody else's."""
        keys = {**self._record, "candidates": self._keys.candidates}
        args = {"epoch": epoch, "nonce": nonce, "duration_ms": duration_ms}
        return script("lease_renew").call(keys=keys, args=args, parse=_view)

    def release(self, *, epoch: int, nonce: str, reason: str) -> Call[LeaseView]:
        """Give the caller's own term back; the event that wakes the standbys is part of it."""
        args = {"epoch": epoch, "nonce": nonce, "reason": reason}
        return script("lease_release").call(keys=self._record, args=args, parse=_view)

    def view(self) -> Call[LeaseView]:
        """Read the lease."""
        return script("lease_view").call(keys=self._record, args={}, parse=_view)

    def withdraw(self, replica: str) -> Call[None]:
        """Stop being a candidate."""
        keys = {"candidates": self._keys.candidates}
        return script("candidate_withdraw").call(keys=keys, args={"replica": replica}, parse=lambda _: None)

    def candidates(self) -> Call[list[CandidateInfo]]:
        """Read who could lead, in the order of their names. Whoever vanished is still in it; see ``seen_ms``."""
        return script("hash_read").call(keys={"hash": self._keys.candidates}, args={}, parse=_candidates)


def _view(reply: Any) -> LeaseView:
    code, epoch, nonce, holder, seq, remaining, duration, now, genesis, event, *rest = reply
    host, pid, version, acquired, transitions = rest
    return LeaseView(
        code=LeaseCode(text(code)),
        epoch=number(epoch),
        nonce=text(nonce),
        holder=text(holder),
        seq=number(seq),
        remaining_ms=number(remaining),
        duration_ms=number(duration),
        now_ms=number(now),
        genesis=text(genesis),
        last_event=text(event),
        host=text(host),
        pid=number(pid),
        version=text(version),
        acquired_ms=number(acquired),
        transitions=number(transitions),
    )


def _candidates(reply: Any) -> list[CandidateInfo]:
    found = []
    for replica, value in pairs(reply):
        seen, _, body = value.partition(b" ")
        try:
            info = msgspec.json.decode(body, type=CandidateInfo)
        except msgspec.DecodeError:  # another version's: it is there, that is all we know
            info = CandidateInfo(replica=text(replica))
        found.append(msgspec.structs.replace(info, replica=text(replica), seen_ms=number(seen)))
    return sorted(found, key=lambda info: info.replica)
