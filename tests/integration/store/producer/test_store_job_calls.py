"""Jobs enqueued by the attributes of their functions: the right arguments, and a handle of the run."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

import pytest

from supervisor.core.durations import delay_to_ms
from supervisor.core.errors import ArgumentsError
from supervisor.core.jobs.registry import Registry
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer import connection as module
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.runs import Queues
from tenure import Context, Resource, Run, job
from tests.kit.clock import FakeClock
from tests.kit.servers import Server

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Letter:
    """An argument with a lock beside its fields, as a row of a database has its connection."""

    to: str

    def __post_init__(self) -> None:
        self.lock = Lock()


class Letters(OrderedDict[str, str]):
    """The same as a mapping."""

    def __init__(self, to: str) -> None:
        super().__init__(to=to)
        self.lock = Lock()


class Mailbox(Resource):
    """A parameter that the worker fills."""

    async def open(self) -> None: ...


@pytest.fixture(autouse=True)
def subject(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Producer]:
    """A producer on the test's server, as the process' own; its program has no jobs yet."""
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", Registry())
    producer = Producer(
        RedisSettings(),
        cluster=server.keys.cluster,
        clock=FakeClock(wall_ms=round(NOW.timestamp() * 1000)),
        open_store=server.store,
        open_async_store=server.async_store,
    )
    module.use(producer)
    yield producer
    producer.close()
    module.use(None)


def queued(server: Server, run: Run[Any]) -> Any:
    """Return what is known of a run."""
    return server.store().run(Queues(server.keys).show(run.id))


def test_a_job_is_enqueued_with_the_arguments_of_its_function(server: Server, subject: Producer) -> None:
    """By place or by name, without what the worker fills; sync and async."""

    @job
    async def send(ctx: Context, box: Mailbox, to: str, copies: int = 1) -> str:
        return to * copies

    async def both() -> Run[str]:
        run: Run[str] = await send.enqueue_async("b", copies=2)
        await send.enqueue_many_async([{"to": "c"}])
        await subject.close_async()
        return run

    first, second = send.enqueue("a"), asyncio.run(both())

    assert send.enqueue_many(send.arguments(to=each) for each in "de").new == 2
    assert [queued(server, run).envelope.template.args for run in (first, second)] == [
        {"to": "a"},
        {"to": "b", "copies": 2},
    ]
    assert first.job == queued(server, first).envelope.template.job == f"{__name__}.send"
    assert (first.queue, str(first)) == ("default", first.id)
    assert first != second
    assert pickle.loads(pickle.dumps(first)) == first == Run(first.id)


def test_a_job_remains_the_function_it_was() -> None:
    """It is called, awaited, inspected and documented like any other, with brackets and without."""

    def plain(day: str) -> str:
        """Do it."""
        return day

    async def waits(day: str) -> str:
        return day

    assert job(plain) is plain
    assert job("waits", timeout=timedelta(minutes=5))(waits) is waits
    assert plain("monday") == asyncio.run(waits("monday")) == "monday"
    assert (plain.__doc__, inspect.iscoroutinefunction(waits)) == ("Do it.", True)
    assert str(inspect.signature(plain)) == "(day: 'str') -> 'str'"


def test_options_hold_for_the_runs_that_are_enqueued_by_them(server: Server) -> None:
    """And change neither the job nor one another."""

    @job("mail", queue="mail")
    def mail(to: str) -> None: ...

    urgent = mail.options(priority="high", run_id="first")
    run = urgent.options(queue="bulk").enqueue(to="a")

    view = queued(server, run)
    assert (run.id, run.queue) == ("first", "bulk")
    assert (view.envelope.template.queue, view.envelope.template.priority) == ("bulk", 0)
    assert mail.enqueue("b").queue == "mail"


@pytest.mark.parametrize(
    ("options", "delay_ms"),
    [
        ({"delay": 90}, 90_000),
        ({"delay": "1m30s"}, 90_000),
        ({"delay": timedelta(seconds=90)}, 90_000),
        ({"at": NOW + timedelta(seconds=90)}, 90_000),
        ({"at": (NOW + timedelta(seconds=90)).astimezone()}, 90_000),
        ({"at": NOW - timedelta(days=1)}, 0),
    ],
    ids=str,
)
def test_a_delay_is_seconds_a_text_or_a_timedelta_and_a_moment_has_a_zone(
    server: Server, options: dict[str, Any], delay_ms: int
) -> None:
    """One that has passed is now."""

    @job("mail")
    def mail() -> None: ...

    found = delay_to_ms(options.get("delay"), options.get("at"), now_ms=round(NOW.timestamp() * 1000))

    assert found == delay_ms
    assert queued(server, mail.options(**options).enqueue()).state == ("later" if delay_ms else "queued")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": datetime(2026, 3, 1)}, r"no time zone.*write datetime\(…, tzinfo=UTC\)"),  # noqa: DTZ001 - the subject
        ({"at": NOW, "delay": 1}, "exclude each other"),
        ({"at": NOW + timedelta(days=400)}, "at most 366 days"),
        ({"at": "tomorrow"}, "must be a datetime"),
        ({"delay": timedelta(seconds=-1)}, "0 seconds to 366 days"),
        ({"delay": True}, "a timedelta, got True"),
    ],
    ids=str,
)
def test_a_wrong_moment_is_refused_with_the_remedy(options: dict[str, Any], message: str) -> None:
    """Before anything is sent."""

    @job("mail")
    def mail() -> None: ...

    with pytest.raises(ValueError, match=message):
        mail.options(**options).enqueue()


def test_wrong_arguments_are_refused_where_they_are_written() -> None:
    """As Python would at the call."""

    @job("mail")
    def mail(to: str, copies: int = 1) -> None: ...

    calls: Any = mail
    with pytest.raises(ArgumentsError, match="takes 2 arguments, got 3"):
        calls.enqueue("a", 1, 2)
    with pytest.raises(ArgumentsError, match="to is given twice"):
        calls.enqueue("a", to="b")
    with pytest.raises(ArgumentsError, match="takes no argument 'too'"):
        calls.enqueue("a", too=1)
    with pytest.raises(ArgumentsError, match="to"):
        calls.enqueue()


@pytest.mark.parametrize("kind", [Letter, Letters])
def test_arguments_that_cannot_be_copied_are_enqueued_with_many_as_alone(kind: Any) -> None:
    """They are copied as they come, and the call ended with an error of the copy."""

    async def send(letter: Any) -> None: ...

    send.__annotations__["letter"] = Letter if kind is Letter else dict[str, str]
    found = job(send)

    assert found.enqueue(letter=kind("a")).id
    assert found.enqueue_many([{"letter": kind("b")}, {"letter": kind("c")}]).new == 2
