"""The composition root: settings in, a running tree out. The only module that knows every concrete class.

Each step at start is done before anything of the next exists, so that a refusal leaves nothing half started:
import jobs, complete the schedules, make the data directory, bind HTTP, check Redis in a throw-away child, fork.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from supervisor.clock import SystemClock
from supervisor.core.board import Board, Header
from supervisor.core.errors import (
    EXIT_CONFIG,
    EXIT_OK,
    ConfigError,
    Problem,
)
from supervisor.core.model import ScheduleDef
from supervisor.core.registry import registry
from supervisor.core.reload import Ending
from supervisor.core.restart import Group
from supervisor.embedded.valkey import EmbeddedServer
from supervisor.process import nameplate
from supervisor.process.child import watch_faults
from supervisor.process.linux import thread_count
from supervisor.process.listening import bind
from supervisor.process.nameplate import NameplateHolder
from supervisor.process.parent import Launch, Limits, Parent, SlotSpec
from supervisor.process.reloading import CHECK_NS, CHECK_NS_PER_SCHEDULE, Reloading
from supervisor.process.scoreboard import allocate
from supervisor.process.systemd import Notifier
from supervisor.process.throwaway import run_in_child
from supervisor.roles import agent, scheduler, web
from supervisor.roles.preload import preload
from supervisor.roles.seat import Seat
from supervisor.roles.worker import entry as worker
from supervisor.settings.complete import complete, import_jobs
from supervisor.settings.handover import Handover
from supervisor.settings.loader import Loaded
from supervisor.settings.models import CONCURRENCY_MAX, PREFETCH_MAX, Settings, WorkerKind
from supervisor.settings.reload_check import ConfigCheck
from supervisor.store.preflight import report
from supervisor.telemetry import logs, metrics
from supervisor.telemetry.lines import FileSink, open_log_file, take_stderr
from supervisor.version import __version__

EMBEDDED = "embedded"
PREFLIGHT_TIMEOUT_S = 15.0
SCHEDULER_HANG_S = 2.0
AGENT_HANG_S = 3.0


@dataclass(frozen=True, slots=True)
class Tree:
    """Everything that the children of one tree share. Immutable once built.

    A child that is started after a reload puts the new configuration in its place, in its own copy.
    """

    settings: Settings
    definitions: tuple[ScheduleDef, ...]
    replica: str
    redis_url: str
    server: EmbeddedServer | None
    listener: socket.socket
    names: tuple[str, ...]
    board: Board
    handover: Handover
    config_epoch: int = 0

    def spec(self, name: str, group: Group, main: _Main, *, pool: str | None = None, **limits: Any) -> SlotSpec:
        """Return the slot ``name``, whose child runs ``main`` on a seat of its own."""

        def run(launch: Launch) -> int:
            tree = self._now(is_worker=pool is not None)
            tree.configure_logs(role=name)
            metrics.claim_slot(name)
            if pool is not None and tree.config_epoch and (problems := import_jobs(tree.settings.jobs)):
                raise ConfigError(problems)  # the check could import them; what was there for it is gone
            return main(tree.seat(name, launch, pool), tree)

        boot_s = self.settings.supervision.boot_timeout_s
        keep = (*self.handover.descriptors, *((self.listener.fileno(),) if name == "web" else ()))
        return SlotSpec(
            name=name, role=group.value, run=run, group=group, pool=pool, boot_timeout_s=boot_s, keep_fds=keep, **limits
        )

    def _now(self, *, is_worker: bool) -> Tree:
        """Return the tree with the configuration that a child started now has to use."""
        header = self.board.header
        number = header.worker_epoch if is_worker else header.config_epoch
        if number == 0:
            return self
        settings = self.handover.settings(number, with_schedules=not is_worker)
        definitions = () if is_worker else self.handover.definitions(number)
        return replace(self, settings=settings, definitions=definitions, config_epoch=number)

    def configure_logs(self, *, role: str) -> None:
        """Set up logging for a child; with a log file, all that it writes to standard error goes there."""
        header = self.board.header
        file = open_log_file(self.settings.log.file, lambda: header.log_reopens, on_open=_take_stderr)
        _configure_logs(self.settings, self.replica, role=role, file=file)

    def seat(self, name: str, launch: Launch, pool: str | None) -> Seat:
        """Return the place of one child in the tree."""
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
            handover=self.handover,
            config_epoch=self.config_epoch,
        )


_Main = Callable[[Seat, Tree], int]


def run(loaded: Loaded, load: Callable[[], Loaded] | None = None) -> int:
    """Run this replica until it is told to stop, and return the exit code.

    Args:
        loaded: the configuration.
        load: reads it again, for a reload; raises ConfigError. None: it never changes.

    Raises:
        ConfigError: jobs or schedules do not fit, or Redis refuses to serve (exit 78).
        CannotBindError: the HTTP address is taken (exit 69).
        CannotCreateError: the data directory cannot be made or written, or no server can be embedded (exit 73).
    """
    settings = loaded.settings
    replica = _replica_id(settings)
    board_header: list[Header] = []  # once there is a board
    file = open_log_file(settings.log.file, lambda: board_header[0].log_reopens if board_header else 0)
    _configure_logs(settings, replica, role="supervisor", file=file)
    definitions = prepare_jobs(loaded)
    server = embedded_server(settings)
    if server is not None:
        server.prepare()
    place, lock = nameplate.claim(Path(settings.data_dir), metrics.prepare)
    redis_url = resolve_redis_url(settings)
    listener = _listen(settings)
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
        handover=Handover(),
    )
    board_header.append(tree.board.header)
    holder = NameplateHolder(place, replica=replica, cluster=settings.cluster, version=__version__, log=_log)
    holder.publish(Ending())
    code = _parent(tree, load or (lambda: loaded), holder.publish).run()
    holder.ended(code)
    os.close(lock)
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


def _parent(tree: Tree, load: Callable[[], Loaded], publish: Callable[[Ending], None]) -> Parent:
    specs = _specs(tree)
    assert tuple(spec.name for spec in specs) == tree.names
    preload()
    supervision = tree.settings.supervision
    notify = Notifier.from_environment(os.environ, pid=os.getpid())
    reloading = Reloading(
        ConfigCheck(
            settings=tree.settings,
            definitions=tree.definitions,
            runs_at_once_max=_inflight_entries(tree.settings) - 1,
            handover=tree.handover,
            load=load,
            prepare=prepare_jobs,
        ),
        tree.board.header,
        SystemClock(),
        notify=notify,
        log=_log,
        follow=lambda plan: logs.retune(level=plan.log_level, format=plan.log_format),
        publish=publish,
        check_ns=CHECK_NS + len(tree.definitions) * CHECK_NS_PER_SCHEDULE,
    )
    return Parent(
        specs,
        tree.board,
        SystemClock(),
        limits=Limits(grace_s=supervision.grace_s, backoff_max_s=supervision.backoff_max_s),
        notify=notify,
        log=_log,
        reloading=reloading,
        processes={name: pool.processes for name, pool in tree.settings.workers.items()},
    )


def _specs(tree: Tree) -> list[SlotSpec]:
    supervision = tree.settings.supervision
    hang_s = supervision.hang_timeout_s
    specs = []
    if tree.server is not None:
        specs.append(_embedded_spec(tree, tree.server))
    specs.append(tree.spec("agent", Group.AGENT, _run_agent, hang_timeout_s=AGENT_HANG_S))
    specs.append(tree.spec("scheduler", Group.SCHEDULER, _run_scheduler, hang_timeout_s=SCHEDULER_HANG_S))
    specs.append(tree.spec("web", Group.WEB, _run_web, hang_timeout_s=hang_s))
    for pool, name in _worker_rows(tree.settings):
        specs.append(tree.spec(name, Group.WORKER, _run_worker, pool=pool, hang_timeout_s=hang_s))
    return specs


def _embedded_spec(tree: Tree, server: EmbeddedServer) -> SlotSpec:
    def run(_: Launch) -> int:
        tree.configure_logs(role=EMBEDDED)
        server.exec_locked()

    boot_s = tree.settings.supervision.boot_timeout_s
    return SlotSpec(
        name=EMBEDDED, role=EMBEDDED, run=run, group=Group.EMBEDDED, boot_timeout_s=boot_s, is_ready=server.is_ready
    )


def _run_agent(seat: Seat, tree: Tree) -> int:
    return agent.main(seat, tree.definitions)


def _run_scheduler(seat: Seat, tree: Tree) -> int:
    return scheduler.main(seat, tree.definitions)


def _run_web(seat: Seat, _tree: Tree) -> int:
    return web.main(seat)


def _run_worker(seat: Seat, _tree: Tree) -> int:
    return worker.main(seat)


def _slot_names(settings: Settings) -> tuple[str, ...]:
    first = (EMBEDDED,) if settings.redis.url.get_secret_value() == EMBEDDED else ()
    return (*first, "agent", "scheduler", "web", *(name for _, name in _worker_rows(settings)))


def _worker_rows(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield pool and name of every worker row: fixed for the life of the tree, with room to grow and to replace."""
    for pool, each in settings.workers.items():
        for index in range(2 * each.processes + 2):
            yield pool, f"worker-{pool}-{index}"


def _inflight_entries(settings: Settings) -> int:
    """Return how many runs a worker can note: as many as its pool may ever be told to run at once, by a reload."""
    kinds = {pool.kind for pool in settings.workers.values()}
    return (CONCURRENCY_MAX if WorkerKind.ASYNC in kinds else PREFETCH_MAX) + 1


def _replica_id(settings: Settings) -> str:
    name = settings.replica or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:50].lstrip("-._") or "replica"
    return f"{name}.{secrets.token_hex(3)}"


def _listen(settings: Settings) -> socket.socket:
    listener = bind(settings.web.host, settings.web.port)
    _log("http_listening", address=f"{settings.web.host}:{listener.getsockname()[1]}")
    return listener


def _preflight(loaded: Loaded, redis_url: str) -> None:
    """Ask Redis, in a child, whether it can serve; a Redis that is down is no reason not to start."""
    code = run_in_child(lambda: report(redis_url, loaded.settings, loaded.origin), timeout_s=PREFLIGHT_TIMEOUT_S)
    if code == EXIT_CONFIG:
        raise SystemExit(EXIT_CONFIG)  # the child has said why
    if code != EXIT_OK:
        _log("redis_not_ready", level="warning", consequence="starting unready; the children retry")


def _take_stderr(descriptor: int) -> None:
    """Send stacks, and what libraries and jobs write to standard error, to the log file too."""
    take_stderr(descriptor)
    watch_faults()


def _configure_logs(settings: Settings, replica: str, *, role: str, file: FileSink | None) -> None:
    log = settings.log
    logs.configure(level=log.level, format=log.format, cluster=settings.cluster, replica=replica, role=role, file=file)


def _log(event: str, /, *, level: str = "info", **fields: object) -> None:
    getattr(structlog.get_logger(), level)(event, **fields)
