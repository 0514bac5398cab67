"""When a leader asks about backfills."""

from __future__ import annotations

from supervisor.core.effects import Sleep, Watch
from supervisor.roles.scheduler.backfill import Backfills
from supervisor.store.keys import Keys
from supervisor.store.wire.fire import LatenessReply
from tests.unit.roles.scheduler.scheduler_stepper import SchedulerStepper


def test_backfills_are_asked_about_only_where_one_is_on_record() -> None:
    """Most clusters have none: a leader that has nothing to do asks nothing for the sake of them."""
    answers = {"schedule_expectations": LatenessReply(0, []), "schedule_audit": ("0", []), "hash_read": []}
    for count in (0, 1):
        bench = SchedulerStepper()
        bench.scheduler._backfills = Backfills(Keys("test"), clock=bench.clock, report=lambda *_, **__: None)
        asked = set()
        for _ in range(40):
            if isinstance(bench.step, Sleep | Watch):
                bench.pass_ms(500)
            elif bench.script == "schedule_due":
                bench.found(backfills=count)
            else:
                asked.add(bench.script)
                bench.answer(answers[bench.script])
        assert ("hash_read" in asked) is (count > 0)
