"""Producers and their cluster: a configuration names it, and a wrong or unserved destination is told at enqueue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenure
from supervisor.core.errors import ConfigError
from supervisor.core.jobs import registry as registering
from supervisor.core.jobs.registry import Registry, job
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.keys import CLUSTERS
from supervisor.store.producer import connection as connecting
from supervisor.store.producer.destination import Destination, UnknownClusterError
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.sessions import Sessions
from tests.kit.servers import Server, on_both


@pytest.fixture(autouse=True)
def _jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registering, "registry", Registry())
    for name in ("TENURE_CONFIG", "TENURE_CLUSTER", "TENURE_REDIS__URL"):
        monkeypatch.delenv(name, raising=False)

    @job("mail")
    def mail(to: str) -> None: ...

    yield
    connecting.use(None)


@pytest.fixture
def producer(server: Server) -> Iterator[Producer]:
    """A producer of an application: unlike a worker's own, it checks where its runs go."""
    cluster = server.keys.cluster
    made = Producer(
        RedisSettings(),
        cluster=cluster,
        open_store=server.store,
        open_async_store=server.async_store,
        destination=Destination(cluster, is_configured=False),
    )
    yield made
    server.raw().delete(CLUSTERS)
    made.close()


@on_both("queue_served")
def test_runs_for_a_cluster_without_replicas_beside_others_are_refused(server: Server, producer: Producer) -> None:
    """They would wait for ever in a cluster that somebody mistyped; nothing is enqueued, one by one or in bulk."""
    server.raw().hset(CLUSTERS, "shop", "1")

    with pytest.raises(UnknownClusterError, match="which holds shop"):
        producer.enqueue("mail", {"to": "a@b"})
    with pytest.raises(UnknownClusterError):
        producer.enqueue_many("mail", [{"to": "a@b"}])
    assert not server.raw().exists(producer.keys.queue("default").data)


async def test_asynchronous_producers_are_refused_too(server: Server, producer: Producer) -> None:
    """A web application enqueues from coroutines."""
    server.raw().hset(CLUSTERS, "shop", "1")

    with pytest.raises(UnknownClusterError):
        await producer.enqueue_async("mail", {"to": "a@b"})
    with pytest.raises(UnknownClusterError):
        await producer.enqueue_many_async("mail", [{"to": "a@b"}])
    await producer.close_async()


async def test_concurrent_first_calls_into_a_mistyped_cluster_are_all_refused(
    server: Server, producer: Producer
) -> None:
    """A request of a web application enqueues several runs at once: none slips through beside the check."""
    server.raw().hset(CLUSTERS, "shop", "1")

    ended = await asyncio.gather(
        *(producer.enqueue_async("mail", {"to": "a@b"}) for _ in range(20)), return_exceptions=True
    )

    assert {type(each) for each in ended} == {UnknownClusterError}
    assert not server.raw().exists(producer.keys.queue("default").data)
    await producer.close_async()


def test_a_queue_without_workers_is_told_once_and_its_run_waits(
    server: Server, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    """A typing error in `queue=` is read in the application's log; a worker that starts later finds the run."""
    server.store().run(Sessions(server.keys).open("r.1/w-0/1", {"kind": "sync", "queues": "default"}))

    with caplog.at_level(logging.WARNING, "tenure.producer"):
        producer.enqueue("mail", {"to": "a@b"})
        producer.enqueue("mail", {"to": "a@b"}, queue="nowhere")
        producer.enqueue("mail", {"to": "a@b"}, queue="nowhere")

    (record,) = caplog.records
    assert "no live worker takes runs from queue nowhere" in record.getMessage()
    assert server.raw().hlen(producer.keys.queue("nowhere").data) == 2


def test_a_configuration_names_redis_and_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replicas' own file; problems in parts of it that only replicas use are not the application's."""
    file = tmp_path / "tenure.yaml"
    file.write_text("cluster: shop\nredis: {url: 'redis://example:6380/2'}\nweb: {port: seventy}\n")

    assert tenure.connect(config=file).keys.cluster == "shop"
    file.write_text("cluster: shop\nredis: {url: embedded}\ndata_dir: /srv/my data\n")
    assert tenure.connect(config=str(file)).keys.cluster == "shop"
    connecting.use(None)
    monkeypatch.setenv("TENURE_CONFIG", str(file))
    monkeypatch.setenv("TENURE_CLUSTER", "mailer")
    assert tenure.connect().keys.cluster == "mailer", "variables go over files, as in a replica"


@pytest.mark.parametrize("is_named", [True, False])
def test_jobs_of_a_program_go_by_the_profiles_of_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    """Also those that it imports later. Their runs had five minutes, whatever the replicas' configuration said."""
    file = tmp_path / "tenure.yaml"
    file.write_text("redis: {url: 'redis://example'}\nprofiles: {default: {timeout: 2h}, bulk: {priority: low}}\n")
    monkeypatch.setenv("TENURE_CONFIG", str(file))

    tenure.connect(config=file if is_named else None)

    @job("pack", profile="bulk", timeout="10m")
    def pack() -> None: ...

    found = [registering.registry.get(name).base for name in ("mail", "pack")]
    assert [(each.timeout_s, each.priority) for each in found] == [(7200, 1), (600, 2)]


def test_a_clean_up_in_a_program_goes_by_the_limits_of_its_configuration(tmp_path: Path) -> None:
    """``maintenance.trim_history`` in a script, or after a job connected, trimmed to 10,000 where a file says more."""
    file = tmp_path / "tenure.yaml"
    file.write_text("redis: {url: 'redis://example'}\nqueues: {history: 70000, dead_age: 30d}\n")

    limits = tenure.connect(config=file).limits
    assert (limits.history, limits.dead, limits.dead_age_s) == (70_000, 10_000, 30 * 86_400)


@pytest.mark.parametrize("text", ["redis: {url: 'http://example'}\n", "cluster: 'a b'\n", "redis: [\n"])
def test_a_configuration_that_does_not_say_where_redis_is_is_refused(tmp_path: Path, text: str) -> None:
    """With its problems, and the producer in use stays."""
    file = tmp_path / "tenure.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=r"tenure\.yaml"):
        tenure.connect(config=file)


def test_a_cluster_beside_a_configuration_is_refused() -> None:
    """Two answers to one question: no rule of precedence is learnt by heart."""
    with pytest.raises(ValueError, match="not both"):
        tenure.connect("redis://example", config="tenure.yaml")
    with pytest.raises(ValueError, match="not both"):
        tenure.connect(cluster="shop", config="tenure.yaml")
    with pytest.raises(ValueError, match="cluster beside url"):
        tenure.connect(cluster="shop")
