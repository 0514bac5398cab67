"""The fenced fire: no due time twice, none from an old term, none from the future."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.election.lease import Term
from supervisor.core.errors import FencedError, PayloadTooLargeError, StoreRefusedError
from supervisor.core.model import FIRE_BATCH_MAX, Envelope, Kind, Outcome
from supervisor.store.election.leases import LeaseView
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.fire import FireCode, What
from tests.kit.builders import NONCE, StoreCalls, envelope, schedule

OTHER = "cd" * 16
S = "r.1/w-0/1"


@pytest.fixture
def term(world: StoreCalls) -> LeaseView:
    """The current term, with one schedule ``s``."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("s"), schedule("free", overlap="allow")))
    world.planned()
    return term


def code(reply: object) -> FireCode:
    return reply.results[0].code  # type: ignore[attr-defined]


def test_a_fire_enqueues_and_moves_the_watermark_in_one_step(world: StoreCalls, term: LeaseView) -> None:
    """Either both happened or neither did."""
    item = world.item("s", missed=3)
    reply = world.run(world.fire_call(term, item))

    assert reply.results[0].code is FireCode.FIRED
    assert reply.results[0].mark_ms == item.new_mark_ms
    stored = world.stored()["s"]
    assert (stored.mark_ms, stored.next_ms) == (item.new_mark_ms, item.next_ms)
    assert world.rung(world.keys.queue("default").bell(Kind.ASYNC))
    world.open(S)
    assert pack(world.turn(S, want=5).runs[0].envelope) == item.run
    entry = world.run(world.schedules.log(5))[0]
    assert (entry.schedule, entry.nominal_ms, entry.run_id, entry.code, entry.missed, entry.epoch) == (
        "s",
        item.nominal_ms,
        item.run.run_id,
        FireCode.FIRED,
        3,
        term.epoch,
    )


def test_a_repeated_fire_is_a_duplicate_that_names_its_own_watermark(world: StoreCalls, term: LeaseView) -> None:
    """The planner tells its own lost reply from a stranger's advance by the watermark."""
    item = world.item("s")
    first, second = world.twice(world.fire_call(term, item))

    assert (code(first), code(second)) == (FireCode.FIRED, FireCode.DUP)
    assert second.results[0].mark_ms == item.new_mark_ms
    assert world.run(world.queues.counts("default")).stats["in"] == 1
    assert len(world.run(world.schedules.log(9))) == 1


@pytest.mark.parametrize("change", ["old epoch", "higher epoch", "other nonce", "released", "gone"])
def test_only_the_current_term_fires(world: StoreCalls, term: LeaseView, change: str) -> None:
    """Epoch and nonce must both be equal; a refused batch writes nothing."""
    item = world.item("s")
    epoch, nonce = term.epoch, term.nonce
    if change == "old epoch":
        world.run(world.campaign_call("b", OTHER, mode="expired", observed_epoch=term.epoch))
    elif change == "higher epoch":
        epoch += 1
    elif change == "other nonce":
        nonce = OTHER
    elif change == "released":
        world.run(world.leases.release(Term(epoch, nonce, 0), reason="x"))
    else:
        world.raw.delete(world.keys.lease)
    current = world.run(world.leases.view()).epoch

    with pytest.raises(FencedError) as caught:
        world.run(world.schedules.fire(Term(epoch, nonce, 0), items=[item]))
    assert (caught.value.epoch, caught.value.current_epoch, caught.value.operation) == (epoch, current, "fire")
    assert world.stored()["s"].mark_ms == item.mark_ms
    assert world.run(world.queues.names()) == []


def test_the_empty_nonce_of_a_free_lease_opens_nothing(world: StoreCalls, term: LeaseView) -> None:
    """After a release the record's nonce is empty; so must nobody's be."""
    world.run(world.leases.release(term, reason="x"))
    with pytest.raises(FencedError):
        world.run(world.schedules.fire(Term(term.epoch, "", 0), items=[world.item("s")]))


def test_a_term_that_ran_out_and_that_nobody_took_still_fires(world: StoreCalls, term: LeaseView) -> None:
    """An unreplaced term cannot conflict, so the server's clock has no say."""
    world.raw.hset(world.keys.lease, "until", 1)
    assert code(world.run(world.fire_call(term, world.item("s")))) is FireCode.FIRED


def test_a_due_time_ahead_of_the_servers_clock_is_not_fired(world: StoreCalls, term: LeaseView) -> None:
    """A wall clock that jumped ahead must not push a watermark into the future."""
    item = world.item("s", ahead_ms=60_000)
    assert code(world.run(world.fire_call(term, item))) is FireCode.SKEWED
    assert world.stored()["s"].mark_ms == item.mark_ms

    nominal = item.mark_ms + 1  # the clock may stand where it stood when the schedule was defined
    assert (
        code(world.run(world.fire_call(term, world.item("s", nominal_ms=nominal, new_mark_ms=item.nominal_ms))))
        is FireCode.SKEWED
    )
    assert (
        code(world.run(world.fire_call(term, world.item("s", ahead_ms=60_000), skew_limit_ms=120_000)))
        is FireCode.FIRED
    )


@pytest.mark.parametrize("what", [What.MISSED, What.DROP, What.FORCE, What.INITIAL])
def test_what_a_clock_that_is_ahead_judged_is_not_written(world: StoreCalls, term: LeaseView, what: What) -> None:
    """That a due time is too old, or a grace over, is a fact by the server's time only."""
    now_ms = world.run(world.leases.view()).now_ms
    missed = {"missed": 1, "why": "w"} if what is What.MISSED else {}
    item = world.item("s", what=what, **missed)
    before = world.raw.hgetall(world.keys.schedule_state), world.raw.hgetall(world.keys.schedule_mark)
    assert code(world.run(world.fire_call(term, item, at_ms=now_ms + 60_000))) is FireCode.SKEWED
    assert before == (world.raw.hgetall(world.keys.schedule_state), world.raw.hgetall(world.keys.schedule_mark))
    assert code(world.run(world.fire_call(term, item, at_ms=now_ms))) is not FireCode.SKEWED


def test_a_plan_that_saw_another_watermark_is_a_duplicate(world: StoreCalls, term: LeaseView) -> None:
    """Whoever advanced it has decided the due times in between."""
    item = world.item("s")
    world.raw.hset(world.keys.schedule_mark, "s", item.mark_ms - 1)
    reply = world.run(world.fire_call(term, item))

    assert (code(reply), reply.results[0].mark_ms) == (FireCode.DUP, item.mark_ms - 1)
    assert world.run(world.queues.names()) == []


def test_a_watermark_never_moves_back(world: StoreCalls, term: LeaseView) -> None:
    """A nominal time at or before it was decided already."""
    stored = world.stored()["s"]
    item = world.item("s", nominal_ms=stored.mark_ms, new_mark_ms=stored.mark_ms)
    assert code(world.run(world.fire_call(term, item))) is FireCode.DUP


@pytest.mark.parametrize("change", ["changed", "removed"])
def test_a_plan_for_a_changed_or_removed_schedule_is_stale(world: StoreCalls, term: LeaseView, change: str) -> None:
    """A stale plan can neither resurrect a schedule nor fire its old definition."""
    item = world.item("s")
    edited = world.declare_call(term, schedule("s", description="new"), digest="d2")
    world.run(edited if change == "changed" else world.remove_call(term, "s"))

    assert code(world.run(world.fire_call(term, item))) is FireCode.STALE
    assert world.run(world.queues.names()) == []


def test_an_unfinished_run_skips_the_next_and_frees_it_when_it_ends(world: StoreCalls, term: LeaseView) -> None:
    """overlap: skip. The skipped due time counts as decided."""
    world.open(S)
    first = world.item("s")
    world.run(world.fire_call(term, first))
    skipped = world.item("s")
    assert code(world.run(world.fire_call(term, skipped))) is FireCode.SKIPPED
    assert world.stored()["s"].mark_ms == skipped.new_mark_ms
    assert world.fetch(S) == [first.run.run_id]
    world.ack(S, first.run.run_id, Outcome.RETRY, schedule="s")
    assert code(world.run(world.fire_call(term, world.item("s")))) is FireCode.SKIPPED

    world.fetch(S)
    world.ack(S, first.run.run_id, attempt=2, schedule="s")
    assert not world.raw.exists(world.keys.schedule_live)
    assert code(world.run(world.fire_call(term, world.item("s")))) is FireCode.FIRED
    codes = [entry.code for entry in world.run(world.schedules.log(9, "s"))]
    assert codes == [FireCode.FIRED, FireCode.SKIPPED, FireCode.SKIPPED, FireCode.FIRED]


@pytest.mark.parametrize("how", ["cancelled", "dead"])
def test_a_run_that_is_gone_or_dead_holds_no_schedule_up(world: StoreCalls, term: LeaseView, how: str) -> None:
    """Liveness is checked against the run's record: no lock can be left behind."""
    item = world.item("s")
    world.run(world.fire_call(term, item))
    if how == "cancelled":
        world.cancel(item.run.run_id)
    else:
        world.raw.zadd(world.keys.queue("default").dead, {item.run.run_id: 1})

    assert code(world.run(world.fire_call(term, world.item("s")))) is FireCode.FIRED
    assert len(world.raw.hget(world.keys.schedule_live, "s").split(b"\n")) == 1


def test_overlap_may_be_allowed_or_counted(world: StoreCalls, term: LeaseView) -> None:
    """Allow enqueues always; max_running lets that many be unfinished."""
    assert [code(world.run(world.fire_call(term, world.item("free")))) for _ in range(3)] == [FireCode.FIRED] * 3
    pair = [code(world.run(world.fire_call(term, world.item("s", max_running=2)))) for _ in range(3)]
    assert pair == [FireCode.FIRED, FireCode.FIRED, FireCode.SKIPPED]


def test_a_batch_decides_each_item_by_itself(world: StoreCalls, term: LeaseView) -> None:
    """One bad item must not hold up the others."""
    good, gone = world.item("s"), world.item("free", schedule="unknown")
    late = world.item("free", ahead_ms=60_000)
    reply = world.run(world.fire_call(term, gone, good, late, good))

    assert [result.code for result in reply.results] == [
        FireCode.STALE,
        FireCode.FIRED,
        FireCode.SKEWED,
        FireCode.DUP,
    ]


def test_a_full_batch_fires(world: StoreCalls) -> None:
    """250 items in one call, each to its own schedule."""
    term = world.lead()
    many = [schedule(f"s{i:03}", overlap="skip" if i % 2 else "allow") for i in range(FIRE_BATCH_MAX)]
    world.run(world.declare_call(term, *many))
    world.planned()
    stored, now = world.stored(), world.run(world.leases.view()).now_ms
    one = world.item("s000")
    items = [
        one._replace(
            schedule=name,
            mark_ms=item.mark_ms,
            nominal_ms=max(now, item.mark_ms + 1),
            new_mark_ms=max(now, item.mark_ms + 1),
            next_ms=None,
            run=pack(Envelope(id=f"{name}@{now}", template=item.definition.template)),
        )
        for name, item in stored.items()
    ]
    reply = world.run(world.fire_call(term, *items))

    assert {result.code for result in reply.results} == {FireCode.FIRED}
    assert world.run(world.queues.counts("default")).ready_total == FIRE_BATCH_MAX
    assert world.raw.zcard(world.keys.schedule_next) == 0
    assert world.fsck() == []


def test_a_run_that_is_already_queued_is_not_queued_again(world: StoreCalls, term: LeaseView) -> None:
    """After a roll-back of the watermark the run's own id is the second guard."""
    item = world.item("s")
    world.run(world.fire_call(term, item))
    world.raw.hset(world.keys.schedule_mark, "s", item.mark_ms)
    world.raw.delete(world.keys.schedule_live)

    world.run(world.fire_call(term, item))
    assert world.run(world.queues.counts("default")).ready_total == 1
    assert world.fsck() == []


def test_an_envelope_over_its_cap_never_leaves_the_process(world: StoreCalls, term: LeaseView) -> None:
    """The cap is one for producers and schedules."""
    big = envelope("s@1", args={"blob": "x" * 70_000})
    with pytest.raises(PayloadTooLargeError, match="65536"):
        world.item("s", envelope=big)


def test_the_log_is_capped(world: StoreCalls, term: LeaseView) -> None:
    """A schedule that fires each 100 ms must not fill the server."""
    for _ in range(300):
        world.run(world.fire_call(term, world.item("free", ahead_ms=0), log_cap=50, skew_limit_ms=10_000))
    assert world.raw.xlen(world.keys.schedule_log) < 200
    assert term.nonce == NONCE


def test_a_batch_lies_in_the_log_line_by_line(world: StoreCalls, term: LeaseView) -> None:
    """Some lines share an entry; a reader sees each decision for itself, the newest first."""
    items = [world.item("free", ahead_ms=0)]
    for _ in range(24):
        mark = items[-1].new_mark_ms
        items.append(items[-1]._replace(mark_ms=mark, nominal_ms=mark + 1, new_mark_ms=mark + 1))
    world.run(world.fire_call(term, *items, world.item("s")))
    nominals = [entry.nominal_ms for entry in world.run(world.schedules.log(99, "free"))]

    assert nominals == [item.nominal_ms for item in reversed(items)]
    assert [entry.schedule for entry in world.run(world.schedules.log(2))] == ["s", "free"]
    assert len(world.run(world.schedules.log(99))) == len(items) + 1
    assert world.raw.xlen(world.keys.schedule_log) == 3


def test_a_run_gives_way_to_one_of_the_same_batch(world: StoreCalls, term: LeaseView) -> None:
    """Runs are written together at the end, but one that nobody has fetched yet can be ended all the same."""
    world.run(world.declare_call(term, schedule("s", overlap="terminate_other")))
    world.planned()
    first = world.item("s")
    nominal = first.nominal_ms + 1
    run = pack(envelope(f"s@{nominal}"))
    second = first._replace(mark_ms=first.nominal_ms, nominal_ms=nominal, new_mark_ms=nominal, run=run)
    reply = world.run(world.fire_call(term, first, second))
    world.open(S)

    assert [result.code for result in reply.results] == [FireCode.FIRED, FireCode.FIRED]
    assert [run.envelope.id for run in world.turn(S, want=5).runs] == [f"s@{nominal}"]
    assert world.fsck() == []


def test_a_run_that_is_there_already_is_not_added_again(world: StoreCalls, term: LeaseView) -> None:
    """Its id names one run: a watermark that was lost does not double it."""
    item = world.item("free")
    world.run(world.fire_call(term, item))
    world.raw.hset(world.keys.schedule_mark, "free", item.mark_ms)
    reply = world.run(world.fire_call(term, item))

    assert code(reply) is FireCode.FIRED
    counts = world.run(world.queues.counts("default"))
    assert (counts.ready_total, counts.stats["in"]) == (1, 1)


def test_a_healthy_schedule_has_one_stretch_and_a_change_begins_another(world: StoreCalls, term: LeaseView) -> None:
    """However often it fires, what is remembered of it stays short."""
    for _ in range(3):
        world.run(world.fire_call(term, world.item("free")))
    world.run(world.declare_call(term, schedule("free", overlap="allow", every_ms=2000), digest="d2"))
    world.planned()
    world.run(world.fire_call(term, world.item("free")))
    state = world.run(world.schedules.state("free"))

    assert [(each.code, each.count, each.revision) for each in state.stretches] == [("F", 1, 2), ("F", 3, 1)]
    assert state.counters.fired == 4


@pytest.mark.parametrize("line", ["due 1 0 5 5 x 0 s s@5", "due 1 0 5 5 - 0 s", "noon 1 0 5 5 - 0 s s@5", ""])
def test_a_batch_that_cannot_be_read_writes_nothing(world: StoreCalls, term: LeaseView, line: str) -> None:
    """Everything is held to its form before the first write."""
    call = world.fire_call(term, world.item("free"), world.item("s"))
    broken = replace(call, args=(*call.args[:-3], line, *call.args[-2:]))
    with pytest.raises(StoreRefusedError, match="BADARG"):
        world.run(broken)

    assert world.run(world.schedules.log(9)) == []
    assert world.run(world.queues.counts("default")).ready_total == 0
