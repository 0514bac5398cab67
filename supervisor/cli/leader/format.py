"""Output of the election: the same facts as a line for people and as a row for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from supervisor.cli.output import distance, moment, span
from supervisor.operations.leader import CandidateInfo, LeaseEvent, LeaseView, is_fresh

CANDIDATE_COLUMNS = ("replica", "role", "host", "pid", "version", "seen")


def leader_line(lease: LeaseView) -> str:
    """Describe the leader, for people."""
    if not lease.holder:
        return f"Nobody leads (last epoch {lease.epoch})."
    held = span(max(0, lease.now_ms - lease.acquired_ms) / 1000)
    late = "" if lease.remaining_ms > 0 else f"; its lease ran out {span(-lease.remaining_ms / 1000)} ago"
    line = f"Leader: {lease.holder} (epoch {lease.epoch}, for {held}, renewed {lease.seq} times{late})"
    if lease.hold:
        line += f"\nIt fires nothing until `tenure leader clear-hold`: {lease.hold}."
    return line


def lease_row(lease: LeaseView) -> dict[str, Any]:
    """Return the lease for scripts."""
    return {
        "holder": lease.holder or None,
        "epoch": lease.epoch,
        "seq": lease.seq,
        "remaining_ms": lease.remaining_ms if lease.holder else None,
        "duration_ms": lease.duration_ms,
        "acquired": moment(lease.acquired_ms),
        "transitions": lease.transitions,
        "hold": lease.hold or None,
        "host": lease.host,
        "pid": lease.pid,
        "version": lease.version,
    }


def change_line(change: LeaseEvent) -> str:
    """Describe one change, for people."""
    reason = f" ({change.reason})" if change.reason else ""
    return f"{moment(change.at_ms)}  {change.kind:<16} epoch {change.epoch}  {change.who}{reason}"


def change_row(change: LeaseEvent) -> dict[str, Any]:
    """Return one change for scripts."""
    return {
        "time": moment(change.at_ms),
        "change": change.kind,
        "epoch": change.epoch,
        "who": change.who,
        "reason": change.reason,
    }


def replica_rows(lease: LeaseView, candidates: Iterable[CandidateInfo]) -> list[dict[str, Any]]:
    """Return one row for each candidate, the leader among them."""
    rows = [replica_row(candidate, lease) for candidate in sorted(candidates, key=lambda each: each.replica)]
    if lease.holder and lease.holder not in {row["replica"] for row in rows}:
        rows.insert(0, {"replica": lease.holder, "role": "leader", "host": lease.host, "pid": lease.pid})
    return rows


def replica_row(candidate: CandidateInfo, lease: LeaseView) -> dict[str, Any]:
    """Return one replica that could lead."""
    return {
        "replica": candidate.replica,
        "role": _role(candidate, lease),
        "host": candidate.host,
        "pid": candidate.pid,
        "version": candidate.version,
        "started": moment(candidate.started_ms),
        "seen": distance(candidate.seen_ms, lease.now_ms),
    }


def _role(candidate: CandidateInfo, lease: LeaseView) -> str:
    if candidate.replica == lease.holder:
        return "leader"
    if not is_fresh(candidate, lease):
        return "silent"
    return "draining" if candidate.draining else "standby"
