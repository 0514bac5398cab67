"""What a schedule begins without a due time, after Redis went back in time: the run may have begun before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.scheduler.fire_items import DecisionTime, starts
from supervisor.roles.scheduler.schedule_cache import CompiledSchedule
from supervisor.store.wire.fire import FireCode, Seen, What
from tests.unit.roles.scheduler.scheduler_stepper import SOON, START_MS, SchedulerStepper

NOW_MS = 1_767_225_600_000
TEMPLATE = Template(job="sim.job", kind=Kind.SYNC)


@pytest.mark.parametrize(("waits_since_s", "is_flagged"), [(30, True), (10, False)])
def test_a_buffered_run_of_before_the_loss_says_that_it_may_have_run(waits_since_s: int, *, is_flagged: bool) -> None:
    """The buffer came back with the copy, and its run may have been started since."""
    definition = ScheduleDef(id="waiting", template=TEMPLATE, every_ms=5000, overlap="buffer_one")
    known = CompiledSchedule(definition, 1, is_dynamic=False)
    nominal_ms = NOW_MS - waits_since_s * 1000
    seen = Seen("waiting", 0, 1, "set", NOW_MS, b"", b"", 0, (nominal_ms,))
    (item,) = starts(seen, known, seen.counters, DecisionTime(NOW_MS, 10_000, doubtful_until_ms=NOW_MS - 20_000))

    assert (b'"maybe_duplicate":true' in item.run.data) is is_flagged


@pytest.mark.parametrize(("waits_since_s", "what"), [(30, What.DROP), (10, What.START)])
def test_a_buffered_run_that_must_not_run_twice_is_dropped_and_counted(waits_since_s: int, what: What) -> None:
    """Its job is delivered at most once, and nobody knows whether it began before Redis went back."""
    template = Template(job="sim.job", kind=Kind.SYNC, at_most_once=True)
    definition = ScheduleDef(id="waiting", template=template, every_ms=5000, overlap="buffer_one")
    seen = Seen("waiting", 0, 1, "set", NOW_MS, b"", b"", 0, (NOW_MS - waits_since_s * 1000,))
    known = CompiledSchedule(definition, 1, is_dynamic=False)
    (item,) = starts(seen, known, seen.counters, DecisionTime(NOW_MS, 10_000, doubtful_until_ms=NOW_MS - 20_000))

    assert item.what is what


@pytest.mark.parametrize(("begun_since_s", "is_flagged"), [(30, True), (10, False)])
def test_the_first_run_of_a_schedule_of_before_the_loss_says_that_it_may_have_run(
    begun_since_s: int, *, is_flagged: bool
) -> None:
    """The copy is of the moment between its creation and its first run."""
    definition = ScheduleDef(id="new", template=TEMPLATE, every_ms=3_600_000, run_on_create=True)
    seen = Seen("new", 0, 1, "set", NOW_MS - begun_since_s * 1000, b"", b"", 0, ())
    known = CompiledSchedule(definition, 1, is_dynamic=False)
    (item,) = starts(seen, known, seen.counters, DecisionTime(NOW_MS, 10_000, doubtful_until_ms=NOW_MS - 20_000))

    assert (item.what, item.missed) == (What.INITIAL, 0)
    assert (b'"maybe_duplicate":true' in item.run.data, item.is_doubtful) == (is_flagged, is_flagged)


@pytest.mark.parametrize(("begun_since_s", "missed"), [(30, 1), (10, 0)])
def test_a_first_run_that_must_not_run_twice_is_counted_as_missed(begun_since_s: int, missed: int) -> None:
    """Its job is delivered at most once, and nobody knows whether it began before Redis went back."""
    template = Template(job="sim.job", kind=Kind.SYNC, at_most_once=True)
    definition = ScheduleDef(id="new", template=template, every_ms=3_600_000, run_on_create=True)
    seen = Seen("new", 0, 1, "set", NOW_MS - begun_since_s * 1000, b"", b"", 0, ())
    known = CompiledSchedule(definition, 1, is_dynamic=False)
    (item,) = starts(seen, known, seen.counters, DecisionTime(NOW_MS, 10_000, doubtful_until_ms=NOW_MS - 20_000))

    assert (item.what, item.missed, bool(item.run.data)) == (What.INITIAL, missed, not missed)


@pytest.mark.parametrize(
    ("code", "mark_ms", "counts"),
    [(FireCode.FIRED, 1000, [1]), (FireCode.DUP, 1000, [1]), (FireCode.DUP, 2000, []), (FireCode.SKIPPED, 1000, [])],
)
def test_what_is_fired_again_is_counted_also_when_the_answer_was_lost(
    code: FireCode, mark_ms: int, counts: list[int]
) -> None:
    """Asked again, Redis shows the watermark that the first attempt left; another one is of somebody else."""
    bench = SchedulerStepper()
    bench.board.header.doubtful_until_ms = START_MS + 1000
    soon = (SOON, START_MS - 9000)
    for _ in range(2):  # before and after the loss is noticed
        bench.found(soon)
        bench.defined(soon)
    bench.pass_ms(1000)
    bench.fired((code, START_MS + mark_ms))

    assert [fields["count"] for event, fields in bench.told if event == "fires_doubtful"] == counts


@pytest.mark.parametrize(("mark_ms", "counts"), [(3000, [3]), (2500, [])])
def test_each_of_several_due_times_whose_answer_was_lost_is_counted(mark_ms: int, counts: list[int]) -> None:
    """Asked again, Redis shows the last watermark of the first attempt for all of them."""
    bench = SchedulerStepper()
    bench.board.header.doubtful_until_ms = START_MS + 3000
    often = (replace(SOON, every_ms=1000, phase_ms=0, missed="all", max_catchup=10), START_MS)
    for _ in range(2):  # before and after the loss is noticed
        bench.found(often)
        bench.defined(often)
    bench.pass_ms(3000)
    bench.fired(*[(FireCode.DUP, START_MS + mark_ms)] * 3)

    assert [fields["count"] for event, fields in bench.told if event == "fires_doubtful"] == counts
