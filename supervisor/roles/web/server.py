"""The process of the web role: its loop, its signals, its beats.

Guarantees
    The loop itself beats, so a loop that hangs is seen to hang.
    Redis being away changes answers, never whether they come.
    After SIGTERM it is gone within a second, soon unless a sink of events is slow; after SIGQUIT at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import structlog
import uvloop
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from supervisor.core.supervision.states import ChildState
from supervisor.core.units import SECOND_NS
from supervisor.operations.jobs import Producer
from supervisor.roles.child import ChildContext, ConfigFollower
from supervisor.roles.web import debug
from supervisor.roles.web.access.auth import RequestGuard, WatchedFile, warn_of_exposure
from supervisor.roles.web.access.peers import Peers
from supervisor.roles.web.api import routes as api
from supervisor.roles.web.api.base import ApiContext, RunWaiters
from supervisor.roles.web.cluster_snapshot import Overviews, StoreReader
from supervisor.roles.web.connection_limit import LINE_BYTES_MAX, REFUSAL, ConnectionGate
from supervisor.roles.web.events.handlers import EventPages
from supervisor.roles.web.events.sink import EventOffice
from supervisor.roles.web.grpc.health import GrpcHealth
from supervisor.roles.web.handlers import Admit, Pages, application, health_application
from supervisor.roles.web.responses import finish_headers
from supervisor.settings.sections.web import WebSettings
from supervisor.settings.web.check import tls_context
from supervisor.store.client.sync_client import AsyncStore, Store
from supervisor.store.keys import Keys
from supervisor.telemetry.metrics import HTTP_FAILURES

BEAT_S = 0.5
STOP_S = 0.2
"""How long requests in flight may go on after SIGTERM. aiohttp waits so long twice: once before it cancels."""

ABANDON_S = 0.001
"""The same after SIGQUIT. Not 0, which aiohttp takes for no limit."""

EVENTS_S = 0.7
"""How long sinks of events may take for what is left. The parent kills at a second (core/supervision/shutdown.py), and
what was not sent is counted before."""

log = structlog.get_logger()


class Certificate:
    """One pair of files, perhaps with one of authorities, and the context that serves with them.

    Guarantees
        New connections get the new certificate within two beats of the web child; existing ones are not touched.
        Where clients need one, authorities that were taken out of the file vouch for nobody from then on.
        A pair that does not fit, as in the middle of a rotation, changes nothing: it is tried again, and logged.
        A web child that starts then shakes hands with nobody until it fits; its health port and the tree go on.
    """

    def __init__(self, cert_file: str, key_file: str, client_ca_file: str | None = None) -> None:
        self._paths = cert_file, key_file, client_ca_file
        self._files = [WatchedFile(path) for path in self._paths if path is not None]
        self._is_stale = False
        self._is_told = False
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)  # without a certificate
        self._read()

    @classmethod
    def of(cls, settings: WebSettings) -> Self | None:
        """Return the one that is set, if any."""
        if settings.tls_cert_file is None or settings.tls_key_file is None:
            return None
        return cls(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)

    def current(self) -> ssl.SSLContext:
        """Return the TLS context for new connections."""
        return self._context

    def look(self) -> None:
        """Serve with the new content of the files, if that changed."""
        changes = [file.has_changed() for file in self._files]  # each is asked: none may be left for the next look
        if (any(changes) or self._is_stale) and self._read():
            log.info("certificate_read", file=self._paths[0])

    def _read(self) -> bool:
        try:
            self._context = tls_context(*self._paths)
        except (OSError, ssl.SSLError) as error:
            if not self._is_told:
                log.warning("certificate_refused", reason=error.strerror or type(error).__name__)
            self._is_stale = self._is_told = True
        else:
            self._is_stale = self._is_told = False
        return not self._is_stale


def main(child: ChildContext) -> int:
    """Serve until asked to stop; return the exit code."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(child))


def api_context(child: ChildContext, store: AsyncStore, overviews: Overviews, event_pages: EventPages) -> ApiContext:
    """Return the tools of the API's handlers in this web child."""
    settings = child.settings

    def open_waiting_store() -> Store:  # by which all requests of this child wait for runs
        name = f"{settings.cluster}:web"
        return Store.connect(child.redis_url, settings=settings.redis, name=name, clock=child.clock, follow=child.board)

    producer = Producer(
        settings.redis,
        cluster=settings.cluster,
        clock=child.clock,
        open_store=open_waiting_store,
        open_async_store=lambda: store,
    )
    return ApiContext(
        call=store.run,
        keys=Keys(settings.cluster),
        clock=child.clock,
        producer=producer,
        waits=RunWaiters(producer, event_pages),
        overviews=overviews,
        settings=settings,
        signer=settings.commands.signer(settings.cluster),
        own_queues=frozenset(queue for pool in settings.workers.values() for queue in pool.queues),
    )


async def _serve(child: ChildContext) -> int:
    listeners = child.listeners
    assert listeners is not None, "the parent binds before it forks"
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[tuple[float, float]] = loop.create_future()  # how long to wait: for requests, for events
    for number, waits_s in ((signal.SIGTERM, (STOP_S, EVENTS_S)), (signal.SIGQUIT, (ABANDON_S, 0.0))):
        loop.add_signal_handler(number, _stop, stopping, waits_s)
    loop.add_signal_handler(signal.SIGURG, lambda: None)  # pages read the board when asked: nothing to wake up for

    reader = StoreReader.connect(child)
    overviews = Overviews(reader, child.clock)
    settings = child.settings.web
    certificate = Certificate.of(settings)
    tls = None if certificate is None else certificate.current
    pages = Pages(child, overviews, RequestGuard(settings, child.clock, tls=tls))
    office = EventOffice(child, reader.store)
    context = api_context(child, reader.store, overviews, office.pages)
    routes = [*api.routes(context, office.pages), *debug.routes(child, reader.store)]
    main = await _Port.open(child, listeners.http, lambda admit: application(pages, admit, routes), tls=tls)
    ports = [main]
    if listeners.health is not None:
        ports.append(await _Port.open(child, listeners.health, lambda admit: health_application(pages, admit)))
    office.pages.as_stream = lambda request: main.gate.as_stream(request.protocol)
    office.start()
    probes = None
    if listeners.grpc is not None:
        probes = GrpcHealth(listeners.grpc, child.clock, Path(child.settings.data_dir), pages.checks)
        await probes.start()
    looks = [pages.guard.look, pages.redis_failures.tell, *(port.gate.sweep for port in ports)]
    if certificate is not None:
        looks.append(certificate.look)
    if probes is not None:
        looks.append(probes.gate.sweep)
    pulse = _Pulse(child, loop, looks)
    pulse.start()
    child.announce(ChildState.READY)
    port = None if listeners.http.family == socket.AF_UNIX else listeners.http.getsockname()[1]
    log.info("web_ready", host=settings.host, port=port, tls=certificate is not None)
    warn_of_exposure(settings)

    requests_s, events_s = await stopping
    child.announce(ChildState.DRAINING)
    for each in ports:
        each.gate.close()
    ends = [office.close(events_s), *(each.server.shutdown(requests_s) for each in ports)]
    await asyncio.gather(*ends, *([] if probes is None else [probes.close()]))
    pulse.stop()
    await overviews.close()
    return 0


@dataclass(frozen=True, slots=True)
class _Port:
    gate: ConnectionGate
    server: web.Server

    @classmethod
    async def open(
        cls,
        child: ChildContext,
        listener: socket.socket,
        build: Callable[[Admit], web.Application],
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> Self:
        """Serve the application that ``build`` returns, from now on."""
        loop = asyncio.get_running_loop()
        peers = Peers(child.clock, child.settings.web.socket_users)
        gate = ConnectionGate(
            lambda: HttpProtocol(server, loop), child.clock, listener,
            identify=peers.identify, tls=tls, refusal=REFUSAL,
        )  # fmt: skip
        runner = web.AppRunner(build(gate.admit), access_log=None, handle_signals=False, handler_cancellation=True)
        await runner.setup()
        assert runner.server is not None
        server = runner.server
        gate.open()
        return cls(gate, server)


def _stop(stopping: asyncio.Future[tuple[float, float]], waits_s: tuple[float, float]) -> None:
    if not stopping.done():
        stopping.set_result(waits_s)


class _Pulse:
    """Beats from the loop, measures how late the loop turns, and performs the duties of each beat."""

    def __init__(
        self, child: ChildContext, loop: asyncio.AbstractEventLoop, looks: Sequence[Callable[[], None]]
    ) -> None:
        self._child = child
        self._looks = looks
        self._loop = loop
        self._due_ns = child.clock.elapsed_ns()
        self._timer: asyncio.TimerHandle | None = None
        self._following = ConfigFollower(child)

    def start(self) -> None:
        """Beat now and from now on."""
        now_ns = self._child.clock.elapsed_ns()
        row = self._child.row
        row.beat_ns = now_ns
        row.loop_lag_us = max(0, now_ns - self._due_ns) // 1000
        row.progress += 1
        for look in self._looks:
            look()
        self._following.poll()  # a web process that outlives a reload for a moment need not show it
        self._due_ns = now_ns + int(BEAT_S * SECOND_NS)
        self._timer = self._loop.call_later(BEAT_S, self.start)

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()


class HttpProtocol(web.RequestHandler):
    """One connection of HTTP/1.1: limits of parsing, and answers to requests that cannot be parsed.

    Guarantees
        An answer to a malformed request has the headers of every answer, names no software, and repeats nothing of it.
        A body is not decompressed: a small one that becomes a large one costs nothing.
        A malformed request leaves a line in the log at level debug only: a stranger fills no disk.
    """

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type] # as AppRunner passes it
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            lingering_time=0,
            auto_decompress=False,
        )

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - the parser's words
    ) -> web.StreamResponse:
        """Return the answer to a request that reached no handler: it cannot be parsed, or a mistake of ours."""
        if isinstance(exc, UnicodeEncodeError):  # aiohttp repeats an Expect that it does not know, of any bytes
            status = 400
        if status < 500:
            log.debug("request_malformed", status=status, reason=type(exc).__name__)
        else:
            HTTP_FAILURES.inc()
            log.error("request_failed", status=status, exc_info=exc)
        if request.writer.output_size:
            raise ConnectionResetError  # half an answer was sent: nothing can be said any more
        return _PlainResponse(status=status, text=f"{_fault(status, exc)}\n")


def _fault(status: int, error: BaseException | None) -> str:
    """Return the reason for the client: a text of ours, because those of the parser repeat the request."""
    if status >= 500:
        return "internal error; the log says more"
    return "a line of the request is too long" if isinstance(error, LineTooLong) else "the request cannot be parsed"


class _PlainResponse(web.Response):
    """An answer outside the application, whose hook finishes the headers of the others."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        finish_headers(self, self._req.transport if self._req is not None else None)
