"""Authentication and authorization of HTTP requests.

Guarantees
    A route is open to everybody only where its handler is marked ``public``; one without a mark asks for ``admin``.
    The other reads follow ``web.reads``, and answer to names in ``web.allowed_hosts`` alone.
    Changes need a token with the scope of their route; without a tokens_file nobody has one.
    The file is read again when it changes; while it cannot be used, nobody has a token, and /readyz fails.
    With ``web.tls_client_ca_file`` all but health asks for a certificate of a client too. A stream that came by one
    ends when the authorities or the server's own certificate change; its client comes back.
    Wrong tokens are counted, logged and slowed down (see token_refusals.py).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog
from aiohttp import web

from supervisor.clock import Clock, SystemClock
from supervisor.core.network.host_names import is_loopback
from supervisor.roles.web.access.hosts import Hosts
from supervisor.roles.web.access.token_refusals import REFILL_S, TokenRefusals
from supervisor.roles.web.responses import PEER
from supervisor.settings.sections.web import Reads, WebSettings
from supervisor.settings.web.tokens import Scope, Token, TokenFileError, find_token, read_tokens

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tenure"'}
SCOPE = "tenure_scope"
"""Attribute of a handler: the scope that it asks for; None: open to everybody. Absent: admin."""

log = structlog.get_logger()
H = TypeVar("H", bound=Callable[..., Any])


def needs(scope: Scope | None) -> Callable[[H], H]:
    """Mark a handler as one that asks for ``scope``."""

    def mark(handler: H) -> H:
        setattr(handler, SCOPE, scope)
        return handler

    return mark


def public(handler: H) -> H:
    """Mark a handler as open to everybody, under any name of the host: health, which is without secrets."""
    return needs(None)(handler)


def scope_of(handler: Any) -> Scope | None:
    """Return the scope that ``handler`` asks for: ``admin`` where nobody decided."""
    scope: Scope | None = getattr(handler, SCOPE, Scope.ADMIN)
    return scope


class WatchedFile:
    """A file that is read again when it changes: what it holds, its owner or its mode, whatever time it shows."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = self._look()

    def has_changed(self) -> bool:
        """Return whether it is another than at the last look."""
        seen, self._seen = self._seen, self._look()
        return seen != self._seen

    def _look(self) -> tuple[int, ...]:
        try:
            found = Path(self.path).stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


class RequestGuard:
    """Decides over each request."""

    def __init__(
        self,
        settings: WebSettings,
        clock: Clock | None = None,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Read the tokens; ``tls`` returns the TLS context of new connections, where there is one."""
        self._clock = clock or SystemClock()
        self._refusals = TokenRefusals(self._clock)
        self._file = WatchedFile(settings.tokens_file) if settings.tokens_file is not None else None
        self._tokens: tuple[Token, ...] = ()
        self.fault = ""
        self._hosts = Hosts(settings.host, settings.allowed_hosts)
        self._are_reads_open = are_reads_open(settings)
        self._asks_for_certificate = settings.tls_client_ca_file is not None
        self._tls = tls
        self._read()

    def look(self) -> None:
        """Read the tokens again if their file changed, or could not be used. Call it at least once a second."""
        self._refusals.lines.tell()
        if self._file is not None and (self._file.has_changed() or self.fault):
            self._read()

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            self.use(read_tokens(self._file.path))
        except TokenFileError as error:
            self.use(())
            if self.fault != str(error):
                log.warning("tokens_refused", reason=str(error), consequence="nobody has a token until it is mended")
            self.fault = str(error)
        else:
            self.fault = ""
            log.info("tokens_read", count=len(self._tokens))

    def use(self, tokens: Sequence[Token]) -> None:
        """Let in those who hold ``tokens``, and nobody else."""
        self._tokens = tuple(tokens)

    def may_read(self, request: web.Request) -> bool:
        """Return whether ``request`` may see pages that are not open to everybody."""
        if self._lacks_certificate(request) or not self._hosts.admit(request):
            return False
        if self._are_reads_open:
            return True
        token, _ = self._ask(request)
        return token is not None and token.scope >= Scope.READ

    def check(self, request: web.Request, scope: Scope | None) -> Token | None:
        """Return the token of who asks, None for nobody in particular.

        Raises:
            web.HTTPMisdirectedRequest: it names a host that is not in ``web.allowed_hosts``.
            web.HTTPUnauthorized: it has to identify itself, or is nobody who is known.
            web.HTTPTooManyRequests: too many wrong tokens came from its address.
            web.HTTPForbidden: it may not.
        """
        if scope is None:
            return None
        if not self._hosts.admit(request):
            raise web.HTTPMisdirectedRequest(text="this name of the host is not in web.allowed_hosts")
        if self._lacks_certificate(request):
            raise web.HTTPForbidden(text="connect with a certificate of an authority in web.tls_client_ca_file")
        if scope is Scope.READ and self._are_reads_open:
            return self._ask(request)[0]  # it may show more than others see
        if self._file is None:
            unless = ", and web.reads is not open" if scope is Scope.READ else ""
            raise web.HTTPForbidden(text=f"nobody may do this, since web.tokens_file is not set{unless}")
        token, is_slowed = self._ask(request)
        if is_slowed:
            wait = {"Retry-After": str(int(REFILL_S))}
            raise web.HTTPTooManyRequests(text="too many wrong tokens from this address", headers=wait)
        if token is None:
            raise web.HTTPUnauthorized(text="send a token that is known: Authorization: Bearer …", headers=CHALLENGE)
        if token.scope < scope:
            raise web.HTTPForbidden(text=f"the token {token.name} has the scope {token.scope.word}, not {scope.word}")
        return token

    def _lacks_certificate(self, request: web.Request) -> bool:
        """Return whether a certificate is asked for, and none came, or one that was checked by former authorities."""
        if not self._asks_for_certificate:
            return False
        transport = request.transport
        if transport is None or self._tls is None or transport.get_extra_info("sslcontext") is not self._tls():
            return True
        return not transport.get_extra_info("peercert")

    def _ask(self, request: web.Request) -> tuple[Token | None, bool]:
        """Return the token of ``request``, and whether its address must wait before another one is looked at."""
        presented, address = _presented(request), request[PEER]
        if not presented:
            return None, False
        token = self._find(presented)
        is_known = token is not None and self._refusals.knows(address, token.digest)
        if not is_known and self._refusals.is_slowed(address):
            return None, True
        if token is None:
            self._refusals.refuse(address, request.path)
        elif not is_known:
            self._refusals.accept(address, token.digest)
        return token, False

    def _find(self, presented: str) -> Token | None:
        token = find_token(self._tokens, presented) if presented else None
        has_ended = token is not None and token.until_ms is not None and self._clock.wall_ms() >= token.until_ms
        return None if has_ended else token


def _presented(request: web.Request) -> str:
    """Return the token that came with ``request``; empty for none."""
    kind, _, presented = request.headers.get("Authorization", "").partition(" ")
    return presented.strip() if kind.lower() == "bearer" else ""


def are_reads_open(settings: WebSettings) -> bool:
    """Return whether reads ask for no token: on this machine without a file of tokens, or where that is written."""
    if settings.reads is not Reads.AUTO:
        return settings.reads is Reads.OPEN
    return settings.tokens_file is None and _is_local(settings)


def warn_of_exposure(settings: WebSettings) -> None:
    """Log open or closed reads, and tokens readable on the way, of an address that other machines reach."""
    if _is_local(settings):
        return
    if are_reads_open(settings):
        log.warning("reads_open", host=settings.host, consequence="whoever reaches the port reads all but secrets")
    elif settings.tokens_file is None:
        log.warning("reads_closed", host=settings.host, remedy="set web.tokens_file, or web.reads to open")
    if settings.tokens_file is not None and settings.tls_cert_file is None:
        log.warning("tokens_without_tls", host=settings.host, remedy="set web.tls_cert_file, or end TLS before it")


def _is_local(settings: WebSettings) -> bool:
    """Return whether nobody reaches the endpoint from another machine."""
    return settings.socket_path is not None or is_loopback(settings.host)
