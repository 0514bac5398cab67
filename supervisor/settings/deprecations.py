"""Old names that still work: of settings, and of flags. New names are on the right.

Guarantees
    An old name has the effect of the new one, in files, variables and flags alike, and every use of one
    is in the notices of the load, with the version that will refuse it.
    Both names at once in one file are a problem, because one of the two would be ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from supervisor.core.errors import Problem
from supervisor.settings.document import Node, at, merge, parse_path, without
from supervisor.settings.schema import Shape


@dataclass(frozen=True, slots=True)
class Old:
    """Deprecated name: its replacement, and the version that removes it."""

    new: str
    removed_in: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing about a configuration that works today and will not for ever."""

    where: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.name}: {self.text}"


OLD_SETTINGS: Mapping[str, Old] = {
    "election.retry_period": Old("election.renew_period", "1.0"),  # as kube-scheduler's leaderElection calls it
    "web.bind_address": Old("web.host", "1.0"),
}
"""Paths of settings by their old name."""

OLD_FLAGS: Mapping[str, Old] = {
    "--leader-elect-lease-duration": Old("election.lease_duration", "1.0"),
    "--leader-elect-retry-period": Old("election.renew_period", "1.0"),
    "--bind-address": Old("web.host", "1.0"),
}
"""Flags that kube-scheduler's command lines have, by their setting."""


FOREIGN_FLAGS: Mapping[str, str] = {
    "--leader-elect": "every replica takes part in the election, unless --election-participate=false",
    "--leader-elect-renew-deadline": "trust ends by itself, before the lease does (--election-lease-duration)",
    "--leader-elect-resource-lock": "the lease lies in Redis (--redis-url)",
    "--leader-elect-resource-name": "the lease is that of the cluster (--cluster)",
    "--leader-elect-resource-namespace": "the lease is that of the cluster (--cluster)",
    "--kubeconfig": "the lease lies in Redis, not in Kubernetes (--redis-url)",
    "-v": "write --log-level debug",
    "--v": "write --log-level debug",
}
"""Flags of kube-scheduler that have no equal here, and what to write."""


def _variable(path: str) -> str:
    return f"TENURE_{path.upper().replace('.', '__')}"


OLD_VARIABLES: Mapping[str, Old] = {_variable(name): old for name, old in OLD_SETTINGS.items()}


def notice(where: str, name: str, old: Old, new: str = "") -> Notice:
    """Return the notice about one use of an old name."""
    return Notice(where, name, f"is the old name of {new or old.new}; it will be refused from {old.removed_in} on")


def renamed(root: Node, shape: Shape, notices: list[Notice], problems: list[Problem]) -> Node:
    """Return one file's tree with new names for old ones."""
    for name, old in OLD_SETTINGS.items():
        path, new = parse_path(name), parse_path(old.new)
        assert path is not None
        assert new is not None
        reached, node = root.nearest(path)
        if reached != path:
            continue
        root = without(root, path)
        if root.nearest(new)[0] == new:
            message = f"is the old name of {old.new}, which is set in the same file"
            problems.append(Problem(node.origin, name, message, f"remove {name}"))
            continue
        notices.append(notice(node.origin, name, old))
        root = merge(root, at(new, node), shape) or root
    return root


def variable_path(name: str) -> tuple[str, ...] | None:
    """Return the path of an old variable's name."""
    old = OLD_VARIABLES.get(name.upper())
    return parse_path(old.new) if old is not None else None


def flag_path(key: str) -> tuple[str, ...] | None:
    """Return the path of an old setting's name."""
    old = OLD_SETTINGS.get(key)
    return parse_path(old.new) if old is not None else None


def of_variables(names: Iterable[str]) -> list[Notice]:
    """Return notices about variables."""
    found = []
    for name in sorted(names):
        old = OLD_VARIABLES.get(name.upper())
        if old is not None:
            found.append(notice("environment", name, old, _variable(old.new)))
    return found


def of_flags(options: Mapping[str, str]) -> list[Notice]:
    """Return notices about flags.

    Args:
        options: by path as it was given, the option that gave it.
    """
    found = []
    for key, option in options.items():
        if option in OLD_FLAGS:
            old = OLD_FLAGS[option]
            path = parse_path(old.new) or ()
            found.append(notice("command line", option, old, f"--{'-'.join(map(str, path)).replace('_', '-')}"))
        elif key in OLD_SETTINGS:
            found.append(notice("command line", option, OLD_SETTINGS[key], f"--set {OLD_SETTINGS[key].new}"))
    return found
