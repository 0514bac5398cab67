"""Start of one replica: settings in, a running tree out. Knows every concrete class, with app/tree.py.

Each step at start is done before anything of the next exists, so that a refusal leaves nothing half started:
import jobs, complete the schedules, make the data directory, bind HTTP, check Redis in a throw-away child, fork.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

from supervisor.app.announce import announce, limit_metrics
from supervisor.app.endpoint import embedded_server, resolve_redis_url
from supervisor.app.jobs import prepare_to_fork
from supervisor.app.tree import Tree, configure_logs, inflight_entries, slot_names, specs
from supervisor.clock import SystemClock
from supervisor.core.cron import zones
from supervisor.core.errors import EXIT_CONFIG, EXIT_OK
from supervisor.core.jobs.confinement import Confinement
from supervisor.core.supervision.reload import ReloadPlan, ReloadRecord
from supervisor.core.supervision.scoreboard import Header
from supervisor.process import run_file
from supervisor.process.config_check import run_in_child
from supervisor.process.parent import Parent, ParentLimits
from supervisor.process.reloading import CHECK_NS, CHECK_NS_PER_SCHEDULE, Reloading
from supervisor.process.run_file import NameplateHolder
from supervisor.process.slots import Log
from supervisor.process.spawn import allocate
from supervisor.process.system import linux
from supervisor.process.system.environment import Withheld
from supervisor.process.system.linux import open_descriptors, raise_descriptor_limit
from supervisor.process.system.systemd import Notifier
from supervisor.process.system.unix_listening import bind, bound
from supervisor.reload.audiences import Audience, forget_secrets
from supervisor.reload.check import ConfigCheck
from supervisor.reload.config_memfd import Handover
from supervisor.roles.child import Listeners, preload
from supervisor.settings.loader import Loaded
from supervisor.settings.overrides import secret_variables
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.web import WebSettings
from supervisor.store.client.preflight import report
from supervisor.telemetry import event_catalogue, events, logs, metrics
from supervisor.telemetry.log_lines.log_sink import open_log_file
from supervisor.telemetry.logs import LogRules
from supervisor.version import __version__

PREFLIGHT_TIMEOUT_S = 15.0


def run(loaded: Loaded, load: Callable[[], Loaded] | None = None) -> int:
    """Run this replica until it is asked to stop, and return the exit code.

    ``load`` reads the configuration again, for a reload, and raises ConfigError; None: it never changes.

    Raises:
        ConfigError: jobs or schedules do not fit, Redis refuses to serve, or too few files may be open (exit 78).
        CannotBindError: the HTTP address is taken (exit 69).
        CannotCreateError: the data directory cannot be made, written or trusted, or no server embedded (exit 73).
    """
    settings = given = loaded.settings
    zones.database_version()  # of the tables that all children inherit
    raise_descriptor_limit()
    linux.forbid_inspection()
    Confinement.umask_at_start = os.umask(0o077)  # payloads, results and logs are this user's alone
    replica = _replica_id(settings)
    board_header: list[Header] = []  # once there is a board
    file = open_log_file(settings.log.file, lambda: board_header[0].log_reopens if board_header else 0)
    configure_logs(settings, replica, role="supervisor", file=file)
    loaded, definitions = prepare_to_fork(loaded, on_import=(opened := OpenedByImports()).note)
    settings = loaded.settings
    opened.note("of a hook or a plugin")
    if (server := embedded_server(settings)) is not None:
        server.prepare()
    place, lock = run_file.claim(Path(settings.data_dir), metrics.prepare)
    before = run_file.read(place)  # of the latest tree that held the place
    sign = run_file.show(place)
    with listening(settings.web, _log) as listeners:
        if server is None:
            _preflight(loaded)
        limit_metrics(loaded)
        names = slot_names(settings)
        announce(loaded, definitions, names, _log)
        opened.tell(_log)
        handover = Handover()
        handover.start(settings)
        withheld = Withheld(secret_variables(settings, os.environ))
        for each in (given, settings):  # the second one if code declares schedules
            forget_secrets(each, each.references)
        tree = Tree(
            settings=settings,
            definitions=definitions,
            replica=replica,
            predecessor=before.replica if before is not None else "",
            server=server,
            listeners=listeners,
            names=names,
            board=allocate(slots=len(names), inflight=inflight_entries(settings)),
            handover=handover,
            mailbox=events.Mailbox(),
            module_fds=opened.shared,
        )
        events.attach(tree.mailbox.write_fd, replica=replica, role="supervisor")
        board_header.append(tree.board.header)
        holder = _published(tree, place)
        code = _parent(tree, _reading(loaded, load, tree, withheld), holder.publish).run()
        holder.ended(code)
    sign.close()
    os.close(lock)
    return code


def _published(tree: Tree, place: run_file.ReplicaPlace) -> NameplateHolder:
    """Publish who runs here, and return what keeps that up to date."""
    cluster = tree.settings.cluster
    holder = NameplateHolder(place, replica=tree.replica, cluster=cluster, version=__version__, log=_log)
    holder.publish(ReloadRecord())
    return holder


def _reading(loaded: Loaded, load: Callable[[], Loaded] | None, tree: Tree, withheld: Withheld) -> Callable[[], Loaded]:
    """Return the configuration reader of a check; without ``load`` it is the one of the start for ever."""

    def again() -> Loaded:
        withheld.restore()  # in the child that checks, and nowhere else
        if load is not None:
            return load()
        settings = tree.handover.reader(Audience.CHECK).settings(0)
        return replace(loaded, settings=settings.model_copy(update={"schedules": tree.settings.schedules}))

    return again


def _parent(tree: Tree, load: Callable[[], Loaded], publish: Callable[[ReloadRecord], None]) -> Parent:
    slots = specs(tree)
    assert tuple(slot.name for slot in slots) == tree.names
    preload()
    supervision = tree.settings.supervision
    notify = Notifier.from_environment(os.environ, pid=os.getpid())
    reloading = Reloading(
        ConfigCheck(
            definitions=tree.definitions,
            runs_at_once_max=inflight_entries(tree.settings) - 1,
            handover=tree.handover,
            load=load,
            prepare=prepare_to_fork,
        ),
        tree.board.header,
        SystemClock(),
        notify=notify,
        log=_log,
        follow=_follow,
        publish=publish,
        check_ns=CHECK_NS + len(tree.definitions) * CHECK_NS_PER_SCHEDULE,
    )
    return Parent(
        slots,
        tree.board,
        SystemClock(),
        limits=ParentLimits(grace_s=supervision.grace_s, backoff_max_s=supervision.backoff_max_s),
        notify=notify,
        log=_log,
        reloading=reloading,
        processes={name: pool.processes for name, pool in tree.settings.workers.items()},
    )


def _follow(plan: ReloadPlan) -> None:
    rules = LogRules.of(mask=plan.log_mask, exclude=plan.log_exclude)
    logs.retune(level=plan.log_level, format=plan.log_format, rules=rules)


def _replica_id(settings: Settings) -> str:
    name = settings.replica or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:50].lstrip("-._") or "replica"
    return f"{name}.{secrets.token_hex(3)}"


def _preflight(loaded: Loaded) -> None:
    """Ask Redis, in a child, whether it can serve; a Redis that is down is no reason not to start."""
    redis_url = resolve_redis_url(loaded.settings)
    code = run_in_child(lambda: report(redis_url, loaded.settings, loaded.origin), timeout_s=PREFLIGHT_TIMEOUT_S)
    if code == EXIT_CONFIG:
        raise SystemExit(EXIT_CONFIG)  # the child has said why
    if code != EXIT_OK:
        _log("redis_not_ready", level="warning", consequence="starting unready; the children retry")


def _log(event: str, /, *, level: str = "info", **fields: object) -> None:
    event_catalogue.log(event, fields, level=level)


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


TOLD_MAX = 5
REMEDY = "in workers they are /dev/null; open them in a Resource, or when a job first runs"


class OpenedByImports:
    """Descriptors that the import of each module opened.

    Guarantees
        Files opened for appending and devices stay as they are in the workers: appends of several processes do not mix
        within a line, and a device has no place to lose.
        Anything else is /dev/null there, and is logged once at start by module and path: a connection, a position in
        a file or a lock of SQLite cannot be shared by processes.
    """

    def __init__(self) -> None:
        self._known = set(open_descriptors())
        self._lost: dict[str, list[str]] = {}
        self.shared: tuple[int, ...] = ()
        """Descriptors that workers keep."""

    def note(self, module: str) -> None:
        """Look for descriptors that ``module``, which was imported just now, has opened."""
        for descriptor, target in sorted(open_descriptors().items()):
            if descriptor in self._known:
                continue
            self._known.add(descriptor)
            if _can_be_shared(descriptor):
                self.shared += (descriptor,)
            else:
                self._lost.setdefault(module, []).append(target)

    def tell(self, log: Log) -> None:
        """Write a warning for each module whose files do not reach the workers."""
        for module, targets in self._lost.items():
            log(
                "module_opened_files",
                level="warning",
                module=module,
                files=targets[:TOLD_MAX],
                count=len(targets),
                remedy=REMEDY,
            )


def _can_be_shared(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    is_appending = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)
    return stat.S_ISCHR(mode) or (stat.S_ISREG(mode) and is_appending)
