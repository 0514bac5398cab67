"""Sight of lost data by replicas that never restore it: another one led first."""

from __future__ import annotations

from supervisor.store.election.leases import LeaseCode
from tests.unit.roles.agent.elector_stepper import NOW_MS, Scripted, view
from tests.unit.roles.agent.test_lost_data import EMPTY

HOUR_MS = 3_600_000


def test_a_loss_that_a_predecessor_found_is_over_once_another_replica_leads() -> None:
    """The next loss, hours later, counts from the sight before it and not from that before the first."""
    follower = Scripted().stand_by()
    follower.standing.saw(view(LeaseCode.VIEW, **EMPTY, now_ms=NOW_MS + 1))
    assert follower.board.header.data_loss_epoch == 1

    successor = Scripted(follower.board)
    successor.begin()
    successor.answer(view(LeaseCode.DENIED, epoch=9, genesis="n", now_ms=NOW_MS + 2))
    assert successor.board.header.data_loss_epoch == 9
    later_ms = NOW_MS + HOUR_MS
    successor.standing.saw(view(LeaseCode.DENIED, epoch=9, seq=9, genesis="n", now_ms=later_ms, remaining_ms=4000))
    successor.standing.saw(view(LeaseCode.VIEW, **EMPTY, now_ms=later_ms + 1))

    assert successor.board.header.sighted_ms == later_ms - 1000
