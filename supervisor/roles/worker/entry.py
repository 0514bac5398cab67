"""The top of a worker process: from its seat to the pool of its kind."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import structlog
import uvloop

from supervisor.core.errors import EXIT_RESTART
from supervisor.core.jobs.confinement import use_confinement
from supervisor.core.jobs.destinations import DestinationRule, use_destinations
from supervisor.core.jobs.references import ReferenceRule, use_rule
from supervisor.core.jobs.registry import registry
from supervisor.core.model import Template
from supervisor.roles.child import Seat
from supervisor.roles.worker.polling.poll import SessionLostError
from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.roles.worker.pools.sync_pool import SyncPool
from supervisor.roles.worker.process.heartbeat import STORE_ERRORS
from supervisor.roles.worker.runtime import WorkerRuntime
from supervisor.settings.sections.models import RedisSettings, Settings, WorkerKind
from supervisor.store.client.sync_client import AsyncStore, Store
from supervisor.store.producer import connection, producer
from supervisor.telemetry import metrics
from supervisor.telemetry.run_output import streams_heard

log = structlog.get_logger("tenure.worker")


def main(seat: Seat) -> int:
    """Run one worker process until it is asked to stop; return its exit code."""
    assert seat.pool is not None
    # In a job, `tenure.enqueue` goes where this worker's runs come from.
    connection.use(
        producer.Producer(
            _redis(seat),
            cluster=seat.settings.cluster,
            clock=seat.clock,
            on_enqueued=_count,
            limits=seat.settings.queues,
            follow=seat.board,
        )
    )
    use_rule(reference_rule(seat.settings))
    use_destinations(DestinationRule(seat.settings.job_destinations.allow))
    use_confinement(seat.settings.shell.confinement)
    try:
        with streams_heard():
            return _sync(seat) if seat.settings.workers[seat.pool].kind is WorkerKind.SYNC else _async(seat)
    except (SessionLostError, *STORE_ERRORS) as error:
        seat.row.severed_generation = seat.generation  # before it is gone: no run is to blame for this death
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


def _redis(seat: Seat) -> RedisSettings:
    """Return the connection settings, with waits short enough for the loop to beat within its hang limit."""
    wait_s = seat.settings.supervision.hang_timeout_s / 4
    redis = seat.settings.redis
    return redis.model_copy(
        update={
            "url": type(redis.url)(seat.redis_url),
            "connect_timeout_s": min(redis.connect_timeout_s, wait_s),
            "command_timeout_s": min(redis.command_timeout_s, wait_s),
        }
    )


def _sync(seat: Seat) -> int:
    settings = _redis(seat)
    store = Store.connect(seat.redis_url, settings=settings, name=_name(seat), clock=seat.clock, follow=seat.board)
    return SyncPool(WorkerRuntime(seat, registry, connection.current()), store).run()


def _async(seat: Seat) -> int:
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    # No closing: tasks and executor threads that jobs left behind could make it wait for ever, and
    # the process leaves through os._exit anyway.
    return loop.run_until_complete(_serve(seat))


async def _serve(seat: Seat) -> int:
    settings = _redis(seat)
    store = AsyncStore.connect(seat.redis_url, settings=settings, name=_name(seat), clock=seat.clock, follow=seat.board)
    pool = AsyncPool(WorkerRuntime(seat, registry, connection.current()), store, is_sampling=True)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, pool.drain)
    loop.add_signal_handler(signal.SIGQUIT, pool.quit)
    loop.add_signal_handler(signal.SIGURG, pool.poll_board)
    return await pool.run()


def _name(seat: Seat) -> str:
    return f"{seat.settings.cluster}:{seat.name}"
