"""The keys of a Cloudforet configuration beside schedulers, queues and workers: those used, and those kept.

Guarantees
    No value of these keys is in a message: any of them may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervisor.core.cron.zones import UnknownZoneError, zone
from supervisor.core.errors import Problem
from supervisor.core.suggestions import closest
from supervisor.importers.cloudforet.classes import split_name
from supervisor.importers.cloudforet.report import ImportReport, shown
from supervisor.settings.base import MODULE, NAME, split
from supervisor.settings.document import Node
from supervisor.settings.interpolate import interpolate
from supervisor.settings.schema import Shape, ShapeKind

USED = frozenset({"SCHEDULERS", "QUEUES", "WORKERS", "TOKEN", "timezone", "phase", "packages", "compat"})
LEGACY = "SCHEDULER"
_MEANT: dict[type, tuple[str, ...]] = {
    dict: ("SCHEDULERS", "QUEUES", "WORKERS", "GLOBAL"),
    list: ("IMPORT", "REMOTE_URL"),
}
_PARTLY = frozenset({"LOG", "HOSTNAME", "NAME", "TOKEN_INFO"})
_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "WARN": "warning", "ERROR": "error"}
_LEVELS |= {"CRITICAL": "error", "FATAL": "error"}
_MODULE = re.compile(MODULE)
_NAME = re.compile(NAME)
_PARTS = re.compile(r"\.(?:interface|scheduler|service|manager|task)\.")
_SET_TOKEN = "set TOKEN: ${file:/run/secrets/token} and reload"  # noqa: S105 - no password


def read_token(root: Node, environ: Mapping[str, str], report: ImportReport) -> tuple[Node | None, str]:
    """Return the token, and why schedules that need one are suspended: empty when they are not.

    Absent, it is not asked for: a service may need none. Empty, or in a place nobody reads, it was intended.
    One that cannot be read here is null, with the reference to it as its source.
    """
    token, info = root.child("TOKEN"), root.child("TOKEN_INFO")
    if token is not None and isinstance(token.value, str) and token.value:
        problems: list[Problem] = []
        interpolate(Node({"TOKEN": token}, token.origin), Shape(ShapeKind.FREE), environ, problems)
        if not problems:
            return token, ""
        text = f"{problems[0].message}: schedules with a class are suspended until it is there"
        report.remark(token, ("TOKEN",), text)
        return Node(None, token.origin, source=token.value), f"TOKEN: {problems[0].message}; {_SET_TOKEN}"
    if token is not None and token.value is not None and not isinstance(token.value, str):
        report.problem(token, ("TOKEN",), f"must be text, got {shown(token, ('TOKEN',))}", "quote it")
        return None, ""
    if info is not None and info.value:
        report.remark(info, ("TOKEN_INFO",), f"is not read: schedules with a class are suspended; {_SET_TOKEN}")
        return None, f"TOKEN_INFO names a token that is not read from there; {_SET_TOKEN}"
    if token is not None:
        report.remark(token, ("TOKEN",), f"is empty: schedules with a class are suspended; {_SET_TOKEN}")
        return None, f"TOKEN is empty; {_SET_TOKEN}"
    return None, ""


def read_timezone(root: Node, environ: Mapping[str, str], report: ImportReport) -> Node:
    """Return the zone of the schedules: ``timezone:``, else the variable TZ, else UTC; logged once."""
    node = root.given("timezone")
    text = environ.get("TZ", "").removeprefix(":")
    if node is None and text:
        node = Node(text, "TZ")
    if node is None:
        report.notice(
            "schedules are in UTC; timezone: chooses another zone (the original used the container's local time)"
        )
        return Node("UTC", "default")
    try:
        name = zone(str(node.value)).name
    except UnknownZoneError as error:
        message, remedy = split(str(error))
        report.problem(node, ("timezone",), message, remedy or "write e.g. Asia/Seoul")
        return Node("UTC", "default")
    report.notice(f"schedules are in {name} ({node.origin})")
    return Node(name, node.origin)


def read_packages(
    root: Node, classes: Sequence[Node], is_remote: Callable[[Node], bool], report: ImportReport
) -> Node | None:
    """Return the packages whose services the tasks name: those that are given, else those of the schedulers.

    Packages from the network are not added; a class that it names outside of them is a problem.
    """
    node = root.given("packages")
    if node is not None:
        items = node.value if isinstance(node.value, list) else [node]
        for item in items:
            if not isinstance(item.value, str) or not _MODULE.match(item.value):
                report.wrong(item, ("packages",), "must name a package", "e.g. spaceone.identity")
        found = Node(items, node.origin)
    else:
        local = dict.fromkeys(name for each in classes if not is_remote(each) and (name := _package(str(each.value))))
        found = Node([Node(name, "default") for name in local], "default")
    names = tuple(f"{each.value}." for each in found.value)
    for each in filter(is_remote, classes):
        package = _package(str(each.value))
        if package and not f"{package}.".startswith(names):
            message = f"{shown(each)} came over the network and lies in no package that a local file names"
            report.problem(each, ("packages",), message, f"if it is meant, add packages: [{package}] to a local file")
    return found if found.value else None


def _package(backend: str) -> str:
    split = split_name(backend)
    module = split[0] if split is not None else ""
    if not module or f"{module}.".startswith(("spaceone.core.", "supervisor.")):
        return ""
    cut = _PARTS.search(f"{module}.")
    if cut is not None:
        return module[: cut.start()]
    return ".".join(module.split(".")[: 2 if module.startswith("spaceone.") else 1])


def read_replica(root: Node) -> Node | None:
    """Return the name of this replica: HOSTNAME, else NAME, where it can be one."""
    for key in ("HOSTNAME", "NAME"):
        node = root.child(key)
        if node is not None and isinstance(node.value, str) and _NAME.match(node.value):
            return node
    return None


def read_log(root: Node, report: ImportReport) -> Node | None:
    """Return the native ``log``: the level of the first logger that has one."""
    log = root.child("LOG")
    if log is None or not isinstance(log.value, dict):
        return None
    handlers = log.child("handlers")
    for path, node in handlers.walk() if handlers is not None else ():
        if path[-1:] == ("filename",):
            text = "the log goes to standard error; log.file: sends it to a file"
            report.remark(node, ("LOG", "handlers"), text)
    loggers = log.child("loggers")
    for path, node in loggers.walk() if loggers is not None else ():
        if path[-1:] == ("level",) and isinstance(node.value, str) and node.value.upper() in _LEVELS:
            return Node({"level": Node(_LEVELS[node.value.upper()], node.origin)}, node.origin)
    return None


def check_spelling(key: str, node: Node, among: Node, report: ImportReport) -> None:
    """Report a section whose name is nearly that of one that is absent: nothing of it would run, without notice."""
    wanted = _MEANT.get(type(node.value), ())
    close = closest(key, wanted, likeness_min=0.8)
    if close and close[0] not in among.value:
        report.problem(node, (key,), "is not a section that is read", f"did you mean {close[0]}? else rename it")


def read_config(root: Node, report: ImportReport) -> Node:
    """Return the keys that the supervisor has no use for, for the service's own code; they are listed once."""
    if LEGACY in root.value:
        text = "is the form of old releases and is ignored; SCHEDULERS took its place"
        report.remark(root.value[LEGACY], (LEGACY,), text)
    kept: dict[str, Any] = {
        key: node for key, node in root.value.items() if key not in USED and key != LEGACY and not key.startswith("x-")
    }
    for key, node in kept.items():
        check_spelling(key, node, root, report)
    unused = sorted(key for key in kept if key not in _PARTLY)
    if unused:
        report.notice(f"not used by the supervisor, kept for jobs under cloudforet.config: {', '.join(unused)}")
    return Node(kept, root.origin)
