"""The layers of a Cloudforet configuration, merged into one flat mapping of its keys.

A document is flat (``SCHEDULERS``, ``QUEUES``, … at its top), wrapped (``GLOBAL`` with
``IMPORT`` and the deprecated ``REMOTE_URL`` beside it), a chart's values file (sections
``application_scheduler`` and ``application_worker``), or a Python module.

Guarantees
    Order, later wins: GLOBAL, IMPORT in its order, REMOTE_URL in its order; of several files, as they were named.
    Mappings merge, lists and scalars replace; a mapping over something else, or under it, is a problem.
    Cycles, missing files and more than ``IMPORTS_MAX`` imports are problems.
    Text from the network chooses no code: it holds no ``packages`` and no ``handler``, and imports no file.
    A text whose digest is in a file counts as that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from supervisor.importers.cloudforet.fetch import ChangedError, FetchTarget, LastingError, fetch, is_absent, target_of
from supervisor.importers.cloudforet.other_keys import check_spelling
from supervisor.importers.cloudforet.python_source import read_module
from supervisor.importers.cloudforet.report import ImportReport, shown
from supervisor.settings.base import Path as TreePath
from supervisor.settings.document import Node
from supervisor.settings.interpolate import escape
from supervisor.settings.yaml_source import Parsed, parse_text, read_file

IMPORTS_MAX = 100
IMPORT_DEPTH_MAX = 8
IMPORT_KEYS = ("IMPORT", "REMOTE_URL")
OWN_KEYS = ("timezone", "phase", "packages")
"""Keys that python-core does not know: how this program is told what it cannot find out."""

_STRICT = frozenset({"SCHEDULERS", "QUEUES", "WORKERS", "GLOBAL"})
_CHART = ("application_scheduler", "application_worker")
_AROUND = frozenset({"GLOBAL", "database", "global", "shared", "application", *_CHART})
"""Steps to the keys of a document, in all of its forms, one inside of another too."""

_MAIN = ("SCHEDULERS", "QUEUES", "WORKERS")
_ZONEINFO = re.compile(r".*/zoneinfo/(?P<zone>[A-Za-z0-9_+./-]+)\Z")


def tolerates(path: TreePath) -> bool:
    """Return whether a scalar may be as ambiguous as YAML 1.1 allows: nothing here depends on it."""
    return not _STRICT & {step for step in path[:3] if isinstance(step, str)} or (
        path[:1] == ("GLOBAL",) and not _STRICT & {step for step in path[1:3] if isinstance(step, str)}
    )


def read_document(file: Path, report: ImportReport) -> Node | None:
    """Return one file as it is; None when it cannot be read, which is then a problem."""
    if file.suffix == ".py":
        return read_module(file, report)
    return _root(read_file(file, tolerates), report)


def _root(parsed: Parsed, report: ImportReport) -> Node | None:
    report.problems += parsed.problems
    if parsed.root is not None and not isinstance(parsed.root.value, dict):
        return None
    return parsed.root


class Layers:
    """Documents laid over one another."""

    def __init__(self, report: ImportReport) -> None:
        self._report = report
        self._imports = 0
        self.root = Node({}, "default")
        self.files: list[Path] = []
        self._remote: set[str] = set()
        self.emptied: list[tuple[TreePath, Node]] = []
        """What stood under QUEUES, which says where Redis is, and came over the network as null then."""

    def is_remote(self, node: Node) -> bool:
        """Return whether a value came over the network, and no file demands that very text."""
        return node.origin.rpartition(":")[0] in self._remote

    def add(self, document: Node, file: Path) -> None:
        """Lay one document and its imports over the layers there."""
        self.files.append(file)
        self._document(document, file.parent, (str(file.resolve()),), is_local=True)

    def _document(self, document: Node, base: Path, chain: tuple[str, ...], *, is_local: bool) -> None:
        if any(key in document.value for key in _CHART):
            document = self._chart(document)
        is_wrapped = "GLOBAL" in document.value or any(key in document.value for key in IMPORT_KEYS)
        if is_wrapped and "GLOBAL" in document.value:
            self._beside(document)
            inner = document.value["GLOBAL"]
            own = {key: document.value[key] for key in OWN_KEYS if key in document.value}
            if inner.value is not None and not isinstance(inner.value, dict):
                self._report.wrong(inner, ("GLOBAL",), "must be a mapping", "write KEY: value lines")
            else:
                layer = Node({**(inner.value or {}), **own}, document.origin)
                self.root = self._merged(self.root, layer, ())
        else:
            kept = {key: child for key, child in document.value.items() if key not in IMPORT_KEYS}
            self.root = self._merged(self.root, Node(kept, document.origin), ())
        for key in IMPORT_KEYS if is_wrapped else ():
            if (entries := document.given(key)) is not None:
                self._imported(key, entries, base, chain, is_local=is_local)

    def _beside(self, document: Node) -> None:
        """Name the keys beside GLOBAL, where python-core reads nothing."""
        for key, child in document.value.items():
            if key in {"GLOBAL", "compat", *IMPORT_KEYS, *OWN_KEYS} or key.startswith("x-"):
                continue
            if key in _MAIN:
                self._report.problem(
                    child, (key,), "stands beside GLOBAL, where python-core reads nothing", "move it under GLOBAL"
                )
            else:
                check_spelling(key, child, document, self._report)
                self._report.remark(child, (key,), "stands beside GLOBAL, where python-core reads nothing; left out")

    def _imported(self, key: str, entries: Node, base: Path, chain: tuple[str, ...], *, is_local: bool) -> None:
        if key == "REMOTE_URL":
            self._report.remark(entries, (key,), "is deprecated; IMPORT does the same")
        items = entries.value if isinstance(entries.value, list) else [entries]
        for index, item in enumerate(items):
            path: TreePath = (key, index) if isinstance(entries.value, list) else (key,)
            target = target_of(item, path, base, self._report)
            if target is not None:
                self._import(target, chain, is_local=is_local)

    def _import(self, target: FetchTarget, chain: tuple[str, ...], *, is_local: bool) -> None:
        name = target.url or str(target.file.resolve() if target.file else "")
        problem = self._report.problem
        self._imports += 1
        if name in chain:
            problem(target.node, target.path, f"imports {target.name}, which imports this file", "break the circle")
        elif len(chain) > IMPORT_DEPTH_MAX:
            problem(target.node, target.path, f"is nested deeper than {IMPORT_DEPTH_MAX} imports", "flatten it")
        elif self._imports > IMPORTS_MAX:
            if self._imports == IMPORTS_MAX + 1:
                problem(target.node, target.path, f"is one of more than {IMPORTS_MAX} imports", "merge some files")
        elif target.file is not None and not is_local:
            problem(target.node, target.path, "came over the network, and may import no file", "use https://")
        else:
            document = self._read(target)
            if document is not None:
                base = Path() if target.url else (target.file or Path()).parent
                is_local = is_local and target.is_local
                if not is_local:
                    self._remote.add(target.name)
                    self._refuse_code(document)
                self._document(document, base, (*chain, name), is_local=is_local)

    def _refuse_code(self, document: Node) -> None:
        """Refuse keys that choose code, in any of the forms of a document."""
        for path, node in document.walk():
            is_handler = len(path) >= 3 and path[-3] == "SCHEDULERS" and path[-1] == "handler"
            if (path[-1:] == ("packages",) and _AROUND.issuperset(path[:-1])) or is_handler:
                message = "came over the network, which may choose no code"
                self._report.problem(node, path, message, "write it into a local file, or pin the import with sha256")

    def _read(self, target: FetchTarget) -> Node | None:
        if is_absent(target):
            self._missing(target, "there is no such file")
            return None
        if target.file is not None:
            self.files.append(target.file)
            if target.file.suffix == ".py":
                return read_module(target.file, self._report)
        text = self._text(target)
        if text is None:
            return None
        parsed = parse_text(text, lambda line: f"{target.name}:{line}", tolerates=tolerates)
        root = _root(parsed, self._report)
        if root is None and parsed.root is not None:
            self._missing(target, "must be a mapping", is_certain=True)
        return root if root is None or not target.url else _literal(root)

    def _text(self, target: FetchTarget) -> str | None:
        try:
            return fetch(target).decode("utf-8-sig")
        except UnicodeDecodeError:
            self._missing(target, "is not UTF-8", is_certain=True)
        except OSError as error:
            is_certain = not target.url or isinstance(error, ChangedError)
            is_passing = not is_certain and not isinstance(error, LastingError)
            self._missing(target, error.strerror or str(error), is_certain=is_certain, is_passing=is_passing)
        return None

    def _missing(self, target: FetchTarget, why: str, *, is_certain: bool = False, is_passing: bool = False) -> None:
        if target.is_optional and not is_certain:
            self._report.notice(f"{target.node.origin}: {target.name}: {why}; it is optional")
            return
        remedy = "correct it" if is_certain else "correct it, or write {url: …, optional: true}"
        message = f"{target.name}: {why}"
        self._report.problem(target.node, target.path, message, remedy, is_passing=is_passing)

    def _chart(self, document: Node) -> Node:
        """Return the values that the chart would mount: database, shared, application, then both sections."""
        self._report.notice(
            f"{document.origin}: is a chart's values file: application_scheduler and application_worker are taken, "
            f"as the chart would mount them"
        )
        for key in _MAIN:
            if key in document.value:
                remedy = "move it into one of them, or remove them"
                self._report.problem(document.value[key], (key,), "stands beside application_scheduler/_worker", remedy)
        merged = Node({}, document.origin)
        for section, node in _sections(document):
            if node.value is None:
                continue
            if not isinstance(node.value, dict):
                self._report.wrong(node, section, "must be a mapping", "write KEY: value lines")
                continue
            if section == _CHART[1:]:
                self._contradictions(merged, node)
            merged = self._merged(merged, node, section)
        own = {key: document.value[key] for key in OWN_KEYS if key in document.value}
        if "timezone" not in own:
            self._mounted_zone(document)
        return Node({**merged.value, **own}, document.origin)

    def _contradictions(self, first: Node, second: Node) -> None:
        """Name a queue that scheduler and worker describe differently: they would not meet."""
        ours, theirs = first.child("QUEUES"), second.child("QUEUES")
        if ours is None or theirs is None or not isinstance(ours.value, dict) or not isinstance(theirs.value, dict):
            return
        for name in ours.value.keys() & theirs.value.keys():
            if ours.value[name].plain() != theirs.value[name].plain():
                message = f"differs from application_scheduler.QUEUES.{name}, at {ours.value[name].origin}"
                path = ("application_worker", "QUEUES", name)
                self._report.problem(theirs.value[name], path, message, "make them equal: else they never meet")

    def _mounted_zone(self, document: Node) -> None:
        volumes = document.child("volumes")
        for _, node in volumes.walk() if volumes is not None else ():
            match = _ZONEINFO.match(node.value) if isinstance(node.value, str) else None
            if match is not None:
                self._report.notice(
                    f"{node.origin}: the chart mounts the local time of {match['zone']}; it is not used here: "
                    f"write timezone: {match['zone']} if schedules mean it"
                )
                return

    def _merged(self, base: Node, over: Node, path: TreePath) -> Node:
        merged = dict(base.value)
        for key, child in over.value.items():
            before = merged.get(key)
            if child.is_blank and before is not None and isinstance(before.value, dict):
                continue  # as in native files: it says nothing
            if before is None or before.value is None or child.value is None:
                merged[key] = child
                is_lost = before is not None and before.value is not None
                if is_lost and (*path, key)[0] == "QUEUES" and self.is_remote(child):
                    self.emptied.append(((*path, key), child))
            elif isinstance(before.value, dict) and isinstance(child.value, dict):
                merged[key] = self._merged(before, child, (*path, key))
            elif isinstance(before.value, dict) != isinstance(child.value, dict):
                was, now = "no mapping", "one"
                if isinstance(before.value, dict):
                    was, now = "a mapping", shown(child, (*path, key))
                message = f"is {was} at {before.origin}, and {now} here"
                self._report.problem(child, (*path, key), message, "make both the same type")
            else:
                merged[key] = child
        return Node(merged, over.origin)


def _sections(document: Node) -> Iterator[tuple[TreePath, Node]]:
    """Yield the sections that the chart merges, in its order."""
    shared = document.nearest(("global", "shared"))
    candidates: Sequence[tuple[TreePath, Node | None]] = (
        (("database",), document.child("database")),
        (("global", "shared"), shared[1] if len(shared[0]) == 2 else None),
        (("application",), document.child("application")),
        *(((key,), document.child(key)) for key in _CHART),
    )
    for path, node in candidates:
        if node is not None:
            yield path, node


def _literal(node: Node) -> Node:
    """Return a tree in which nothing refers to a file or variable of this machine."""
    return node.mapped(lambda each, _: Node(escape(each.value), each.origin) if isinstance(each.value, str) else each)
