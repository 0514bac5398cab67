"""Tests of applications: what they enqueue goes into the test's cluster, whichever way they connect."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tenure
from supervisor.core.errors import StoreRefusedError
from supervisor.core.jobs import registry as registering
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import PRIORITIES
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer import connection
from supervisor.store.producer.producer import Producer
from supervisor.store.producer.substitute import refused
from supervisor.testing.runs import InlineWorker
from tenure import Context, job
from tenure.errors import JobFailedError, RunTimeoutError
from tenure.testing import Cluster, ClusterFactory, EnqueuedRun, job_context
from tests.kit.launcher import run_pytest

sent: list[str] = []


@pytest.fixture(autouse=True)
def _jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two jobs, of which one enqueues the other, in a registry of their own; an environment that names a real server."""
    monkeypatch.setattr(registering, "registry", Registry())
    monkeypatch.setattr("supervisor.testing.definitions.registry", registering.registry)
    monkeypatch.setattr("supervisor.testing.runs.registry", registering.registry)
    monkeypatch.setenv("TENURE_REDIS__URL", "redis://production:6379")

    @job("mail.send")
    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    @job("mail.fail")
    def fail() -> None:
        raise ValueError("no such mailbox")

    @job("orders.confirm")
    def confirm(ctx: Context, order: int) -> int:
        ctx.progress(note="half")
        ctx.enqueue("mail.send", {"to": f"buyer-{order}"})
        return order

    sent.clear()
    yield
    connection.use(None)


def application_enqueues() -> str:
    """Do as an application does."""
    return tenure.connect("redis://production:6379", cluster="shop").enqueue("mail.send", {"to": "ada"})


def test_whatever_an_application_connects_to_is_the_cluster(tenure_cluster: ClusterFactory) -> None:
    """By URL, configuration or environment; nothing reaches the server that production uses."""
    cluster = tenure_cluster(replicas=1)

    application_enqueues()
    tenure.connect(config="absent.yaml").enqueue("mail.send", {"to": "bob"})
    tenure.enqueue("mail.send", {"to": "eve"})

    assert [run.value for run in cluster.run_pending()] == ["sent to ada", "sent to bob", "sent to eve"]
    assert sent == ["ada", "bob", "eve"]


async def test_coroutines_and_threads_of_an_application_enqueue_into_it_too(enqueued: Callable[..., Any]) -> None:
    """FastAPI serves from an event loop, Django from threads."""
    await asyncio.gather(*(tenure.enqueue_async("mail.send", {"to": f"loop-{n}"}) for n in range(3)))
    thread = threading.Thread(target=application_enqueues)
    thread.start()
    thread.join()

    assert sorted(run.args["to"] for run in enqueued()) == ["ada", "loop-0", "loop-1", "loop-2"]


def test_enqueued_lists_what_waits_and_executes_nothing(enqueued: Callable[..., list[EnqueuedRun]]) -> None:
    """The test of a view asserts what it ordered."""
    run_id = application_enqueues()
    tenure.enqueue("orders.confirm", {"order": 7}, queue="slow", priority="low", delay="1h")

    assert enqueued("mail.send") == [
        EnqueuedRun(id=run_id, job="mail.send", args={"to": "ada"}, queue="default", priority="normal")
    ]
    (order,) = enqueued("orders.confirm")
    assert (order.args, order.queue, order.priority) == ({"order": 7}, "slow", "low")
    assert sent == []


def test_what_a_test_enqueues_goes_by_its_profiles() -> None:
    """As beside a configuration that has them; after the test jobs are as they were."""
    with ClusterFactory() as factory:
        cluster = factory(replicas=0, profiles={"default": {"priority": "low"}})
        tenure.enqueue("mail.send", {"to": "ada"})
        assert [run.priority for run in cluster.enqueued()] == ["low"]

    assert registering.registry.get("mail.send").base.priority == PRIORITIES["normal"]


def test_inline_executes_a_run_before_enqueue_returns(tenure_inline: Cluster) -> None:
    """What the job enqueues, too; its result is there to be read."""
    run_id = tenure.enqueue("orders.confirm", {"order": 7})

    assert sent == ["buyer-7"]
    assert [run.job for run in tenure_inline.finished] == ["orders.confirm", "mail.send"]
    assert tenure.Run[int](run_id).result(timeout="1s") == 7
    assert tenure_inline.enqueued() == []


async def test_inline_executes_within_an_event_loop(tenure_inline: Cluster) -> None:
    """Coroutine jobs too, although a loop runs in the thread that enqueues."""
    run_id = await tenure.enqueue_async("mail.send", {"to": "ada"})

    assert sent == ["ada"]
    assert await tenure.Run[str](run_id) == "sent to ada"


def test_inline_executes_for_several_threads_one_after_the_other(tenure_inline: Cluster) -> None:
    """Each thread of an application has the result of its run when it asks for it."""

    def ask(number: int) -> object:
        return tenure.Run[str](tenure.enqueue("mail.send", {"to": f"buyer-{number}"})).result()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(ask, range(40)))
    assert found == [f"sent to buyer-{number}" for number in range(40)]
    assert len(tenure_inline.finished) == 40


def test_inline_waits_for_no_job_that_waits_for_the_thread_which_enqueues(
    tenure_inline: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is executed after the job; its result is waited for as long as the thread says, and never for ever."""
    monkeypatch.setattr("supervisor.testing.cluster.OTHERS_S", 0.01)

    @job("mail.both")
    def both() -> list[float | None]:
        def ask(timeout: float | None) -> float | None:
            with pytest.raises(RunTimeoutError):
                run.result(timeout=timeout)
            return timeout

        with ThreadPoolExecutor(1) as threads:
            run = tenure.Run[str](threads.submit(tenure.enqueue, "mail.send", {"to": "ada"}).result(20))
            assert not sent
            return [threads.submit(ask, timeout).result(20) for timeout in (0.01, None)]

    assert tenure.Run[object](tenure.enqueue("mail.both")).result() == [0.01, None]
    assert sent == ["ada"]


def test_inline_comes_to_a_run_that_another_thread_enqueues_as_it_ends(
    tenure_inline: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That thread does not wait: between the last look and the end its run would be nobody's."""
    look, late = InlineWorker._run_pending, iter(["bob"])

    def look_and_enqueue(worker: InlineWorker, limit: int) -> object:
        found = look(worker, limit)
        for to in late:
            thread = threading.Thread(target=tenure.enqueue, args=("mail.send", {"to": to}))
            thread.start()
            thread.join(20)
        return found

    monkeypatch.setattr(InlineWorker, "_run_pending", look_and_enqueue)
    tenure.enqueue("mail.send", {"to": "ada"})
    assert sent == ["ada", "bob"]
    assert tenure_inline.enqueued() == []


def test_steps_of_a_run_are_noted_by_a_cluster_of_a_test(tenure_inline: Cluster) -> None:
    """A later attempt takes them from there, as in production."""
    called: list[str] = []

    @job("mail.steps")
    def steps(ctx: Context) -> int:
        found = ctx.step("first", lambda: called.append("first") or 7)
        called.append("job")
        if len(called) == 2:
            raise ConnectionError("after the step")
        return found

    run_id = tenure.enqueue("mail.steps")
    tenure_inline.advance("15m")
    tenure_inline.run_pending()
    assert tenure.Run[int](run_id).result() == 7
    assert called == ["first", "job", "job"]


def test_inline_leaves_delays_and_retries_to_the_clock(tenure_inline: Cluster) -> None:
    """Enqueueing never raises what a job raises, as in production."""
    failing = tenure.Run[None](tenure.enqueue("mail.fail"))
    later = tenure.enqueue("mail.send", {"to": "ada"}, delay="10m")

    with pytest.raises(RunTimeoutError):
        failing.result(timeout=0)
    assert [type(run.error).__name__ for run in tenure_inline.finished] == ["ValueError"]
    for _ in range(3):
        tenure_inline.advance("15m")
        tenure_inline.run_pending()

    with pytest.raises(JobFailedError, match="no such mailbox"):
        failing.result(timeout=0)
    assert tenure.Run[str](later).result() == "sent to ada"


def test_waiting_for_a_run_executes_it_and_never_hangs(enqueued: Callable[..., Any]) -> None:
    """In a test nobody else does; one that is not due yet is no reason to wait."""
    now, later = application_enqueues(), tenure.enqueue("mail.send", {"to": "bob"}, delay="1h")

    assert tenure.Run[str](now).result() == "sent to ada"
    with pytest.raises(RunTimeoutError):
        tenure.Run[str](later).result()


async def test_awaiting_a_run_executes_it_and_never_hangs(enqueued: Callable[..., Any]) -> None:
    """An endpoint of an application may await the result of a run, of a plain job or a coroutine."""
    now = await tenure.enqueue_async("mail.send", {"to": "ada"})
    later = await tenure.enqueue_async("mail.send", {"to": "bob"}, delay="1h")

    assert await tenure.Run[str](now).result_async() == "sent to ada"
    with pytest.raises(RunTimeoutError):
        await tenure.Run[str](later).result_async()


def test_after_the_test_the_producer_in_use_is_what_it_was(tenure_cluster: ClusterFactory) -> None:
    """A cluster ends with its test."""
    with ClusterFactory() as factory:
        factory(replicas=0)
        inside = tenure.connect()
    with refused("no"), pytest.raises(StoreRefusedError, match="no"):
        tenure.connect("redis://127.0.0.1:1").enqueue("mail.send", {"to": "x"})

    assert tenure.connect() is not inside


def test_a_producer_that_was_made_before_the_test_reaches_no_server() -> None:
    """One at module level of an application; the message says what to do."""
    early = Producer(RedisSettings.model_validate({"url": "redis://127.0.0.1:1"}))

    with refused("a test would enqueue into a real Redis"):
        with pytest.raises(StoreRefusedError, match="real Redis"):
            early.enqueue("mail.send", {"to": "x"})
        with pytest.raises(StoreRefusedError, match="real Redis"):
            asyncio.run(early.enqueue_async("mail.send", {"to": "x"}))
        with pytest.raises(StoreRefusedError, match="real Redis"):
            early.asking.answer(early.asking.tally("r"))


def test_a_job_that_takes_a_context_is_called_as_a_function(enqueued: Callable[..., Any]) -> None:
    """Progress is there to be looked at, and what the job enqueues is in the cluster."""
    context = job_context(job="orders.confirm", nominal=datetime(2026, 1, 1, 9, tzinfo=UTC), attempt=2)

    assert registering.registry.get("orders.confirm").function(context, 7) == 7
    assert context.last_progress is not None
    assert context.last_progress.note == "half"
    assert (context.nominal, context.attempt) == (datetime(2026, 1, 1, 9, tzinfo=UTC), 2)
    assert [run.args for run in enqueued("mail.send")] == [{"to": "buyer-7"}]
    with pytest.raises(ValueError, match="no time zone"):
        job_context(nominal=datetime(2026, 1, 1))  # noqa: DTZ001 - that is refused


USERS_TESTS = """
import pytest, tenure

@tenure.job("mail.send")
def send(to: str) -> None: ...

def test_by_accident():
    with pytest.raises(tenure.errors.StoreRefusedError, match="a test would enqueue into a real Redis"):
        tenure.enqueue("mail.send", {"to": "x"})

@pytest.mark.tenure_redis
def test_on_purpose():
    with pytest.raises(tenure.errors.StoreUnavailableError):
        tenure.enqueue("mail.send", {"to": "x"})

def test_with_a_cluster(enqueued):
    tenure.enqueue("mail.send", {"to": "x"})
    assert [run.args for run in enqueued()] == [{"to": "x"}]
"""


def test_the_plugin_keeps_tests_of_users_from_real_servers(tmp_path: Path) -> None:
    """Without a line of theirs; a marker asks for one."""
    (tmp_path / "test_users.py").write_text(USERS_TESTS)
    nowhere = {"TENURE_REDIS__URL": "redis://127.0.0.1:1", "TENURE_REDIS__CONNECT_TIMEOUT": "200ms"}

    done = run_pytest(tmp_path, "--strict-markers", ".", **nowhere)

    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("module", ["fakeredis", "lupa"])
def test_without_the_extra_a_fixture_says_what_to_install(tmp_path: Path, module: str) -> None:
    """The plugin is loaded wherever Tenure is installed, so this is what a user meets first."""
    missing = f"[each for each in sys.modules if each.startswith(('supervisor.testing.', {module!r}))]"
    (tmp_path / "conftest.py").write_text(
        f"import sys\nfor name in {missing}:\n    del sys.modules[name]\nsys.modules[{module!r}] = None\n"
    )
    (tmp_path / "test_jobs.py").write_text("def test_inline(tenure_inline):\n    pass\n")
    done = run_pytest(tmp_path, ".")
    assert re.search(rf"{module}.*; install the wheel .*\[testing\]", done.stdout), done.stdout + done.stderr
