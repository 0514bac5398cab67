"""The tree that a replica runs: its slots, and the inheritance of every child."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from supervisor.app.endpoint import EMBEDDED, resolve_redis_url
from supervisor.app.jobs import prepare_plugins
from supervisor.clock import SystemClock
from supervisor.compat.cloudforet.tasks import runtime as cloudforet
from supervisor.core.errors import ConfigError
from supervisor.core.jobs.registry import registry
from supervisor.core.model import ScheduleDef
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.supervision.slot import Group
from supervisor.embedded.valkey import EmbeddedServer
from supervisor.plugins import registry as plugins
from supervisor.process.child import watch_faults
from supervisor.process.parent import ChildIdentity, SlotSpec
from supervisor.reload.audiences import Audience
from supervisor.reload.config_memfd import ConfigReader, Handover
from supervisor.roles import scheduler, web
from supervisor.roles.agent import main as agent
from supervisor.roles.child import ChildContext, Listeners
from supervisor.roles.worker import entry as worker
from supervisor.settings.schedules.complete import import_jobs
from supervisor.settings.schedules.profiles import policies_of
from supervisor.settings.sections.models import CONCURRENCY_MAX, PREFETCH_MAX, Settings, WorkerKind
from supervisor.telemetry import events, logs, metrics
from supervisor.telemetry.log_lines.log_sink import STDERR, FileSink, open_log_file, take_stderr
from supervisor.telemetry.logs import LogRules

SCHEDULER_HANG_S = 2.0
AGENT_HANG_S = 3.0
Main = Callable[[ChildContext, Sequence[ScheduleDef]], int]
"""Role of a child: given the schedules too, returns the exit code."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Everything that the children of one tree share. Immutable once built.

    A child puts the configuration in effect in its place, in its own copy, with the secrets that are its role's.
    """

    settings: Settings
    """As the tree started; of secrets the masks."""

    definitions: tuple[ScheduleDef, ...]
    replica: str
    predecessor: str
    """Replica that held this one's place on the data directory before; empty: not known."""

    server: EmbeddedServer | None
    listeners: Listeners
    names: tuple[str, ...]
    board: Board
    handover: Handover
    mailbox: events.Mailbox
    module_fds: tuple[int, ...] = ()
    """What job modules opened and workers keep."""

    config_epoch: int = 0

    def spec(self, name: str, group: Group, main: Main, *, pool: str | None = None, **limits: Any) -> SlotSpec:
        """Return the slot ``name``, whose child runs ``main`` with a context of its own."""

        def run(launch: ChildIdentity) -> int:
            tree = self._now(reader, is_worker=pool is not None)
            tree.configure_logs(role=name)
            metrics.claim_slot(name)
            events.attach(tree.mailbox.write_fd, replica=tree.replica, role=name, runs=tree.settings.events.runs)
            if pool is not None:
                tree.prepare_worker()
            code = main(tree.child(name, launch, pool, reader), tree.definitions)
            events.flush(is_last=True)
            return code

        boot_s = self.settings.supervision.boot_timeout_s
        reader = self.handover.reader(Audience(group.value))
        keep = (
            *reader.descriptors,
            *self.mailbox.descriptors,
            *(self.listeners.descriptors if name == "web" else ()),
            *(self.module_fds if pool is not None else ()),
        )
        return SlotSpec(name=name, run=run, group=group, pool=pool, boot_timeout_s=boot_s, keep_fds=keep, **limits)

    def _now(self, reader: ConfigReader, *, is_worker: bool) -> Tree:
        """Return the tree with the configuration that a child started now has to use."""
        header = self.board.header
        number = header.worker_epoch if is_worker else header.config_epoch
        if number == 0:
            settings = reader.settings(0).model_copy(update={"schedules": self.settings.schedules})
            return replace(self, settings=settings)
        settings = reader.settings(number, with_schedules=not is_worker)
        registry.use(policies_of(settings.profiles))
        definitions = () if is_worker else reader.definitions(number)
        return replace(self, settings=settings, definitions=definitions, config_epoch=number)

    def prepare_worker(self) -> None:
        """Import modules that a reload added, and give plugins their secrets.

        Raises:
            ConfigError: the check could import it; a file it needs is gone since.
        """
        if self.config_epoch and (problems := import_jobs(self.settings.jobs)):
            raise ConfigError(problems)
        if self.config_epoch:
            prepare_plugins(self.settings, {})
        else:
            plugins.registry.configure(self.settings.plugins, self.settings.references)

    def configure_logs(self, *, role: str) -> None:
        """Set up logging for a child; with a log file, all that it writes to standard error goes there.

        One that cannot be opened any more, after a rotation for instance, keeps no child from its work.
        """
        path, header = self.settings.log.file, self.board.header
        file = open_log_file(path, lambda: header.log_reopens, on_open=_take_stderr, instead=STDERR)
        configure_logs(self.settings, self.replica, role=role, file=file)

    def child(self, name: str, launch: ChildIdentity, pool: str | None, reader: ConfigReader) -> ChildContext:
        """Return the place of one child in the tree."""
        return ChildContext(
            settings=self.settings,
            replica=self.replica,
            name=name,
            slot=launch.slot,
            generation=launch.generation,
            board=self.board,
            slot_names=self.names,
            parent_pid=launch.parent_pid,
            clock=SystemClock(),
            redis_url=resolve_redis_url(self.settings),
            pool=pool,
            listeners=self.listeners if name == "web" else None,
            handover=reader,
            mailbox=self.mailbox,
            config_epoch=self.config_epoch,
            predecessor=self.predecessor,
        )


def specs(tree: Tree) -> list[SlotSpec]:
    """Return every slot, in the order in which they are started."""
    supervision = tree.settings.supervision
    hang_s = supervision.hang_timeout_s
    specs = []
    if tree.server is not None:
        specs.append(_embedded_spec(tree, tree.server))
    specs.append(tree.spec("agent", Group.AGENT, agent.main, hang_timeout_s=AGENT_HANG_S))
    specs.append(tree.spec("scheduler", Group.SCHEDULER, scheduler.main, hang_timeout_s=SCHEDULER_HANG_S))
    specs.append(tree.spec("web", Group.WEB, lambda child, _: web.main(child), hang_timeout_s=hang_s))
    for pool, name in _worker_rows(tree.settings):
        specs.append(tree.spec(name, Group.WORKER, _run_worker, pool=pool, hang_timeout_s=hang_s))
    return specs


def _embedded_spec(tree: Tree, server: EmbeddedServer) -> SlotSpec:
    def run(_: ChildIdentity) -> int:
        tree.configure_logs(role=EMBEDDED)
        server.exec_locked()

    boot_s = tree.settings.supervision.boot_timeout_s
    return SlotSpec(name=EMBEDDED, run=run, group=Group.EMBEDDED, boot_timeout_s=boot_s, is_ready=server.is_ready)


def _run_worker(child: ChildContext, _definitions: Sequence[ScheduleDef]) -> int:
    cloudforet.configure(child.settings.cloudforet)
    return worker.main(child)


def slot_names(settings: Settings) -> tuple[str, ...]:
    """Return the names of the slots, in the order of their rows on the board."""
    first = (EMBEDDED,) if settings.redis.url.get_secret_value() == EMBEDDED else ()
    return (*first, "agent", "scheduler", "web", *(name for _, name in _worker_rows(settings)))


def _worker_rows(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield pool and name of every worker row: fixed for the life of the tree, with room to grow and to replace."""
    for pool, each in settings.workers.items():
        for index in range(2 * each.processes + 2):
            yield pool, f"worker-{pool}-{index}"


def inflight_entries(settings: Settings) -> int:
    """Return how many runs a worker can note: as many as its pool may ever run at once, after a reload."""
    kinds = {pool.kind for pool in settings.workers.values()}
    return (CONCURRENCY_MAX if WorkerKind.ASYNC in kinds else PREFETCH_MAX) + 1


def _take_stderr(descriptor: int) -> None:
    """Send stacks, and output of libraries and jobs to standard error, to the log file too."""
    take_stderr(descriptor)
    watch_faults()


def configure_logs(settings: Settings, replica: str, *, role: str, file: FileSink | None) -> None:
    """Set up logging for this process from the settings."""
    log = settings.log
    rules = LogRules.of(mask=log.mask, exclude=log.exclude)
    logs.configure(
        level=log.level, format=log.format, cluster=settings.cluster, replica=replica, role=role, file=file, rules=rules
    )
