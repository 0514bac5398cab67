"""``SCHEDULERS``: each entry becomes a native schedule whose job plans the original's tasks on a worker.

An entry names a ``backend`` (a scheduler class) or, in the short form, a ``handler`` with an
``interval`` in seconds and perhaps ``enabled``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from supervisor.core.suggestions import suggestion
from supervisor.importers.cloudforet.classes import SourceClass, Sources, TimingKind, split_name
from supervisor.importers.cloudforet.report import ImportReport, shown
from supervisor.importers.cloudforet.timing import TimingReader
from supervisor.settings.base import SCHEDULE_ID, Path
from supervisor.settings.document import Node, wrap
from supervisor.settings.interpolate import escape
from supervisor.settings.masking import looks_secret

PLANNERS = "planners"
"""The queue and the pool of the jobs that plan, apart from the tasks: a long task delays no planning."""

PLAN_JOB = "cloudforet.plan"
RUN_JOB = "cloudforet.run"
DEFAULT_QUEUE = "default"
KNOWN = (
    "backend", "handler", "queue", "interval", "minute", "rule",
    "unit", "phase", "timezone", "enabled", "misfire", "misfire_grace", "options",
)  # fmt: skip
"""What an entry may say: the first line is the original's, the second ours."""

_MISFIRE = {"coalesce": "latest", "skip": "skip", "all": "all"}
_ID = re.compile(SCHEDULE_ID)


@dataclass(frozen=True, slots=True)
class Around:
    """Context of an entry: facts from the rest of the configuration."""

    queues: Collection[str]
    timezone: Node
    phase: Node | None
    suspension: str
    """Why schedules with a class are suspended: their token is missing. Empty: they are not."""


def read_schedules(schedulers: Node, around: Around, sources: Sources, report: ImportReport) -> Node:
    """Return the native ``schedules`` of ``SCHEDULERS``."""
    found = {}
    for name, entry in entries_of(schedulers, ("SCHEDULERS",), report):
        schedule = _Entry(name, entry, around, sources, report).schedule()
        if schedule is not None:
            found[name] = schedule
    return Node(found, schedulers.origin)


def entries_of(section: Node, path: Path, report: ImportReport) -> list[tuple[str, Node]]:
    """Return the entries of a section; an entry that is no mapping is a problem."""
    if section.value is None:
        return []
    if not isinstance(section.value, dict):
        report.wrong(section, path, "must be a mapping from names to settings")
        return []
    good = []
    for name, entry in section.value.items():
        if isinstance(entry.value, dict):
            good.append((name, entry))
        else:
            report.wrong(entry, (*path, name), "must be a mapping", "write key: value lines")
    return good


class _Entry:
    def __init__(self, name: str, entry: Node, around: Around, sources: Sources, report: ImportReport) -> None:
        self._name = name
        self._entry = entry
        self._around = around
        self._report = report
        self._path: Path = ("SCHEDULERS", name)
        self._backend = self._text("handler") or self._text("backend")
        self._is_handler = entry.child("handler") is not None
        self._class = str(self._backend.value) if self._backend is not None else ""
        self._found = SourceClass(TimingKind.INTERVAL) if self._is_handler else sources.find(self._class)

    def schedule(self) -> Node | None:
        if self._report.is_about(self._path):
            return None  # a value that could not be read: what depends on it would be guessed
        before = len(self._report.problems)
        if _ID.match(self._name) is None:
            message = "must be 1 to 200 of letters, digits and . _ : / -"
            self._report.problem(self._entry, self._path, message, "rename it")
        self._check_class()
        self._check_keys()
        queue = self._queue()
        entry = self._entry
        if self._around.phase is not None and entry.child("phase") is None:
            entry = Node({**entry.value, "phase": self._around.phase}, entry.origin)
        trigger = TimingReader(entry, self._path, self._found, self._class, self._report).trigger()
        rest = self._policies()
        if len(self._report.problems) > before or trigger is None or queue is None:
            return None
        settings, options = trigger
        return Node({**self._job(queue, options), **settings, **rest}, self._entry.origin)

    def _job(self, queue: str, timing: dict[str, Any]) -> dict[str, Node]:
        if self._is_handler:
            job, args = RUN_JOB, {"handler": self._class, "options": self._extra()}
        else:
            args = {"backend": self._class, "queue": queue, "options": {**timing, **self._extra()}}
            job, queue = PLAN_JOB, PLANNERS
        origin = self._entry.origin
        return {"job": Node(job, origin), "queue": Node(queue, origin), "args": wrap(args, origin)}

    def _text(self, key: str) -> Node | None:
        node = self._entry.given(key)
        if node is not None and (not isinstance(node.value, str) or split_name(node.value) is None):
            remedy = "write package.module.Class or package.module:Class"
            self._report.wrong(node, (*self._path, key), "must name a class", remedy)
        return node

    def _check_class(self) -> None:
        if self._entry.given("handler") is not None and self._entry.given("backend") is not None:
            self._report.problem(self._entry, self._path, "has both backend and handler", "keep one of them")
        if self._backend is None:
            self._report.problem(
                self._entry, (*self._path, "backend"), "is missing", "add backend: package.module.Class"
            )

    def _check_keys(self) -> None:
        """Refuse keys that neither this program nor the class takes; python-core would die of them at start."""
        takes = self._found.takes if self._found.is_known else frozenset()
        for key, node in self._entry.value.items():
            if key in KNOWN or takes is None or key in takes:
                continue
            remedy = suggestion(key, KNOWN, "remove it, or move options of the class under options:")
            self._report.problem(node, (*self._path, key), "is not a setting of a scheduler", remedy)
        options = self._entry.given("options")
        if options is not None and not isinstance(options.value, dict):
            self._report.wrong(options, (*self._path, "options"), "must be a mapping")

    def _extra(self) -> dict[str, Any]:
        own = {key: node.plain() for key, node in self._entry.value.items() if key not in KNOWN}
        options = self._entry.given("options")
        found = {**own, **(options.plain() if options is not None else {})}
        for key in filter(looks_secret, found):
            text = "lies in Redis with every run; let the class read it with config.get_global"
            self._report.remark(self._entry, (*self._path, key), text)
        return found

    def _queue(self) -> str | None:
        node = self._entry.given("queue")
        if node is None:
            if self._is_handler:
                return DEFAULT_QUEUE
            remedy = f"add queue: {next(iter(self._around.queues), 'NAME')}"
            self._report.problem(self._entry, (*self._path, "queue"), "is missing", remedy)
            return None
        return check_queue(node, (*self._path, "queue"), self._around.queues, self._report)

    def _policies(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "timezone": self._entry.given("timezone") or self._around.timezone,
            "missed": Node(_MISFIRE["coalesce"], self._entry.origin),
        }
        enabled = self._entry.given("enabled")
        if enabled is not None and not isinstance(enabled.value, bool):
            self._report.wrong(enabled, (*self._path, "enabled"), "must be true or false")
        elif enabled is not None and not enabled.value:
            found |= _paused("enabled: false", enabled.origin)
        elif self._around.suspension and not self._is_handler:
            found |= _paused(self._around.suspension, self._entry.origin)
        misfire = self._entry.given("misfire")
        if misfire is not None and misfire.value not in tuple(_MISFIRE):
            remedy = f"write {', '.join(_MISFIRE)}"
            self._report.wrong(misfire, (*self._path, "misfire"), "is not known", remedy)
        elif misfire is not None:
            found["missed"] = Node(_MISFIRE[misfire.value], misfire.origin)
        grace = self._entry.given("misfire_grace")
        if grace is not None:
            is_number = isinstance(grace.value, int | float) and not isinstance(grace.value, bool)
            found["catchup_window"] = Node(f"{grace.value}s", grace.origin) if is_number else grace
        return found


def check_queue(node: Node, path: Path, queues: Collection[str], report: ImportReport) -> str | None:
    """Return the name of a queue that ``QUEUES`` defines; another one is a problem."""
    if isinstance(node.value, str) and node.value in queues:
        return node.value
    listed = ", ".join(sorted(queues)[:10])
    remedy = suggestion(str(node.value), sorted(queues), f"QUEUES has {listed}" if listed else "add it to QUEUES")
    report.problem(node, path, f"{shown(node)} is not in QUEUES", remedy)
    return None


def _paused(reason: str, origin: str) -> dict[str, Any]:
    return {"paused": Node(value=True, origin=origin), "pause_reason": Node(escape(reason), origin)}
