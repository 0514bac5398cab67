"""Construction of the two clients: options of their connections, and their route to the server."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Self

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.retry import Retry

from supervisor.clock import Clock, SystemClock
from supervisor.core.errors import StoreRefusedError
from supervisor.core.supervision.scoreboard import Board
from supervisor.settings.sections.redis_url import RedisUrl, RedisUrlError, Topology, parse_redis_url, split_address
from supervisor.store.client.connections import connection
from supervisor.store.client.dialing import Dialler
from supervisor.store.client.redis_options import Passwords, RedisOptions
from supervisor.store.client.replies import BoundedParser, translate
from supervisor.store.keys import Keys
from supervisor.store.routing.resolver import Resolver
from supervisor.store.routing.route import Followed, Route

BLOCK_MARGIN_S = 0.25
"""How much longer than the block a blocking read waits: a server that is alive has answered by then."""

KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""Seconds and probes: a peer that vanished without a word is noticed after 11 s at most, also while nothing is sent."""


class StoreClient:
    """Base of the synchronous and the asynchronous client."""

    def __init__(
        self,
        raw: Any,
        *,
        timeout_s: float = 2.0,
        connect_s: float | None = None,
        route: Route | None = None,
        durable_ms: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """Wrap a client that exists. Does no I/O.

        Args:
            raw: the client, or the pool for one that is made when somebody asks for it; with a route its address
                is a placeholder.
            timeout_s: bound of each call.
            connect_s: bound of the connection, within that of the call; None: ``raw`` has its own.
            route: where to connect; None: where ``raw`` does.
            durable_ms: how long durable calls wait for a replica; 0: they do not.
            clock: for the bounds.
        """
        pool = getattr(raw, "connection_pool", raw)
        self._raw = raw
        self.where = address(pool.connection_kwargs)
        self._timeout_s = timeout_s
        self._connect_s = connect_s
        self._route = route
        self._generation = 0
        self._durable_ms = durable_ms
        self._clock = clock or SystemClock()
        self._call_link: Any = pool.make_connection()
        self._block_link: Any = pool.make_connection()

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        settings: RedisOptions,
        name: str,
        timeout_s: float | None = None,
        clock: Clock | None = None,
        follow: Board | None = None,
        publish: Callable[[str], None] | None = None,
    ) -> Self:
        """Return a client of the server at ``url``. Connects when first used.

        Args:
            url: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://.
            settings: credentials, TLS files, timeouts and durability.
            name: ``<cluster>:<role>``, shown by CLIENT LIST behind ``tenure:``.
            timeout_s: bound of each call; default: ``command_timeout``.
            clock: for the bounds.
            follow: board on which the agent of this tree publishes the address of Redis; default: search, where needed.
            publish: receives the address of Redis, before anything is sent there.
        """
        bound = settings.command_timeout_s if timeout_s is None else timeout_s
        kwargs = options(url, settings, client_name=f"tenure:{name}", timeout_s=bound)
        route: Route | None = None  # to a server by itself
        if topology(url) is not Topology.STANDALONE:
            key = Keys(name.partition(":")[0]).lease  # any key: all carry the cluster's hash tag
            route = (
                Resolver(parse_redis_url(url), _dialler(url, settings), key=key, publish=publish, clock=clock)
                if follow is None
                else Followed(follow)
            )
        raw = cls._raw_of(kwargs, route, clock)
        connect_s = min(bound, settings.connect_timeout_s)
        return cls(raw, timeout_s=bound, connect_s=connect_s, route=route, durable_ms=wait_ms(settings), clock=clock)

    @staticmethod
    def _raw_of(kwargs: dict[str, Any], route: Route | None, clock: Clock | None) -> Any:
        """Return the library's client, or its pool, with these arguments for its connections."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Show the address only: a connection's arguments hold the password."""
        return f"<{type(self).__name__} {self.where}>"

    def _meaning(self, error: Exception, operation: str) -> Exception:
        return translate(error, where=self.where, operation=operation, is_routed=self._route is not None)


def _dialler(url: str, settings: RedisOptions) -> Callable[[str, float, bool], Connection]:
    secret = settings.sentinel_password
    sentinel_passwords, server_passwords = Passwords(secret), Passwords(settings.password)
    dialler = Dialler()

    def dial(address: str, timeout_s: float, is_sentinel: bool) -> Connection:  # noqa: FBT001 - a callable of three
        kwargs = options(url, settings, client_name="tenure:resolver", timeout_s=timeout_s)
        kwargs |= dict(zip(("host", "port"), split_address(address), strict=True))
        kwargs |= connection(kwargs.get("connection_class"), dialler)
        kwargs["passwords"] = sentinel_passwords if is_sentinel else server_passwords
        if is_sentinel:
            # A sentinel has users of its own, no databases, and need not know CLIENT SETNAME.
            password = None if secret is None else secret.get_secret_value()
            kwargs |= {"username": settings.sentinel_username, "password": password, "client_name": None, "db": 0}
        link: Connection = kwargs.pop("connection_class")(**kwargs, parser_class=BoundedParser)
        return link

    return dial


def options(url: str, settings: RedisOptions, *, client_name: str, timeout_s: float) -> dict[str, Any]:
    """Return the connection's keyword arguments, its class under ``connection_class``.

    No retry: redis-py's default sends a command again when its reply was lost. Protocol 2 and no
    library info: the handshake is AUTH and CLIENT SETNAME only, so that a small ACL is enough.

    Raises:
        StoreRefusedError: the URL cannot be read. The message does not quote it: it may hold a password.
    """
    found = _parsed(url)
    if settings.username is not None:
        found["username"] = settings.username
    if settings.password is not None:
        found["password"] = settings.password.get_secret_value()
    found["passwords"] = Passwords(settings.password)
    found |= {
        "client_name": client_name,
        "socket_timeout": timeout_s,
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "driver_info": None,
        "health_check_interval": 0,
    }
    kind = found.setdefault("connection_class", None)
    if kind is UnixDomainSocketConnection:
        found["is_embedded"] = settings.url.get_secret_value() == "embedded"
    else:
        found |= {"socket_connect_timeout": min(timeout_s, settings.connect_timeout_s), **_kept_alive(timeout_s)}
    if kind is SSLConnection:
        found |= _tls(settings)
    if kind is None:
        del found["connection_class"]
    return found


_IN_A_URL = {"host", "port", "path", "db", "username", "password", "connection_class"}


def _parsed(url: str) -> dict[str, Any]:
    """Parse the URL, for any topology; where there are several hosts, the first represents all."""
    try:
        if url.partition("://")[0].lower().partition("+")[2]:
            return _first(parse_redis_url(url))
        found = dict(parse_url(url))  # type: ignore[no-untyped-call]
        if found.keys() - _IN_A_URL:
            raise RedisUrlError("has an option after its path", "everything but ?db=N is a setting under redis:")
    except ValueError as error:
        why = f" ({error})" if isinstance(error, RedisUrlError) else ""  # what other errors quote may be a password
        raise StoreRefusedError(
            f"redis.url cannot be read{why}: write redis://host:port/db, rediss://host:port/db, "
            "unix:///path/to/socket, redis+sentinel://host:port,host:port/master/db or "
            "redis+cluster://host:port,host:port, and percent-encode special characters in the password"
        ) from None
    return found


def _first(url: RedisUrl) -> dict[str, Any]:
    host, port = url.nodes[0]
    found: dict[str, Any] = {"host": host, "port": port, "db": url.db}
    found |= {"username": url.username} if url.username else {}
    found |= {"password": url.password} if url.password else {}
    return found | ({"connection_class": SSLConnection} if url.is_tls else {})


def topology(url: str) -> Topology:
    """Return how the server behind ``url``, which ``options`` could read, is found."""
    kind = url.partition("://")[0].lower().partition("+")[2]
    return Topology(kind) if kind else Topology.STANDALONE


def _kept_alive(timeout_s: float) -> dict[str, Any]:
    """Return the options that notice a silent peer: sent data must be acknowledged within the time-out."""
    found = {getattr(socket, name): value for name, value in KEEPALIVE.items() if hasattr(socket, name)}
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        found[socket.TCP_USER_TIMEOUT] = max(1, round(timeout_s * 1000))
    return {"socket_keepalive": True, "socket_keepalive_options": found}


def _tls(settings: RedisOptions) -> dict[str, Any]:
    files = {
        "ssl_ca_certs": settings.tls_ca_file,
        "ssl_certfile": settings.tls_cert_file,
        "ssl_keyfile": settings.tls_key_file,
    }
    return {"ssl_cert_reqs": "required", "ssl_check_hostname": True} | {k: v for k, v in files.items() if v}


def address(kwargs: dict[str, Any]) -> str:
    """Return where a client connects to, for people; never a credential."""
    return (
        str(kwargs["path"]) if kwargs.get("path") else f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
    )


def wait_ms(settings: RedisOptions) -> int:
    """Return for how long a durable call waits for a replica; 0: it does not."""
    return round(settings.durability_timeout_s * 1000) if settings.durability == "replica" else 0
