"""How long after a grant the first fire is accepted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs

from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.scheduler.main import SchedulerReport
from supervisor.store.wire.fire import FireCode
from supervisor.telemetry.metrics import ELECTION_PROMOTION_TO_FIRST_FIRE_SECONDS
from tests.kit.clock import FakeClock


def decided(code: FireCode) -> Any:
    run = SimpleNamespace(queue="default", run_id="tick@1")
    return SimpleNamespace(schedule="tick", run=run, job="tests.noop", missed=0, why="", nominal_ms=1), code, 0


def test_the_first_fire_of_each_term_is_measured_from_its_grant() -> None:
    """Once a term; a decision that enqueued nothing does not count."""
    clock, before = FakeClock(elapsed_ns=1000 * MILLISECOND_NS), ELECTION_PROMOTION_TO_FIRST_FIRE_SECONDS._sum.get()
    report = SchedulerReport(clock)
    with capture_logs():
        report("term_begun", acquired_ns=990 * MILLISECOND_NS)
        report("fires", decided=[decided(FireCode.SKIPPED)])
        clock.now_ns += 5 * MILLISECOND_NS
        report("fires", decided=[decided(FireCode.FIRED)])
        clock.now_ns += 500 * MILLISECOND_NS
        report("fires", decided=[decided(FireCode.FIRED)])

    assert abs(ELECTION_PROMOTION_TO_FIRST_FIRE_SECONDS._sum.get() - before - 0.015) < 1e-9
