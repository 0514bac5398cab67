"""Construction of the two clients: their connections, their route to the server, and the meaning of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from redis.connection import Connection

from supervisor.clock import Clock, SystemClock
from supervisor.core.supervision.scoreboard import Board
from supervisor.settings.sections.redis_url import Topology, parse_redis_url, split_address
from supervisor.store.client.connection_options import address, options, topology, translate, wait_ms
from supervisor.store.client.connections import BoundedParser, connection
from supervisor.store.client.dialing import Dialler
from supervisor.store.client.redis_options import Passwords, RedisOptions
from supervisor.store.keys import Keys
from supervisor.store.routing.resolver import Resolver
from supervisor.store.routing.route import Followed, Route


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
