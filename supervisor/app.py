"""The composition root: settings in, a running tree out. The only module that knows every concrete class.

Each step at start is done before anything of the next exists, so that a refusal leaves nothing half started:
import jobs, complete the schedules, make the data directory, bind HTTP, check Redis in a throw-away child, fork.
"""

from __future__ import annotations

import fcntl
import gc
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from supervisor.clock import SystemClock
from supervisor.core.board import Board
from supervisor.core.errors import (
    EXIT_CONFIG,
    EXIT_OK,
    CannotBindError,
    CannotCreateError,
    ConfigError,
    Problem,
    StoreRefusedError,
    StoreUnavailableError,
)
from supervisor.core.model import ScheduleDef
from supervisor.core.registry import registry
from supervisor.core.restart import Group
from supervisor.embedded.valkey import EmbeddedServer
from supervisor.process.linux import thread_count
from supervisor.process.parent import Launch, Limits, Parent, SlotSpec
from supervisor.process.scoreboard import allocate
from supervisor.process.systemd import Notifier
from supervisor.process.throwaway import run_in_child
from supervisor.roles import agent, scheduler, web
from supervisor.roles.seat import Seat
from supervisor.roles.worker import entry as worker
from supervisor.settings.complete import complete, import_jobs
from supervisor.settings.loader import Loaded
from supervisor.settings.models import Settings, WorkerKind
from supervisor.store.client import Store
from supervisor.store.preflight import check
from supervisor.telemetry import logs, metrics

EMBEDDED = "embedded"
REPLICAS_ON_ONE_DIRECTORY_MAX = 100
PREFLIGHT_TIMEOUT_S = 15.0
SCHEDULER_HANG_S = 2.0
AGENT_HANG_S = 3.0
_Main = Callable[[Seat], int]


@dataclass(frozen=True, slots=True)
class Tree:
    """Everything that the children of one tree share. Immutable once built."""

    settings: Settings
    definitions: tuple[ScheduleDef, ...]
    replica: str
    redis_url: str
    server: EmbeddedServer | None
    listener: socket.socket
    names: tuple[str, ...]
    board: Board

    def spec(self, name: str, group: Group, main: _Main, *, pool: str | None = None, **limits: Any) -> SlotSpec:
        """Return the slot ``name``, whose child runs ``main`` on a seat of its own."""

        def run(launch: Launch) -> int:
            _configure_logs(self.settings, self.replica, role=name)
            metrics.claim_slot(name)
            return main(self._seat(name, launch, pool))

        boot_s = self.settings.supervision.boot_timeout_s
        return SlotSpec(name=name, role=group.value, run=run, group=group, boot_timeout_s=boot_s, **limits)

    def _seat(self, name: str, launch: Launch, pool: str | None) -> Seat:
        return Seat(
            settings=self.settings,
            replica=self.replica,
            name=name,
            slot=launch.slot,
            generation=launch.generation,
            board=self.board,
            slot_names=self.names,
            parent_pid=launch.parent_pid,
            clock=SystemClock(),
            redis_url=self.redis_url,
            pool=pool,
            listener=self.listener if name == "web" else None,
        )


def run(loaded: Loaded) -> int:
    """Run this replica until it is told to stop, and return the exit code.

    Raises:
        ConfigError: jobs or schedules do not fit, or Redis refuses to serve (exit 78).
        CannotBindError: the HTTP address is taken (exit 69).
        CannotCreateError: the data directory cannot be made or written, or no server can be embedded (exit 73).
    """
    settings = loaded.settings
    replica = _replica_id(settings)
    _configure_logs(settings, replica, role="supervisor")
    definitions = prepare_jobs(loaded)
    server = embedded_server(settings)
    if server is not None:
        server.prepare()
    metrics_lock = _open_data_directory(Path(settings.data_dir))
    redis_url = resolve_redis_url(settings)
    listener = _bind(settings)
    if server is None:
        _preflight(loaded, redis_url)
    names = _slot_names(settings)
    tree = Tree(
        settings=settings,
        definitions=definitions,
        replica=replica,
        redis_url=redis_url,
        server=server,
        listener=listener,
        names=names,
        board=allocate(slots=len(names), inflight=_inflight_entries(settings)),
    )
    code = _parent(tree).run()
    os.close(metrics_lock)
    return code


def prepare_jobs(loaded: Loaded) -> tuple[ScheduleDef, ...]:
    """Import the configured jobs and return the schedules that run them.

    Raises:
        ConfigError: with every problem of jobs and schedules.
    """
    problems = import_jobs(loaded.settings.jobs, loaded.origins)
    if problems:
        raise ConfigError(problems)
    if (count := thread_count() - 1) > 0:
        # Python may not know one that a library or _thread started; a fork copies its locks all the same.
        names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        message = f"importing the modules under jobs started {count} thread(s): {', '.join(names[:5]) or 'unnamed'}"
        remedy = "a process with threads cannot be forked safely; start them when a job first runs"
        raise ConfigError([Problem(loaded.origin("jobs"), "jobs", message, remedy)])
    return complete(loaded, registry)


def embedded_server(settings: Settings) -> EmbeddedServer | None:
    """Return the embedded server, or None when the settings name a Redis of their own.

    Raises:
        CannotCreateError: the socket's path is too long.
    """
    if settings.redis.url.get_secret_value() != EMBEDDED:
        return None
    return EmbeddedServer(Path(settings.data_dir), fsync=settings.redis.fsync.value)


def resolve_redis_url(settings: Settings) -> str:
    """Return where Redis is, with the embedded server's socket in place of ``embedded``."""
    server = embedded_server(settings)
    return settings.redis.url.get_secret_value() if server is None else server.url


def _parent(tree: Tree) -> Parent:
    specs = _specs(tree)
    assert tuple(spec.name for spec in specs) == tree.names
    # Everything that lives now lives for ever: frozen, a collection in a child does not touch its pages,
    # so they stay shared (measured: 15.4 to 2.4 MB private per child).
    gc.collect()
    gc.freeze()
    gc.disable()
    supervision = tree.settings.supervision
    return Parent(
        specs,
        tree.board,
        SystemClock(),
        limits=Limits(grace_s=supervision.grace_s, backoff_max_s=supervision.backoff_max_s),
        notify=Notifier.from_environment(os.environ, pid=os.getpid()),
        log=_log,
    )


def _specs(tree: Tree) -> list[SlotSpec]:
    supervision = tree.settings.supervision
    hang_s = supervision.hang_timeout_s
    specs = []
    if tree.server is not None:
        specs.append(_embedded_spec(tree, tree.server))
    specs.append(tree.spec("agent", Group.AGENT, _agent_main(tree), hang_timeout_s=AGENT_HANG_S))
    specs.append(tree.spec("scheduler", Group.SCHEDULER, _scheduler_main(tree), hang_timeout_s=SCHEDULER_HANG_S))
    keep = (tree.listener.fileno(),)
    specs.append(tree.spec("web", Group.WEB, web.main, hang_timeout_s=hang_s, keep_fds=keep))
    for pool, settings in tree.settings.workers.items():
        for index in range(settings.processes):
            name = f"worker-{pool}-{index}"
            specs.append(tree.spec(name, Group.WORKER, worker.main, pool=pool, hang_timeout_s=hang_s))
    return specs


def _embedded_spec(tree: Tree, server: EmbeddedServer) -> SlotSpec:
    def run(_: Launch) -> int:
        _configure_logs(tree.settings, tree.replica, role=EMBEDDED)
        server.exec_locked()

    boot_s = tree.settings.supervision.boot_timeout_s
    return SlotSpec(
        name=EMBEDDED, role=EMBEDDED, run=run, group=Group.EMBEDDED, boot_timeout_s=boot_s, is_ready=server.is_ready
    )


def _agent_main(tree: Tree) -> _Main:
    return lambda seat: agent.main(seat, tree.definitions)


def _scheduler_main(tree: Tree) -> _Main:
    return lambda seat: scheduler.main(seat, tree.definitions)


def _slot_names(settings: Settings) -> tuple[str, ...]:
    first = (EMBEDDED,) if settings.redis.url.get_secret_value() == EMBEDDED else ()
    pools = settings.workers.items()
    workers = (f"worker-{pool}-{index}" for pool, each in pools for index in range(each.processes))
    return (*first, "agent", "scheduler", "web", *workers)


def _inflight_entries(settings: Settings) -> int:
    pools = settings.workers.values()
    return max((pool.concurrency for pool in pools if pool.kind is WorkerKind.ASYNC), default=1) + 1


def _replica_id(settings: Settings) -> str:
    name = settings.replica or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:50].lstrip("-._") or "replica"
    return f"{name}.{secrets.token_hex(3)}"


def _open_data_directory(path: Path) -> int:
    """Make the directory and claim a place for metric files in it; return the descriptor that holds the claim.

    A place is claimed by a lock, so that trees on one directory keep apart and none leaves files for ever.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(REPLICAS_ON_ONE_DIRECTORY_MAX):
            descriptor = os.open(path / f"metrics-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            metrics.prepare(path / f"metrics-{number}")
            return descriptor
    except OSError as error:
        raise CannotCreateError(
            f"data_dir {path} cannot be used: {error.strerror or error}; set data_dir (TENURE_DATA_DIR) to a "
            f"directory that uid {os.getuid()} may write"
        ) from error
    raise CannotCreateError(f"data_dir {path} is used by {REPLICAS_ON_ONE_DIRECTORY_MAX} trees already")


def _bind(settings: Settings) -> socket.socket:
    host, port = settings.web.host, settings.web.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise CannotBindError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; stop what uses it, or choose another with "
            f"web.port (TENURE_WEB__PORT; 0 lets the kernel choose)"
        ) from error
    _log("http_listening", address=f"{host}:{listener.getsockname()[1]}")
    return listener


def _preflight(loaded: Loaded, redis_url: str) -> None:
    """Ask Redis, in a child, whether it can serve; a Redis that is down is no reason not to start."""
    code = run_in_child(lambda: _check_redis(loaded, redis_url), timeout_s=PREFLIGHT_TIMEOUT_S)
    if code == EXIT_CONFIG:
        raise SystemExit(EXIT_CONFIG)  # the child has said why
    if code != EXIT_OK:
        _log("redis_not_ready", level="warning", consequence="starting unready; the children retry")


def _check_redis(loaded: Loaded, redis_url: str) -> int:
    settings = loaded.settings
    store = Store.connect(redis_url, settings=settings.redis, name=f"{settings.cluster}:preflight")
    try:
        problems = check(store, settings)
    except StoreUnavailableError as error:
        _log("redis_unreachable", level="warning", error=str(error))
        return EXIT_OK
    except StoreRefusedError as error:
        problems = [Problem("", "redis.url", str(error))]
    for problem in problems:
        placed = replace(problem, where=loaded.origin(*problem.path.split(".")))
        os.write(2, f"tenure: {placed}\n".encode())
    return EXIT_CONFIG if problems else EXIT_OK


def _configure_logs(settings: Settings, replica: str, *, role: str) -> None:
    log = settings.log
    logs.configure(level=log.level, format=log.format, cluster=settings.cluster, replica=replica, role=role)


def _log(event: str, /, *, level: str = "info", **fields: object) -> None:
    getattr(structlog.get_logger(), level)(event, **fields)
