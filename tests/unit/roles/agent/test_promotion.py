"""What becomes of the term when the scheduler dies, hangs, or keeps dying, and when the agent dies with it."""

from __future__ import annotations

from typing import Any

from supervisor.core.effects import Listen, RunScript, Sleep
from supervisor.core.election.lease import NO_TERM, DataLoss, State, Term
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import LeaseCode
from tests.unit.roles.agent.elector_stepper import NONCES, S, Scripted, lost, view


def bereft() -> Scripted:
    """Return a leader whose scheduler just died; it was told so, and asks for a later epoch."""
    elector = Scripted().lead()
    elector.around.generation = 2
    elector.answer()
    return elector


def promoted(elector: Scripted, code: LeaseCode = LeaseCode.GRANTED, *, epoch: int = 9) -> None:
    """Answer a promotion."""
    nonce = elector.board.next_nonce or ""
    elector.answer(view(code, epoch=epoch, nonce=nonce, holder="me", seq=0), after_ns=MILLISECOND_NS)


def test_a_dead_scheduler_is_followed_by_a_later_term() -> None:
    """At once, not with the next renewal; the process to come is the one it is issued to."""
    elector = bereft()
    assert elector.script == "lease_promote"
    assert elector.args[:2] == (8, NONCES[0])
    asked_ns = elector.clock.now_ns
    promoted(elector)

    assert elector.board.term() == Term(9, NONCES[1], asked_ns + 4500 * MILLISECOND_NS)
    assert elector.board.header.scheduler_generation == 2
    assert elector.standing.state is State.LEADER
    assert elector.events()[-1] == "leader_promoted"
    assert elector.around.wakes == 2


def test_while_it_asks_the_nonce_is_on_the_board_and_the_term_is_not_trusted() -> None:
    """Either term may stand in Redis; and an agent that dies now is followed by one that asks the same."""
    elector = bereft()

    assert elector.board.next_nonce == elector.argument("new_nonce") == NONCES[1]
    assert elector.board.term() == Term(8, NONCES[0], 0)
    assert not elector.board.header.is_leading
    assert elector.standing.state is State.PROMOTING


def test_a_promotion_that_is_not_answered_is_asked_again_with_the_same_nonce() -> None:
    """Another would orphan the term that the first may have won."""
    elector = bereft()
    for _ in range(3):
        elector.refuse(after_ns=750 * MILLISECOND_NS)
        assert isinstance(elector.step, Sleep)
        elector.wait()
        assert elector.script == "lease_promote"
        assert elector.argument("new_nonce") == NONCES[1]
    promoted(elector, LeaseCode.SAME)

    assert elector.standing.state is State.LEADER


def test_no_promotion_that_nobody_can_act_on_keeps_the_lease_for_longer_than_its_duration() -> None:
    """Carried out and answered too late, each would renew what the first one won."""
    elector = bereft()
    until_ns, asked = elector.clock.now_ns + 20 * S, {}
    while elector.clock.now_ns < until_ns:
        if isinstance(elector.step, RunScript):
            asked[elector.clock.now_ns] = elector.script
            elector.refuse(after_ns=750 * MILLISECOND_NS)
        else:
            elector.wait()
    assert {name for at_ns, name in asked.items() if at_ns < until_ns - 15 * S} == {"lease_promote"}
    assert {name for at_ns, name in asked.items() if at_ns >= until_ns - 15 * S} == {"lease_view"}
    while not isinstance(elector.step, RunScript):
        elector.wait()
    elector.answer(view(LeaseCode.VIEW, epoch=9, nonce=NONCES[1], holder="me", seq=0))
    assert elector.script == "lease_promote"
    assert elector.argument("new_nonce") == NONCES[1]
    elector.answer(view(LeaseCode.SAME, epoch=9, nonce=NONCES[1], holder="me", seq=1))

    assert elector.standing.state is State.LEADER


def test_an_agent_that_died_while_it_asked_is_followed_by_one_that_asks_the_same() -> None:
    """Before anything else: a renewal of the old term could be refused, and the new one forgotten."""
    before = bereft()
    elector = Scripted(before.board)
    elector.around.generation = 2
    elector.begin()
    assert elector.script == "lease_promote"
    assert (elector.argument("epoch"), elector.argument("new_nonce")) == (8, NONCES[1])
    promoted(elector, LeaseCode.SAME)

    assert elector.board.term().epoch == 9


def test_a_death_that_nobody_saw_because_the_agent_was_dead_is_found_on_the_board() -> None:
    """The term says which process it was issued to."""
    before = Scripted().lead()
    elector = Scripted(before.board)
    elector.around.generation = 2
    elector.begin()

    assert elector.script == "lease_promote"


def test_a_promotion_that_is_refused_makes_a_follower() -> None:
    """Another replica leads: the scheduler was dead for too long."""
    elector = bereft()
    elector.answer(view(LeaseCode.LOST, epoch=11))

    assert elector.standing.state is State.FOLLOWER
    assert elector.board.term() == NO_TERM
    assert elector.board.next_nonce is None


def test_a_stop_during_a_promotion_gives_back_whichever_term_stands() -> None:
    """The one that was promoted, if the answer was lost."""
    elector = bereft()
    elector.around.stopping = True
    elector.refuse(after_ns=750 * MILLISECOND_NS)
    assert elector.script == "lease_view"
    elector.answer(view(LeaseCode.VIEW, epoch=9, nonce=NONCES[1], holder="me"))

    assert elector.script == "lease_release"
    assert elector.args[:2] == (9, NONCES[1])


def test_a_stop_during_a_promotion_that_did_not_win_gives_back_the_old_term() -> None:
    """And follows the promotion if it arrives just before the release."""
    elector = bereft()
    elector.around.stopping = True
    elector.refuse(after_ns=750 * MILLISECOND_NS)
    elector.answer(view(LeaseCode.VIEW, epoch=8, nonce=NONCES[0], holder="me"))
    assert elector.args[:2] == (8, NONCES[0])
    elector.answer(view(LeaseCode.LOST, epoch=9, nonce=NONCES[1], holder="me"))

    assert elector.script == "lease_release"
    assert elector.args[:2] == (9, NONCES[1])


def test_the_third_death_within_a_minute_lets_another_replica_lead() -> None:
    """At once, and not again for a while; its workers go on, so the replica stays."""
    elector = Scripted().lead()
    elector.around.generation, elector.around.failures = 4, 3
    elector.answer()
    assert elector.script == "lease_release"
    assert elector.argument("reason") == "scheduler_crashes"
    elector.answer(view(LeaseCode.RELEASED, holder=""))

    assert elector.board.header.ineligible_until_ns - elector.clock.now_ns == 10 * S


def test_a_standby_whose_scheduler_keeps_dying_does_not_ask() -> None:
    """It would have to give the lease back at once."""
    elector = Scripted().stand_by()
    elector.around.generation, elector.around.failures = 4, 3
    elector.answer([])

    assert elector.board.header.ineligible_until_ns - elector.clock.now_ns == 10 * S


def standing_back() -> Scripted:
    """A standby whose scheduler died for the third time within a minute."""
    elector = Scripted(lease_duration_s=2, renew_period_s=0.4, renew_timeout_s=0.3).stand_by()
    elector.around.generation, elector.around.failures = 4, 3
    elector.answer([])
    return elector


def test_it_stands_back_while_another_one_leads() -> None:
    """It looks once in a lease duration; a term that is renewed is left alone until the pause is over."""
    elector = standing_back()
    asked = []
    for seq in (1, 2, 3):
        elector.answer([], after_ns=2 * S)
        asked.append(elector.script)
        elector.answer(view(LeaseCode.VIEW, seq=seq))

    assert asked == ["lease_view"] * 3
    assert elector.board.header.ineligible_until_ns > 0


def test_it_tries_again_when_nobody_leads_for_a_lease_duration() -> None:
    """Where the scheduler of every replica keeps dying, one that tries is better than none."""
    elector = standing_back()
    for _ in range(2):
        elector.answer([], after_ns=2 * S)
        elector.answer(view(LeaseCode.VIEW, holder=""))

    assert elector.board.header.ineligible_until_ns == 0
    assert ("eligible", {"reason": "nobody_leads"}) in elector.told


def test_a_lease_that_lies_free_is_wanted_by_nobody_within_two_looks() -> None:
    """A standby would have taken it within milliseconds, so there is no need to wait for a whole duration."""
    elector = standing_back()
    for _ in range(2):
        elector.answer([], after_ns=S)
        assert elector.script == "lease_view"
        elector.answer(view(LeaseCode.VIEW, holder=""))

    assert elector.board.header.ineligible_until_ns == 0


def test_a_scheduler_that_lives_again_is_seen_before_the_pause_is_over() -> None:
    """Nobody wakes the elector then, and a lease that nobody else wants would lie free for up to five minutes."""
    elector = Scripted().stand_by()
    elector.around.generation, elector.around.failures, elector.around.scheduling = 4, 3, False
    began_ns = elector.clock.now_ns
    elector.answer([])
    elector.wait()
    elector.around.scheduling = True
    for _ in range(2):
        elector.wait()
        assert elector.script == "lease_view"
        elector.answer(view(LeaseCode.VIEW, holder=""))

    assert elector.board.header.ineligible_until_ns == 0
    assert elector.clock.now_ns - began_ns < 5 * S


def test_it_stands_again_when_the_lease_is_released_to_it() -> None:
    """A person, or a leader with a wrong clock, asked for it by name."""
    elector = standing_back()
    event = {"kind": "released", "epoch": "7", "who": "other", "reason": "requested", "prefer": "me", "roster": "1"}
    elector.answer([("6-0", event)], after_ns=S)

    assert elector.script == "lease_campaign"
    assert elector.argument("mode") == "free"


def test_a_release_to_another_replica_does_not_end_the_pause() -> None:
    """That one leads."""
    elector = standing_back()
    event = {"kind": "released", "epoch": "7", "who": "other", "reason": "requested", "prefer": "third", "roster": "1"}
    elector.answer([("6-0", event)], after_ns=S // 2)

    assert isinstance(elector.step, Listen)
    assert elector.board.header.ineligible_until_ns > 0


def test_a_death_during_the_pause_does_not_lengthen_it() -> None:
    """Else replicas that all crash would stay away for longer and longer, and nobody would lead."""
    elector = standing_back()
    until_ns = elector.board.header.ineligible_until_ns
    elector.around.generation = 5
    elector.answer([], after_ns=2 * S)

    assert elector.board.header.ineligible_until_ns == until_ns


def test_an_agent_that_died_meanwhile_does_not_end_the_pause() -> None:
    """It is on the board: the scheduler that keeps dying is the same."""
    before = Scripted().stand_by()
    before.around.generation, before.around.failures = 4, 3
    before.answer([])
    elector = Scripted(before.board)
    elector.begin()

    assert isinstance(elector.step, Listen)
    assert elector.board.header.ineligible_until_ns == before.board.header.ineligible_until_ns


def test_every_further_death_doubles_the_pause() -> None:
    """Ten seconds, twenty, …, five minutes; a death during a pause is not a further one."""
    elector = Scripted().stand_by()
    pauses = []
    for generation in range(2, 10):
        elector.clock.now_ns = max(elector.clock.now_ns, elector.board.header.ineligible_until_ns)
        elector.around.generation, elector.around.failures = generation, 3
        elector.answer([])
        assert isinstance(elector.step, Listen)
        pauses.append((elector.board.header.ineligible_until_ns - elector.clock.now_ns) // S)

    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]


def test_a_scheduler_that_stands_still_gets_no_renewal_and_nothing_is_released() -> None:
    """It may be stopped in the middle of a write: only its confirmed death, or the end of the lease, frees the term."""
    elector = Scripted().lead()
    elector.around.scheduling = elector.around.scheduler_gone = False
    trusted_until_ns = elector.board.term().trusted_until_ns
    while elector.clock.now_ns < trusted_until_ns + 10 * S:
        assert isinstance(elector.step, Sleep)
        elector.wait()
    assert elector.standing.state is State.LAPSED
    assert elector.events().count("renewal_withheld") == 1
    elector.around.scheduling = True
    elector.wait()

    assert elector.script == "lease_renew"


def test_a_hung_scheduler_that_was_ended_is_followed_by_a_later_term() -> None:
    """The parent killed it and reaped it."""
    elector = Scripted().lead()
    elector.around.scheduling = elector.around.scheduler_gone = False
    elector.wait()
    elector.around.generation, elector.around.scheduling = 2, True
    elector.answer()

    assert isinstance(elector.step, RunScript)
    assert elector.script == "lease_promote"


def test_a_renewal_that_tells_of_a_later_epoch_in_lost_data_brings_a_later_one_still() -> None:
    """The fences of others refuse this term: they have seen the later one."""
    elector = Scripted().lead(epoch=88).to_renewal()
    elector.answer(view(LeaseCode.OUTDATED, epoch=88, nonce=NONCES[0], holder="me", seq=50))

    assert lost(elector) == ["rolled_back"]
    assert elector.board.header.doubtful_until_ms == elector.clock.wall_ms()
    assert elector.script == "lease_promote"
    assert elector.argument("rolled_back") == 1
    elector.answer(view(LeaseCode.GRANTED, epoch=95, nonce=str(elector.argument("new_nonce")), holder="me", seq=0))
    assert (elector.board.header.is_leading, elector.board.term().epoch) == (1, 95)


def test_with_hold_a_renewal_that_tells_of_a_later_epoch_is_told_once() -> None:
    """Redis must learn of the hold before it grants a later term, and answers the same until then."""
    elector = Scripted(on_data_loss=DataLoss.HOLD).lead(epoch=88).to_renewal()
    mine: dict[str, Any] = {"epoch": 88, "nonce": NONCES[0], "holder": "me"}
    elector.answer(view(LeaseCode.RENEWED, seq=50, **mine))
    elector.to_renewal()
    elector.answer(view(LeaseCode.OUTDATED, seq=51, **mine))
    assert elector.argument("hold") == "rolled_back"
    elector.answer(view(LeaseCode.OUTDATED, seq=52, hold="rolled_back", **mine))
    assert elector.script == "lease_promote"
    assert lost(elector) == ["rolled_back"]
