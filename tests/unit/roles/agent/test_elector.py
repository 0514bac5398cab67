"""The elector as a holder: trust, renewal, loss, resignation, resumption."""

from __future__ import annotations

from supervisor.core.effects import RunScript, Sleep
from supervisor.core.election.lease import NO_TERM, State, Term
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import LeaseCode
from tests.unit.roles.agent.elector_stepper import NONCES, S, Scripted, view


def test_trust_counts_from_the_question() -> None:
    """A grant that took 2 s leaves 2.5 s of a 5 s lease with its margin of half a second."""
    elector = Scripted()
    elector.begin()
    asked_ns = elector.clock.now_ns
    elector.grant(after_ns=2 * S)

    assert elector.board.term() == Term(8, NONCES[0], asked_ns + 4500 * MILLISECOND_NS)
    assert elector.board.header.is_leading
    assert elector.around.wakes == 1


def test_a_grant_that_came_too_late_is_renewed_before_it_is_believed() -> None:
    """Its whole window passed on the way."""
    elector = Scripted()
    elector.begin()
    elector.grant(after_ns=5 * S)

    assert not elector.board.header.is_leading
    assert elector.script == "lease_renew"


def test_renewals_come_once_a_period_and_carry_the_term() -> None:
    """One second, ten per cent either way, so that replicas do not march in step."""
    elector = Scripted().lead()
    asked_ns = elector.clock.now_ns - MILLISECOND_NS
    assert isinstance(elector.step, Sleep)
    assert 900 * MILLISECOND_NS <= elector.step.until_ns - asked_ns <= 1100 * MILLISECOND_NS
    elector.wait()

    assert elector.script == "lease_renew"
    assert elector.args[:2] == (8, NONCES[0])


def test_a_failed_renewal_is_tried_again_soon_while_trusted() -> None:
    """Each attempt is bounded by what is left of the trust."""
    elector = Scripted().lead()
    elector.wait()
    elector.refuse(after_ns=750 * MILLISECOND_NS)
    assert isinstance(elector.step, Sleep)
    assert elector.step.until_ns - elector.clock.now_ns <= 50 * MILLISECOND_NS
    elector.clock.now_ns = elector.board.term().trusted_until_ns - 100 * MILLISECOND_NS
    elector.answer()

    assert isinstance(elector.step, RunScript)
    assert elector.step.timeout_ns == 100 * MILLISECOND_NS


def test_the_end_of_trust_keeps_the_term_and_goes_on_renewing() -> None:
    """Nobody took it, so the same epoch goes on: no transition."""
    elector = Scripted().lead()
    elector.wait()
    trusted_until_ns = elector.board.term().trusted_until_ns
    while elector.standing.state is State.LEADER:
        elector.refuse(after_ns=elector.step.timeout_ns) if isinstance(elector.step, RunScript) else elector.wait()
    assert elector.clock.now_ns >= trusted_until_ns
    assert elector.board.term().epoch == 8
    assert not elector.board.header.is_leading
    while not isinstance(elector.step, RunScript):
        elector.wait()
    elector.renewed(LeaseCode.RECLAIMED)

    assert elector.standing.state is State.LEADER
    assert elector.board.header.is_leading
    terms = [event for event in elector.events() if event.startswith("leader_")]
    assert terms == ["leader_acquired", "leader_lapsed", "leader_acquired"]


def test_nothing_is_renewed_for_longer_than_a_lease_that_nobody_can_act_on() -> None:
    """A renewal that Redis carries out and answers too late keeps the lease; a look at it does not."""
    elector = Scripted().lead()
    elector.wait()
    asked, answered_ns = [], elector.clock.now_ns - 1000 * MILLISECOND_NS
    while elector.clock.now_ns < answered_ns + 20_000 * MILLISECOND_NS:
        if isinstance(elector.step, RunScript):
            asked.append((elector.script, elector.clock.now_ns - answered_ns))
            elector.refuse(after_ns=750 * MILLISECOND_NS)
        else:
            elector.wait()
    lease_ns = 5000 * MILLISECOND_NS
    assert {name for name, age_ns in asked if age_ns < lease_ns} == {"lease_renew"}
    assert {name for name, age_ns in asked if age_ns >= lease_ns} == {"lease_view"}
    while not isinstance(elector.step, RunScript):
        elector.wait()
    elector.answer(view(LeaseCode.VIEW, epoch=8, nonce=NONCES[0], holder="me", seq=1, remaining_ms=-9000))
    assert elector.script == "lease_renew"
    elector.refuse(after_ns=750 * MILLISECOND_NS)
    elector.wait()
    assert elector.script == "lease_view"
    elector.answer(view(LeaseCode.VIEW, epoch=8, nonce=NONCES[0], holder="me", seq=2))
    elector.renewed()

    assert elector.standing.state is State.LEADER
    elector.to_renewal()


def test_renewals_that_nobody_confirmed_are_not_lost_when_a_fail_over_undoes_them() -> None:
    """No replica of Redis had them, by ``redis.durability``. What was read of them is no reason to hold fires."""
    elector = Scripted(on_data_loss="hold").lead()
    elector.wait()
    elector.refuse(after_ns=5000 * MILLISECOND_NS)
    elector.wait()
    elector.answer(view(LeaseCode.VIEW, epoch=8, nonce=NONCES[0], holder="me", seq=9))
    elector.refuse(after_ns=100 * MILLISECOND_NS)
    elector.wait()
    elector.answer(view(LeaseCode.VIEW, epoch=8, nonce=NONCES[0], holder="me", seq=0))
    elector.answer(view(LeaseCode.RECLAIMED, epoch=8, nonce=NONCES[0], holder="me", seq=1))

    assert elector.board.header.is_leading
    assert not {"redis_lost_data", "fires_held"} & set(elector.events())


def test_a_lost_term_leaves_the_board_and_the_replica_stands_by() -> None:
    """It never exits and never stops contending."""
    elector = Scripted().lead()
    elector.wait()
    elector.answer(view(LeaseCode.LOST, epoch=9))

    assert elector.board.term() == NO_TERM
    assert elector.standing.state is State.FOLLOWER
    assert elector.script == "hash_read"  # who else is there, then it listens
    assert "leader_lost" in elector.events()


def test_a_lease_that_vanished_is_campaigned_for_again() -> None:
    """Redis was emptied: the next epoch must be above every one seen."""
    elector = Scripted().lead(epoch=88)
    elector.wait()
    elector.answer(view(LeaseCode.MISSING, epoch=0, nonce="", holder="", seq=0, duration_ms=0))

    assert elector.script == "lease_campaign"
    assert elector.args[3] == 88
    assert elector.args[1] != NONCES[0]


def test_a_stop_releases_after_the_last_batch_and_withdraws() -> None:
    """The scheduler gets 50 ms to finish; then the standby is told, and campaigns before the list is written."""
    elector = Scripted().lead()
    elector.around.stopping, elector.around.scheduler_gone = True, False
    elector.answer()
    waited_ns = elector.clock.now_ns
    while isinstance(elector.step, Sleep):
        elector.wait()
    assert elector.clock.now_ns - waited_ns == 50 * MILLISECOND_NS
    assert elector.script == "lease_release"
    assert elector.board.term() == NO_TERM
    elector.answer(view(LeaseCode.RELEASED, holder=""))
    released_ns = elector.clock.now_ns
    elector.answer()  # woken early
    elector.wait()
    assert elector.script == "candidate_withdraw"
    assert elector.clock.now_ns - released_ns == 5 * MILLISECOND_NS
    elector.answer()

    assert elector.is_over
    assert elector.standing.state is State.STOPPED


def test_a_release_that_is_not_answered_is_tried_three_times() -> None:
    """Then the lease ends by itself."""
    elector = Scripted().lead()
    elector.around.stopping = True
    elector.answer()
    tries = 0
    while isinstance(elector.step, RunScript) and elector.script == "lease_release":
        tries += 1
        elector.refuse(after_ns=750 * MILLISECOND_NS)

    assert tries == 3
    assert "release_unanswered" in elector.events()


def test_a_scheduler_without_progress_costs_the_lease_and_a_pause() -> None:
    """A replica that cannot schedule lets another lead, and is not a candidate for a while."""
    elector = Scripted().lead()
    elector.around.scheduling = False
    elector.wait()
    assert elector.script == "lease_release"
    assert elector.args[2] == "no_progress"
    elector.answer(view(LeaseCode.RELEASED, holder=""))
    assert elector.board.header.ineligible_until_ns - elector.clock.now_ns == 10 * S
    elector.around.scheduling = True
    elector.wait()

    assert elector.script == "lease_view"


def test_an_agent_that_starts_on_a_board_with_a_term_renews_it_first() -> None:
    """Its predecessor died; the scheduler beside it still fires under that term."""
    before = Scripted().lead()
    elector = Scripted(before.board)
    elector.clock.now_ns = before.clock.now_ns
    elector.begin()
    assert elector.script == "lease_renew"
    assert elector.board.term().is_trusted(elector.clock.now_ns)
    elector.renewed()

    assert elector.standing.state is State.LEADER


def test_an_agent_that_starts_on_a_board_with_a_question_asks_it_again() -> None:
    """Its predecessor may have won with that nonce: the same one adopts the term instead of orphaning it."""
    before = Scripted()
    before.begin()
    elector = Scripted(before.board)
    elector.begin()

    assert elector.script == "lease_campaign"
    assert elector.args[1] == NONCES[0]
