"""Operations on the election.

Guarantees
    A request to resign concerns the term that was shown to who asks, and no later one.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.election.lease import is_named
from supervisor.core.errors import EXIT_NO, TenureError
from supervisor.core.signing import Signer
from supervisor.operations import Operation, one
from supervisor.store.election.leases import FRESH_LEASES, CandidateInfo, LeaseEvent, Leases, LeaseView
from supervisor.store.keys import Keys

SHOWN_MAX = 10
_LEASE_MIN_MS = 1000  # where the record holds none


class CannotHandOverError(TenureError):
    """Asked to hand over, and the answer is no; the message has the reason and the remedy."""

    exit_code = EXIT_NO
    http_status = 409


def view(keys: Keys) -> Operation[LeaseView]:
    """Read the lease."""
    return one(Leases(keys).view())


def show(keys: Keys) -> Operation[tuple[LeaseView, list[CandidateInfo]]]:
    """Read the lease and every candidate that is remembered, also those that vanished."""
    lease = yield from view(keys)
    candidates = yield Leases(keys).candidates()
    return lease, candidates


def history(keys: Keys, count: int) -> Operation[list[LeaseEvent]]:
    """Read the newest ``count`` changes of the lease, newest first."""
    return one(Leases(keys).history(count))


def clear_hold(keys: Keys, *, by: str) -> Operation[LeaseView]:
    """Let the leader fire again after Redis lost data."""
    return one(Leases(keys).clear_hold(by=by))


def successor(keys: Keys, to: str | None) -> Operation[tuple[LeaseView, str]]:
    """Read the lease, and choose the replica that shall lead next; empty when any may.

    Raises:
        CannotHandOverError: nobody leads, nobody else could, or ``to`` names none or several.
    """
    lease, candidates = yield from show(keys)
    return lease, choose_heir(lease, candidates, to)


def resign(
    keys: Keys, lease: LeaseView, heir: str, *, by: str, signer: Signer | None, at_ms: int
) -> Operation[LeaseView]:
    """Ask the holder of the term in ``lease`` to hand over to ``heir`` (empty: to any); signed at ``at_ms``."""
    return one(Leases(keys).request_resign(epoch=lease.epoch, to=heir, by=by, signer=signer, at_ms=at_ms))


def choose_heir(lease: LeaseView, candidates: list[CandidateInfo], to: str | None) -> str:
    """Return the replica that shall lead after the term in ``lease``; empty when any may.

    ``candidates`` are all that are remembered, also those that vanished; ``to`` is a replica or the beginning of its
    name, as a person gave it.

    Raises:
        CannotHandOverError: nobody leads, nobody else could, or ``to`` names none or several.
    """
    if not lease.holder:
        raise CannotHandOverError("nobody leads, so nobody can hand over; `tenure leader show` lists who could lead")
    fresh = [each for each in candidates if is_fresh(each, lease) and each.participates and not each.draining]
    others = [each.replica for each in fresh if each.replica != lease.holder]
    if to is not None:
        return _named(to, lease.holder, others)
    if not others:
        raise CannotHandOverError(
            f"{lease.holder} is the only candidate: start another replica first, or stop this one to have none"
        )
    return ""


def _named(to: str, holder: str, others: list[str]) -> str:
    """Return the one replica that ``to`` means: its id, its name, or the beginning of either."""
    known = sorted({*others, holder})
    found = [replica for replica in known if is_named(replica, to)]
    found = found or [replica for replica in known if replica.startswith(to)]
    if len(found) == 1:
        return found[0]
    if found:
        raise CannotHandOverError(f"{to!r} names {len(found)} replicas: {', '.join(found)}; write one in full")
    listed = ", ".join(sorted(others)) or "none"
    raise CannotHandOverError(f"no replica that could lead is called {to!r}; candidates beside the leader: {listed}")


def is_fresh(candidate: CandidateInfo, lease: LeaseView) -> bool:
    """Return whether ``candidate`` was seen lately: the entry of one that died stays for a while."""
    return candidate.seen_ms >= lease.now_ms - FRESH_LEASES * max(_LEASE_MIN_MS, lease.duration_ms)


def differing_schedules(candidates: Sequence[CandidateInfo], lease: LeaseView) -> str:
    """Name the replicas that may lead, by their static schedules, where these differ: those of one set alone fire."""
    sets: dict[str, list[str]] = {}
    for each in candidates:
        if each.schedules_digest and each.participates and is_fresh(each, lease):
            sets.setdefault(each.schedules_digest, []).append(each.replica)
    groups = sorted(sorted(names) for names in sets.values())
    seen = " - ".join(", ".join(names[:SHOWN_MAX]) for names in groups[:SHOWN_MAX])
    return f"{len(sets)} sets that differ, of {seen}" if len(sets) > 1 else ""
