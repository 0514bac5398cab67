"""Sockets of the web child, bound before anything of the tree exists and released when all of it has gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from supervisor.process.slots import Log
from supervisor.process.system.unix_listening import bind, bound
from supervisor.roles.child import Listeners
from supervisor.settings.sections.web import WebSettings


@contextmanager
def listening(web: WebSettings, log: Log) -> Iterator[Listeners]:
    """Listen where ``web`` says until the end of the block.

    Raises:
        CannotBindError: an address or a path is taken, or may not be used.
    """
    with ExitStack() as stack:
        if web.socket_path is not None:
            http = stack.enter_context(bound(web.socket_path, is_shared=bool(web.socket_users)))
            log("http_listening", address=web.host)
            yield Listeners(http)
            return
        made = {}
        for name, setting in (("http", "port"), ("health", "health_port"), ("grpc", "grpc_port")):
            port = getattr(web, setting)
            if port is not None:
                made[name] = stack.enter_context(closing(bind(web.host, port, setting=f"web.{setting}")))
                log(f"{name}_listening", address=f"{web.host}:{made[name].getsockname()[1]}")
        yield Listeners(**made)
