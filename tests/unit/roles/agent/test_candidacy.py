"""The elector as a follower: what it waits for, and what it never concludes."""

from __future__ import annotations

import pytest

from supervisor.core.effects import Listen, Sleep
from supervisor.core.election.lease import SLACK_NS, State
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import CandidateInfo, LeaseCode
from tests.unit.roles.agent.elector_stepper import NONCES, S, Scripted, view

RELEASED = [("6-0", {"kind": "released", "epoch": "7", "who": "other", "reason": "shutdown"})]
ACQUIRED = [("7-0", {"kind": "acquired", "epoch": "8", "who": "third", "reason": "free"})]


def standing_by(*others: CandidateInfo) -> Scripted:
    """Return a follower that was denied and listens."""
    follower = Scripted()
    follower.begin()
    follower.answer(view(LeaseCode.DENIED))
    assert follower.script == "hash_read"
    follower.answer([CandidateInfo(replica="me", started_ms=500, seen_ms=100_000), *others])
    return follower


def test_the_nonce_is_on_the_board_before_the_question_is_sent() -> None:
    """Whoever comes after a crash asks again with it, so no term is orphaned."""
    follower = Scripted()
    follower.begin()

    assert follower.script == "lease_campaign"
    assert follower.args[1] == NONCES[0] == follower.board.next_nonce
    assert follower.args[4] == "cold"


def test_a_follower_listens_from_the_last_event_until_the_holder_would_be_dead() -> None:
    """Three seconds were left; what happened before the reply is known."""
    follower = standing_by()

    assert follower.step == Listen("5-0", follower.clock.now_ns + 3 * S + SLACK_NS)


def test_silence_makes_it_campaign_with_what_it_saw() -> None:
    """The script compares: a holder that renewed meanwhile stays."""
    follower = standing_by()
    follower.wait()

    assert follower.script == "lease_campaign"
    assert follower.args[3:7] == (7, "expired", 7, 3)


def test_a_holder_that_renewed_is_watched_anew() -> None:
    """Denied, with a new sequence number and another three seconds."""
    follower = standing_by()
    follower.wait()
    follower.answer(view(LeaseCode.DENIED, seq=9))

    assert isinstance(follower.step, Listen)
    assert follower.step.until_ns == follower.clock.now_ns + 3 * S + SLACK_NS


def test_a_step_of_redis_clock_shortens_no_wait() -> None:
    """It was set ahead since the holder renewed: what seems to be left of the lease, now and at the next look, is less."""
    follower = standing_by()
    follower.wait()
    stepped_ms = follower.clock.right_ms() + 4000
    follower.answer(view(LeaseCode.DENIED, seq=9, remaining_ms=400, now_ms=stepped_ms))
    assert isinstance(follower.step, Listen)
    assert follower.step.until_ns == follower.clock.now_ns + 5 * S + SLACK_NS
    follower.refuse()
    follower.wait()
    follower.answer(view(LeaseCode.VIEW, seq=9, remaining_ms=300, now_ms=follower.clock.right_ms() + 4000))
    assert isinstance(follower.step, Listen)
    assert follower.step.until_ns == follower.clock.now_ns + 5 * S + SLACK_NS
    follower.wait()
    follower.answer(view(LeaseCode.DENIED, seq=12, remaining_ms=4000, now_ms=follower.clock.right_ms() + 4000))
    assert isinstance(follower.step, Listen)
    assert follower.step.until_ns == follower.clock.now_ns + 4 * S + SLACK_NS


def test_a_release_is_answered_at_once() -> None:
    """The only candidate waits for nobody."""
    follower = standing_by()
    follower.answer(RELEASED)

    assert follower.script == "lease_campaign"
    assert follower.args[4] == "free"


def test_a_better_candidate_goes_first() -> None:
    """A younger replica stays longer in a rolling restart; this one gives it 15 ms."""
    follower = standing_by(CandidateInfo(replica="young", started_ms=900, seen_ms=100_000))
    follower.answer(RELEASED)
    assert isinstance(follower.step, Sleep)
    assert 13 * MILLISECOND_NS <= follower.step.until_ns - follower.clock.now_ns <= 17 * MILLISECOND_NS
    follower.wait()

    assert follower.script == "lease_campaign"


def test_an_entry_ahead_of_the_clock_of_redis_makes_no_other_old() -> None:
    """It was written by a stranger, or before that clock was set back; for an hour nobody else counted."""
    ahead_ms = Scripted().clock.right_ms() + 3_600_000
    young = CandidateInfo(replica="young", started_ms=900, seen_ms=100_000)
    follower = standing_by(CandidateInfo(replica="ahead", participates=False, seen_ms=ahead_ms), young)
    follower.answer(RELEASED)

    assert isinstance(follower.step, Sleep), "it leaves the younger one its time"


@pytest.mark.parametrize(
    "other",
    [
        CandidateInfo(replica="vanished", started_ms=900, seen_ms=100_000 - 16_000),
        CandidateInfo(replica="other", started_ms=900, seen_ms=100_000),
        CandidateInfo(replica="old", started_ms=100, seen_ms=100_000),
    ],
)
def test_nobody_waits_for_who_will_not_come(other: CandidateInfo) -> None:
    """Vanished, the holder that just released, or worse than this one."""
    follower = standing_by(other)
    follower.answer(RELEASED)

    assert follower.script == "lease_campaign"


def test_a_release_that_was_already_answered_is_let_pass() -> None:
    """The newest event counts."""
    follower = standing_by()
    follower.answer([*RELEASED, *ACQUIRED])

    assert isinstance(follower.step, Listen)
    assert follower.step.last_id == "7-0"


def test_a_stream_of_events_that_is_none_of_ours_does_not_end_the_watch() -> None:
    """Only the record tells then: a leader that died is followed at the same moment as without events."""
    follower = standing_by()
    assert isinstance(follower.step, Listen)
    dead_at_ns = follower.step.until_ns
    follower.refuse_subject()
    assert follower.step == Sleep(dead_at_ns)
    follower.wait()

    assert follower.script == "lease_campaign"
    assert follower.args[3:7] == (7, "expired", 7, 3)


def test_an_error_ends_the_watch() -> None:
    """Silence while Redis was away is not the holder's: look again, and wait a whole duration from there."""
    follower = standing_by()
    follower.refuse(after_ns=2 * S)
    assert isinstance(follower.step, Sleep)
    follower.wait()
    assert follower.script == "lease_view"
    follower.answer(view(LeaseCode.VIEW, remaining_ms=-9000))

    assert isinstance(follower.step, Listen)
    assert follower.step.until_ns == follower.clock.now_ns + 5 * S + SLACK_NS


def test_an_unanswered_campaign_that_won_is_adopted_and_renewed_before_it_is_trusted() -> None:
    """When it was granted is not known, so trust counts from the renewal."""
    follower = Scripted()
    follower.begin()
    follower.refuse(after_ns=750 * MILLISECOND_NS)
    assert follower.standing.state is State.CAMPAIGNING
    follower.wait()
    follower.answer(view(LeaseCode.VIEW, epoch=8, nonce=NONCES[0], holder="me"))
    assert follower.script == "lease_renew"
    assert not follower.board.header.is_leading
    follower.renewed()

    assert follower.board.header.is_leading


def test_an_unanswered_campaign_that_did_not_win_is_over() -> None:
    """The nonce is kept for the next question: nobody else can use it."""
    follower = Scripted()
    follower.begin()
    follower.refuse()
    follower.wait()
    follower.answer(view(LeaseCode.VIEW))

    assert follower.standing.state is State.FOLLOWER
    assert follower.board.next_nonce == NONCES[0]


def test_a_nonce_that_is_known_to_redis_is_adopted() -> None:
    """SAME: an earlier reply was lost."""
    follower = Scripted()
    follower.begin()
    follower.answer(view(LeaseCode.SAME, epoch=8, nonce=NONCES[0], holder="me"))

    assert follower.script == "lease_renew"


def test_a_free_lease_is_asked_for_at_once() -> None:
    """It was released while this replica did not listen."""
    follower = Scripted()
    follower.begin()
    follower.refuse()
    follower.wait()
    follower.answer(view(LeaseCode.VIEW, nonce="", holder=""))

    assert follower.script == "lease_campaign"
    assert follower.args[4] == "free"


def test_a_stop_ends_a_follower_without_a_campaign() -> None:
    """Also when the release of the leader woke it: the whole cluster stops."""
    follower = standing_by()
    follower.around.stopping = True
    follower.answer(RELEASED)
    assert follower.script == "candidate_withdraw"
    follower.answer()

    assert follower.is_over


def test_a_stop_with_a_question_open_gives_back_what_it_may_have_won() -> None:
    """Otherwise nobody would lead for a whole lease."""
    follower = Scripted()
    follower.begin()
    follower.around.stopping = True
    follower.refuse()
    follower.wait()
    assert follower.script == "lease_view"
    follower.answer(view(LeaseCode.VIEW, epoch=8, nonce=NONCES[0], holder="me"))

    assert follower.script == "lease_release"
    assert follower.args[:2] == (8, NONCES[0])


def test_a_replica_that_cannot_schedule_does_not_ask() -> None:
    """Its scheduler is not there; others may lead."""
    follower = Scripted()
    follower.around.scheduling = False
    follower.begin()

    assert isinstance(follower.step, Sleep)
