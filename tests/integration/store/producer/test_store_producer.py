"""Producers: one run for each call, wherever they are and whatever they know of the job."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider

import tenure
from supervisor.core.errors import (
    ArgumentsError,
    PayloadTooLargeError,
    StoreUnavailableError,
    UnknownJobError,
)
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer import connection as module
from supervisor.store.producer.bulk import Totals
from supervisor.store.producer.connection import NoRedisError, settings_from_environment
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from tenure import job
from tests.kit.servers import Server


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of the producing program: one job, ``mail``."""
    registry = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", registry)

    @job("mail", queue="mail", priority="high")
    async def mail(to: str, copies: int = 1) -> None: ...

    return registry


@pytest.fixture
def subject(server: Server, jobs: Registry) -> Iterator[Producer]:
    """A producer on the test's server, as the process' own."""
    producer = Producer(
        RedisSettings(),
        cluster=server.keys.cluster,
        open_store=server.store,
        open_async_store=server.async_store,
    )
    module.use(producer)
    yield producer
    producer.close()
    module.use(None)


def queued(server: Server, run_id: str) -> Any:
    """Return what is known of a run."""
    return server.store().run(Queues(server.keys).show(run_id))


def test_arguments_that_are_given_as_options_are_told_where_they_go(subject: Producer) -> None:
    """The name is the one of the call that a person wrote, not of what it calls."""
    with pytest.raises(
        TypeError, match=r"^enqueue\(\) takes no option 'to', only queue, .*enqueue\(job, \{'to': …\}\)"
    ):
        subject.enqueue("mail", to="a")  # type: ignore[call-arg]


def test_a_run_goes_where_its_job_says(server: Server, subject: Producer) -> None:
    """Queue, kind and priority come from the declaration."""
    run_id = tenure.enqueue("mail", {"to": "a@b"})

    view = queued(server, run_id)
    template = view.envelope.template
    assert view.state == "queued"
    assert (template.queue, template.kind, template.priority, template.args) == ("mail", Kind.ASYNC, 0, {"to": "a@b"})


def test_a_caller_may_override_queue_priority_and_delay(server: Server, subject: Producer, jobs: Registry) -> None:
    """And may pass the function instead of its name."""
    run_id = tenure.enqueue(
        jobs.get("mail").function, {"to": "a@b"}, queue="bulk", priority="low", delay="5m", run_id="mine"
    )

    view = queued(server, run_id)
    assert (run_id, view.state, view.queue, view.envelope.template.priority) == ("mine", "later", "bulk", 2)


def test_a_run_carries_the_trace_that_its_producer_names(server: Server, subject: Producer) -> None:
    """As a header of a request has it; a malformed one costs the trace, and never the run."""
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    named = tenure.enqueue("mail", {"to": "a@b"}, traceparent=given)
    malformed = tenure.enqueue("mail", {"to": "a@b"}, traceparent=f"{given}-more")
    none = tenure.enqueue("mail", {"to": "a@b"})
    many: list[str] = []
    producer = tenure.connect()
    producer.enqueue_many(
        "mail", [{"to": "a@b"}] * 2, traceparent=given, each=lambda batch: many.extend(one.run_id for one in batch)
    )

    assert [queued(server, run_id).envelope.traceparent for run_id in (named, malformed, none)] == [given, "", ""]
    assert {queued(server, run_id).envelope.traceparent for run_id in many} == {given}


def test_a_run_joins_the_trace_of_the_span_that_is_current(server: Server, subject: Producer) -> None:
    """OpenTelemetry's, in a program that uses it; what the caller names himself comes first, and empty is none."""
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with TracerProvider().get_tracer("test").start_as_current_span("order") as order:
        context = order.get_span_context()
        ids = [tenure.enqueue("mail", {"to": "a@b"}, traceparent=each) for each in (None, given, "")]

    current, named, none = (queued(server, run_id).envelope.traceparent for run_id in ids)
    assert current.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert (named, none) == (given, "")


async def test_the_asynchronous_way_does_the_same(server: Server, subject: Producer) -> None:
    """One connection for each event loop."""
    run_ids = await asyncio.gather(*(tenure.connect().enqueue_async("mail", {"to": "a@b"}) for _ in range(10)))
    await subject.close_async()

    assert len(set(run_ids)) == 10
    assert {queued(server, run_id).state for run_id in run_ids} == {"queued"}


def test_an_id_that_exists_is_not_enqueued_twice(server: Server, subject: Producer) -> None:
    """So a caller that got no answer may call again."""
    tenure.enqueue("mail", {"to": "first", "copies": 2}, run_id="mine")
    tenure.enqueue("mail", {"copies": 2, "to": "first"}, run_id="mine")

    assert queued(server, "mine").envelope.template.args == {"to": "first", "copies": 2}
    assert server.store().run(Queues(server.keys).counts("mail")).ready_total == 1


def test_an_id_of_the_callers_own_is_enqueued_once_in_an_hour(server: Server, subject: Producer) -> None:
    """A caller that got no answer calls again, maybe after the run has ended."""
    queues, store = Queues(server.keys), server.store()
    first = subject.put("mail", {"to": "a@b"}, run_id="mine")
    many = subject.enqueue_many("mail", [{"to": "a"}, {"to": "b"}], run_id=lambda args: f"mine-{args['to']}")
    store.run(QueueControl(server.keys).cancel([("mail", name) for name in ("mine", "mine-a", "mine-b")]))
    assert store.run(queues.counts("mail")).ready_total == 0

    again = subject.put("mail", {"to": "a@b"}, run_id="mine")
    more = subject.enqueue_many("mail", [{"to": "c"}, {"to": "a"}], run_id=lambda args: f"mine-{args['to']}")
    elsewhere = subject.put("mail", {"to": "a@b"}, run_id="mine", queue="bulk")

    assert (first.is_new, again.is_new, elsewhere.is_new) == (True, False, True)
    assert (many, more) == (Totals(new=2), Totals(new=1, present=1))
    assert 3_500_000 < store.command("PTTL", f"{server.keys.queue('mail').prefix}ran:mine") <= 3_600_000
    store.command("DEL", f"{server.keys.queue('mail').prefix}ran:mine")  # as if the hour had passed
    assert subject.put("mail", {"to": "a@b"}, run_id="mine").is_new


def test_ids_that_the_producer_drew_leave_nothing_behind(server: Server, subject: Producer) -> None:
    """Nobody can call again with an id that he did not choose."""
    subject.put("mail", {"to": "a@b"})
    subject.enqueue_many("mail", [{"to": "a"}, {"to": "b"}])

    assert [key for key in server.store().command("KEYS", f"{server.keys.prefix}*") if b":ran:" in key] == []


def test_a_lost_reply_is_asked_again_under_the_same_nonce(
    server: Server, subject: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that died while idle must not cost the run, nor make two of it."""
    store = server.store()
    original, calls = store.run, []

    def lose_the_first(call: Any, **options: Any) -> Any:
        reply = original(call, **options)
        calls.append(call)
        if len(calls) == 1:
            raise StoreUnavailableError("test: no answer")
        return reply

    monkeypatch.setattr(store, "run", lose_the_first)
    monkeypatch.setattr(subject._thread_stores, "_open", lambda: store)

    tenure.enqueue("mail", {"to": "a@b"})

    assert calls[0] == calls[1]
    assert server.store().run(Queues(server.keys).counts("mail")).ready_total == 1


def test_a_program_without_the_job_routes_by_what_is_published(
    server: Server, subject: Producer, jobs: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of arguments are checked there too; types are the worker's."""
    server.store().run(Sessions(server.keys).publish_jobs(jobs.cards()))
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", Registry())

    run_id = tenure.enqueue("mail", {"to": "a@b", "copies": 2})

    template = queued(server, run_id).envelope.template
    assert (template.queue, template.kind, template.priority) == ("mail", Kind.ASYNC, 0)
    with pytest.raises(ArgumentsError, match="takes no argument 'colour'"):
        tenure.enqueue("mail", {"to": "a@b", "colour": "red"})
    with pytest.raises(UnknownJobError, match="known: mail"):
        tenure.enqueue("nobody")


def test_a_card_that_a_newer_version_wrote_does_not_hide_the_others(
    server: Server, subject: Producer, jobs: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a rolling update both versions publish."""
    server.store().run(Sessions(server.keys).publish_jobs({**jobs.cards(), "odd": '{"v":9,"template":7}'}))
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", Registry())

    assert queued(server, tenure.enqueue("mail", {"to": "a@b"})).state == "queued"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"args": {"to": 5.5, "copies": "x"}}, ArgumentsError, "mail"),
        ({"args": {}}, ArgumentsError, "to"),
        ({"args": {"to": "\ud800"}}, ArgumentsError, "JSON"),
        ({"args": {"to": "x" * 70_000}}, PayloadTooLargeError, "65536"),
        ({"queue": "no spaces"}, ValueError, "queue 'no spaces'"),
        ({"priority": "urgent"}, ValueError, "high, normal, low"),
        ({"delay": -1}, ValueError, "delay"),
        ({"delay": "soon"}, ValueError, "not a duration"),
        ({"delay": "400d"}, ValueError, "366 days"),
        ({"run_id": "a b"}, ValueError, "run id"),
        ({"run_id": ""}, ValueError, "run id"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_wrong_input_is_refused_before_anything_is_sent(
    subject: Producer, options: dict[str, Any], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the name, the value and the remedy."""
    monkeypatch.setattr(subject, "run", lambda _call: pytest.fail("it was sent"))

    with pytest.raises(error, match=message):
        tenure.enqueue("mail", **{"args": {"to": "a@b"}} | options)


def test_each_thread_has_a_connection_of_its_own(server: Server, subject: Producer) -> None:
    """Replies of one connection would go to whoever reads first."""
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend(tenure.enqueue("mail", {"to": "x"}) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 80
    assert server.store().run(Queues(server.keys).counts("mail")).ready_total == 80


def test_a_forked_child_makes_a_connection_of_its_own(
    server: Server, subject: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes on one socket would each read the other's replies."""
    tenure.enqueue("mail", {"to": "x"})
    before = subject._store()

    monkeypatch.setattr(os, "getpid", lambda: 1)

    assert subject._store() is not before


def test_without_an_address_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch, jobs: Registry) -> None:
    """The first thing a new user meets."""
    monkeypatch.delenv("TENURE_REDIS__URL", raising=False)
    module.use(None)

    with pytest.raises(NoRedisError, match="TENURE_REDIS__URL"):
        tenure.enqueue("mail", {"to": "x"})
    with pytest.raises(NoRedisError, match=r"tenure\.yaml"):
        settings_from_environment({"TENURE_REDIS__URL": "embedded"})


def test_the_environment_describes_a_connection() -> None:
    """The same variables as the tree's."""
    settings = settings_from_environment(
        {
            "TENURE_REDIS__URL": "rediss://example:6380/1",
            "TENURE_REDIS__PASSWORD": "secret",
            "TENURE_REDIS__CONNECT_TIMEOUT": "500ms",
            "TENURE_CLUSTER": "blue",
            "HOME": "/",
        }
    )

    assert settings.url.get_secret_value() == "rediss://example:6380/1"
    assert settings.password is not None
    assert settings.password.get_secret_value() == "secret"
    assert settings.connect_timeout_s == 0.5


def test_connect_chooses_the_server_without_speaking_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may start before Redis does."""
    tenure.connect("unix:///nowhere/redis.sock", cluster="blue")
    try:
        with pytest.raises(StoreUnavailableError, match=r"/nowhere/redis\.sock"):
            tenure.enqueue("absent")
    finally:
        module.use(None)


def test_connect_without_an_address_is_the_producer_in_use(subject: Producer) -> None:
    """In a job that is the worker's own; so a library needs no argument for it."""
    assert tenure.connect() is subject


def test_cards_are_json_that_people_can_read(jobs: Registry) -> None:
    """They lie in Redis, where somebody will look at them."""
    card = msgspec.json.decode(jobs.cards()["mail"])

    assert card["template"]["job"] == "mail"
    assert card["required"] == ["to"]
    assert card["optional"] == ["copies"]
