"""Handing over because a person asked, and letting the one go first that should."""

from __future__ import annotations

import pytest

from supervisor.core.effects import Listen, RunScript, Sleep, Step
from supervisor.core.election.lease import PREFER_NS
from supervisor.core.signing import FRESH_MS, Signer
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import CandidateInfo, LeaseCode
from tests.unit.roles.agent.elector_stepper import S, Scripted, view

SIGNER = Signer("c1", "k" * 32)
ME = CandidateInfo(replica="me.f00", started_ms=500)
OTHER = CandidateInfo(replica="other.b00", seen_ms=100_000)


def released(*, prefer: str = "", roster: int = 0) -> list[tuple[str, dict[str, str]]]:
    fields = {"kind": "released", "epoch": "7", "who": "other", "reason": "requested"}
    return [("6-0", {**fields, "prefer": prefer, "roster": str(roster)})]


def asked(elector: Scripted, to: str = "", by: str = "ops") -> Step | None:
    """Answer a renewal with a request to resign."""
    term = elector.board.term()
    return elector.answer(
        view(
            LeaseCode.RENEWED, epoch=term.epoch, nonce=term.nonce, holder="me.f00", seq=9,
            is_resign_requested=True, resign_to=to, resign_by=by,
        )
    )  # fmt: skip


def obeying(*others: CandidateInfo, to: str = "") -> Scripted:
    """Return a leader that was asked to resign, has learned who else there is, and now tells Redis."""
    elector = Scripted(me=ME).lead().to_renewal()
    asked(elector, to)
    assert elector.script == "hash_read"
    elector.answer([CandidateInfo(replica="me.f00", seen_ms=100_000), *others])
    while isinstance(elector.step, Sleep):
        elector.wait()
    return elector


def test_a_leader_obeys_and_says_who_should_follow() -> None:
    """The scheduler idles first; then the release carries the name."""
    elector = obeying(OTHER, to="other.b00")

    assert elector.script == "lease_release"
    assert (elector.argument("reason"), elector.argument("prefer")) == ("requested", "other.b00")
    assert elector.board.term().epoch == 0


def keyed() -> Scripted:
    """Return a leader with a key that is about to hear of its renewal."""
    return Scripted(me=ME, signer=SIGNER).lead().to_renewal()


def told(elector: Scripted) -> list[str]:
    return [name for name, _ in elector.told if name.startswith("resign")]


def test_with_a_key_only_operators_are_obeyed() -> None:
    """Who may write to Redis, and has no key, moves no leader."""
    now_ms, epoch = keyed().clock.wall_ms(), str(keyed().board.term().epoch)
    for by in (
        "ops",
        Signer("c1", "x" * 32).mark("ops", now_ms, "resign", epoch, "other.b00"),
        SIGNER.mark("ops", now_ms, "resign", epoch, "third.c00"),
        SIGNER.mark("ops", now_ms, "resign", epoch + "0", "other.b00"),
        SIGNER.mark("ops", now_ms - FRESH_MS - 60_000, "resign", epoch, "other.b00"),
    ):
        elector = keyed()
        asked(elector, "other.b00", by)
        assert (told(elector), elector.board.term().epoch) == (["resign_refused"], int(epoch))

    elector = keyed()
    asked(elector, "other.b00", SIGNER.mark("ops", now_ms, "resign", epoch, "other.b00"))
    assert ("resign_requested", {"epoch": int(epoch), "to": "other.b00", "by": "ops"}) in elector.told


def test_it_waits_until_the_scheduler_has_looked_at_the_board_twice_or_for_20_ms() -> None:
    """The batch in flight gets through; a scheduler that does not answer is fenced instead."""
    elector = Scripted(me=ME).lead().to_renewal()
    elector.around.scheduler_gone = False
    elector.around.progress = lambda: 1  # type: ignore[method-assign]
    asked(elector)
    elector.answer([])
    before_ns = elector.clock.now_ns
    while isinstance(elector.step, Sleep):
        elector.wait()

    assert elector.clock.now_ns - before_ns == 20 * MILLISECOND_NS


def test_it_lets_others_lead_for_a_lease_duration() -> None:
    """Otherwise it would win the next election: it wakes as fast as anybody."""
    elector = obeying(OTHER)
    elector.answer(view(LeaseCode.RELEASED, holder=""))

    assert isinstance(elector.step, Listen)
    assert elector.step.until_ns - elector.clock.now_ns == 5 * S
    assert elector.board.header.ineligible_until_ns == 0


@pytest.mark.parametrize("others", [[], [CandidateInfo(replica="w", seen_ms=100_000, participates=False)]])
def test_alone_it_leads_again_at_once(others: list[CandidateInfo]) -> None:
    """A replica that only works is nobody to wait for."""
    elector = obeying(*others)
    elector.answer(view(LeaseCode.RELEASED, holder=""))

    assert elector.script == "lease_view"


@pytest.mark.parametrize("to", ["me.f00", "me"])
def test_a_request_to_hand_over_to_itself_changes_nothing(to: str) -> None:
    """It leads already."""
    elector = Scripted(me=ME).lead().to_renewal()
    asked(elector, to)

    assert elector.board.header.is_leading
    assert "resign_requested" not in elector.events()


def test_who_is_preferred_asks_at_once() -> None:
    """Also where others rank better."""
    follower = Scripted(me=ME).stand_by(CandidateInfo(replica="young", started_ms=900, seen_ms=100_000))
    follower.answer(released(prefer="me"))

    assert follower.script == "lease_campaign"


def test_the_others_wait_for_who_is_preferred_but_not_for_ever() -> None:
    """A quarter of a second, then anybody may lead."""
    follower = Scripted(me=ME).stand_by()
    follower.answer(released(prefer="other"))
    assert isinstance(follower.step, Sleep)
    assert 0.9 * PREFER_NS <= follower.step.until_ns - follower.clock.now_ns <= 1.1 * PREFER_NS
    follower.wait()

    assert follower.script == "lease_campaign"
    assert follower.argument("mode") == "free"


def test_a_wake_up_does_not_jump_the_queue() -> None:
    """The agent wakes its elector whenever something changes on the board; what came earlier ends the first sleep."""
    follower = Scripted(me=ME).stand_by()
    follower.answer(released(prefer="other"))
    for _ in range(3):
        follower.answer(after_ns=MILLISECOND_NS)
        assert isinstance(follower.step, Sleep)
    follower.around.stopping = True
    follower.answer()

    assert follower.script == "candidate_withdraw"


def test_a_list_of_candidates_that_changed_is_read_before_the_order_is_worked_out() -> None:
    """In a rolling restart the youngest joined after the list was read."""
    follower = Scripted(me=ME).stand_by()
    follower.answer(released(roster=3))
    assert follower.script == "hash_read"
    follower.answer([CandidateInfo(replica="young", started_ms=900, seen_ms=100_000)])

    assert isinstance(follower.step, Sleep)


@pytest.mark.parametrize("number", ["9" * 5000, "\N{ARABIC-INDIC DIGIT THREE}", "-1", "x", ""])
def test_a_number_of_a_list_that_nobody_writes_keeps_nobody_from_asking(number: str) -> None:
    """The release repeats what stands in the record; the elector of each standby died of it."""
    follower = Scripted(me=ME).stand_by()
    event_id, fields = released()[0]
    follower.answer([(event_id, {**fields, "roster": number})])

    assert follower.script == "lease_campaign"


def test_a_list_that_did_not_change_is_not_read_again() -> None:
    """The hand-over is one question shorter."""
    follower = Scripted(me=ME).stand_by(roster=3)
    follower.answer(released(roster=3))

    assert follower.script == "lease_campaign"


def test_a_replica_that_only_works_is_listed_and_never_asks() -> None:
    """About once in a lease duration, however often it is woken."""
    worker = Scripted(me=CandidateInfo(replica="me", participates=False))
    worker.begin()
    assert worker.script == "lease_campaign"
    assert worker.argument("mode") == "register"
    assert worker.board.next_nonce is None
    worker.answer(view(LeaseCode.DENIED, holder="", nonce=""))
    assert worker.script == "hash_read"
    worker.answer([])
    began_ns = worker.clock.now_ns
    for _ in range(3):
        assert isinstance(worker.step, Sleep)
        worker.answer()
    worker.wait()

    assert worker.script == "lease_campaign"
    assert 4.5 * S <= worker.clock.now_ns - began_ns <= 5.5 * S


def twin(seen_ms: int) -> CandidateInfo:
    return CandidateInfo(replica="me.b4d", host="h2", seen_ms=seen_ms)


def test_a_name_that_two_living_replicas_have_is_told_once() -> None:
    """It is safe, since each start draws an id of its own; but logs and metrics of the two cannot be told apart."""
    follower = Scripted(me=ME).stand_by(twin(100_000))
    assert "name_used_twice" not in follower.events()
    for seen_ms in (104_000, 108_000, 112_000):
        follower.clock.now_ns += 60 * S
        follower.answer([])
        while isinstance(follower.step, RunScript) and follower.script != "hash_read":
            follower.answer(view(LeaseCode.DENIED, seq=seen_ms))
        while not (isinstance(follower.step, RunScript) and follower.script == "hash_read"):
            follower.wait() if isinstance(follower.step, Listen) else follower.answer(
                view(LeaseCode.DENIED, seq=seen_ms)
            )
        follower.answer([CandidateInfo(replica="me.f00", seen_ms=seen_ms), twin(seen_ms)])

    assert follower.events().count("name_used_twice") == 1
    assert [fields["count"] for event, fields in follower.told if event == "twins"] == [0, 1, 1, 1]


def test_the_predecessor_of_a_tree_that_was_killed_is_no_twin() -> None:
    """It is listed for a while, and never seen again."""
    follower = Scripted(me=ME).stand_by(twin(100_000))
    follower.clock.now_ns += 10 * S
    follower.answer([])
    while not (isinstance(follower.step, RunScript) and follower.script == "hash_read"):
        follower.wait() if isinstance(follower.step, Listen) else follower.answer(view(LeaseCode.DENIED))
    follower.answer([CandidateInfo(replica="me.f00", seen_ms=101_000), twin(100_000)])

    assert "name_used_twice" not in follower.events()
