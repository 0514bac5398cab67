"""The rule of references in arguments of jobs: which variables and files of a worker a run may name.

Guarantees
    Settings of the tree (``TENURE_*``), /proc and the files that the tree withholds are refused whatever is allowed.

Does not guarantee
    That a path has no links: resolve them first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

ENV_ALLOWED = ("JOB_*",)
FILES_ALLOWED = ("/run/secrets/jobs",)
_NEVER_ENV = "TENURE_*"
_NEVER_FILES = ("/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True)
class ReferenceRule:
    """The allow-list of one process. A directory includes everything below it."""

    current: ClassVar[ReferenceRule]
    """The rule of this process, as its settings say: without one of its own the strictest that is useful."""

    env: Sequence[str] = ENV_ALLOWED
    files: Sequence[str] = FILES_ALLOWED
    withheld: Sequence[str] = ()

    def allows_variable(self, name: str) -> bool:
        """Return whether a run may have the value of an environment variable."""
        return not fnmatchcase(name.upper(), _NEVER_ENV) and any(fnmatchcase(name, each) for each in self.env)

    def allows_file(self, path: str, *, resolve: Callable[[str], str]) -> bool:
        """Return whether a run may have the content of ``path``, as ``resolve``, which follows links, returned it.

        The links of the rule are followed each time: mounted secrets are other files when they were renewed.
        """
        withheld, files = (list(map(resolve, places)) for places in (self.withheld, self.files))
        return not _is_below(path, (*_NEVER_FILES, *withheld)) and _is_below(path, files)


def _is_below(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


ReferenceRule.current = ReferenceRule()
