"""A leader whose wall clock is off, and to whom it gives way."""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.core.effects import Listen, Sleep
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import CandidateInfo, LeaseCode
from tests.unit.roles.agent.elector_stepper import S, Scripted, view

HOUR_MS = 3_600_000
EARLIER = 100_000  # when the others had last asked, by Redis, as the leader noticed


def candidate(name: str, *, seen_ms: int = EARLIER, skew_ms: int = 0, **fields: object) -> CandidateInfo:
    """Return the entry of a replica that asked at ``seen_ms``."""
    return replace(CandidateInfo(replica=name, seen_ms=seen_ms, wall_ms=seen_ms + skew_ms), **fields)


RIGHT = candidate("right")


def again(who: CandidateInfo, after_ms: int = 4000) -> CandidateInfo:
    """Return its entry once it has asked again."""
    return replace(who, seen_ms=who.seen_ms + after_ms, wall_ms=who.wall_ms + after_ms)


def leader(*first: CandidateInfo, offset_ms: int = -HOUR_MS) -> Scripted:
    """Return a leader whose clock stepped, and that has read the list at the renewal that showed it."""
    elector = Scripted().lead().to_renewal()
    elector.clock.wall_offset_ms = offset_ms
    renew_once(elector)
    assert elector.script == "hash_read"
    elector.answer([candidate("me"), *first])
    return elector


def renew_once(elector: Scripted) -> None:
    """Wait for the next renewal and answer it."""
    elector.to_renewal()
    term, seq = elector.board.term(), elector.standing.lease.seq + 1
    elector.answer(
        view(LeaseCode.RENEWED, epoch=term.epoch, nonce=term.nonce, holder="me", seq=seq), after_ns=MILLISECOND_NS
    )


def test_it_hands_over_to_the_one_whose_clock_is_right_at_the_third_renewal() -> None:
    """Behind by an hour, it would fire nothing for an hour, and nobody would notice."""
    elector = leader(RIGHT)
    renew_once(elector)
    assert isinstance(elector.step, Sleep)
    renew_once(elector)
    assert elector.script == "hash_read"
    elector.answer([candidate("me"), again(RIGHT), again(candidate("wrong", skew_ms=-HOUR_MS))])
    while isinstance(elector.step, Sleep):
        elector.wait()

    assert elector.script == "lease_release"
    assert (elector.argument("reason"), elector.argument("prefer")) == ("clock_skew", "right")
    assert elector.board.term().epoch == 0
    assert "clock_skew_resigned" in elector.events()


def test_it_lets_the_others_lead_for_a_lease_duration() -> None:
    """Should the heir be gone, it leads again: late is better than never."""
    elector = leader(RIGHT)
    renew_once(elector)
    renew_once(elector)
    elector.answer([again(RIGHT)])
    while isinstance(elector.step, Sleep):
        elector.wait()
    elector.answer(view(LeaseCode.RELEASED, holder=""))

    assert isinstance(elector.step, Listen)
    assert elector.step.until_ns - elector.clock.now_ns == 5 * S
    assert elector.board.header.ineligible_until_ns == 0


def test_what_a_candidate_said_before_the_leader_noticed_is_not_believed() -> None:
    """If Redis' clock stepped, that was by the clock before the step."""
    elector = leader(RIGHT)
    renew_once(elector)
    for _ in range(3):
        renew_once(elector)
        assert elector.script == "hash_read"
        elector.answer([RIGHT])
        assert isinstance(elector.step, Sleep)
    renew_once(elector)
    elector.answer([again(RIGHT)])
    while isinstance(elector.step, Sleep):
        elector.wait()

    assert elector.script == "lease_release"


def test_it_stays_where_nobody_better_can_lead() -> None:
    """As far off, gone since, only working, of a version that does not say: none of them would fire on time."""
    others = [
        candidate("as-wrong", skew_ms=-HOUR_MS),
        candidate("works", participates=False),
        candidate("leaves", draining=True),
        candidate("old", wall_ms=0),
    ]
    elector = leader(RIGHT, *others)
    renew_once(elector)
    for turn in range(1, 4):
        renew_once(elector)
        asked = [replace(other, seen_ms=EARLIER + turn) for other in others[1:]]
        elector.answer([candidate("me"), RIGHT, again(others[0], turn), *asked])
        assert isinstance(elector.step, Sleep)

    assert elector.board.header.is_leading


def test_a_clock_that_came_back_in_time_changes_nothing() -> None:
    """Three renewals in a row: a step that NTP corrects at once is no reason to hand over."""
    elector = leader(RIGHT)
    renew_once(elector)
    elector.clock.wall_offset_ms = 0
    renew_once(elector)
    elector.clock.wall_offset_ms = -HOUR_MS
    renew_once(elector)
    assert elector.script == "hash_read"
    elector.answer([again(RIGHT)])

    assert elector.board.header.is_leading
    assert [event for event in elector.events() if event.startswith("clock")] == [
        "clock_skewed",
        "clock_right",
        "clock_skewed",
    ]


def test_an_unanswered_look_at_the_candidates_is_made_again() -> None:
    """Without the first look, nothing says which entries are new."""
    elector = Scripted().lead().to_renewal()
    elector.clock.wall_offset_ms = -HOUR_MS
    renew_once(elector)
    elector.refuse()
    renew_once(elector)
    assert elector.script == "hash_read"
    elector.answer([RIGHT])
    renew_once(elector)
    elector.refuse()
    renew_once(elector)
    elector.answer([again(RIGHT)])
    while isinstance(elector.step, Sleep):
        elector.wait()

    assert elector.script == "lease_release"


def test_the_board_says_how_far_the_clocks_are_apart() -> None:
    """For /readyz and the metrics; behind is a negative number."""
    elector = Scripted().lead().to_renewal()
    elector.clock.wall_offset_ms = -HOUR_MS
    elector.renewed(after_ns=2 * MILLISECOND_NS)

    assert elector.board.header.clock_skew_ms == -HOUR_MS - 1


def test_a_candidate_says_what_time_it_has() -> None:
    """Beside the time at which Redis was asked, in one entry, so that both are of one moment."""
    follower = Scripted()
    follower.clock.wall_offset_ms = 700
    follower.begin()
    info = follower.argument("info")

    assert f'"wall_ms":{follower.clock.right_ms() + 700}'.encode() in info


def test_a_follower_with_a_wrong_clock_lets_the_others_pass() -> None:
    """Younger, so that it would go first if its clock were right."""
    waits = {}
    for offset_ms in (0, HOUR_MS):
        follower = Scripted()
        follower.clock.wall_offset_ms = offset_ms
        follower.stand_by(replace(RIGHT, started_ms=1))
        fields = {"kind": "released", "epoch": "7", "who": "other", "reason": "shutdown", "prefer": "", "roster": "0"}
        follower.answer([("6-0", fields)])
        waits[offset_ms] = isinstance(follower.step, Sleep)

    assert waits == {0: False, HOUR_MS: True}
