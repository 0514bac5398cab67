"""Promotion, requests to resign, holds, presence and lost data: what each script grants, writes once, and refuses late."""

from __future__ import annotations

import pytest

from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError
from supervisor.core.signing import Signer
from supervisor.store.election.leases import CandidateInfo, LeaseCode, Leases, LeaseView
from tests.kit.builders import NONCE, StoreCalls, schedule
from tests.kit.servers import on_both
from tests.kit.waiting import wait_until

OTHER, THIRD = "cd" * 16, "ef" * 16
DAY_MS = 86_400_000


def history(world: StoreCalls) -> list[tuple[str, str]]:
    """Return kind and reason of every event, oldest first."""
    return [(event.kind, event.reason) for event in reversed(world.run(world.leases.history(100)))]


def promotion(world: StoreCalls, held: LeaseView, new_nonce: str = OTHER) -> LeaseView:
    call = world.leases.promote(held, new_nonce=new_nonce, duration_ms=5000)
    return world.run(call)


# Promotion.


def test_a_promotion_gives_the_holder_a_later_epoch_and_is_no_transition(world: StoreCalls) -> None:
    """The replica goes on; only its scheduler is another."""
    held = world.lead("a")
    promoted = promotion(world, held)

    assert promoted.code is LeaseCode.GRANTED
    assert promoted.epoch > held.epoch
    assert (promoted.holder, promoted.nonce, promoted.seq) == ("a", OTHER, 0)
    assert (promoted.transitions, promoted.acquired_ms) == (held.transitions, held.acquired_ms)
    assert history(world) == [("acquired", "vacant"), ("acquired", "promoted")]


def test_what_the_dead_scheduler_sent_late_is_refused(world: StoreCalls) -> None:
    """That is what a promotion is for."""
    held = world.lead("a")
    world.run(world.declare_call(held, schedule("tick")))
    late = world.fire_call(held, world.item("tick"))
    promoted = promotion(world, held)

    with pytest.raises(Exception, match=str(promoted.epoch)):
        world.run(late)
    assert world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=9)).code is LeaseCode.LOST


def test_a_promotion_whose_answer_was_lost_is_the_same_when_asked_again(world: StoreCalls) -> None:
    """It renews, so that trust may count from the second question, and grants nothing more."""
    held = world.lead("a")
    call = world.leases.promote(Term(held.epoch, NONCE, 0), new_nonce=OTHER, duration_ms=5000)
    first, second = world.twice(call)

    assert (first.code, second.code) == (LeaseCode.GRANTED, LeaseCode.SAME)
    assert (second.epoch, second.seq) == (first.epoch, 1)
    assert second.is_ours
    assert history(world)[1:] == [("acquired", "promoted")]


@pytest.mark.parametrize("epoch", ["", "0", "-1", "rubbish", "9" * 400])
def test_a_promotion_asked_again_of_a_record_without_an_epoch_is_lost(world: StoreCalls, epoch: str) -> None:
    """A term of it would be none that Redis knows; the agent ended by an error of its own."""
    held = world.lead("a")
    call = world.leases.promote(Term(held.epoch, NONCE, 0), new_nonce=OTHER, duration_ms=5000)
    world.run(call)
    world.raw.hset(world.keys.lease, "epoch", epoch)

    assert world.run(call).code is LeaseCode.LOST


def test_a_late_promotion_of_an_old_term_changes_nothing(world: StoreCalls) -> None:
    """After another promotion, another holder, or a release of the term."""
    held = world.lead("a")
    late = world.leases.promote(Term(held.epoch, NONCE, 0), new_nonce=OTHER, duration_ms=5000)
    promoted = promotion(world, held, THIRD)
    assert world.run(late).code is LeaseCode.LOST
    world.run(world.leases.release(Term(promoted.epoch, THIRD, 0), reason="x"))
    assert world.run(late).code is LeaseCode.LOST
    assert promotion(world, promoted).code is LeaseCode.LOST
    after = world.lead("b", "12" * 16, mode="free")
    assert world.run(late).code is LeaseCode.LOST

    assert world.run(world.leases.view()).epoch == after.epoch


def test_a_promotion_on_an_emptied_server_creates_nothing(world: StoreCalls) -> None:
    """A term must be won again there."""
    held = world.lead("a")
    world.raw.delete(world.keys.lease)

    assert promotion(world, held).code is LeaseCode.MISSING
    assert not world.raw.exists(world.keys.lease)


def test_a_promotion_is_above_the_fence(world: StoreCalls) -> None:
    """An epoch that was granted once is never granted again, though the record forgot it."""
    held = world.lead("a")
    world.raw.set(world.keys.fence, held.epoch + 10**12)

    assert promotion(world, held).epoch == held.epoch + 10**12 + 1


@pytest.mark.parametrize("new_nonce", ["short", NONCE, "zz" * 16])
def test_a_promotion_to_the_same_or_a_malformed_nonce_is_refused(world: StoreCalls, new_nonce: str) -> None:
    """The nonce tells the new incarnation from the old one."""
    held = world.lead("a")
    call = world.leases.promote(Term(held.epoch, NONCE, 0), new_nonce=OTHER, duration_ms=5000)
    bad = type(call)(call.script, call.keys, (held.epoch, NONCE, new_nonce, 5000), call.parse)

    with pytest.raises(StoreRefusedError, match="nonce"):
        world.run(bad)


# Requests to resign.


def test_a_request_to_resign_reaches_the_named_term_with_its_next_renewal(world: StoreCalls) -> None:
    """Asked twice, it is one request and one event."""
    held = world.lead("a")
    first, second = world.twice(world.leases.request_resign(epoch=held.epoch, to="b", by="me"))
    assert (first.code, second.code) == (LeaseCode.REQUESTED, LeaseCode.REQUESTED)
    renewed = world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000))

    assert (renewed.is_resign_requested, renewed.resign_to, renewed.resign_by) == (True, "b", "me")
    assert history(world)[1:] == [("resign_requested", "b")]


def test_a_signed_request_takes_the_place_of_one_that_is_not(world: StoreCalls) -> None:
    """Somebody without the key must not be able to keep an operator's request out by asking first."""
    held, signer = world.lead("a"), Signer("c1", "k" * 32)
    world.run(world.leases.request_resign(epoch=held.epoch, to="b", by="stranger"))
    world.run(world.leases.request_resign(epoch=held.epoch, to="b", by="me", signer=signer, at_ms=5))
    world.run(world.leases.request_resign(epoch=held.epoch, to="b", by="stranger"))
    renewed = world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000))

    assert renewed.fault_of_resign(signer, 5) == ""
    assert [each.who for each in world.run(world.leases.history(9)) if each.kind == "resign_requested"] == [
        "me",
        "stranger",
    ]


@on_both("lease_request_resign")
def test_a_request_names_one_term_and_dies_with_it(world: StoreCalls) -> None:
    """A request that arrives late must not depose a leader that nobody meant."""
    held = world.lead("a")
    world.run(world.leases.request_resign(epoch=held.epoch, to="", by="me"))
    promoted = promotion(world, held)

    assert not promoted.is_resign_requested
    late = world.leases.request_resign(epoch=held.epoch, to="", by="me")
    assert world.run(late).code is LeaseCode.LOST
    world.run(world.leases.release(Term(promoted.epoch, OTHER, 0), reason="x"))
    free = world.leases.request_resign(epoch=promoted.epoch, to="", by="me")
    assert world.run(free).code is LeaseCode.LOST


def test_a_release_says_who_should_be_next_and_which_list_of_candidates_counts(world: StoreCalls) -> None:
    """So that the others let it pass, and read the list only if it changed."""
    held = world.lead("a")
    world.run(world.campaign_call("b", OTHER))
    world.run(world.campaign_call("b", OTHER))
    world.run(world.leases.withdraw("nobody"))
    world.run(world.leases.release(Term(held.epoch, NONCE, 0), reason="requested", prefer="b"))

    event = world.store.listen(world.keys.events, held.last_event, 20)[0][1]
    assert (event["prefer"], event["roster"]) == ("b", "2")
    world.twice(world.leases.withdraw("b"))
    assert world.run(world.leases.view()).roster == 3


# Candidates.


def test_whoever_only_registers_never_leads(world: StoreCalls) -> None:
    """Not on an empty server, not on a free lease."""
    info = CandidateInfo(replica="w", participates=False)
    view = world.run(world.campaign_call("w", OTHER, mode="register", info=info))
    assert (view.code, view.epoch) == (LeaseCode.DENIED, 0)
    held = world.lead("a")
    world.run(world.leases.release(Term(held.epoch, NONCE, 0), reason="x"))

    assert world.run(world.campaign_call("w", OTHER, mode="register", info=info)).code is LeaseCode.DENIED
    assert [one.participates for one in world.run(world.leases.candidates())] == [True, False]


def test_candidates_that_vanished_a_day_ago_are_forgotten(world: StoreCalls) -> None:
    """Each start of a tree is a new one; those that were killed never take themselves off the list."""
    held = world.lead("a")
    world.raw.hset(world.keys.candidates, "gone", f"{held.now_ms - DAY_MS - 1000} {{}}")
    world.raw.hset(world.keys.candidates, "away", f"{held.now_ms - DAY_MS + 60_000} {{}}")
    world.raw.hset(world.keys.candidates, "odd", "not ours")
    world.run(world.leases.release(Term(held.epoch, NONCE, 0), reason="x"))
    world.lead("b", OTHER, mode="free")

    assert [one.replica for one in world.run(world.leases.candidates())] == ["a", "away", "b"]


def test_a_grant_says_how_long_nobody_held_the_lease(world: StoreCalls) -> None:
    """From the release, or from the end of a lease that ran out, by the server's own clock."""
    first = world.lead("a")
    assert first.gap_ms == -1
    world.run(world.leases.release(Term(first.epoch, NONCE, 0), reason="x"))
    world.raw.hset(world.keys.lease, "released_at", world.run(world.leases.view()).now_ms - 500)
    second = world.lead("b", OTHER, mode="free")
    assert 500 <= second.gap_ms < 10_000
    world.raw.hset(world.keys.lease, "until", second.now_ms - 700)

    assert 700 <= world.lead("a", THIRD, mode="expired", observed_epoch=second.epoch).gap_ms < 10_000


# Lost data.


def test_a_leader_whose_later_term_was_forgotten_takes_its_own_record_over(world: StoreCalls) -> None:
    """Redis went back to an earlier term of the same replica: nobody else renews that one."""
    held = world.lead("a")
    call = world.campaign_call("a", OTHER, mode="free", floor=held.epoch + 50)
    view = world.run(call)
    assert view.code is LeaseCode.GRANTED
    assert view.epoch > held.epoch + 50

    assert world.run(world.campaign_call("a", THIRD, mode="free", floor=held.epoch)).code is LeaseCode.DENIED
    assert world.run(world.campaign_call("b", THIRD, mode="free", floor=view.epoch + 9)).code is LeaseCode.DENIED
    assert ("regression", "rolled_back") in history(world)
    assert held.doubtful_until_ms == 0
    assert view.doubtful_until_ms == view.now_ms


@pytest.mark.parametrize(("is_emptied", "reason"), [(True, "emptied"), (False, "replaced")])
def test_the_first_term_after_a_loss_of_data_says_so(world: StoreCalls, reason: str, *, is_emptied: bool) -> None:
    """Once, in the history that people look at first."""
    first = world.lead("a")
    world.raw.delete(world.keys.lease, world.keys.fence, world.keys.genesis, world.keys.events)
    if not is_emptied:
        world.raw.set(world.keys.genesis, "12" * 16)
    view = world.lead("a", OTHER, genesis=first.genesis, floor=first.epoch + 10**12)

    assert view.epoch == first.epoch + 10**12 + 1
    assert view.genesis == (OTHER if is_emptied else "12" * 16)
    assert history(world) == [("data_loss", reason), ("acquired", "vacant")]
    assert view.doubtful_until_ms == view.now_ms


@pytest.mark.parametrize(("age_ms", "is_known"), [(3_600_000, True), (100_000_000, False), (-60_000, False)])
def test_a_loss_is_known_for_a_day_to_replicas_that_start_after_it(
    world: StoreCalls, age_ms: int, *, is_known: bool
) -> None:
    """They saw nothing of it. A time that is older, or to come, is no reason to doubt what is due."""
    lost_ms = world.lead("a").now_ms - age_ms
    world.raw.hset(world.keys.lease, "doubtful_until", lost_ms)

    assert world.run(world.leases.view()).doubtful_until_ms == (lost_ms if is_known else 0)


@on_both("lease_clear_hold", "lease_history", "lease_promote", "lease_release", "lease_renew")
def test_a_hold_outlives_terms_until_a_person_clears_it(world: StoreCalls) -> None:
    """Set with the grant or with a renewal, in the same step, so that no crash lets a fire slip in between."""
    first = world.lead("a", hold="data")
    assert first.hold == "data"
    promoted = promotion(world, first)
    assert promoted.hold == "data"
    world.run(world.leases.release(Term(promoted.epoch, OTHER, 0), reason="x"))
    assert world.lead("b", THIRD, mode="free").hold == "data"
    cleared, again = world.twice(world.leases.clear_hold(by="me"))

    assert (cleared.code, again.code, again.hold) == (LeaseCode.CLEARED, LeaseCode.ALREADY, "")
    assert history(world)[-1] == ("hold_cleared", "data")
    term = world.run(world.leases.view())
    held = world.leases.renew(Term(term.epoch, THIRD, 0), duration_ms=5000, hold="rolled_back")
    assert world.run(held).hold == "rolled_back"


# Presence.


class Shown:
    """A subscriber of the channel of one term."""

    def __init__(self, world: StoreCalls, epoch: int) -> None:
        self._raw = world.raw
        self._channel = f"{world.keys.alive}{epoch}"
        self._pubsub = world.server.raw().pubsub()
        self._pubsub.subscribe(self._channel)
        wait_until(lambda: self._count() == 1, "the subscriber to be counted")

    def end(self) -> None:
        """Return once the server has noticed: it may read what other connections ask before."""
        self._pubsub.close()
        wait_until(lambda: self._count() == 0, "the subscriber to be gone")

    def _count(self) -> int:
        return int(self._raw.pubsub_numsub(self._channel)[0][1])


def test_presence_counts_the_subscribers_of_one_term(world: StoreCalls) -> None:
    """Asked for only; otherwise it is unknown."""
    leases = Leases(world.keys, has_presence=True)
    assert world.run(leases.view(with_presence=True)).presence == -1
    held = world.lead("a")
    assert world.run(leases.view(with_presence=True)).presence == 0
    shown = Shown(world, held.epoch)

    assert world.run(leases.view(with_presence=True)).presence == 1
    assert world.run(leases.view()).presence == -1
    assert world.run(world.leases.view(with_presence=True)).presence == -1
    shown.end()


def test_an_absent_holder_is_replaced_only_if_it_was_visible_when_it_renewed_last(world: StoreCalls) -> None:
    """Absent for a holder that a proxy hides means nothing; nor does it for one that renewed since."""
    leases = Leases(world.keys, has_presence=True)
    held = world.lead("a")

    def campaign(seq: int, nonce: str = OTHER) -> LeaseCode:
        info = CandidateInfo(replica="b")
        call = leases.campaign(
            replica="b", nonce=nonce, info=info, duration_ms=5000, floor=0, mode="presence",
            observed_epoch=held.epoch, observed_seq=seq,
        )  # fmt: skip
        return world.run(call).code

    assert campaign(0) is LeaseCode.DENIED  # it never said that it shows itself
    shown = Shown(world, held.epoch)
    assert world.run(leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000, is_present=True)).presence == 1
    assert campaign(1) is LeaseCode.DENIED  # it is there
    shown.end()
    assert campaign(0) is LeaseCode.DENIED  # it renewed since
    assert world.run(leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000, is_present=True)).presence == 0
    assert campaign(2) is LeaseCode.DENIED  # it renewed, and was not visible: nobody may conclude anything
    shown = Shown(world, held.epoch)
    assert world.run(leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000, is_present=True)).presence == 1
    shown.end()

    assert campaign(3) is LeaseCode.GRANTED
