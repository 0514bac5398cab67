"""Calls that Redis refuses for what they are about, or does not answer: who goes on, and when the lease is given away."""

from __future__ import annotations

from dataclasses import replace

from supervisor.core.effects import RunScript, Sleep, Watch
from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.scheduler.call_failures import STAY_NS, VAIN_NS
from supervisor.roles.scheduler.window import REFUSED_MAX, REFUSED_MS, PutOff
from supervisor.store.wire.fire import FireCode
from tests.unit.roles.scheduler.scheduler_stepper import SOON, START_MS, TERM, S, SchedulerStepper, serving

FOREIGN = StoreRefusedError("a key of this cluster holds another type")
Stored = tuple[ScheduleDef, int]


def due(name: str, queue: str = "default") -> Stored:
    """Return a schedule that is due now."""
    template = Template(job="j", kind=Kind.SYNC, queue=queue)
    return ScheduleDef(id=name, template=template, every_ms=10_000, overlap="allow"), START_MS - 10_000


def answer_fires(bench: SchedulerStepper, bad: set[str]) -> list[list[str]]:
    """Answer fires as a server does that refuses whatever concerns ``bad``; return what each was about."""
    asked = []
    while isinstance(bench.step, RunScript) and bench.script == "fire":
        names = [words[7] for words in bench.lines()]
        asked.append(names)
        if bad & set(names):
            bench.raise_(FOREIGN)
        else:
            bench.fired(*[(FireCode.FIRED, START_MS)] * len(names))
    return asked


def put_off(bench: SchedulerStepper) -> list[tuple[list[str], int]]:
    return [(fields["schedules"], fields["count"]) for event, fields in bench.told if event == "schedules_put_off"]


def test_one_refused_schedule_is_put_off_and_the_rest_of_its_batch_fires() -> None:
    """A foreign key in one queue says nothing about the other schedules of the cluster."""
    names = [f"s{n}" for n in range(8)]
    bench = serving(*(due(name, f"q-{name}") for name in names))
    asked = answer_fires(bench, {"s5"})

    fired = {fields.item.schedule for event, told in bench.told if event == "fires" for fields in told["decided"]}
    assert fired == set(names)
    assert [batch for batch in asked if "s5" not in batch]
    assert sum("s5" in batch for batch in asked) == 4  # 8, 4, 2, 1
    assert put_off(bench) == [(["s5"], 1)]
    assert bench.script == "schedule_due"
    bench.found(due("s5", "q-s5"))
    assert bench.step.call.args[7] == START_MS + REFUSED_MS  # type: ignore[union-attr]  # it moves in the plan


def test_a_queue_that_is_refused_as_a_whole_costs_few_calls() -> None:
    """Two hundred schedules in a broken queue: after four alone, the others are not asked about."""
    bench = serving(due("well"), *(due(f"b{n:03}", "broken") for n in range(48)))
    asked = answer_fires(bench, {f"b{n:03}" for n in range(48)})

    assert ["well"] in [batch for batch in asked if "well" in batch][-1:]
    assert len(asked) < 16
    assert sum(count for _, count in put_off(bench)) == 48


def test_a_client_without_rights_keeps_what_is_due() -> None:
    """A wrong password concerns every call: nothing is put off, and all fires once it is mended."""
    bench = serving(due("tick"))
    sent = bench.step
    bench.raise_(StoreRefusedError("wrong password", concerns_client=True))
    assert isinstance(bench.step, Sleep)
    bench.pass_ms(3000)

    assert bench.step == sent
    assert put_off(bench) == []


def test_a_page_that_is_refused_does_not_stop_what_was_read() -> None:
    """Reading ahead failed; what is at hand fires on time."""
    bench = serving((SOON, START_MS - 9000))
    while isinstance(bench.step, Watch):
        bench.pass_ms(500)
        if isinstance(bench.step, RunScript) and bench.script == "schedule_due":
            bench.raise_(FOREIGN)

    assert bench.items() == [("tick", START_MS + 1000, "0")]
    assert bench.events().count("reading_refused") <= 1


def test_refusals_without_a_success_give_the_lease_away_once() -> None:
    """Its rights or its version may be to blame; but replicas that all meet the same do not pass the lease around."""
    bench = serving(due("bad"))
    seen = set()
    for _ in range(4):
        assert bench.script == "fire"
        bench.raise_(StoreRefusedError("no right", concerns_client=True))
        bench.clock.now_ns += VAIN_NS // 2
        bench.board.publish_term(Term(TERM.epoch, TERM.nonce, bench.clock.now_ns + 10**12))
        bench.pass_ms(3000)
        seen.add(bench.board.header.vain_epoch)
    assert seen == {0, TERM.epoch}
    bench.board.header.vain_epoch = 0
    for _ in range(4):
        bench.raise_(StoreRefusedError("no right", concerns_client=True))
        bench.clock.now_ns += VAIN_NS
        bench.board.publish_term(Term(TERM.epoch, TERM.nonce, bench.clock.now_ns + 10**12))
        bench.pass_ms(3000)

    assert bench.board.header.vain_epoch == 0


def stay_unanswered(bench: SchedulerStepper, for_ns: int, *, is_trusted: bool = True, term: Term = TERM) -> None:
    """Let no call be answered for so long, while the agent renews the lease, or does not."""
    until_ns = bench.clock.now_ns + for_ns
    while bench.clock.now_ns < until_ns:
        bench.board.publish_term(replace(term, trusted_until_ns=(bench.clock.now_ns + 4 * S) * is_trusted))
        if isinstance(bench.step, RunScript):
            bench.clock.now_ns += S
            bench.raise_(StoreUnavailableError("no answer in time"))
        else:
            bench.pass_ms(400)


def test_silence_towards_a_leader_whose_agent_is_answered_gives_the_lease_away() -> None:
    """Its connections alone may be to blame; it gives way once, and an hour later once more."""
    bench = serving(due("tick"))
    stay_unanswered(bench, VAIN_NS - S)
    assert bench.board.header.vain_epoch == 0
    stay_unanswered(bench, 4 * S)
    assert bench.board.header.vain_epoch == TERM.epoch
    bench.board.header.vain_epoch = 0
    stay_unanswered(bench, STAY_NS - 10 * S)
    assert bench.board.header.vain_epoch == 0
    stay_unanswered(bench, 20 * S)

    assert bench.board.header.vain_epoch == TERM.epoch


def test_silence_that_the_agent_met_as_well_is_no_fault_of_this_replica() -> None:
    """After an outage of any length, and in another term, it counts anew."""
    bench = serving(due("tick"))
    stay_unanswered(bench, VAIN_NS // 2)
    stay_unanswered(bench, VAIN_NS, is_trusted=False)
    stay_unanswered(bench, VAIN_NS - 2 * S)
    assert bench.board.header.vain_epoch == 0
    later = Term(TERM.epoch + 1, "b" * 32, 0)
    stay_unanswered(bench, VAIN_NS - 2 * S, term=later)
    assert bench.board.header.vain_epoch == 0
    stay_unanswered(bench, 4 * S, term=later)

    assert bench.board.header.vain_epoch == later.epoch


def test_an_answer_takes_back_that_another_is_to_lead() -> None:
    """Nobody else could lead then. One that starts hours later does not get the lease for it."""
    bench = serving(due("tick"))
    bench.fired((FireCode.FIRED, START_MS))
    for _ in range(2):
        stay_unanswered(bench, VAIN_NS + 8 * S)
        assert bench.board.header.vain_epoch == TERM.epoch
        while not isinstance(bench.step, RunScript):
            bench.pass_ms(400)
        bench.found()
        assert bench.board.header.vain_epoch == 0


def test_an_answer_in_a_later_term_shortens_no_stay() -> None:
    """Else replicas whose larger calls alone are lost would pass the lease around each time a small one is answered."""
    bench = serving(due("tick"))
    stay_unanswered(bench, VAIN_NS + 3 * S)
    bench.board.header.vain_epoch = 0
    later = Term(TERM.epoch + 1, "b" * 32, bench.clock.now_ns + 4 * S)
    bench.board.publish_term(later)
    while not (isinstance(bench.step, RunScript) and bench.script == "schedule_due"):
        bench.pass_ms(400)
    bench.found(due("tick"))
    stay_unanswered(bench, 2 * VAIN_NS, term=later)

    assert bench.board.header.vain_epoch == 0


def test_an_outage_within_a_long_lease_deposes_nobody() -> None:
    """It is trusted for longer than silence counts, while Redis is away for the agent as well."""
    bench = SchedulerStepper(lease_ms=120_000)
    until_ns = bench.clock.now_ns + 2 * VAIN_NS
    bench.board.publish_term(replace(TERM, trusted_until_ns=until_ns + 10 * S))
    while bench.clock.now_ns < until_ns:
        if isinstance(bench.step, RunScript):
            bench.clock.now_ns += S
            bench.raise_(StoreUnavailableError("no answer in time"))
        else:
            bench.pass_ms(400)
    assert bench.board.header.vain_epoch == 0
    stay_unanswered(bench, 40 * S)

    assert bench.board.header.vain_epoch == TERM.epoch


def test_what_is_put_off_is_bounded_and_survives_a_clock_that_is_set_back() -> None:
    """The memory of refusals must neither grow for ever nor hold a schedule for hours."""
    known = PutOff()
    known.add([f"s{n}" for n in range(REFUSED_MAX + 5)], START_MS)
    assert len(known) == REFUSED_MAX
    assert "s0" not in known
    hour_ms = 3_600_000

    assert known.until_ms("s9", START_MS - hour_ms) == START_MS - hour_ms + REFUSED_MS
    assert known.until_ms("s9", START_MS + REFUSED_MS) is None
