"""Authentication and authorization of HTTP requests.

Guarantees
    A route is open to everybody only where its handler is marked ``public``; one without a mark asks for ``admin``.
    The other reads follow ``web.reads``, and answer to names in ``web.allowed_hosts`` alone.
    Changes need a token with the scope of their route; without a tokens_file nobody has one.
    The file is read again when it changes; while it cannot be used, nobody has a token, and /readyz fails.
    With ``web.tls_client_ca_file`` all but health asks for a certificate of a client too. A stream that came by one
    ends when the authorities or the server's own certificate change; its client comes back.
    Wrong tokens are counted, logged and slowed down (see ``TokenRefusals``).
"""

from __future__ import annotations

import re
import ssl
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog
from aiohttp import web

from supervisor.clock import Clock, SystemClock
from supervisor.core.network import canonical_host, is_loopback
from supervisor.core.units import SECOND_NS
from supervisor.roles.web.responses import PEER
from supervisor.settings.sections.web import Reads, WebSettings
from supervisor.settings.web.tokens import PREFIX, Scope, Token, TokenFileError, find_token, read_tokens
from supervisor.telemetry.logs import RepeatedWarning
from supervisor.telemetry.metrics import TOKENS_REFUSED

ANY = "*"
_ALWAYS = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = re.compile(r"[a-z]+://([^/?#]*)", re.IGNORECASE)  # of a target in absolute form (RFC 9112, 3.2.2)
_FIELD = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[^\[\]:/@\s]{1,255}))(?::[0-9]{0,5})?", re.ASCII)

BURST = 10
REFILL_S = 6.0
ADDRESSES_MAX = 1024
PATH_CHARS_MAX = 200
RANDOM_CHARS_MIN = 40

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
            raise unknown_token()
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
        token = find_token(self._tokens, presented)
        if token is not None and token.until_ms is not None and self._clock.wall_ms() >= token.until_ms:
            token = None
        is_known = token is not None and self._refusals.knows(address, token.digest)
        # Nobody guesses one as long as `tenure token new` makes them: it needs no memory, which each reload takes away.
        is_guess = not (presented.startswith(PREFIX) and len(presented) >= RANDOM_CHARS_MIN)
        if not is_known and is_guess and self._refusals.is_slowed(address):
            return None, True
        if token is None:
            self._refusals.refuse(address, request.path)
        elif not is_known:
            self._refusals.accept(address, token.digest)
        return token, False


def unknown_token() -> web.HTTPUnauthorized:
    """Return the refusal of a request without a token that is known."""
    return web.HTTPUnauthorized(text="send a token that is known: Authorization: Bearer …", headers=CHALLENGE)


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


class Hosts:
    """Host names that requests may be addressed to: the defence against DNS rebinding.

    Guarantees
        A page of another site whose own name resolves to this address reads nothing: its requests carry that name.
        Case, ports, trailing dots and the spellings of an IPv6 address make no difference.
        A target in absolute form (``GET http://name/``) names a host too, and both names must be allowed.
    """

    def __init__(self, bound: str, allowed: Sequence[str]) -> None:
        self._is_any = ANY in allowed
        self._names = frozenset(canonical_host(each) for each in (*_ALWAYS, bound, *allowed))

    def admit(self, request: web.Request) -> bool:
        """Return whether ``request`` names this server: by an allowed name, or by the address that it came in on."""
        if self._is_any:
            return True
        fields = request.headers.getall("Host", [])
        if len(fields) != 1:
            return False
        target = _AUTHORITY.match(request.raw_path)
        named = [fields[0].strip(), *([target[1]] if target is not None else [])]
        return all(self._is_own(field, request) for field in named)

    def _is_own(self, field: str, request: web.Request) -> bool:
        found = _FIELD.fullmatch(field)
        if found is None:
            return False
        asked = canonical_host(found["v6"] or found["name"])
        return asked in self._names or asked == _own_address(request)


def _own_address(request: web.Request) -> str | None:
    """Return the address of this end of the connection: of a server bound to 0.0.0.0 the one that was dialled."""
    name = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return canonical_host(name[0]) if isinstance(name, tuple) and name[0] else None


@dataclass(slots=True)
class _Address:
    """One address: attempts left at an instant, and digests of the tokens that it was let in with."""

    left: float
    at_s: float
    known: set[bytes] = field(default_factory=set)


class TokenRefusals:
    """Refused tokens: counted, logged in folds, and slowed down by address.

    Guarantees
        An address has ``BURST`` wrong tokens, and another one each ``REFILL_S``; until then its tokens are not looked
        at, but for those that it used before, so that a stranger behind the same proxy shuts nobody out.
        At most ``ADDRESSES_MAX`` addresses are remembered, the last ones; at most a line a minute is logged.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self.lines = RepeatedWarning("token_refused", clock)

    def is_slowed(self, address: str) -> bool:
        """Return whether ``address`` has used up its wrong tokens."""
        return self._of(address).left < 1

    def knows(self, address: str, digest: bytes) -> bool:
        """Return whether a token was accepted from ``address`` before."""
        return digest in self._of(address).known

    def accept(self, address: str, digest: bytes) -> None:
        """Note a token that was let in. The lines of a tokens file bound how many there are."""
        self._of(address).known.add(digest)

    def refuse(self, address: str, path: str) -> None:
        """Note a token that was not."""
        entry = self._of(address)
        entry.left = max(0.0, entry.left - 1)
        TOKENS_REFUSED.inc()
        self.lines.add(status=401, address=address, path=path[:PATH_CHARS_MAX])

    def _of(self, address: str) -> _Address:
        now_s = self._clock.elapsed_ns() / SECOND_NS
        entry = self._addresses.get(address)
        if entry is None:
            entry = self._addresses[address] = _Address(float(BURST), now_s)
            if len(self._addresses) > ADDRESSES_MAX:
                self._addresses.popitem(last=False)
        entry.left = min(float(BURST), entry.left + (now_s - entry.at_s) / REFILL_S)
        entry.at_s = now_s
        self._addresses.move_to_end(address)
        return entry
