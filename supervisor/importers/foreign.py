"""Files in another program's format: their detection, and their conversion into layers below the native ones.

A command names it by ``--compat``, a file by its key ``compat``. One format is known: cloudforet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.core.errors import Problem
from supervisor.importers import FORMATS, KEY
from supervisor.settings.document import DEFAULT_ORIGIN, Node
from supervisor.settings.loader import Converted
from supervisor.settings.overrides import value_of

_CLOUDFORET_KEYS = ("SCHEDULERS", "QUEUES", "WORKERS", "GLOBAL", "application_scheduler", "application_worker")
_ALIASES = {"SPACEONE_HOST": ("web", "host"), "SPACEONE_PORT": ("web", "port")}
_THREADS = "SPACEONE_WORKER"
_OVER_FILES = (("redis.url", "TENURE_REDIS__URL"), ("cloudforet.token", "TENURE_CLOUDFORET__TOKEN"))
_PORT = re.compile(r"[0-9]{1,5}\Z")
_NO_CLUSTER = (
    "no cluster is named, so this replica is one of the cluster default: give each service on this Redis a name of its "
    "own (TENURE_CLUSTER, or cluster: in a native file); in one cluster the schedules of the service that came last "
    "replace those of the others"
)


@dataclass(frozen=True, slots=True)
class Foreign:
    """Finds and reads files of other formats: the ``Importer`` of every command."""

    compat: str | None
    environ: Mapping[str, str]
    flags: Mapping[str, object]

    def convert(self, files: Sequence[Path], roots: Sequence[Node | None], problems: list[Problem]) -> Converted | None:
        """Return the conversion of ``files``, or None when all are native; see ``Importer``."""
        said = self.compat
        for root in roots:
            node = root.child(KEY) if root is not None else None
            if node is not None and node.value not in FORMATS:
                remedy = f"write {', '.join(FORMATS)}, or remove it"
                problems.append(
                    Problem(node.origin, KEY, f"is not a known format, got {str(node.value)[:60]!r}", remedy)
                )
            elif node is not None:
                said = node.value
        if said is None:
            return None

        from supervisor.importers.cloudforet import conversion  # noqa: PLC0415 - a start without such files need not load it

        directories = [*(Path(entry) for entry in sys.path if entry), Path.cwd()]
        given = [path for path, name in _OVER_FILES if self.environ.get(name) or value_of(self.flags.get(path))]
        found = conversion.convert(files, environ=self.environ, directories=directories, given=given)
        threads = (f"{_THREADS}: counted threads of the gRPC server, and is not used",)
        is_named = bool(self.environ.get("TENURE_CLUSTER") or value_of(self.flags.get("cluster")))
        is_named = is_named or any(each.child("cluster") for each in found.native)
        notices = (*(() if is_named else (_NO_CLUSTER,)), *(threads if self.environ.get(_THREADS) else ()))
        return replace(found, notices=(*found.notices, *notices))

    def misplaced(self, document: Node) -> Problem | None:
        """Return the problem of a file of Cloudforet's that is read as a native one; None of any other."""
        node = next((child for key in _CLOUDFORET_KEYS if (child := document.child(key)) is not None), None)
        if node is None:
            return None
        remedy = "read it with --compat cloudforet, or once with tenure config convert"
        return Problem(node.origin, "", "is a configuration of Cloudforet's, and not of Tenure's", remedy)

    def finished(self, root: Node) -> Node:
        """Return ``root`` with the jobs of the format, and below it the settings of the original's variables."""
        from supervisor.importers.cloudforet import conversion  # noqa: PLC0415 - as above

        return _with_variables(conversion.with_own_jobs(root), self.environ)

    def original(self, problem: Problem) -> Problem:
        """Return ``problem`` with the place as the file calls it."""
        from supervisor.importers.cloudforet import conversion  # noqa: PLC0415 - as above

        return replace(problem, path=conversion.original_path(problem.path))


def _with_variables(root: Node, environ: Mapping[str, str]) -> Node:
    """Return ``root`` with the settings of the original's variables; ours lie over them."""
    entries = dict(root.value)
    for name, (section, key) in _ALIASES.items():
        text = environ.get(name, "")
        if not text or (key == "port" and not _PORT.match(text)):  # Kubernetes sets SPACEONE_PORT for a Service
            continue
        inner = entries.get(section, Node({}, DEFAULT_ORIGIN))
        value = int(text) if key == "port" else text
        entries[section] = Node({**inner.value, key: Node(value, name)}, inner.origin)
    return Node(entries, root.origin)
