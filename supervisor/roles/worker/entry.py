"""The top of a worker process: from its context to the pool of its kind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog
import uvloop

from supervisor.core.errors import EXIT_RESTART
from supervisor.core.jobs.confinement import Confinement
from supervisor.core.jobs.references import DestinationRule, ReferenceRule
from supervisor.core.jobs.registry import registry
from supervisor.core.model import Template
from supervisor.roles.child import ChildContext
from supervisor.roles.worker.polling.poll import SessionLostError
from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.roles.worker.pools.sync_pool import SyncPool
from supervisor.roles.worker.process import fork_signals
from supervisor.roles.worker.process.heartbeat import STORE_ERRORS
from supervisor.roles.worker.runtime import WorkerRuntime
from supervisor.settings.sections.models import RedisSettings, Settings, WorkerKind
from supervisor.store.client.sync_client import AsyncStore, Store
from supervisor.store.producer import connection, producer
from supervisor.telemetry import metrics
from supervisor.telemetry.run_context import streams_heard

log = structlog.get_logger("tenure.worker")


def main(child: ChildContext) -> int:
    """Run one worker process until it is asked to stop; return its exit code."""
    assert child.pool is not None
    fork_signals.reset_in_forks()
    # In a job, `tenure.enqueue` goes where this worker's runs come from.
    connection.use(
        producer.Producer(
            _redis(child),
            cluster=child.settings.cluster,
            clock=child.clock,
            on_enqueued=_count,
            limits=child.settings.queues,
            follow=child.board,
        )
    )
    ReferenceRule.current = reference_rule(child.settings)
    DestinationRule.current = DestinationRule(child.settings.job_destinations.allow)
    Confinement.current = child.settings.shell.confinement
    try:
        with streams_heard():
            return _sync(child) if child.settings.workers[child.pool].kind is WorkerKind.SYNC else _async(child)
    except (SessionLostError, *STORE_ERRORS) as error:
        child.row.severed_generation = child.generation  # before it is gone: no run is to blame for this death
        event = "session_lost" if isinstance(error, SessionLostError) else "worker_severed"
        log.error(event, error=str(error))  # noqa: TRY400 - it happened in Redis; a stack says nothing
        return EXIT_RESTART


def reference_rule(settings: Settings) -> ReferenceRule:
    """Return which secrets of this worker arguments may refer to."""
    withheld = [settings.web.tokens_file, settings.web.tls_key_file, settings.redis.tls_key_file]
    withheld += [webhook.key_file for webhook in settings.webhooks.values()]
    return ReferenceRule(
        env=settings.job_references.env,
        files=settings.job_references.files,
        withheld=[str(Path(path).absolute()) for path in withheld if path is not None],
    )


def _count(template: Template, new: int) -> None:
    metrics.ENQUEUED.labels(template.queue, template.job).inc(new)


def _redis(child: ChildContext) -> RedisSettings:
    """Return the connection settings, with waits short enough for the loop to beat within its hang limit."""
    wait_s = child.settings.supervision.hang_timeout_s / 4
    redis = child.settings.redis
    return redis.model_copy(
        update={
            "url": type(redis.url)(child.redis_url),
            "connect_timeout_s": min(redis.connect_timeout_s, wait_s),
            "command_timeout_s": min(redis.command_timeout_s, wait_s),
        }
    )


def _sync(child: ChildContext) -> int:
    settings = _redis(child)
    store = Store.connect(child.redis_url, settings=settings, name=_name(child), clock=child.clock, follow=child.board)
    return SyncPool(WorkerRuntime(child, registry, connection.current()), store).run()


def _async(child: ChildContext) -> int:
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    serving = loop.create_task(_serve(child))
    serving.add_done_callback(lambda _: loop.stop())
    while not serving.done():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:  # out of a task or callback that a job left to the loop
            if not serving.done():
                log.warning("stray_exception", message="a job would have ended its worker", error=repr(error))
    # No closing: tasks and executor threads that jobs left behind could make it wait for ever, and
    # the process leaves through os._exit anyway.
    return serving.result()


async def _serve(child: ChildContext) -> int:
    settings = _redis(child)
    store = AsyncStore.connect(
        child.redis_url, settings=settings, name=_name(child), clock=child.clock, follow=child.board
    )
    pool = AsyncPool(WorkerRuntime(child, registry, connection.current()), store, takes_signals=True)
    return await pool.run()


def _name(child: ChildContext) -> str:
    return f"{child.settings.cluster}:{child.name}"
