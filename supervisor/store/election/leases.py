"""The lease in Redis: calls for the election.

Guarantees
    Epochs only grow, also when the lease itself was deleted. Every reply carries the whole
    record, so one round trip teaches a caller the world. Each call may be sent twice.

Does not guarantee
    That a holder still believes it holds. Trust is counted by the holder on its own clock
    from when it asked; its writes are fenced by (epoch, nonce).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, cast

import msgspec

from supervisor.core.election.lease import Term
from supervisor.core.json_values import read_json
from supervisor.core.signing import Signer, without_mark
from supervisor.store.keys import Keys, LeaseKeys
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import cut, foreign_number, number, pairs, text

Mode = Literal["cold", "expired", "free", "presence", "register"]
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
FRESH_LEASES = 3  # a candidate that was seen within so many lease durations is alive, or died just now
DURATION_MS_MAX = 3_600_000  # far above every lease that can be configured: nobody waits for a longer one
_DOUBTFUL_MS = 86_400_000  # each schedule was decided long since: a time that is older, or to come, says nothing
_SEQ_UNREADABLE = 10**15  # plus the record's end, as the script of a campaign counts it
EPOCH_END = 10**14  # no clock in milliseconds comes near it: what is there or above was not granted


class LeaseCode(StrEnum):
    """Result code of a lease call."""

    GRANTED = "GRANTED"
    SAME = "SAME"  # granted before to this nonce; renewed now, so trust counts from this question
    DENIED = "DENIED"
    RENEWED = "RENEWED"
    RECLAIMED = "RECLAIMED"  # it had run out, nobody took it
    OUTDATED = "OUTDATED"  # renewed; a later term was granted by data that Redis lost since
    MISSING = "MISSING"  # there is no lease: the data set was emptied
    LOST = "LOST"
    RELEASED = "RELEASED"
    ALREADY = "ALREADY"  # released before
    REQUESTED = "REQUESTED"
    CLEARED = "CLEARED"
    VIEW = "VIEW"


_NUMBERS = ("epoch", "seq", "duration", "pid", "acquired", "transitions", "roster")
RENEWALS = frozenset({LeaseCode.RENEWED, LeaseCode.RECLAIMED, LeaseCode.OUTDATED})
_OURS = RENEWALS | {LeaseCode.GRANTED, LeaseCode.SAME}


class CandidateInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A replica that could lead."""

    replica: str
    host: str = ""
    pid: int = 0
    version: str = ""
    started_ms: int = 0
    priority: int = 0
    draining: bool = False
    participates: bool = True  # False: it only works, and never asks for the lease
    schedules_digest: str = ""
    wall_ms: int = 0  # its own clock when it asked; 0: an older version, which does not say
    seen_ms: int = 0  # Redis' time of its last campaign or renewal

    @property
    def skew_ms(self) -> int | None:
        """Lead of its clock over Redis', less the way of its question; None: not known."""
        return self.wall_ms - self.seen_ms if self.wall_ms and self.seen_ms else None


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """The lease as Redis holds it, and the result of the call."""

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
    hold: str = ""  # why the leader must not fire until a person says so; empty: it may
    is_resign_requested: bool = False  # of this very term
    resign_to: str = ""  # who should lead next; empty: any
    resign_by: str = ""
    roster: int = 0  # grows whenever a candidate comes or leaves
    presence: int = -1  # connections that show that the holder lives; -1: not asked, or the server does not say
    unreadable: tuple[str, ...] = ()  # fields that hold what no replica writes; each counts as 0 or empty
    doubtful_until_ms: int = 0  # Redis' time of the latest loss of data, for a day; 0: none
    gap_ms: int = -1  # with GRANTED: since the last term ended, by Redis' time; -1: there was none

    def fault_of_resign(self, signer: Signer, now_ms: int) -> str:
        """Return why the holder does not hand over although the record asks for it; empty when it does."""
        return signer.fault_of_mark(self.resign_by, now_ms, "resign", str(self.epoch), self.resign_to)

    @property
    def is_ours(self) -> bool:
        """True if the caller holds the term after this call."""
        return self.code in _OURS


class LeaseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to the lease."""

    at_ms: int  # by Redis' clock
    kind: str
    epoch: int
    who: str
    reason: str

    @classmethod
    def of(cls, event_id: str, fields: Mapping[str, str]) -> LeaseEvent:
        """Return the event of a stream entry; fields that another version wrote differently stay empty."""
        return cls(
            at_ms=int(event_id.partition("-")[0]),
            kind=fields.get("kind", ""),
            epoch=foreign_number(fields.get("epoch", "")) or 0,
            who=cut(without_mark(fields.get("who", ""))),
            reason=cut(fields.get("reason", "")),
        )


class Leases(CallBuilder):
    """Builds the calls."""

    def __init__(self, keys: LeaseKeys, *, has_presence: bool = False) -> None:
        """Build calls on ``keys``; with ``has_presence`` they ask and report who shows that it lives."""
        super().__init__(cast("Keys", keys))  # its scripts name no others
        self._alive = keys.alive if has_presence else ""

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
        genesis: str = "",
        hold: str = "",
    ) -> Call[LeaseView]:
        """Ask for the lease, and register as a candidate.

        Args:
            replica: who asks.
            nonce: 32 hex digits, drawn once for each term and kept for retries.
            duration_ms: of the term.
            floor: highest epoch the caller has ever seen.
            mode: ``expired`` asserts that (observed_epoch, observed_seq) stood still for a whole duration on the
                caller's clock; ``presence`` that the holder is not visible any more, which the script looks at again;
                ``cold`` that they stood still for as long as a renewal takes, and Redis' time must be past the record's
                end; ``free`` wins only where nobody holds; ``register`` never wins.
            observed_epoch: see mode.
            observed_seq: see mode.
            info: data about the caller for others.
            genesis: identity of the data set that the caller knew; empty: none yet.
            hold: why the new term must not fire until a person clears it; empty: it may.
        """
        assert _NONCE.fullmatch(nonce), "a nonce is 32 hex digits"
        assert duration_ms > 0
        args = {
            "replica": replica, "nonce": nonce, "duration_ms": duration_ms, "floor": floor, "mode": mode,
            "epoch_seen": observed_epoch, "seq_seen": observed_seq, "host": info.host, "pid": info.pid,
            "version": info.version, "info": _entry(msgspec.structs.replace(info, replica=replica)),
            "genesis_seen": genesis, "hold": hold, "alive": self._alive,
        }  # fmt: skip
        return self._call("lease_campaign", args, _view)

    def renew(
        self,
        term: Term,
        *,
        duration_ms: int,
        info: CandidateInfo | None = None,
        hold: str = "",
        is_present: bool = False,
    ) -> Call[LeaseView]:
        """Extend the caller's own term; never anybody else's.

        Args:
            term: the caller's.
            duration_ms: how long it lasts from now.
            info: data about the caller for others from now on; None: as it was.
            hold: why it must not fire until a person clears it; empty: nothing new.
            is_present: the caller shows by a subscription that it lives; the record then shows whether that is visible.
        """
        alive = self._alive if is_present else ""
        args = {"epoch": term.epoch, "nonce": term.nonce, "duration_ms": duration_ms, "hold": hold, "alive": alive}
        args |= {"replica": info.replica if info else "", "info": _entry(info) if info else ""}
        return self._call("lease_renew", args, _view)

    def promote(self, term: Term, *, new_nonce: str, duration_ms: int, is_rolled_back: bool = False) -> Call[LeaseView]:
        """Give the caller's own term a later epoch, after the confirmed death of its scheduler or a roll-back."""
        assert _NONCE.fullmatch(new_nonce), "a nonce is 32 hex digits"
        args = {"epoch": term.epoch, "nonce": term.nonce, "new_nonce": new_nonce, "duration_ms": duration_ms}
        args["rolled_back"] = int(is_rolled_back)
        return self._call("lease_promote", args, _view)

    def release(self, term: Term, *, reason: str, prefer: str = "") -> Call[LeaseView]:
        """Give the caller's own term back; the event that wakes the standbys is part of it."""
        args = {"epoch": term.epoch, "nonce": term.nonce, "reason": reason, "prefer": prefer}
        return self._call("lease_release", args, _view)

    def request_resign(
        self, *, epoch: int, to: str, by: str, signer: Signer | None = None, at_ms: int = 0
    ) -> Call[LeaseView]:
        """Ask the holder of ``epoch``, and no other, to hand over to ``to`` (empty: to any); signed at ``at_ms``."""
        marked = by if signer is None else signer.mark(by, at_ms, "resign", str(epoch), to)
        return self._call("lease_request_resign", {"epoch": epoch, "to": to, "by": marked}, _view)

    def clear_hold(self, *, by: str) -> Call[LeaseView]:
        """Let the leader fire again after a loss of data."""
        return self._call("lease_clear_hold", {"by": by}, _view)

    def view(self, *, with_presence: bool = False) -> Call[LeaseView]:
        """Read the lease."""
        alive = self._alive if with_presence else ""
        names = {name: self._behind_prefix(getattr(self.keys, name)) for name in ("lease", "genesis", "events")}
        return self._call("lease_view", {"alive": alive, **names}, _view)

    def history(self, count: int) -> Call[list[LeaseEvent]]:
        """Read the events of the lease, newest first, at most ``count``."""
        return self._call("lease_history", {"count": count, "events": self._behind_prefix(self.keys.events)}, _events)

    def withdraw(self, *replicas: str) -> Call[None]:
        """Take replicas off the candidates, 1 to 100 of them."""
        return self._call("candidate_withdraw", {"replicas": replicas}, lambda _: None)

    def keep(self, ttl_ms: int) -> Call[int]:
        """Let the record of a leadership of programs expire ``ttl_ms`` from now, unless it is kept again."""
        return self._call("lease_keep", {"ttl_ms": ttl_ms}, int)

    def candidates(self) -> Call[list[CandidateInfo]]:
        """Read who could lead, in the order of their names. Whoever vanished is still in it; see ``seen_ms``."""
        return self._hash(self.keys.candidates, _candidates)


def _entry(info: CandidateInfo) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(info, seen_ms=0))


def _view(reply: Any) -> LeaseView:
    code, epoch, nonce, holder, seq, remaining, duration, now, genesis, event, *rest = reply
    code = LeaseCode(text(code))
    host, pid, version, acquired, transitions, hold, is_asked, resign_to, resign_by, roster, presence, gap, doubtful = (
        rest
    )
    written = (epoch, seq, duration, pid, acquired, transitions, roster)
    numbers = dict(zip(_NUMBERS, map(foreign_number, written), strict=True))
    if code not in _OURS and not int(bool(holder)) <= (numbers["epoch"] or 0) < EPOCH_END:
        numbers["epoch"] = None
    if (numbers["duration"] or 0) > DURATION_MS_MAX:
        numbers["duration"] = None
    unreadable = [name for name, value in numbers.items() if value is None and (name != "pid" or text(pid))]
    if not event:
        unreadable.append("events")
    is_nonce = _NONCE.fullmatch(text(nonce)) is not None and nonce.strip(b"0") != b""
    if not is_nonce and holder:
        unreadable.append("nonce")
    if holder and number(remaining) == -number(now):
        unreadable.append("until")
    return LeaseView(
        code=code,
        epoch=numbers["epoch"] or 0,
        nonce=text(nonce) if is_nonce else "",
        holder=text(holder),
        seq=_SEQ_UNREADABLE + number(remaining) + number(now) if numbers["seq"] is None else numbers["seq"],
        remaining_ms=number(remaining),
        duration_ms=numbers["duration"] or 0,
        now_ms=number(now),
        genesis=text(genesis),
        last_event=text(event),
        host=text(host),
        pid=numbers["pid"] or 0,
        version=text(version),
        acquired_ms=numbers["acquired"] or 0,
        transitions=numbers["transitions"] or 0,
        hold=text(hold),
        is_resign_requested=text(is_asked) == "1",
        resign_to=text(resign_to),
        resign_by=text(resign_by),
        roster=numbers["roster"] or 0,
        unreadable=tuple(unreadable),
        presence=number(presence),
        gap_ms=number(gap),
        doubtful_until_ms=_recent(foreign_number(doubtful) or 0, number(now)),
    )


def _recent(doubtful_until_ms: int, now_ms: int) -> int:
    """Return the time of a loss; 0 when it is no time of the last day."""
    return doubtful_until_ms if 0 <= now_ms - doubtful_until_ms < _DOUBTFUL_MS else 0


def _events(reply: Any) -> list[LeaseEvent]:
    names = ("kind", "epoch", "who", "reason")
    rows = [reply[at : at + 5] for at in range(0, len(reply), 5)]
    return [LeaseEvent.of(text(each[0]), dict(zip(names, map(text, each[1:]), strict=True))) for each in rows]


def _candidates(reply: Any) -> list[CandidateInfo]:
    found = []
    for replica, value in pairs(reply):
        seen, _, body = value.partition(b" ")
        try:
            info = read_json(body, CandidateInfo)
        except msgspec.DecodeError:  # another version's: it is there, that is all we know
            info = CandidateInfo(replica=text(replica))
        found.append(msgspec.structs.replace(info, replica=text(replica), seen_ms=foreign_number(seen) or 0))
    return sorted(found, key=lambda info: info.replica)
