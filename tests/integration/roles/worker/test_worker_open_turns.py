"""Turns of a sync worker that Redis answers late, while runs that were fetched before wait to begin."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from supervisor.core.model import Kind
from supervisor.roles.worker.pools.sync_pool import SyncPool
from supervisor.store.wire.poll import Ack
from supervisor.telemetry import metrics
from tenure import job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.signalled import no_alarm
from tests.integration.roles.worker.worker_fixture import FaultySync, WorkerKit
from tests.kit.clock import FakeClock
from tests.kit.servers import wait_until

COUNT = 60


class Hasty(SyncPool):
    """Hands in each end before the next run begins, and notes when it clears the way, and when a job was relieved."""

    is_clearing = is_relieved = False

    def _owe(self, ack: Ack) -> None:
        super()._owe(ack)
        self._owed_since_ns = 0

    def _clear_the_way(self) -> None:
        self.is_clearing = True
        super()._clear_the_way()
        self.is_clearing = False

    def _relieve(self) -> float | None:
        again_s = super()._relieve()
        self.is_relieved = True
        return again_s


@pytest.mark.share(2)
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("fault", ["lose", "refuse"])
def test_a_turn_that_is_answered_late_brings_no_run_that_nobody_executes(
    sync_shop: WorkerKit, fault: str, *, is_known: bool
) -> None:
    """A job that began meanwhile and turned slow dropped its runs by its relief; another kept them behind it."""
    ready = sync_shop.server.keys.queue("default").ready(Kind.SYNC, 1)
    slow: list[int] = []
    store: FaultySync
    worker: Hasty

    @job("moody")
    def moody(number: int) -> None:
        if not store.faults or slow:
            return
        slow.append(number)
        if is_known:
            worker.is_relieved = False
            wait_until(lambda: worker.is_relieved or not worker._pace.is_fast("moody"), what="the relief", bound_s=20)
        with no_alarm():
            assert sync_shop.store.raw.llen(ready) == COUNT - number - 1, "all others wait where anybody may take them"

    def fails_once(script: str) -> str:
        if script == "ring" and sync_shop.store.raw.llen(ready) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        is_between = script == "turn" and 0 < len(worker._ready) < worker._pace.want
        if store.faults or not is_between:
            return ""
        if not is_known:
            worker._pace._jobs.clear()
        return fault

    def main() -> int:
        nonlocal store, worker
        store = FaultySync(sync_shop.server.store(), fails_once)
        worker = Hasty(sync_shop.runtime(), store)  # type: ignore[arg-type]
        return worker.run()

    _ends_all_once(sync_shop, main)


@pytest.mark.share(2)
@pytest.mark.parametrize("fault", ["lose", "refuse"])
def test_what_could_not_go_back_before_a_long_job_goes_back_while_it_runs(sync_shop: WorkerKit, fault: str) -> None:
    """It waited for the end of the job, and so did what had ended before it."""
    ready = sync_shop.server.keys.queue("default").ready(Kind.SYNC, 1)
    slow: list[int] = []
    store: FaultySync
    worker: Hasty

    @job("moody")
    def moody(number: int) -> None:
        if store.faults and not slow:
            slow.append(number)
            wait_until(lambda: worker.is_relieved, what="the relief", bound_s=20)
            with no_alarm():
                assert (len(sync_shop.history()), sync_shop.store.raw.llen(ready)) == (number, COUNT - number - 1)
                assert sync_shop.board.rows[0].asking_ns == 0, "a worker that was answered is cut off from nothing"
        elif number >= COUNT // 2 and not slow:
            worker._pace._jobs.clear()  # as if the next one was of another job
            worker.is_relieved = False

    def fails_once(script: str) -> str:
        if script == "ring" and sync_shop.store.raw.llen(ready) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        is_due = script == "turn" and worker.is_clearing and not worker._pace.is_fast("moody")
        return fault if is_due and not store.faults and len(sync_shop.history()) >= COUNT // 3 else ""

    def main() -> int:
        nonlocal store, worker
        store = FaultySync(sync_shop.server.store(), fails_once)
        worker = Hasty(sync_shop.runtime(), store)  # type: ignore[arg-type]
        return worker.run()

    _ends_all_once(sync_shop, main)


def test_the_time_of_a_turn_is_that_from_its_question_to_its_answer(
    sync_shop: WorkerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the metric ``tenure_turn_seconds`` tells it."""
    times: list[float] = []
    monkeypatch.setattr(metrics.TURN_SECONDS, "observe", times.append)
    runtime, clock = sync_shop.runtime(), FakeClock()
    runtime.clock = clock
    runtime.opened(sync_shop.store.run(runtime.open_session()))
    for seconds in (0.25, 0.0):
        call = runtime.next_poll(want=1, want_suspect=False, here=dict)
        clock.advance(seconds)
        runtime.settle(sync_shop.store.run(call))
        clock.advance(5)

    assert times == [0.25, 0.0]


def _ends_all_once(kit: WorkerKit, main: Callable[[], int]) -> None:
    """Let a worker execute all runs of ``moody``; each has ended ok, in order, at its first attempt."""
    ids = [kit.enqueue("moody", number=number) for number in range(COUNT)]
    found = fork(kit, main=main).report()

    assert found.history == [(run_id, "ok", 1) for run_id in ids], found.errors
    assert found.fsck == []
