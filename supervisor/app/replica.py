"""Start of one replica: settings in, a running tree out. Knows every concrete class, with app/tree.py.

Each step at start is done before anything of the next exists, so that a refusal leaves nothing half started:
import jobs, complete the schedules, make the data directory, bind HTTP, check Redis in a throw-away child, fork.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from supervisor.app.announce import announce, limit_metrics, warn_of_old_names
from supervisor.app.endpoint import embedded_server, resolve_redis_url
from supervisor.app.import_descriptors import OpenedByImports
from supervisor.app.jobs import Prepared, prepare_to_fork
from supervisor.app.listeners import listening
from supervisor.app.tree import Tree, configure_logs, inflight_entries, slot_names, specs
from supervisor.clock import SystemClock
from supervisor.core.errors import (
    EXIT_CONFIG,
    EXIT_OK,
)
from supervisor.core.supervision.reload import ReloadPlan, ReloadRecord
from supervisor.core.supervision.scoreboard import Header
from supervisor.process import run_file
from supervisor.process.config_check import run_in_child
from supervisor.process.parent import Parent, ParentLimits
from supervisor.process.reloading import CHECK_NS, CHECK_NS_PER_SCHEDULE, Reloading
from supervisor.process.run_file import NameplateHolder
from supervisor.process.spawn import allocate
from supervisor.process.system import linux
from supervisor.process.system.descriptors import raise_descriptor_limit
from supervisor.process.system.environment import Withheld
from supervisor.process.system.systemd import Notifier
from supervisor.reload.audiences import Audience, forget_secrets
from supervisor.reload.check import ConfigCheck
from supervisor.reload.config_memfd import Handover
from supervisor.roles.child import preload
from supervisor.settings.deprecations import Notice
from supervisor.settings.loader import Loaded
from supervisor.settings.overrides import secret_variables
from supervisor.settings.sections.models import Settings
from supervisor.store.client.preflight import report
from supervisor.telemetry import event_catalogue, events, logs, metrics
from supervisor.telemetry.log_lines.log_sink import open_log_file
from supervisor.telemetry.log_lines.rules import LogRules
from supervisor.version import __version__

PREFLIGHT_TIMEOUT_S = 15.0


def run(loaded: Loaded, load: Callable[[], Loaded] | None = None) -> int:
    """Run this replica until it is asked to stop, and return the exit code.

    Args:
        loaded: the configuration.
        load: reads it again, for a reload; raises ConfigError. None: it never changes.

    Raises:
        ConfigError: jobs or schedules do not fit, Redis refuses to serve, or too few files may be open (exit 78).
        CannotBindError: the HTTP address is taken (exit 69).
        CannotCreateError: the data directory cannot be made, written or trusted, or no server embedded (exit 73).
    """
    settings = given = loaded.settings
    raise_descriptor_limit()
    linux.forbid_inspection()
    os.umask(0o077)  # payloads, results and logs are this user's alone, whatever the directory
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
            predecessor=run_file.replica_of(place),
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
        code = _parent(tree, _reading(loaded, load, tree, withheld), holder.publish, told=loaded.notices).run()
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


def _parent(
    tree: Tree, load: Callable[[], Loaded], publish: Callable[[ReloadRecord], None], *, told: Sequence[Notice]
) -> Parent:
    def prepare(loaded: Loaded) -> Prepared:
        warn_of_old_names(loaded, _log, told=told)  # those that this reload brought
        return prepare_to_fork(loaded)

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
            prepare=prepare,
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
