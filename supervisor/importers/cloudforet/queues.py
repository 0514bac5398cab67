"""``QUEUES`` and ``WORKERS``: one Redis for the whole tree, its lists by name, and pools of processes.

Guarantees
    Every queue lies in the same Redis, or it is a problem that names both places: one tree has one Redis.
    Text from the network does not say where it is: whoever has the Redis decides what runs, and is sent its password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any
from urllib.parse import quote

from supervisor.importers.cloudforet.classes import split_name
from supervisor.importers.cloudforet.report import ImportReport, shown
from supervisor.importers.cloudforet.schedules import PLANNERS, check_queue, entries_of
from supervisor.settings.base import NAME, Path
from supervisor.settings.document import Node, wrap
from supervisor.settings.masking import REFERENCE

POOL_DEFAULT = 8
POOL_MAX = 64
QUEUE_BACKEND = "spaceone.core.queue.redis_queue.RedisQueue"
WORKER_BACKEND = "spaceone.core.scheduler.worker.BaseWorker"
BRIDGES = ("none", "ingest", "emit")
_OURS = ("backend", "channel", "bridge")
_PLACE = ("host", "port", "db", "ssl", "username", "password")
_TLS = {"ssl_ca_certs": "tls_ca_file", "ssl_certfile": "tls_cert_file", "ssl_keyfile": "tls_key_file"}
_TIMEOUTS = {"socket_timeout": "command_timeout", "socket_connect_timeout": "connect_timeout"}
_WORKER_KEYS = ("backend", "queue", "pool")
_NAME = re.compile(NAME)
_DIGITS = re.compile(r"[0-9]{1,5}\Z", re.ASCII)
_PORT_MAX = 65_535


def read_queues(queues: Node, report: ImportReport) -> tuple[Node, dict[str, Node]]:
    """Return the native ``cloudforet.queues``, and the entries by name."""
    found: dict[str, Node] = {}
    listed: dict[str, Any] = {}
    for name, given in entries_of(queues, ("QUEUES",), report):
        path: Path = ("QUEUES", name)
        found[name] = entry = _numbered(given, path, report)
        if not _NAME.match(name):
            message = "must be 1 to 64 of letters, digits and . _ -, starting with a letter or digit"
            report.problem(entry, path, message, "rename it")
        _check_backend(entry, path, QUEUE_BACKEND, "queue", report)
        settings = {"channel": _channel(entry, path, report)}
        bridge = entry.child("bridge")
        if bridge is not None and bridge.value not in BRIDGES:
            report.wrong(bridge, (*path, "bridge"), "is not known", f"write {', '.join(BRIDGES)}")
        elif bridge is not None:
            settings["bridge"] = bridge
        listed[name] = Node({key: node for key, node in settings.items() if node is not None}, entry.origin)
    return Node(listed, queues.origin), found


def _numbered(entry: Node, path: Path, report: ImportReport) -> Node:
    """Return an entry with numbers in place of their texts: redis-py took either."""
    kept = dict(entry.value)
    for key in ("port", "db"):
        node = entry.child(key)
        if node is not None and isinstance(node.value, str) and _DIGITS.match(node.value):
            report.remark(node, (*path, key), f"{node.value!r} is text; read as a number")
            kept[key] = Node(int(node.value), node.origin)
    return Node(kept, entry.origin)


def _channel(entry: Node, path: Path, report: ImportReport) -> Node | None:
    channel = entry.child("channel")
    if channel is not None and (not isinstance(channel.value, str) or not channel.value):
        report.wrong(channel, (*path, "channel"), "must be text", "write the name of the Redis list")
        return None
    return channel


def _check_backend(entry: Node, path: Path, known: str, kind: str, report: ImportReport) -> None:
    backend = entry.given("backend")
    if backend is None:
        report.problem(entry, (*path, "backend"), "is missing", f"add backend: {known}")
        return
    split = split_name(backend.value) if isinstance(backend.value, str) else None
    if split is None:
        remedy = "write package.module.Class or package.module:Class"
        report.wrong(backend, (*path, "backend"), "must name a class", remedy)
    elif split[1] != known.rpartition(".")[2]:
        text = f"{backend.value} is not used: every {kind} here is Tenure's own"
        report.remark(backend, (*path, "backend"), text)


def read_redis(
    entries: dict[str, Node],
    emptied: Sequence[tuple[Path, Node]],
    is_remote: Callable[[Node], bool],
    report: ImportReport,
) -> Node | None:
    """Return the native ``redis`` that all queues agree on; None without a host.

    ``emptied``: places of queues that were there, and are null in a document of the network.
    """
    for path, node in emptied:
        _refuse(node, path, report)
    described = [(name, entry) for name, entry in entries.items() if _place(entry)]
    if not described:
        return None
    before = len(report.problems)
    first_name, first = described[0]
    for name, entry in described:
        _refuse_remote(name, entry, is_remote, report)
        _compare(first_name, first, name, entry, report)
    for name, entry in entries.items():
        _unused(name, entry, report)
    found = _settings(first_name, first, report)
    return found if len(report.problems) == before else None


def _place(entry: Node) -> dict[str, Any]:
    found = {
        key: entry.value[key].plain() for key in _PLACE if key in entry.value and entry.value[key].value is not None
    }
    if found:
        found = {"host": "localhost", "port": 6379, "db": 0, "ssl": False, **found}
    return found


def _refuse_remote(name: str, entry: Node, is_remote: Callable[[Node], bool], report: ImportReport) -> None:
    for key in (*_PLACE, *_TLS):
        node = entry.given(key)
        if node is not None and is_remote(node):
            _refuse(node, ("QUEUES", name, key), report)


def _refuse(node: Node, path: Path, report: ImportReport) -> None:
    message = "came over the network, which may choose no Redis: what runs is decided there"
    report.problem(node, path, message, "write it into a local file, set redis.url, or pin the import with sha256")


def _compare(first_name: str, first: Node, name: str, entry: Node, report: ImportReport) -> None:
    ours, theirs = _place(first), _place(entry)
    for key in _PLACE:
        if ours.get(key) != theirs.get(key):
            node = entry.child(key) or entry
            path: Path = ("QUEUES", name, key)
            seen = "" if key in {"username", "password"} else f" ({theirs.get(key)!r}, not {ours.get(key)!r})"
            message = f"differs from QUEUES.{first_name}.{key}, at {(first.child(key) or first).origin}{seen}"
            remedy = "one tree has one Redis: make them equal, run two trees, or say which with TENURE_REDIS__URL"
            report.problem(node, path, message, remedy)


def _unused(name: str, entry: Node, report: ImportReport) -> None:
    known = {*_OURS, *_PLACE, *_TLS, *_TIMEOUTS}
    others = sorted(key for key in entry.value if key not in known and not key.startswith("x-"))
    if others:
        report.remark(entry, ("QUEUES", name), f"not used: {', '.join(others)}")


def _settings(name: str, entry: Node, report: ImportReport) -> Node:
    place = _place(entry)
    path: Path = ("QUEUES", name)
    _check_place(entry, path, place, report)
    scheme = "rediss" if place["ssl"] is True else "redis"
    host = str(place["host"])
    if not _refers(host):
        host = f"[{host}]" if ":" in host else quote(host, safe="")
    origin = (entry.child("host") or entry).origin
    redis: dict[str, Node] = {"url": Node(f"{scheme}://{host}:{place['port']}/{place['db']}", origin)}
    for key in ("username", "password"):
        if key in place:
            redis[key] = entry.value[key]
    for theirs, ours in _TLS.items():
        if theirs in entry.value:
            redis[ours] = entry.value[theirs]
    for theirs, ours in _TIMEOUTS.items():
        node = entry.child(theirs)
        if node is not None and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            redis[ours] = Node(f"{node.value}s", node.origin)
    return Node(redis, entry.origin)


def _refers(value: object) -> bool:
    """Return whether a value is known only once its variable or file was read; the value is then checked as native."""
    return isinstance(value, str) and REFERENCE.search(value) is not None


def _check_place(entry: Node, path: Path, place: dict[str, Any], report: ImportReport) -> None:
    def check(key: str, is_good: bool, wanted: str) -> None:  # noqa: FBT001 - reads as the rule
        if not is_good and not _refers(place.get(key)):
            node = entry.child(key) or entry
            report.problem(node, (*path, key), f"must be {wanted}, got {shown(node, (key,))}", "correct it")

    port, db = place["port"], place["db"]
    check("host", isinstance(place["host"], str) and bool(place["host"]), "the name of a host")
    check("port", isinstance(port, int) and not isinstance(port, bool) and 0 < port <= _PORT_MAX, "1 to 65535")
    check("db", isinstance(db, int) and not isinstance(db, bool) and db >= 0, "the number of a database")
    check("ssl", isinstance(place["ssl"], bool), "true or false")
    for key in ("username", "password"):
        check(key, isinstance(place.get(key, ""), str), "text; quote it")


def read_workers(workers: Node, queues: Collection[str], report: ImportReport, planners: Node) -> Node:
    """Return the native ``workers``: a pool for each entry, and ``planners`` for the jobs that plan."""
    pools: dict[str, Node] = {}
    for name, entry in entries_of(workers, ("WORKERS",), report):
        path: Path = ("WORKERS", name)
        before = len(report.problems)
        if not _NAME.match(name) or name == PLANNERS:
            message = "must be 1 to 64 of letters, digits and . _ -, starting with a letter or digit, and not planners"
            report.problem(entry, path, message, "rename it")
        _check_backend(entry, path, WORKER_BACKEND, "worker", report)
        for key, node in entry.value.items():
            if key not in _WORKER_KEYS:
                report.problem(node, (*path, key), "is not a setting of a worker", f"known: {', '.join(_WORKER_KEYS)}")
        queue = entry.given("queue")
        if queue is None:
            report.problem(entry, (*path, "queue"), "is missing", f"add queue: {next(iter(queues), 'NAME')}")
        else:
            check_queue(queue, (*path, "queue"), queues, report)
        processes = _pool(entry, path, report)
        served = [queue.value] if queue is not None and isinstance(queue.value, str) else []
        if len(report.problems) == before:
            pools[name] = wrap({"kind": "sync", "queues": served, "processes": processes}, entry.origin)
    return Node({**pools, PLANNERS: planners}, workers.origin)


def _pool(entry: Node, path: Path, report: ImportReport) -> int:
    node = entry.given("pool")
    if node is None:
        return POOL_DEFAULT
    value = node.value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < len("10000"):
        report.remark(node, (*path, "pool"), f"{value!r} is text; read as {value}")
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= POOL_MAX:
        remedy = f"write how many processes, 1 to {POOL_MAX}; for more run more replicas"
        report.wrong(node, (*path, "pool"), f"must be 1 to {POOL_MAX}", remedy)
        return 1
    return value
