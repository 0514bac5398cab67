"""Who may do what through HTTP.

Guarantees
    Health, /version and the index are open to everybody. The rest of the reads is as ``web.reads`` says.
    What changes something asks for a token with the scope of its route; without a tokens_file nobody has one.
    The file is read again when it changes; one that cannot be used changes nothing, and the log says why.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web

from supervisor.settings.token_file import Scope, Token, TokenFileError, find_token, read_tokens
from supervisor.settings.web_settings import Reads, WebSettings

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tenure"'}
SCOPE = "tenure_scope"
"""Attribute of a handler: the scope that it asks for. Absent: it is open."""

log = structlog.get_logger()


def needs(scope: Scope) -> Callable[[Any], Any]:
    """Mark a handler as one that asks for ``scope``."""

    def mark(handler: Any) -> Any:
        setattr(handler, SCOPE, scope)
        return handler

    return mark


class WatchedFile:
    """A file that is read again when it changes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = self._look()

    def has_changed(self) -> bool:
        """Return whether it is another than at the last look."""
        seen, self._seen = self._seen, self._look()
        return seen != self._seen

    def _look(self) -> tuple[int, int, int]:
        try:
            found = Path(self.path).stat()
        except OSError:
            return 0, 0, 0
        return found.st_ino, found.st_size, found.st_mtime_ns


class Guard:
    """Decides over each request."""

    def __init__(self, settings: WebSettings) -> None:
        self._file = WatchedFile(settings.tokens_file) if settings.tokens_file is not None else None
        self._tokens: tuple[Token, ...] = ()
        self._are_reads_open = _are_reads_open(settings)
        self._read()

    def look(self) -> None:
        """Read the tokens again if their file changed."""
        if self._file is not None and self._file.has_changed():
            self._read()

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            self._tokens = read_tokens(self._file.path)
        except TokenFileError as error:
            log.warning("tokens_refused", reason=str(error), consequence="those known before stay in effect")
        else:
            log.info("tokens_read", count=len(self._tokens))

    def may_read(self, request: web.Request) -> bool:
        """Return whether ``request`` may see what is not open to everybody."""
        if self._are_reads_open:
            return True
        token = self._token(request)
        return token is not None and token.scope >= Scope.READ

    def check(self, request: web.Request, scope: Scope | None) -> str:
        """Return the name of who asks, empty for nobody in particular.

        Raises:
            web.HTTPUnauthorized: it has to say who it is, or is nobody who is known.
            web.HTTPForbidden: it may not.
        """
        if scope is None or (scope is Scope.READ and self._are_reads_open):
            return ""
        if self._file is None:
            raise web.HTTPForbidden(text="nobody may do this, since web.tokens_file is not set")
        token = self._token(request)
        if token is None:
            raise web.HTTPUnauthorized(text="send a token that is known: Authorization: Bearer …", headers=CHALLENGE)
        if token.scope < scope:
            raise web.HTTPForbidden(text=f"the token {token.name} has the scope {token.scope.word}, not {scope.word}")
        return token.name

    def _token(self, request: web.Request) -> Token | None:
        kind, _, presented = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not presented:
            return None
        return find_token(self._tokens, presented.strip())


def _are_reads_open(settings: WebSettings) -> bool:
    if settings.reads is not Reads.AUTO:
        return settings.reads is Reads.OPEN
    return settings.tokens_file is None or is_loopback(settings.host)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
