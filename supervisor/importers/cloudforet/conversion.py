"""Configurations in Cloudforet's format, converted to native settings (docs/cloudforet.md).

A pure function of files, variables and sources: nothing is imported, nothing is run, and
``spaceone`` least of all. The result is a layer under the native files, variables and
flags, which therefore win.

Guarantees
    Entries that the original refused, ignored or never reached are a problem or a notice with their
    place; two readings of one entry are never chosen between in silence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from supervisor.core.network import MARK, userinfo_of
from supervisor.importers import FORMATS, KEY
from supervisor.importers.cloudforet.classes import Sources
from supervisor.importers.cloudforet.layers import Layers, read_document
from supervisor.importers.cloudforet.other_keys import (
    read_config,
    read_log,
    read_packages,
    read_replica,
    read_timezone,
    read_token,
)
from supervisor.importers.cloudforet.queues import read_queues, read_redis, read_workers
from supervisor.importers.cloudforet.report import ImportReport
from supervisor.importers.cloudforet.schedules import DEFAULT_QUEUE, PLANNERS, Around, read_schedules
from supervisor.settings.base import Path as TreePath
from supervisor.settings.document import Node, format_path, without, wrap
from supervisor.settings.interpolate import directory_of
from supervisor.settings.loader import Converted
from supervisor.settings.masking import QUERY_SECRET, REFERENCE, looks_secret, mask_url
from supervisor.settings.render import dump_yaml, on_one_line
from supervisor.settings.schema import settings_shape

JOBS_MODULE = "supervisor.compat.cloudforet.jobs"
_EMPTY = Node({}, "default")
_PACKAGES = ("cloudforet", "packages")
_TOKEN = ("cloudforet", "token")
_URL = ("redis", "url")
_NO_PACKAGE = (
    "nothing names a package of services (SCHEDULERS do by their classes), so tasks that WORKERS take end dead: add "
    "packages: [spaceone.NAME], or read the scheduler's file too"
)
_NO_SCHEDULERS = (
    "there are no SCHEDULERS: where other replicas have them, start this one with election.participate: false "
    "(TENURE_ELECTION__PARTICIPATE=false) and their TOKEN, to which tasks refer, or with their file too: a leader "
    "brings in its own schedules alone"
)
_ALIASES = {"cron": "rule", "every": "interval", "missed": "misfire", "catchup_window": "misfire_grace"}


def with_own_jobs(root: Node) -> Node:
    """Return settings with the module that plans, whatever a native file lists under ``jobs``."""
    jobs = root.child("jobs")
    listed = jobs.value if jobs is not None and isinstance(jobs.value, list) else []
    if any(each.value == JOBS_MODULE for each in listed):
        return root
    return Node({**root.value, "jobs": Node([Node(JOBS_MODULE, "default"), *listed], "default")}, root.origin)


def convert(
    files: Sequence[Path], *, environ: Mapping[str, str], directories: Sequence[Path], given: Collection[str] = ()
) -> Converted:
    """Return the native settings that ``files`` mean together, later ones winning.

    Args:
        files: Cloudforet's, and native ones, which only have keys that a native file has.
        environ: for TZ, and to find out whether the token is there.
        directories: where the sources of schedulers may lie.
        given: which of ``redis.url`` and ``cloudforet.token`` are set elsewhere: then QUEUES does not decide where
            Redis is, and TOKEN suspends nothing.
    """
    report = ImportReport()
    layers = Layers(report)
    native: list[Node] = []
    for file in files:
        document = read_document(file, report)
        if document is None:
            layers.files.append(file)
        elif is_native(document):
            native.append(Node({key: node for key, node in document.value.items() if key != "compat"}, document.origin))
            layers.files.append(file)
        else:
            _check_format(document, report)
            layers.add(document, file)
    decided = {path for path in (_URL, _TOKEN) if format_path(path) in given or _is_in(path, native)}
    is_planning = _has(layers.root, "SCHEDULERS") or any(_has(each, "schedules") for each in native)
    root = _native(layers, environ, directories, report, decided=decided, is_planning=is_planning)
    if layers.root.given("WORKERS") and not _is_in(_PACKAGES, (root, *native)):
        report.notice(_NO_PACKAGE)
    if layers.root.given("WORKERS") and not _has(layers.root, "SCHEDULERS"):
        report.notice(_NO_SCHEDULERS)
    if not report.problems and not native and not any(_has(layers.root, key) for key in ("SCHEDULERS", "WORKERS")):
        where = str(files[0]) if files else "--compat cloudforet"
        remedy = "give the file that the scheduler or the worker mounts"
        report.problem(Node(None, where), (), "has neither SCHEDULERS nor WORKERS", remedy)
    return Converted(
        root, tuple(native), tuple(dict.fromkeys(layers.files)), tuple(report.problems), tuple(report.notices)
    )


def _check_format(document: Node, report: ImportReport) -> None:
    said = document.child(KEY)
    if said is not None and said.value not in FORMATS:
        report.wrong(said, (KEY,), "is not a known format", f"write {', '.join(FORMATS)}")


def is_native(document: Node) -> bool:
    """Return whether every key of a file is one of ours; a file with any other is Cloudforet's."""
    keys = {key for key in document.value if not key.startswith("x-")} - {"compat"}
    return bool(keys) and keys <= settings_shape().children.keys()


def original_path(path: str) -> str:
    """Return a native path as the Cloudforet file has it: ``schedules.a.cron`` is ``SCHEDULERS.a.rule``."""
    head, _, rest = path.partition(".")
    if head != "schedules" or not rest:
        return path
    name, _, key = rest.rpartition(".")
    return f"SCHEDULERS.{name}.{_ALIASES[key]}" if key in _ALIASES else f"SCHEDULERS.{rest}"


def _is_in(path: TreePath, documents: Sequence[Node]) -> bool:
    return any(each.nearest(path)[0] == path for each in documents)


def _has(root: Node, key: str) -> bool:
    return (child := root.child(key)) is not None and bool(child.value)


def _native(
    layers: Layers,
    environ: Mapping[str, str],
    directories: Sequence[Path],
    report: ImportReport,
    *,
    decided: Collection[TreePath],
    is_planning: bool,
) -> Node:
    root = layers.root
    queues, entries = read_queues(root.child("QUEUES") or _EMPTY, report)
    has_token = _TOKEN in decided
    token, suspension = read_token(root, environ, ImportReport() if has_token else report)
    around = Around(
        queues=entries,
        timezone=read_timezone(root, environ, report),
        phase=root.child("phase"),
        suspension="" if has_token else suspension,
    )
    schedulers = root.child("SCHEDULERS") or _EMPTY
    schedules = read_schedules(schedulers, around, Sources(directories), report)
    entries_found = [schedulers.value[name] for name in schedules.value]
    backends = [found for each in entries_found if (found := each.child("backend"))]
    handlers = [found for each in entries_found if (found := each.child("handler"))]
    planners = wrap(
        {
            "kind": "sync",
            "processes": 2 if handlers else 1,
            # A plan is made with the settings of whoever takes it; those of its scheduler are not in a worker's file.
            "queues": [PLANNERS, DEFAULT_QUEUE] if is_planning else [DEFAULT_QUEUE],
        },
        "default",
    )
    found = {
        "jobs": Node([Node(JOBS_MODULE, "default")], "default"),
        "workers": read_workers(root.child("WORKERS") or _EMPTY, entries, report, planners),
        "schedules": schedules,
        "log": read_log(root, report),
        "replica": read_replica(root),
        "redis": _redis(entries, layers, report, has_redis=_URL in decided),
    }
    own = {
        "packages": read_packages(root, [*backends, *handlers], layers.is_remote, report),
        "token": token,
        "queues": queues if queues.value else None,
        "config": read_config(root, report),
    }
    kept = {key: node for key, node in own.items() if node is not None and (node.value or node.source)}
    found["cloudforet"] = Node(kept, root.origin) if kept else None
    return Node({key: node for key, node in found.items() if node is not None}, root.origin)


def _redis(entries: Mapping[str, Node], layers: Layers, report: ImportReport, *, has_redis: bool) -> Node | None:
    if has_redis:
        if entries:
            report.notice("redis.url is set, so the host, port and credentials in QUEUES are not used")
        return None
    redis = read_redis(dict(entries), layers.emptied, layers.is_remote, report)
    if redis is None:
        report.notice("QUEUES names no host, so the embedded server is used; redis.url names another")
    return redis


_HEADER = (
    "Made by `tenure config convert` from {names}. It replaces them: run it without --compat.",
    "Every schedule plans on a worker of the pool planners; its tasks go to the queue in its args.",
)
_NAMES = ("authentication", "authorization", "TOKEN_INFO")  # kinds of handlers, and where a token is: no credentials
_NO_SECRET = (_URL, ("cloudforet", "packages"))
_NUMBER = re.compile(r"(?i)(password|passwd|passphrase|pwd|secret|pin|token|api_?key)\Z")  # what may be a number
_KEY = re.compile(r"(?i)(private|encryption|signing|access|master|shared)_?key(_?(pem|hex|base64))?\Z")
_PRIVATE_KEY = "PRIVATE KEY-----"


def to_yaml(conversion: Converted, files: Sequence[Path]) -> str:
    """Return the configuration, with remarks as comments.

    Guarantees
        It loads to the same schedules, pools and Redis. What is a secret by its name or form is not in it: it is a
        reference to a variable, and the head of the file lists those.
        A token that cannot be read here is the reference to it, and suspends nothing: it is where the file is used.

    Does not guarantee
        That a secret is known as one under a name that says nothing, such as ``key`` or the path of a webhook.
    """
    variables: dict[str, str] = {}
    root, unread = _as_if_read(conversion.root)
    plain = root.mapped(lambda node, path: _shown(node, path, variables)).plain()
    remarks = [each.format(names=", ".join(map(str, files))) for each in _HEADER]
    remarks += [f"note: {notice}" for notice in conversion.notices if not unread or not notice.startswith(unread)]
    remarks += [f"set the variable {name}: {what} was a secret in the original" for name, what in variables.items()]
    comments = "".join(f"# {on_one_line(each)}\n" for each in remarks)
    return f"{comments}version: 1\n{dump_yaml(plain)}"


def _as_if_read(root: Node) -> tuple[Node, str]:
    """Return ``root`` as it is where the token can be read, and how the notice begins that it cannot here, if so."""
    path, token = root.nearest(_TOKEN)
    if path != _TOKEN or token.source is None:
        return root, ""
    schedules = root.value["schedules"]
    kept = {
        name: without(without(each, ("paused",)), ("pause_reason",)) if _waits_for_token(each) else each
        for name, each in schedules.value.items()
    }
    cloudforet = root.value["cloudforet"]
    read = {**cloudforet.value, "token": Node(token.source, token.origin)}
    found = {"schedules": Node(kept, schedules.origin), "cloudforet": Node(read, cloudforet.origin)}
    return Node({**root.value, **found}, root.origin), f"{token.origin}: TOKEN: "


def _waits_for_token(schedule: Node) -> bool:
    reason = schedule.given("pause_reason")
    return reason is not None and str(reason.value).startswith("TOKEN: ")


def _shown(node: Node, path: TreePath, variables: dict[str, str]) -> Node:
    if not isinstance(node.value, str):
        name = next((step for step in reversed(path) if isinstance(step, str)), "")  # of a list that of all its items
        is_secret = _is_number(node.value) and _is_free(path) and any(each.search(name) for each in (_NUMBER, _KEY))
        return _variable_for(node, path, variables) if is_secret else node
    has_reference = REFERENCE.search(node.value.replace("$${", "")) is not None
    if path[:2] not in _NO_SECRET and (_is_beside_reference if has_reference else _is_secret)(node.value, path):
        return _variable_for(node, path, variables)
    return Node(_absolute(node), node.origin) if has_reference else node


def _variable_for(node: Node, path: TreePath, variables: dict[str, str]) -> Node:
    name = _variable(path)
    while name in variables:  # of another path that differs in other characters than letters and digits
        name += "_2"
    variables[name] = ".".join(map(str, path))
    return Node(f"${{env:{name}}}", node.origin)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_free(path: TreePath) -> bool:
    """Return whether a value is the service's own, under any name."""
    return path[:2] == ("cloudforet", "config") or (path[:1] == ("schedules",) and "options" in path)


def _is_beside_reference(text: str, path: TreePath) -> bool:
    """Return whether a text has, beside its references, credentials of a URL, a private key, or a part of a secret."""
    rest = REFERENCE.sub("", text)
    is_named = _NUMBER.search(str(path[-1])) is not None or _has_secret_name(path)
    if is_named and rest.strip() and MARK not in rest:
        return True
    who = userinfo_of(rest)
    user, colon, password = rest[slice(*who)].partition(":") if who is not None else ("", "", "")
    return bool(password if colon else user) or QUERY_SECRET.search(rest) is not None or _PRIVATE_KEY in rest


def _is_secret(text: str, path: TreePath) -> bool:
    return bool(text) and (mask_url(text) != text or _PRIVATE_KEY in text or _has_secret_name(path))


def _has_secret_name(path: TreePath) -> bool:
    """Return whether a text is a secret by its name, or by that of something around it."""
    is_free = _is_free(path)
    if is_free and any(_KEY.search(str(step)) for step in path[2:]):
        return True
    steps = [step for step in (path[2:] if is_free else path[-1:]) if step not in _NAMES]
    return (is_free or path in {("redis", "password"), _TOKEN}) and any(map(looks_secret, steps))


def _variable(path: TreePath) -> str:
    if path == ("redis", "password"):
        return "REDIS_PASSWORD"
    if path == _TOKEN:
        return "TOKEN"
    return re.sub(r"[^A-Z0-9]+", "_", "_".join(map(str, path)).upper())


def _absolute(node: Node) -> str:
    """Return a text whose files are found from anywhere: relative ones count from the file that names them."""
    base = directory_of(node.origin).resolve()

    def replaced(found: re.Match[str]) -> str:
        return f"${{file:{base / found[2]}}}" if found[1] == "file" else found[0]

    return REFERENCE.sub(replaced, str(node.value))
