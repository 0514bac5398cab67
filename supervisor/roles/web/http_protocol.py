"""One connection of HTTP/1.1: limits of parsing, and answers to requests that cannot be parsed.

Guarantees
    An answer to a malformed request carries the headers of every answer, names no software, and repeats nothing of it.
    A body is not decompressed: a small one that becomes a large one costs nothing.
    A malformed request leaves a line in the log at level debug only: a stranger fills no disk.
"""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from supervisor.roles.web.responses import finish_headers
from supervisor.telemetry.metrics import HTTP_FAILURES

LINE_BYTES_MAX = 8190
log = structlog.get_logger()


class HttpProtocol(web.RequestHandler):
    """HTTP connection of aiohttp, with error responses of this server."""

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
