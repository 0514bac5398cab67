"""Leaderships of programs on their threads: callbacks, the end, forks, and wrong arguments."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tenure
from supervisor.core.units import SECOND_NS
from supervisor.roles.agent.election.context import ElectionTiming
from supervisor.roles.leadership import leadership as leading
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import Leases, LeaseView
from supervisor.store.producer import connection as producing
from supervisor.store.producer.producer import Producer
from tenure.errors import FencedError, NoRedisError
from tests.kit.servers import Server, on_both
from tests.kit.waiting import wait_until

BOUND = "30s"
LEASE_S = 60


@pytest.fixture(autouse=True)
def producer(server: Server) -> Iterator[Producer]:
    """The producer of this program."""
    made = Producer(
        RedisSettings(), cluster=server.keys.cluster, open_store=server.store, open_async_store=server.async_store
    )
    producing.use(made)
    yield made
    producing.use(None)
    made.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms that no pause of a busy machine ends, renewed often all the same."""
    timing = ElectionTiming(
        duration_ns=LEASE_S * SECOND_NS, period_ns=SECOND_NS // 5, timeout_ns=10 * SECOND_NS, margin_ns=6 * SECOND_NS
    )
    monkeypatch.setattr(leading, "timing_of", lambda _lease_s: timing)


def view(server: Server) -> LeaseView:
    """Return the record of the leadership as Redis has it."""
    store = server.store()
    try:
        return store.run(Leases(server.keys.leadership("billing")).view())
    finally:
        store.close()


def test_the_next_program_leads_when_the_first_one_ends() -> None:
    """Each learns that it leads and that it stopped, with one epoch, and who leads instead."""
    said: list[tuple[str, object]] = []
    with tenure.leadership("billing", on_changed=lambda who: said.append(("second", who))) as second:
        assert second.wait(BOUND)
        second_epoch = second.epoch
        wait_until(lambda: said)
    with tenure.leadership(
        "billing",
        identity="one",
        on_started=lambda epoch: said.append(("started", epoch)),
        on_stopped=lambda epoch: said.append(("stopped", epoch)),
    ) as first:
        assert first.wait(BOUND)
        assert first.leader == first.identity
        assert first.identity.startswith("one.")
        epoch = first.confirm()
        assert epoch == first.epoch > second_epoch
        assert 0 < first.remaining_s < LEASE_S
        wait_until(lambda: ("started", epoch) in said)
    assert (first.is_leader, first.epoch, first.remaining_s) == (False, 0, 0.0)
    assert said == [("second", second.identity), ("started", epoch), ("stopped", epoch)]
    with pytest.raises(FencedError):
        first.confirm()
    with pytest.raises(RuntimeError, match="started before"):
        first.start()


def test_a_callback_that_hangs_costs_no_term(server: Server) -> None:
    """The work of a leader is often written into the callback: renewals do not wait for it."""
    is_enough = threading.Event()
    lead = tenure.leadership("billing", on_started=lambda _epoch: is_enough.wait(60))
    with lead:
        wait_until(lambda: view(server).seq >= 10)
        assert lead.is_leader
        is_enough.set()
    assert view(server).transitions == 1


@pytest.mark.parametrize("raised", [ValueError, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_a_callback_that_raises_is_logged_and_the_next_one_is_called(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """A fault in one of them, its `sys.exit` or a cancelled task of its own leaves no lease unrenewed and no stop unsaid."""
    stopped: list[int] = []

    def fail(_epoch: int) -> None:
        raise raised("no")

    with tenure.leadership("billing", on_started=fail, on_stopped=stopped.append) as lead:
        assert lead.wait(BOUND)
        epoch = lead.epoch
        wait_until(lambda: "a callback of a leadership raised" in caplog.text)
    assert stopped == [epoch]


def test_the_lease_is_given_back_after_the_work_has_stopped(server: Server) -> None:
    """Nobody else begins while the last callback still ends what it did."""
    seen: list[tuple[str, bool]] = []
    lead = tenure.leadership("billing", on_stopped=lambda _epoch: seen.append((view(server).holder, lead.is_leader)))
    with lead:
        assert lead.wait(BOUND)
        wait_until(lambda: lead._callbacks._told.epoch)
    assert seen == [(lead.identity, False)]
    assert view(server).holder == ""


def test_a_callback_that_never_ends_holds_up_the_end_for_the_grace_period(server: Server) -> None:
    """A stop is bounded; what still runs is refused by whatever checks the epoch."""
    is_enough = threading.Event()
    lead = tenure.leadership("billing", on_started=lambda _epoch: is_enough.wait(60), grace="50ms").start()
    assert lead.wait(BOUND)
    lead.close()
    assert view(server).holder == ""
    is_enough.set()
    wait_until(lambda: not any(thread.name == "leadership" for thread in threading.enumerate()))


def test_a_callback_may_end_its_own_leadership(server: Server) -> None:
    """A program whose work failed gives the lease to another one."""
    lead = tenure.leadership("billing", on_started=lambda _epoch: lead.close())
    lead.start()
    wait_until(lambda: view(server).transitions and view(server).holder == "")
    assert not lead.is_leader
    lead.close()
    wait_until(lambda: not any(thread.name == "leadership" for thread in threading.enumerate()))


@on_both("candidate_withdraw", "lease_keep")
async def test_coroutine_functions_are_called_in_the_event_loop() -> None:
    """A web application contends from its lifespan."""
    said: list[tuple[str, int]] = []
    has_begun = asyncio.Event()

    async def started(epoch: int) -> None:
        await asyncio.sleep(0)
        said.append(("started", epoch))
        has_begun.set()
        raise ValueError("logged")

    async def stopped(epoch: int) -> None:
        said.append(("stopped", epoch))

    lead = tenure.leadership("billing", on_started=started, on_stopped=stopped)
    with pytest.raises(TypeError, match="async with"):
        lead.start()
    async with lead:
        assert await lead.wait_async(BOUND)
        epoch = lead.epoch
        async with asyncio.timeout(30):
            await has_begun.wait()
    assert said == [("started", epoch), ("stopped", epoch)]


@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_a_callback_in_the_event_loop_may_end_its_own_leadership(server: Server, *, is_coroutine: bool) -> None:
    """It does not wait for itself, and who ends it again waits until the lease is given back."""
    ended = asyncio.Event()

    def end(_epoch: int) -> None:
        lead.close()
        ended.set()

    async def end_async(_epoch: int) -> None:
        await lead.close_async()
        ended.set()

    lead = tenure.leadership("billing", on_started=end_async if is_coroutine else end, grace=60)
    async with asyncio.timeout(30):
        async with lead:
            await ended.wait()
        assert view(server).holder == ""


async def test_who_waits_no_more_for_a_leadership_leaves_no_thread_behind() -> None:
    """A standby that looks at other things every few seconds waits for hours."""
    with tenure.leadership("billing") as lead:
        assert lead.wait(BOUND)
        async with tenure.leadership("billing") as standby:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await standby.wait_async()
            wait_until(lambda: not any(thread.name == "leadership-wait" for thread in threading.enumerate()))
            assert not await standby.wait_async(0)


def test_an_observer_sees_who_leads_and_writes_nothing(server: Server) -> None:
    """Of a leadership and of the replicas; no program takes the lease of those."""
    with (
        tenure.leadership("billing", candidate=False) as observer,
        tenure.leadership() as of_replicas,
        tenure.leadership("billing") as lead,
    ):
        assert lead.wait(BOUND)
        wait_until(lambda: observer.leader == lead.identity)
        assert not observer.is_leader
        assert of_replicas.leader is None
        listed = server.store().run(Leases(server.keys.leadership("billing")).candidates())
        assert [each.replica for each in listed] == [lead.identity]
        assert not server.raw().exists(server.keys.lease, server.keys.candidates, server.keys.genesis)


def test_a_forked_child_does_not_lead_and_gives_nothing_back(server: Server) -> None:
    """A web server forks its workers after the application began to contend."""
    with tenure.leadership("billing") as lead:
        assert lead.wait(BOUND)
        if (pid := os.fork()) == 0:
            is_right = not lead.is_leader and lead.epoch == 0 and lead.leader is None and not lead.wait(0)
            lead.close()
            os._exit(0 if is_right else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert view(server).holder == lead.identity
        assert lead.is_leader


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "a b"}, "leadership 'a b' must be 1 to 64"),
        ({"name": "a", "lease_duration": "100ms"}, "lease_duration must be 1 second to 5 minutes"),
        ({"name": "a", "lease_duration": "soon"}, "lease_duration"),
        ({"name": "a", "grace": -1}, "grace must be 0 seconds"),
        ({"name": "a", "identity": ""}, "identity must be 1 to 100"),
        ({"name": "a", "identity": "x\n"}, "identity must be 1 to 100"),
        ({"on_started": print}, "observes the replicas' leader; give a name"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(arguments: dict[str, object], words: str) -> None:
    """Before any thread starts."""
    with pytest.raises(ValueError, match=words):
        tenure.leadership(**arguments)  # type: ignore[call-overload]


def test_a_program_without_redis_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by every other call."""
    producing.use(None)
    monkeypatch.delenv("TENURE_CONFIG", raising=False)
    monkeypatch.delenv("TENURE_REDIS__URL", raising=False)
    with pytest.raises(NoRedisError):
        tenure.leadership("billing")


def test_an_elector_that_fails_is_replaced_and_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of the program around us, such as memory that is gone for a moment, ends no leadership for good."""
    with tenure.leadership("billing") as lead:
        assert lead.wait(BOUND)
        epoch, execution = lead.epoch, lead._execution
        run, failures = Store.run, iter([MemoryError()])

        def fail_once(store: Store, *args: Any, **kwargs: Any) -> Any:
            if threading.current_thread().name == "elector" and (failure := next(failures, None)):
                raise failure
            return run(store, *args, **kwargs)

        monkeypatch.setattr(Store, "run", fail_once)
        execution._elector.join(30)
        execution.changed()
        wait_until(lambda: lead.is_leader and "is started again" in caplog.text)
        wait_until(lambda: view(server).seq >= 3)
        assert lead.epoch >= epoch
