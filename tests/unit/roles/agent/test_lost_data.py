"""What each replica does when Redis lost data: say so once, never go back, wait out what others may believe."""

from __future__ import annotations

from typing import Any

from supervisor.core.effects import Listen, RunScript, Sleep
from supervisor.core.election.lease import NO_TERM, DataLoss
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import LeaseCode
from tests.kit.tables import table
from tests.unit.roles.agent.elector_stepper import NONCES, NOW_MS, S, Scripted, lost, view

EMPTY: dict[str, Any] = {
    "epoch": 0, "nonce": "", "holder": "", "seq": 0, "duration_ms": 0, "genesis": "", "last_event": "0-0"
}  # fmt: skip


def emptied_leader(**election: Any) -> Scripted:
    """Return a leader whose renewal met an emptied server."""
    elector = Scripted(**election).lead(epoch=88).to_renewal()
    elector.answer(view(LeaseCode.MISSING, **EMPTY))
    return elector


def test_a_leader_on_an_emptied_server_wins_a_later_epoch_at_once() -> None:
    """The highest term was its own: nobody else can believe in it."""
    elector = emptied_leader()
    assert elector.script == "lease_campaign"
    assert (elector.argument("floor"), elector.argument("genesis_seen"), elector.argument("hold")) == (88, "g", "")
    nonce = elector.argument("nonce")
    assert nonce != NONCES[0]
    elector.answer(view(LeaseCode.GRANTED, epoch=89, nonce=nonce, holder="me", seq=0, genesis=nonce, remaining_ms=5000))

    assert elector.board.header.data_loss_epoch == 89
    assert elector.board.header.doubtful_until_ms > 0
    assert lost(elector) == ["data"]
    assert elector.board.header.is_leading


def test_a_replica_that_starts_after_a_loss_learns_of_it_from_the_record() -> None:
    """What it fires again is flagged, though it saw nothing of the loss."""
    elector = Scripted()
    elector.begin()
    nonce = elector.argument("nonce")
    granted = view(LeaseCode.GRANTED, epoch=89, nonce=nonce, holder="me", seq=0, doubtful_until_ms=NOW_MS - 5000)
    elector.answer(granted)

    assert elector.board.header.doubtful_until_ms == NOW_MS - 5000
    assert lost(elector) == []


def test_what_is_in_doubt_counts_by_the_later_of_both_clocks() -> None:
    """The clock of this machine may be an hour behind the one that fired."""
    elector = Scripted().lead(epoch=88).to_renewal()
    ahead_ms = elector.clock.wall_ms() + 3_600_000
    elector.answer(view(LeaseCode.MISSING, **EMPTY, now_ms=ahead_ms))

    assert elector.board.header.doubtful_until_ms == ahead_ms


def test_the_next_term_after_that_is_a_usual_one() -> None:
    """One term is marked, and the loss is told once."""
    elector = emptied_leader()
    nonce = elector.argument("nonce")
    elector.answer(view(LeaseCode.GRANTED, epoch=89, nonce=nonce, holder="me", seq=0, genesis="x", remaining_ms=5000))
    elector.around.generation = 2
    elector.answer()
    assert elector.script == "lease_promote"
    elector.answer(view(LeaseCode.GRANTED, epoch=90, nonce=NONCES[2], holder="me", seq=0, genesis="x"))

    assert elector.board.header.data_loss_epoch == 89
    assert lost(elector) == ["data"]


def test_a_follower_on_an_emptied_server_waits_out_the_term_it_saw() -> None:
    """Its holder may have renewed just before, and may believe in it for a whole duration from then."""
    follower = Scripted().stand_by()
    follower.wait()
    follower.answer(view(LeaseCode.DENIED, **EMPTY), after_ns=MILLISECOND_NS)
    found_ns = follower.clock.now_ns
    assert lost(follower) == ["data"]
    while not isinstance(follower.step, RunScript) or follower.script != "lease_campaign":
        assert follower.clock.now_ns < found_ns + 12 * S
        if isinstance(follower.step, RunScript):
            follower.answer(view(LeaseCode.VIEW, **EMPTY))
        else:
            follower.wait()

    assert follower.clock.now_ns == found_ns + 5 * S
    assert follower.argument("floor") == 7
    assert lost(follower) == ["data"]


def test_a_grant_that_itself_tells_of_the_loss_is_trusted_once_nobody_believes_in_the_lost_term() -> None:
    """Its holder may have renewed just before Redis was emptied, unseen. The lease is kept, so that the wait is the last."""
    follower = Scripted().stand_by()
    follower.wait()
    assert follower.argument("mode") == "expired"
    nonce = follower.argument("nonce")
    mine: dict[str, Any] = {"nonce": nonce, "holder": "me", "epoch": 8, "genesis": nonce}
    follower.answer(view(LeaseCode.GRANTED, seq=0, **mine), after_ns=MILLISECOND_NS)
    found_ns = follower.clock.now_ns
    assert lost(follower) == ["data"]
    for seq in range(1, 20):
        if follower.board.header.is_leading:
            break
        assert follower.board.term().trusted_until_ns == 0
        wakes = follower.around.wakes
        follower.to_renewal()
        follower.answer(view(LeaseCode.RENEWED, seq=seq, **mine))

    assert follower.clock.now_ns == found_ns + 5 * S
    assert follower.around.wakes == wakes + 1
    assert follower.events().count("leader_acquired") == 1


def test_a_grant_whose_answer_was_lost_tells_of_the_loss_just_as_well() -> None:
    """The term is found by its nonce, adopted, renewed; and trusted no sooner than one whose answer came."""
    follower = Scripted().stand_by()
    follower.wait()
    nonce = follower.argument("nonce")
    follower.refuse(after_ns=750 * MILLISECOND_NS)
    follower.wait()
    mine: dict[str, Any] = {"nonce": nonce, "holder": "me", "epoch": 8, "genesis": nonce}
    follower.answer(view(LeaseCode.VIEW, seq=0, **mine))
    found_ns = follower.clock.now_ns
    assert lost(follower) == ["data"]
    assert follower.script == "lease_renew"
    follower.answer(view(LeaseCode.RENEWED, seq=1, **mine))

    assert follower.board.term().epoch == 8
    assert follower.board.term().trusted_until_ns == 0
    assert follower.standing.disputed_until_ns == found_ns + 5 * S
    assert follower.board.header.data_loss_epoch == 8, "what this replica knows of the watermarks is brought back"


def test_a_term_found_after_a_loss_that_was_waited_out_is_marked_and_trusted_at_once() -> None:
    """Its answer was lost too: it must not be taken for another replica's, which would have gone through the loss."""
    elector = emptied_leader()
    nonce = elector.argument("nonce")
    elector.refuse(after_ns=750 * MILLISECOND_NS)
    elector.wait()
    mine: dict[str, Any] = {"nonce": nonce, "holder": "me", "epoch": 89, "genesis": nonce}
    elector.answer(view(LeaseCode.VIEW, seq=0, **mine))
    elector.answer(view(LeaseCode.RENEWED, seq=1, **mine))

    assert elector.board.header.is_leading
    assert elector.board.header.data_loss_epoch == 89


def test_a_hand_over_after_the_loss_does_not_shorten_that() -> None:
    """The next leader waited as well, in vain: what it gave back says nothing about the term that Redis lost."""
    follower = Scripted().stand_by()
    follower.wait()
    follower.answer(view(LeaseCode.DENIED, epoch=9, genesis="n", last_event="2-0"), after_ns=MILLISECOND_NS)
    found_ns = follower.clock.now_ns
    assert lost(follower) == ["data"]
    while not isinstance(follower.step, Listen):
        follower.answer([])
    follower.answer([("3-0", {"kind": "released", "epoch": "9", "who": "other", "reason": "x", "roster": "0"})])
    nonce = follower.argument("nonce")
    follower.answer(view(LeaseCode.GRANTED, epoch=10, nonce=nonce, holder="me", seq=0, genesis="n"))

    assert follower.board.term().trusted_until_ns == 0
    assert follower.standing.disputed_until_ns == found_ns + 5 * S


def test_a_follower_that_heard_the_release_has_nothing_to_wait_for() -> None:
    """The holder itself said that it is over."""
    follower = Scripted().stand_by()
    follower.answer([("6-0", {"kind": "released", "epoch": "7", "who": "other", "reason": "x", "roster": "0"})])
    assert follower.script == "lease_campaign"
    follower.refuse()
    assert isinstance(follower.step, Sleep)
    follower.wait()
    follower.answer(view(LeaseCode.VIEW, **EMPTY))

    assert follower.script == "lease_campaign"


def test_a_follower_that_waits_follows_whoever_wins_meanwhile() -> None:
    """The leader of the lost term is faster."""
    follower = Scripted().stand_by()
    follower.wait()
    follower.answer(view(LeaseCode.DENIED, **EMPTY), after_ns=MILLISECOND_NS)
    assert isinstance(follower.step, Listen)
    follower.answer([("1-0", {"kind": "acquired", "epoch": "9", "who": "other", "reason": "vacant"})])
    follower.answer(view(LeaseCode.VIEW, epoch=9, genesis="n"))
    if isinstance(follower.step, RunScript):
        follower.answer([])

    assert isinstance(follower.step, Listen)
    assert follower.step.until_ns > follower.clock.now_ns + 2900 * MILLISECOND_NS
    assert follower.standing.known_genesis == "n"


def test_a_record_of_an_earlier_term_of_this_replica_is_taken_over_at_once() -> None:
    """Redis went back before a promotion: only a later epoch will do."""
    elector = Scripted().lead(epoch=88).to_renewal()
    elector.answer(view(LeaseCode.LOST, epoch=80, nonce="e" * 32, holder="me"))

    assert lost(elector) == ["rolled_back"]
    assert elector.script == "lease_campaign"
    assert elector.argument("floor") == 88
    assert elector.argument("nonce") not in {NONCES[0], "e" * 32}


def test_a_term_that_a_late_copy_of_an_old_question_won_is_adopted() -> None:
    """By the record this replica holds a term that it does not know: its nonce asks again."""
    follower = Scripted().lead().to_renewal()
    follower.answer(view(LeaseCode.LOST, epoch=9))
    follower.answer([])  # who else there is
    follower.wait()
    follower.answer(view(LeaseCode.DENIED, epoch=10, nonce=NONCES[0], holder="me"))
    assert follower.script == "lease_campaign"
    assert follower.argument("nonce") == NONCES[0]
    follower.answer(view(LeaseCode.SAME, epoch=10, nonce=NONCES[0], holder="me", seq=4))

    assert follower.script == "lease_renew"


def test_a_term_of_a_nonce_that_it_never_asked_with_is_anothers_whatever_name_stands_there() -> None:
    """A hand wrote the name. The holder renews, or the term ends by silence as any other does."""
    follower = Scripted().stand_by()
    follower.wait()
    follower.answer(view(LeaseCode.DENIED, epoch=9, nonce="e" * 32, holder="me"))
    assert isinstance(follower.step, Listen)
    follower.wait()
    assert follower.script == "lease_campaign"
    assert (follower.argument("mode"), follower.argument("nonce")) == ("expired", NONCES[0])


def test_a_term_below_the_floor_is_never_adopted() -> None:
    """Redis went back to a grant of an earlier question; a later term was seen since, and is waited out."""
    follower = Scripted()
    follower.begin()
    follower.refuse()
    follower.wait()
    follower.answer(view(LeaseCode.VIEW, epoch=50))
    while follower.script != "lease_campaign":
        follower.answer([])
        follower.wait()
    follower.answer(view(LeaseCode.SAME, epoch=40, nonce=NONCES[0], holder="me"))
    assert isinstance(follower.step, Listen)
    follower.wait()
    follower.answer(view(LeaseCode.VIEW, epoch=40, nonce=NONCES[0], holder="me"))

    assert follower.script == "lease_campaign"
    assert follower.argument("floor") == 50
    assert follower.argument("nonce") != NONCES[0]
    assert follower.board.term() == NO_TERM


def test_fewer_renewals_than_were_made_show_a_loss_within_the_term() -> None:
    """An asynchronous fail-over: what fired meanwhile is in doubt, and what fires from now on is of a later term."""
    elector = Scripted().lead(epoch=88).to_renewal()
    elector.answer(view(LeaseCode.RENEWED, epoch=88, nonce=NONCES[0], holder="me", seq=50))
    elector.to_renewal()
    elector.answer(view(LeaseCode.RENEWED, epoch=88, nonce=NONCES[0], holder="me", seq=50))

    assert lost(elector) == ["rolled_back"]
    assert elector.board.header.doubtful_until_ms == elector.clock.wall_ms()
    assert elector.script == "lease_promote"
    assert not elector.board.header.is_leading
    elector.answer(view(LeaseCode.GRANTED, epoch=89, nonce=str(elector.argument("new_nonce")), holder="me", seq=0))
    assert elector.board.header.is_leading
    elector.to_renewal()
    assert elector.script == "lease_renew"


def test_with_hold_the_new_term_is_kept_and_nothing_may_fire_until_a_person_says_so() -> None:
    """The hold is part of the grant, so that no crash lets a fire slip in between."""
    elector = emptied_leader(on_data_loss=DataLoss.HOLD)
    assert elector.argument("hold") == "data"
    nonce = elector.argument("nonce")
    mine: dict[str, Any] = {"epoch": 89, "nonce": nonce, "holder": "me", "genesis": nonce}
    elector.answer(view(LeaseCode.GRANTED, seq=0, hold="data", **mine))
    assert elector.board.term().trusted_until_ns == 0
    assert (elector.board.header.is_held, elector.board.header.is_leading) == (1, 0)
    elector.to_renewal()
    assert elector.argument("hold") == ""
    elector.answer(view(LeaseCode.RENEWED, seq=1, hold="data", **mine))
    assert elector.board.header.is_held
    wakes = elector.around.wakes
    elector.to_renewal()
    elector.answer(view(LeaseCode.RENEWED, seq=2, **mine))

    assert (elector.board.header.is_held, elector.board.header.is_leading) == (0, 1)
    assert elector.around.wakes == wakes + 1


def test_with_hold_a_loss_within_the_term_stops_the_fires_before_redis_is_told() -> None:
    """The board first, then the record, by a renewal that does not wait for its time."""
    elector = Scripted(on_data_loss=DataLoss.HOLD).lead(epoch=88).to_renewal()
    mine: dict[str, Any] = {"epoch": 88, "nonce": NONCES[0], "holder": "me"}
    elector.answer(view(LeaseCode.RENEWED, seq=50, **mine))
    elector.to_renewal()
    elector.answer(view(LeaseCode.RENEWED, seq=50, **mine))
    assert elector.board.header.is_held
    assert elector.script == "lease_renew"
    assert elector.argument("hold") == "rolled_back"
    elector.answer(view(LeaseCode.RENEWED, seq=51, hold="rolled_back", **mine))
    assert elector.script == "lease_promote"
    mine = {"epoch": 89, "nonce": str(elector.argument("new_nonce")), "holder": "me"}
    elector.answer(view(LeaseCode.GRANTED, seq=0, hold="rolled_back", **mine))
    elector.to_renewal()

    assert elector.argument("hold") == ""
    assert elector.board.header.is_held


@table(
    "field", [{"remaining_ms": -2 * NOW_MS, "unreadable": ("until",)}, {"duration_ms": 0, "unreadable": ("duration",)}]
)
def test_a_loss_behind_a_lease_of_which_no_time_can_be_read_counts_from_the_sight_before(field: dict[str, Any]) -> None:
    """A standby read when the leader had renewed last, then odd words, then nothing."""
    follower = Scripted().stand_by(remaining_ms=4000)
    sighted_ms = follower.board.header.answered_ms
    follower.standing.saw(view(LeaseCode.DENIED, seq=4, now_ms=sighted_ms + 1, **field))
    follower.standing.saw(view(LeaseCode.VIEW, **EMPTY, now_ms=sighted_ms + 2))

    assert follower.board.header.sighted_ms == sighted_ms - 1000


def test_a_loss_behind_a_lease_that_ended_before_time_began_ends_no_process() -> None:
    """A hand wrote its end: a number, so it can be read."""
    follower = Scripted().stand_by()
    sighted_ms = follower.board.header.answered_ms
    follower.standing.saw(view(LeaseCode.DENIED, seq=4, now_ms=sighted_ms + 1, remaining_ms=4 - sighted_ms))
    follower.standing.saw(view(LeaseCode.VIEW, **EMPTY, now_ms=sighted_ms + 2))

    assert follower.board.header.sighted_ms == sighted_ms + 1


def test_a_loss_behind_a_lease_of_ones_own_that_ended_before_time_began_ends_no_process() -> None:
    """The same with a negative number, which no script writes."""
    leader = Scripted().lead(epoch=88)
    now_ms = leader.board.header.answered_ms
    leader.standing.saw(view(LeaseCode.RENEWED, epoch=88, seq=4, now_ms=now_ms, remaining_ms=-5 - now_ms))
    leader.standing.saw(view(LeaseCode.MISSING, **EMPTY, now_ms=now_ms + 1))

    assert leader.board.header.held_until_ms == 0
    assert lost(leader) == ["data"]
