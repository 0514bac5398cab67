"""Until when data that are lost were there: by Redis' clock as it was before the loss, whatever it shows since."""

from __future__ import annotations

from supervisor.store.election.leases import LeaseCode
from tests.unit.roles.agent.elector_stepper import NONCES, S, Scripted, lost, view
from tests.unit.roles.agent.test_lost_data import EMPTY

HOUR_MS = 3_600_000


def test_what_is_in_doubt_counts_by_the_later_of_both_clocks() -> None:
    """The clock of this machine may be an hour behind the one that fired, as Redis' answers before the loss show."""
    elector = Scripted().lead(epoch=88).to_renewal()
    ahead_ms = elector.clock.wall_ms() + HOUR_MS
    elector.answer(view(LeaseCode.RENEWED, epoch=88, nonce=NONCES[0], holder="me", seq=50, now_ms=ahead_ms))
    elector.to_renewal()
    lost_ms = elector.clock.wall_ms() + HOUR_MS
    elector.answer(view(LeaseCode.MISSING, **EMPTY, now_ms=lost_ms))

    assert lost_ms > ahead_ms
    assert elector.board.header.doubtful_until_ms == lost_ms
    assert elector.argument("decided_until") >= lost_ms


def test_a_clock_that_steps_with_the_loss_puts_nothing_to_come_in_doubt() -> None:
    """Nobody decided by a time that had not come; the questions say so, for those who start later."""
    elector = Scripted().lead(epoch=88).to_renewal()
    wall_ms = elector.clock.wall_ms()
    elector.answer(view(LeaseCode.MISSING, **EMPTY, now_ms=wall_ms + HOUR_MS))

    assert wall_ms <= elector.board.header.doubtful_until_ms <= wall_ms + 1000
    assert wall_ms <= elector.argument("decided_until") <= wall_ms + 1000
    assert wall_ms <= elector.board.header.lost_until_ms <= wall_ms + 1000
    nonce = elector.argument("nonce")
    elector.answer(
        view(LeaseCode.GRANTED, epoch=89, nonce=nonce, holder="me", seq=0, genesis="x", now_ms=wall_ms + HOUR_MS)
    )
    elector.around.generation = 2
    elector.answer()
    assert elector.argument("decided_until") > wall_ms + HOUR_MS, "from the next term on its time is believed"


def test_an_agent_that_finds_a_loss_counts_by_the_clock_that_its_predecessor_measured() -> None:
    """Redis' clock had been an hour ahead; this one starts minutes later, and the first answer shows the loss."""
    former = Scripted().stand_by()
    former.wait()
    former.answer(view(LeaseCode.DENIED, now_ms=former.clock.wall_ms() + HOUR_MS))
    elector = Scripted(former.board)
    elector.clock.now_ns, elector.clock.wall_offset_ms = former.clock.now_ns + 300 * S, former.clock.wall_offset_ms
    elector.begin()
    now_ms = elector.clock.wall_ms() + HOUR_MS
    elector.answer(view(LeaseCode.VIEW, **EMPTY, now_ms=now_ms))

    assert lost(elector) == ["data"]
    assert elector.board.header.doubtful_until_ms == now_ms
    assert elector.board.header.lost_until_ms == now_ms
