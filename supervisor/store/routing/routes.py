"""Choice of a client's route: none, its own search, or the one that the agent publishes."""

from __future__ import annotations

from collections.abc import Callable

from redis.connection import Connection

from supervisor.clock import Clock
from supervisor.settings.sections.redis_url import Topology, parse_redis_url, split_address
from supervisor.store.client.connection_options import options, topology
from supervisor.store.client.connections import connection
from supervisor.store.client.deadline_parser import BoundedParser
from supervisor.store.client.dialing import Dialler
from supervisor.store.client.passwords import Passwords
from supervisor.store.client.redis_options import RedisOptions
from supervisor.store.keys import Keys
from supervisor.store.routing.resolver import Resolver
from supervisor.store.routing.route import Followed, Route, Signpost


def route_of(
    url: str,
    settings: RedisOptions,
    *,
    name: str,
    follow: Signpost | None,
    publish: Callable[[str], None] | None,
    clock: Clock | None,
) -> Route | None:
    """Return the route to the server behind ``url``; None for one that needs none. Does no I/O.

    ``name`` begins with the cluster's, as that of every client does.
    """
    if topology(url) is Topology.STANDALONE:
        return None
    if follow is not None:
        return Followed(follow)
    key = Keys(name.partition(":")[0]).lease  # any key: all carry the cluster's hash tag
    return Resolver(parse_redis_url(url), _dialler(url, settings), key=key, publish=publish, clock=clock)


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
