"""Presence: a standby that looks whether the leader's process is still connected, and a leader that shows itself."""

from __future__ import annotations

import pytest

from supervisor.core.effects import Listen, RunScript, Sleep
from supervisor.core.election.lease import State
from supervisor.core.election.presence import CONFIRM_NS
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import LeaseCode
from tests.unit.roles.agent.elector_stepper import NONCES, S, Scripted, view


def watching() -> Scripted:
    """Return a standby that has seen the leader for longer than a lease."""
    follower = Scripted(presence=True).stand_by()
    until_ns = follower.clock.now_ns + 6 * S
    while follower.clock.now_ns < until_ns:
        look(follower, 1)
    return follower


def look(follower: Scripted, count: int, *, seq: int = 3) -> None:
    """Let time pass to the next look, and answer it."""
    while not (isinstance(follower.step, RunScript) and follower.script == "lease_view" and follower.argument("alive")):
        if isinstance(follower.step, RunScript):
            code = LeaseCode.VIEW if follower.script == "lease_view" else LeaseCode.DENIED
            follower.answer([] if follower.script == "hash_read" else view(code, seq=seq))
        else:
            follower.wait()
    follower.answer(view(LeaseCode.VIEW, presence=count, seq=seq), after_ns=MILLISECOND_NS)


def test_a_leader_whose_connection_is_gone_at_two_looks_is_challenged() -> None:
    """With what the second look saw, so that a renewal in between refuses it."""
    follower = watching()
    look(follower, 0, seq=4)
    assert isinstance(follower.step, Listen)
    assert follower.step.until_ns - follower.clock.now_ns <= CONFIRM_NS
    look(follower, 0, seq=4)

    assert follower.script == "lease_campaign"
    assert [follower.argument(name) for name in ("mode", "epoch_seen", "seq_seen")] == ["presence", 7, 4]


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_suspicion_is_counted_by_what_became_of_it(*, is_dead: bool) -> None:
    """A rate of wrong ones says that presence does not fit this network."""
    follower = watching()
    look(follower, 0)
    look(follower, 0)
    nonce = follower.argument("nonce")
    if is_dead:
        follower.answer(view(LeaseCode.GRANTED, epoch=8, nonce=nonce, holder="me", seq=0))
    else:
        follower.answer(view(LeaseCode.DENIED, seq=5))

    assert [fields["confirmed"] for event, fields in follower.told if event == "leader_suspected"] == [is_dead]
    assert (follower.standing.state is State.LEADER) is is_dead


def test_an_interruption_of_our_own_ends_every_suspicion() -> None:
    """A server that restarted dropped the leader's connection too."""
    follower = watching()
    look(follower, 0)
    follower.refuse()
    for _ in range(20):
        look(follower, 0)
        assert not (isinstance(follower.step, RunScript) and follower.argument("mode") == "presence")


def test_looks_come_about_twice_a_second_at_most() -> None:
    """Two round trips each: one wait for events, one look. At most four a second together with the rest."""
    follower = Scripted(presence=True).stand_by()
    began_ns, asked = follower.clock.now_ns, 0
    while follower.clock.now_ns < began_ns + 100 * S:
        asked += not isinstance(follower.step, Sleep)
        if not isinstance(follower.step, RunScript):
            follower.wait()
        elif follower.script == "hash_read":
            follower.answer([])
        else:
            code = LeaseCode.VIEW if follower.script == "lease_view" else LeaseCode.DENIED
            follower.answer(view(code, presence=1, remaining_ms=4500))

    assert asked <= 400


def test_without_presence_nobody_looks() -> None:
    """One blocked read until the lease would end."""
    follower = Scripted().stand_by()

    assert isinstance(follower.step, Listen)
    assert follower.step.until_ns - follower.clock.now_ns > 2900 * MILLISECOND_NS


def test_a_leader_shows_itself_for_its_term_and_for_no_other() -> None:
    """The channel names the epoch."""
    leader = Scripted(presence=True).lead()
    assert leader.shown.epoch == 8
    leader.around.generation = 2
    leader.answer()
    leader.answer(view(LeaseCode.GRANTED, epoch=9, nonce=NONCES[1], holder="me", seq=0))
    assert leader.shown.epoch == 9
    leader.to_renewal()
    leader.answer(view(LeaseCode.LOST, epoch=11))

    assert leader.shown.epoch == 0


def test_a_leader_says_that_it_shows_itself_only_once_redis_confirmed_it() -> None:
    """The record says then whether it is visible; behind a proxy that hides it, nobody may conclude anything."""
    leader = Scripted(presence=True).lead().to_renewal()
    assert leader.argument("alive") == ""
    leader.shown.confirmed = True
    leader.renewed()
    leader.to_renewal()
    assert leader.argument("alive")
    leader.answer(view(LeaseCode.RENEWED, epoch=8, nonce=NONCES[0], holder="me", seq=9, presence=0))

    assert leader.shown.refreshed == 1
    assert "presence_hidden" in leader.events()
