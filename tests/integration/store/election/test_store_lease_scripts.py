"""The election scripts: who is granted what, and what a repeated or late call does."""

from __future__ import annotations

import pytest

from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError
from supervisor.store.election.leases import CandidateInfo, LeaseCode
from tests.kit.builders import NONCE, StoreCalls

OTHER = "cd" * 16


def events(world: StoreCalls) -> list[str]:
    return [fields["kind"] for _, fields in world.store.listen(world.keys.events, "0-0", 20)]


def test_the_first_to_ask_an_empty_server_leads(world: StoreCalls) -> None:
    """Nothing needs to be set up before the first replica starts."""
    view = world.run(world.campaign_call("a", floor=7))

    assert view.code is LeaseCode.GRANTED
    assert (view.holder, view.nonce, view.seq, view.duration_ms) == ("a", NONCE, 0, 5000)
    assert view.epoch >= view.now_ms
    assert view.genesis == NONCE
    assert (view.host, view.pid, view.version, view.transitions) == ("h", 7, "1", 1)


def test_a_second_campaign_with_the_same_nonce_is_the_same_term(world: StoreCalls) -> None:
    """The reply to the first may have been lost; a new epoch would orphan the term that was granted."""
    first, second = world.twice(world.campaign_call("a"))

    assert (first.code, second.code) == (LeaseCode.GRANTED, LeaseCode.SAME)
    assert (first.epoch, second.seq) == (second.epoch, 1)
    assert events(world) == ["acquired"]


@pytest.mark.parametrize("epoch", ["", "0", "-1", "rubbish", "9" * 400])
def test_a_campaign_asked_again_of_a_record_without_an_epoch_is_granted_anew(world: StoreCalls, epoch: str) -> None:
    """The same term would have none; the agent ended by an error of its own."""
    call = world.campaign_call("a")
    first = world.run(call)
    world.raw.hset(world.keys.lease, "epoch", epoch)
    again = world.run(call)

    assert (again.code, again.epoch > first.epoch) == (LeaseCode.GRANTED, True)


def test_a_held_lease_is_denied_and_the_denial_teaches_the_record(world: StoreCalls) -> None:
    """One round trip tells a follower all it needs to observe the holder."""
    held = world.lead("a")
    denied = world.run(world.campaign_call("b", OTHER))

    assert denied.code is LeaseCode.DENIED
    assert (denied.epoch, denied.nonce, denied.holder, denied.seq) == (held.epoch, NONCE, "a", 0)
    assert 0 < denied.remaining_ms <= 5000
    assert denied.last_event == held.last_event != "0-0"


@pytest.mark.parametrize("mode", ["free", "expired"])
def test_what_stands_still_for_the_caller_must_be_what_is_there(world: StoreCalls, mode: str) -> None:
    """A follower that watched another sequence number has not watched this holder."""
    held = world.lead("a")
    world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000))
    stale = world.campaign_call("b", OTHER, mode=mode, observed_epoch=held.epoch, observed_seq=0)

    assert world.run(stale).code is LeaseCode.DENIED


@pytest.mark.parametrize("seq", [None, "", "x", "-1"])
def test_a_sequence_number_that_cannot_be_read_is_not_that_of_the_grant(world: StoreCalls, seq: str | None) -> None:
    """Its holder may have renewed since: who watched the grant has not watched that. Who watched the rubbish has."""
    held = world.lead("a", duration_ms=300_000)
    world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000))
    if seq is None:
        world.raw.hdel(world.keys.lease, "seq")
    else:
        world.raw.hset(world.keys.lease, "seq", seq)
    watched = world.run(world.leases.view()).seq

    def campaign(seen: int) -> LeaseCode:
        call = world.campaign_call("b", OTHER, mode="expired", observed_epoch=held.epoch, observed_seq=seen)
        return world.run(call).code

    assert campaign(0) is LeaseCode.DENIED
    assert campaign(watched) is LeaseCode.GRANTED


def test_a_holder_that_stood_still_is_replaced_with_a_higher_epoch(world: StoreCalls) -> None:
    """The server's time is not asked: a clock step of it replaces nobody and protects nobody."""
    held = world.lead("a", duration_ms=300_000)
    view = world.run(world.campaign_call("b", OTHER, mode="expired", observed_epoch=held.epoch, observed_seq=0))

    assert view.code is LeaseCode.GRANTED
    assert view.epoch > held.epoch
    assert (view.holder, view.transitions) == ("b", 2)
    assert events(world) == ["acquired", "lapsed", "acquired"]


def test_a_cold_start_takes_a_lease_that_ran_out_by_the_servers_time_and_stands_still(world: StoreCalls) -> None:
    """Either alone proves nothing: the server's clock may have stepped, and a moment's silence is none."""
    held = world.lead("a")
    watched = world.campaign_call("b", OTHER, mode="cold", observed_epoch=held.epoch, observed_seq=0)
    assert world.run(watched).code is LeaseCode.DENIED

    world.raw.hset(world.keys.lease, "until", 1)
    assert world.run(world.campaign_call("b", OTHER, mode="cold")).code is LeaseCode.DENIED
    assert world.run(watched).code is LeaseCode.GRANTED


@pytest.mark.parametrize("until", ["nan", "", "-1", "1e3", None])
def test_no_cold_start_takes_a_lease_whose_end_cannot_be_read(world: StoreCalls, until: str | None) -> None:
    """It counted as over, and a leader that was cut off for a moment still trusted its term."""
    held = world.lead("a")
    if until is None:
        world.raw.hdel(world.keys.lease, "until")
    else:
        world.raw.hset(world.keys.lease, "until", until)

    for mode, code in (("cold", LeaseCode.DENIED), ("expired", LeaseCode.GRANTED)):
        watched = world.campaign_call("b", OTHER, mode=mode, observed_epoch=held.epoch, observed_seq=0)
        assert world.run(watched).code is code


def test_epochs_grow_although_the_lease_was_deleted_and_the_caller_remembers_more(world: StoreCalls) -> None:
    """The fence outlives the record, and a caller's memory outlives both."""
    first = world.lead("a")
    world.raw.delete(world.keys.lease)
    second = world.lead("b", OTHER)
    world.raw.delete(world.keys.lease, world.keys.fence)
    third = world.lead("a", "ef" * 16, floor=second.epoch + 10**12)

    assert first.epoch < second.epoch
    assert third.epoch == second.epoch + 10**12 + 1
    assert third.genesis == NONCE


def test_renewing_extends_only_the_callers_own_term(world: StoreCalls) -> None:
    """A stale holder must not prolong its successor, nor bring its own term back."""
    held = world.lead("a")
    for epoch, nonce in ((held.epoch, OTHER), (held.epoch - 1, NONCE)):
        assert world.run(world.leases.renew(Term(epoch, nonce, 0), duration_ms=9)).code is LeaseCode.LOST

    first, second = world.twice(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=7000))
    assert (first.code, first.seq, second.seq) == (LeaseCode.RENEWED, 1, 2)
    assert second.duration_ms == 7000


def test_renewing_after_the_end_reclaims_a_term_that_nobody_took(world: StoreCalls) -> None:
    """A hiccup longer than the lease costs nothing when nobody else was there."""
    held = world.lead("a")
    world.raw.hset(world.keys.lease, "until", 1)

    view = world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000))
    assert (view.code, view.epoch) == (LeaseCode.RECLAIMED, held.epoch)
    assert events(world) == ["acquired", "reclaimed"]


@pytest.mark.parametrize("mode", ["cold", "expired", "free", "presence", "register"])
def test_a_holder_below_an_epoch_that_a_contender_saw_learns_of_it_and_gets_a_later_one(
    world: StoreCalls, mode: str
) -> None:
    """The data went back to before the later grant, whose holder acted: fences of others refuse the former epoch."""
    held, later = world.lead("a"), 10**13
    mine = Term(held.epoch, NONCE, 0)
    denied, _ = world.twice(world.campaign_call("b", OTHER, mode=mode, floor=later))
    assert (denied.code, denied.epoch, denied.holder) == (LeaseCode.DENIED, held.epoch, "a")
    world.run(world.campaign_call("c", "c" * 32, mode="register", floor=later - 1))

    renewed, _ = world.twice(world.leases.renew(mine, duration_ms=5000))
    assert (renewed.code, renewed.epoch, renewed.seq) == (LeaseCode.OUTDATED, held.epoch, 1)
    granted = world.run(world.leases.promote(mine, new_nonce="d" * 32, duration_ms=5000, is_rolled_back=True))
    assert (granted.code, granted.epoch) == (LeaseCode.GRANTED, later + 1)
    again = world.run(world.leases.renew(Term(granted.epoch, "d" * 32, 0), duration_ms=5000))
    assert again.code is LeaseCode.RENEWED


def test_a_floor_that_no_clock_comes_near_reaches_no_holder(world: StoreCalls) -> None:
    """No epoch above it could be granted."""
    held = world.lead("a")
    world.run(world.campaign_call("b", OTHER, mode="register", floor=10**14))
    assert world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000)).code is LeaseCode.RENEWED


def test_renewing_on_an_emptied_server_creates_nothing(world: StoreCalls) -> None:
    """A leader that lost its lease must win an election, not bring the old term back."""
    held = world.lead("a")
    world.raw.delete(world.keys.lease)

    assert world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000)).code is LeaseCode.MISSING
    assert not world.raw.exists(world.keys.lease)


def test_a_release_frees_the_lease_wakes_standbys_and_may_be_repeated(world: StoreCalls) -> None:
    """State and event are one step, so no standby can miss the hand-over."""
    held = world.lead("a")
    first, second = world.twice(world.leases.release(Term(held.epoch, NONCE, 0), reason="shutdown"))

    assert (first.code, second.code) == (LeaseCode.RELEASED, LeaseCode.ALREADY)
    assert first.holder == ""
    assert world.store.listen(world.keys.events, held.last_event, 20)[0][1] == {
        "kind": "released",
        "epoch": str(held.epoch),
        "who": "a",
        "reason": "shutdown",
        "prefer": "",
        "roster": "1",
    }
    assert world.run(world.campaign_call("b", OTHER, mode="free")).code is LeaseCode.GRANTED


def test_a_late_release_does_not_touch_the_successor(world: StoreCalls) -> None:
    """The release of a slow process arrives after another replica leads."""
    old = world.lead("a")
    new = world.lead("b", OTHER, mode="expired", observed_epoch=old.epoch)

    for epoch, nonce in ((old.epoch, NONCE), (new.epoch, NONCE), (old.epoch, OTHER)):
        assert world.run(world.leases.release(Term(epoch, nonce, 0), reason="late")).code is LeaseCode.LOST
    assert world.run(world.leases.view()).holder == "b"
    assert world.run(world.leases.view()).epoch == new.epoch


def test_a_released_term_cannot_be_renewed(world: StoreCalls) -> None:
    """The empty nonce of a free lease equals nobody's."""
    held = world.lead("a")
    world.run(world.leases.release(Term(held.epoch, NONCE, 0), reason="x"))

    assert world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000)).code is LeaseCode.LOST


def test_viewing_writes_nothing(world: StoreCalls) -> None:
    """Status may be asked of a server that never saw this cluster."""
    view = world.run(world.leases.view())

    assert (view.code, view.epoch, view.holder, view.genesis, view.last_event) == (LeaseCode.VIEW, 0, "", "", "0-0")
    assert world.raw.keys(f"{world.keys.prefix}*") == []


def test_candidates_are_seen_when_they_campaign_or_renew(world: StoreCalls) -> None:
    """Whoever may lead is known without another command."""
    held = world.lead("a", info=CandidateInfo(replica="a", schedules_digest="d9", draining=True))
    world.run(world.campaign_call("b", OTHER))
    world.raw.hset(world.keys.candidates, "c", "12 not json of ours")
    before = {info.replica: info for info in world.run(world.leases.candidates())}
    world.raw.hset(world.keys.candidates, "a", b"1 " + world.raw.hget(world.keys.candidates, "a").split(b" ", 1)[1])
    world.run(world.leases.renew(Term(held.epoch, NONCE, 0), duration_ms=5000))
    after = {info.replica: info for info in world.run(world.leases.candidates())}

    assert list(before) == ["a", "b", "c"]
    assert (before["a"].schedules_digest, before["a"].draining, before["c"].seen_ms) == ("d9", True, 12)
    assert after["a"].seen_ms >= held.now_ms
    assert after["a"].schedules_digest == "d9"
    world.twice(world.leases.withdraw("b"))
    assert [info.replica for info in world.run(world.leases.candidates())] == ["a", "c"]


def test_a_candidate_and_redis_say_in_one_entry_what_time_they_have(world: StoreCalls) -> None:
    """The difference is how far its clock is off; an entry that does not say its time says nothing of its clock."""
    now_ms = world.run(world.leases.view()).now_ms
    for nonce, name, wall_ms in ((NONCE, "ahead", now_ms + 3_600_000), (OTHER, "old", 0)):
        world.run(world.campaign_call(name, nonce, info=CandidateInfo(replica=name, wall_ms=wall_ms)))
    ahead, old = world.run(world.leases.candidates())

    assert ahead.skew_ms is not None
    assert 3_540_000 < ahead.skew_ms <= 3_600_000
    assert old.skew_ms is None


def test_a_malformed_call_writes_nothing(world: StoreCalls) -> None:
    """Arguments are judged before the first write."""
    call = world.campaign_call("a")
    bad = type(call)(call.script, call.keys, ("a", "short", *call.args[2:]), call.parse)

    with pytest.raises(StoreRefusedError, match="nonce"):
        world.run(bad)
    assert world.raw.keys(f"{world.keys.prefix}*") == []
