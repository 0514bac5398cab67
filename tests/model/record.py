"""Redis as the model sees it: the lease record, one watermark, and what each script does to them.

One method for one Lua file, branch by branch. ``test_record.py`` sends random calls to both and
compares, so that what is proved of this file is proved of the scripts.
"""

from __future__ import annotations

from typing import NamedTuple

NOBODY = 0
DURATION = 2  # ticks that a term lasts unless renewed


class Record(NamedTuple):
    """What Redis keeps. Nonces and replicas are small numbers; 0 is none."""

    epoch: int = 0
    nonce: int = 0
    holder: int = NOBODY
    seq: int = 0
    until: int = 0
    released: int = 0  # the nonce that gave the term back
    fence: int = 0  # highest epoch ever granted
    mark: int = 0  # the watermark of the one schedule


class Answer(NamedTuple):
    """What every script replies: its code, and what its reader uses of the record."""

    code: str
    epoch: int
    nonce: int
    is_free: bool = False
    seq: int = 0
    remaining: int = 0


class Campaign(NamedTuple):
    """A request for the lease."""

    replica: int
    asked_at: int
    nonce: int
    floor: int
    mode: str
    epoch_seen: int = 0
    seq_seen: int = 0


class Renew(NamedTuple):
    """A request to extend a term."""

    replica: int
    asked_at: int
    epoch: int
    nonce: int


class Release(NamedTuple):
    """A request to give a term back."""

    replica: int
    asked_at: int
    epoch: int
    nonce: int


class Promote(NamedTuple):
    """A request of the holder to go on under a higher epoch, after its scheduler died."""

    replica: int
    asked_at: int
    epoch: int
    nonce: int
    new_nonce: int


class View(NamedTuple):
    """A question that writes nothing."""

    replica: int
    asked_at: int


class Fire(NamedTuple):
    """A due time to enqueue."""

    replica: int
    asked_at: int
    epoch: int
    nonce: int
    mark: int  # the watermark that the scheduler saw
    nominal: int


Request = Campaign | Renew | Release | Promote | View | Fire


class Redis:
    """The scripts. A mutation overrides one method."""

    def run(self, record: Record, request: Request, now: int) -> tuple[Record, Answer]:
        """Run one script; return the record after it and the answer."""
        after, code = getattr(self, type(request).__name__.lower())(record, request, now)
        if code in {"GRANTED", "RENEWED", "SAME"}:
            return after, Answer(code, after.epoch, after.nonce)
        left = max(0, after.until - now)
        return after, Answer(code, after.epoch, after.nonce, after.holder == NOBODY, after.seq, left)

    def campaign(self, record: Record, ask: Campaign, now: int) -> tuple[Record, str]:
        """lease_campaign.lua."""
        if record.nonce == ask.nonce:
            return record._replace(until=now + DURATION, seq=record.seq + 1), "SAME"
        if not self.is_granted(record, ask, now):
            return record, "DENIED"
        return self.grant(record, ask.replica, ask.nonce, ask.floor, now), "GRANTED"

    def is_granted(self, record: Record, ask: Campaign, now: int) -> bool:
        """Whether the record is free, or stood still for the caller, who waited less where it is past its end (cold).

        One that is absent is refused to whoever watched a term: the data was lost.
        """
        is_watched = (record.epoch, record.seq) == (ask.epoch_seen, ask.seq_seen)
        if record.holder == NOBODY:
            return record.epoch > 0 or ask.mode != "expired" or is_watched
        return is_watched and (ask.mode == "expired" or (ask.mode == "cold" and record.until <= now))

    def grant(self, record: Record, replica: int, nonce: int, floor: int, now: int) -> Record:
        """Begin a term above every earlier one."""
        epoch = max(record.epoch, record.fence, floor) + 1
        return Record(epoch, nonce, replica, 0, now + DURATION, record.released, epoch, record.mark)

    def renew(self, record: Record, ask: Renew, now: int) -> tuple[Record, str]:
        """lease_renew.lua."""
        if record.epoch == 0:
            return record, "MISSING"
        if not self.is_term(record, ask.epoch, ask.nonce):
            return record, "LOST"
        return record._replace(until=now + DURATION, seq=record.seq + 1), "RENEWED"

    def release(self, record: Record, ask: Release, now: int) -> tuple[Record, str]:
        """lease_release.lua."""
        del now
        if record.epoch == ask.epoch and record.holder == NOBODY and record.released == ask.nonce:
            return record, "ALREADY"
        if not self.is_term(record, ask.epoch, ask.nonce):
            return record, "LOST"
        return record._replace(holder=NOBODY, nonce=0, until=0, released=ask.nonce), "RELEASED"

    def promote(self, record: Record, ask: Promote, now: int) -> tuple[Record, str]:
        """lease_promote.lua."""
        if record.epoch == 0:
            return record, "MISSING"
        if record.nonce == ask.new_nonce:
            return record._replace(until=now + DURATION, seq=record.seq + 1), "SAME"
        if not self.is_term(record, ask.epoch, ask.nonce):
            return record, "LOST"
        return self.grant(record, ask.replica, ask.new_nonce, 0, now), "GRANTED"

    def view(self, record: Record, ask: View, now: int) -> tuple[Record, str]:
        """lease_view.lua."""
        del ask, now
        return record, "VIEW"

    def fire(self, record: Record, ask: Fire, now: int) -> tuple[Record, str]:
        """fire.lua, one item."""
        del now
        if not self.is_term(record, ask.epoch, ask.nonce):
            return record, "FENCED"
        if not self.is_next(record, ask):
            return record, "DUP"
        return record._replace(mark=ask.nominal), "FIRED"

    def is_term(self, record: Record, epoch: int, nonce: int) -> bool:
        """Whether (epoch, nonce) is the term that stands."""
        return nonce != 0 and (record.epoch, record.nonce) == (epoch, nonce)

    def is_next(self, record: Record, ask: Fire) -> bool:
        """Whether the watermark is what the caller saw, and would grow."""
        return record.mark == ask.mark < ask.nominal
