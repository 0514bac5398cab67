"""The sync pool in a process of its own, on both servers."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.core.supervision.states import Phase, RunState
from supervisor.roles.worker.attempt.context import SoftTimeout
from supervisor.roles.worker.pools import sync_pool
from supervisor.roles.worker.pools.sync_pool import SyncPool
from tenure import Context, Retry, job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.signalled import soft_timeout_in
from tests.integration.roles.worker.worker_fixture import WorkerKit
from tests.kit.waiting import linger


def test_a_run_is_executed_once_and_leaves_only_its_result(sync_shop: WorkerKit) -> None:
    """The plain case, down to the scoreboard."""

    @job("add")
    def add(context: Context, a: int, b: int = 1) -> int:
        return a + b

    run_id = sync_shop.enqueue("add", a=2)
    found = fork(sync_shop, ended=1).report()

    assert (found.code, found.history, found.results) == (0, [(run_id, "ok", 1)], {run_id: 3})
    assert (found.sessions, found.fsck) == ([], [])
    assert sync_shop.board.rows[0].done == 1


def test_a_failed_run_is_tried_again_until_it_succeeds(sync_shop: WorkerKit) -> None:
    """Each attempt is charged and remembered."""

    @job("shaky", retry=Retry(attempts=3, base_s=0.01))
    def shaky(context: Context) -> int:
        if context.attempt < 3:
            raise ValueError("not yet")
        return context.fence

    run_id = sync_shop.enqueue("shaky")
    found = fork(sync_shop, ended=3).report()

    assert found.history == [(run_id, "retry", 1), (run_id, "retry", 2), (run_id, "ok", 3)]
    assert found.results == {run_id: 3}


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (lambda: sys.exit(3), "SystemExit"),
        (lambda: sys.exit(["a list"]), "SystemExit"),  # type: ignore[arg-type]
        (lambda: (_ for _ in ()).throw(KeyboardInterrupt()), "KeyboardInterrupt"),
        (lambda: (_ for _ in ()).throw(BaseException("bare")), "BaseException"),
        ([].pop, "IndexError"),
    ],
    ids=["exit", "exit with a list", "interrupt", "base", "plain"],
)
def test_whatever_a_job_raises_ends_its_own_run_only(
    sync_shop: WorkerKit, ending: Callable[[], Any], error: str
) -> None:
    """The worker goes on with the next run."""

    @job("bad", retry=Retry(attempts=1))
    def bad() -> None:
        ending()

    @job("good")
    def good() -> None: ...

    bad_id, good_id = sync_shop.enqueue("bad"), sync_shop.enqueue("good")
    found = fork(sync_shop, ended=2).report()

    assert found.history == [(bad_id, "dead", 1), (good_id, "ok", 1)]
    assert found.errors[bad_id]["type"] == error


def test_a_soft_timeout_interrupts_what_the_job_waits_for(sync_shop: WorkerKit) -> None:
    """By an exception in the middle of a system call; the job cleans up, and the worker goes on."""

    @job("stuck", timeout=600, soft_timeout=300, retry=Retry(attempts=1))
    def stuck(context: Context) -> None:
        soft_timeout_in(0.3)
        try:
            linger()
        finally:
            context.log.info("cleaned", cancelled=context.is_cancelled)

    @job("good")
    def good() -> None: ...

    stuck_id, good_id = sync_shop.enqueue("stuck"), sync_shop.enqueue("good")
    found = fork(sync_shop, ended=2).report()

    assert found.history == [(stuck_id, "dead", 1), (good_id, "ok", 1)]
    assert found.errors[stuck_id]["type"] == "SoftTimeout"
    assert "linger" in found.errors[stuck_id]["traceback"]


def test_a_library_that_retries_on_exceptions_cannot_swallow_a_soft_timeout(sync_shop: WorkerKit) -> None:
    """``except Exception`` is everywhere; SoftTimeout is none."""

    @job("retrying", timeout=600, soft_timeout=0.3, retry=Retry(attempts=1))
    def retrying() -> None:
        while True:
            try:
                linger()
            except Exception:  # noqa: BLE001 - what libraries do
                continue

    run_id = sync_shop.enqueue("retrying")
    found = fork(sync_shop, ended=1).report()

    assert found.errors[run_id]["type"] == "SoftTimeout"


def test_a_job_that_returns_after_its_soft_timeout_has_finished(sync_shop: WorkerKit) -> None:
    """What there is so far may be worth keeping; the job decides."""

    @job("partial", timeout=600, soft_timeout=300)
    def partial(context: Context) -> Any:
        try:
            soft_timeout_in(0.3)
            linger()
        except SoftTimeout:
            return ["so far", context.is_cancelled]

    run_id = sync_shop.enqueue("partial")
    found = fork(sync_shop, ended=1).report()

    assert (found.history, found.results) == ([(run_id, "ok", 1)], {run_id: ["so far", True]})


def test_a_job_that_takes_the_signals_away_takes_them_from_itself_only(sync_shop: WorkerKit) -> None:
    """Libraries install handlers; the next run's timeout must work all the same."""

    @job("thief", timeout=600)
    def thief() -> None:
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 500)

    @job("stuck", timeout=600, soft_timeout=0.3, retry=Retry(attempts=1))
    def stuck() -> None:
        linger()

    sync_shop.enqueue("thief")
    run_id = sync_shop.enqueue("stuck")
    found = fork(sync_shop, ended=2).report()

    assert found.errors[run_id]["type"] == "SoftTimeout"


def test_runs_of_unknown_jobs_and_of_the_other_kind_do_not_stop_the_others(sync_shop: WorkerKit) -> None:
    """One waits five seconds, one moves to the async pools, uncharged both."""

    @job("coroutine")
    async def coroutine() -> None: ...

    @job("good")
    def good() -> None: ...

    sync_shop.put(Envelope(id="stranger", template=Template(job="nobody", kind=Kind.SYNC)))
    sync_shop.put(Envelope(id="turned", template=Template(job="coroutine", kind=Kind.SYNC)))
    good_id = sync_shop.enqueue("good")
    found = fork(sync_shop, ended=1).report()

    assert found.states == {"stranger": "later", "turned": "queued", good_id: "finished"}
    assert found.charges == {}


def test_lost_replies_execute_nothing_twice(sync_shop: WorkerKit) -> None:
    """Each turn's reply is lost once; Redis answers the repetition from memory."""
    seen: Counter[str] = Counter()

    @job("counted", retry=Retry(attempts=3, base_s=0))
    def counted(context: Context) -> int:
        seen[context.run_id] += 1
        if context.attempt == 1:
            raise ValueError("once")
        return seen[context.run_id]

    def lose_every_other(script: str) -> str:
        seen[script] += 1
        return "lose" if seen[script] % 2 else ""

    ids = [sync_shop.enqueue("counted") for _ in range(4)]
    found = fork(sync_shop, ended=8, fault=lose_every_other).report()

    assert found.results == dict.fromkeys(ids, 2)
    assert Counter(found.history) == Counter(
        [(run_id, "retry", 1) for run_id in ids] + [(run_id, "ok", 2) for run_id in ids]
    )


def test_an_outage_in_the_middle_loses_nothing(sync_shop: WorkerKit) -> None:
    """The end of the run is acknowledged when Redis is back."""
    refused = 0

    @job("plain")
    def plain() -> None: ...

    def outage(script: str) -> str:
        nonlocal refused
        refused += script == "turn"
        return "refuse" if script == "turn" and 2 <= refused < 6 else ""

    ids = [sync_shop.enqueue("plain") for _ in range(3)]
    found = fork(sync_shop, ended=3, fault=outage).report()

    assert found.history == [(run_id, "ok", 1) for run_id in ids]


def test_a_drain_finishes_what_runs_and_leaves_the_rest_in_the_queue(sync_shop: WorkerKit) -> None:
    """Here by the scoreboard alone: the signal may be late."""

    @job("last")
    def last() -> None:
        sync_shop.board.header.phase = Phase.DRAINING

    first_id, second_id = sync_shop.enqueue("last"), sync_shop.enqueue("last")
    found = fork(sync_shop).report()

    assert (found.code, found.history) == (0, [(first_id, "ok", 1)])
    assert found.states[second_id] == "queued"
    assert (found.charges, found.sessions) == ({}, [])


def test_a_term_during_a_job_lets_it_finish(sync_shop: WorkerKit) -> None:
    """The handler only takes note."""

    @job("last")
    def last() -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "done"

    first_id, second_id = sync_shop.enqueue("last"), sync_shop.enqueue("last")
    found = fork(sync_shop).report()

    assert (found.code, found.history) == (0, [(first_id, "ok", 1)])
    assert found.states[second_id] == "queued"


def test_a_quit_during_a_job_hands_it_back_uncharged(sync_shop: WorkerKit) -> None:
    """To the head of the queue; the interruption is counted, the attempt is not."""

    @job("endless", retry=Retry(attempts=1))
    def endless() -> None:
        os.kill(os.getpid(), signal.SIGQUIT)
        linger()

    run_id = sync_shop.enqueue("endless")
    sync_shop.ask_to_go()
    found = fork(sync_shop).report()

    assert (found.code, found.states) == (0, {run_id: "queued"})
    assert (found.charges, found.sessions) == ({run_id: "0,0,1"}, [])


def test_a_quit_that_nobody_asked_for_leaves_the_run_to_whoever_judges_the_death(sync_shop: WorkerKit) -> None:
    """The job sent it to its own process; what it had fetched and not begun goes back, and acknowledgements are sent."""

    @job("quits")
    def quits() -> None:
        os.kill(os.getpid(), signal.SIGQUIT)
        linger()

    run_id = sync_shop.enqueue("quits")

    def work() -> int:
        code = SyncPool(sync_shop.runtime(), sync_shop.server.store()).run()
        assert sync_shop.state(run_id) == "running"
        assert list(sync_shop.store.run(sync_shop.sessions.list())) == ["r.000001/worker-test-0/1"]
        return code

    process = fork(sync_shop, main=work)
    code = process.wait()
    process.close()

    assert code == 128 + signal.SIGQUIT
    assert [entry.state for entry in sync_shop.board.inflight[0].entries()] == [RunState.DONE]


def test_a_quit_interrupts_an_outage(sync_shop: WorkerKit) -> None:
    """The worker leaves at once although its last call is still unanswered."""
    calls = 0

    def outage(script: str) -> str:
        nonlocal calls
        calls += 1
        if calls == 5:
            os.kill(os.getpid(), signal.SIGQUIT)
        return "refuse" if script == "turn" else ""

    found = fork(sync_shop, fault=outage).report()

    assert found.code == 0


def test_an_idle_worker_leaves_at_once_when_told(sync_shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait ten minutes for the bell; the signal interrupts that."""
    monkeypatch.setattr(sync_pool, "RING_S", 600.0)
    worker: list[threading.Timer] = []

    def term_while_it_rings(script: str) -> str:
        if script == "ring" and not worker:
            worker.append(threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)))
            worker[0].start()
        return ""

    found = fork(sync_shop, fault=term_while_it_rings).report()

    assert (found.code, found.sessions) == (0, [])
