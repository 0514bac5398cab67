"""Environment variables and flags as layers: ``TENURE_REDIS__URL``, ``--set redis.url=…``.

A setting that is text takes the variable as it is, so that a password needs no quoting; any
other is read as YAML, so lists are ``[a, b]``. Ids that people chose are found without
regard to case, and ``_`` matches any of ``- . : /``, because variables cannot hold those.

An empty variable counts as not set (``TENURE_X=${X}`` in a compose file); an empty flag
goes back to the default.

Flags of kube-scheduler work, with a notice, or are refused with a remedy. One that works has the effect of the new
one, and every use of it is in the notices of the load, with the version that will refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from supervisor.core.errors import Problem
from supervisor.core.jobs.references import ReferenceRule
from supervisor.core.suggestions import suggestion
from supervisor.settings.base import Path
from supervisor.settings.document import Node, at, format_path, merge, parse_path, wrap
from supervisor.settings.masking import REFERENCE, mask_url, variables_of
from supervisor.settings.scalars import is_utf8
from supervisor.settings.schema import Shape, ShapeKind, settings_shape
from supervisor.settings.sections.models import Settings
from supervisor.settings.validation import conform
from supervisor.settings.yaml_source import parse_text

PREFIX = "TENURE_"
DEFAULTS_VARIABLE = "TENURE_DEFAULTS"
"""Names the file of an image that lies below those of its user; a variable of its own would lie above them."""

_OTHERS = frozenset(
    {
        "TENURE_CONFIG",
        "TENURE_COMPAT",
        DEFAULTS_VARIABLE,
        "TENURE_MODULE_PATH",
        "TENURE_RUN_ID",
        "TENURE_ATTEMPT",
        "TENURE_MAYBE_DUPLICATE",
        "TENURE_SCHEDULE",
        "TENURE_NOMINAL",
    }
)
"""Variables of ours that are no settings: the place of the configuration, and those ``shell.command`` sets."""

_JOBS_PREFIX = "TENURE_JOBS_"
"""What follows belongs to job modules, such as TENURE_JOBS_DATABASE_URL."""

# Kubernetes sets these in every pod for each Service; one called "tenure" or "tenure-web" must not break the start.
_SERVICE_LINK = re.compile(
    r"TENURE_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)\Z"
)
_SERVICE_URL = re.compile(r"(?:tcp|udp|sctp)://")
_ID_SEPARATORS = re.compile(r"[-.:/]")

REMOVED_IN = "1.0"

OLD_FLAGS: Mapping[str, str] = {
    "--leader-elect-lease-duration": "election.lease_duration",
    "--leader-elect-retry-period": "election.renew_period",
    "--bind-address": "web.host",
}
"""Those that work, by their setting."""

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
"""Those that have no equal here, and what to write."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A value that an option of its own set: problems then name that option."""

    option: str  # "--port"
    value: object


@dataclass(frozen=True, slots=True)
class Override:
    """One value for one setting from outside the files."""

    path: tuple[str, ...]
    origin: str
    value: object


def is_setting(name: str, value: str) -> bool:
    """Return whether a variable is meant to be a setting. Others with the prefix are left alone."""
    if not name.startswith(PREFIX) or not value or name in _OTHERS or _SERVICE_LINK.match(name):
        return False
    if name.startswith(_JOBS_PREFIX) and not name.startswith(f"{_JOBS_PREFIX}_"):
        return False
    return not (name.endswith("_PORT") and _SERVICE_URL.match(value))


def apply_environment(base: Node, shape: Shape, environ: Mapping[str, str], problems: list[Problem]) -> Node:
    """Lay the variables over ``base``, whole sections before the settings in them."""
    overrides: list[Override] = []
    for name in sorted(environ):
        if not is_setting(name, environ[name]):
            continue
        path = _variable_path(name, base, shape)
        if path is None:
            problems.append(_unknown_variable(name, shape))
        else:
            overrides.append(Override(path, name, environ[name]))
    return _apply(base, shape, overrides, problems)


def apply_flags(base: Node, shape: Shape, flags: Mapping[str, object], problems: list[Problem]) -> Node:
    """Lay the flags over ``base``, whole sections before the settings in them."""
    overrides: list[Override] = []
    for key, given in flags.items():
        origin, path = option_of(key, given), parse_path(key)
        if path is None or not _exists(path, shape):
            problems.append(_unknown_flag(origin, key, shape))
        else:
            overrides.append(Override(path, origin, value_of(given)))
    return _apply(base, shape, overrides, problems)


def secret_variables(settings: Settings, environ: Mapping[str, str]) -> set[str]:
    """Return the variables that a tree needs no more once it has read them: its settings, and those they name.

    Those that arguments of jobs may refer to stay.
    """
    allowed = ReferenceRule(env=settings.job_references.env)
    referred = {name for name in variables_of(settings.references.values()) if not allowed.allows_variable(name)}
    return referred | {name for name, value in environ.items() if is_setting(name, value)}


def shown_secrets(flags: Mapping[str, object]) -> list[Problem]:
    """Return the flags not allowed, because every user of the machine reads command lines: values of secrets.

    References to secrets may be, and URLs without a password.
    """
    problems = []
    shape = settings_shape()
    for key, given in flags.items():
        origin, path = option_of(key, given), parse_path(key) or ()
        node = _node(Override(path, origin, value_of(given)), shape, [])
        for below, leaf in node.walk(path) if node is not None else ():
            if _is_shown_secret(leaf.value, below, shape):
                remedy = "write ${file:/path} or ${env:NAME} in its place, or set it in a file or the environment"
                message = "is a secret, which every user of this machine can read in a command line (ps)"
                problems.append(Problem(origin, format_path(below), message, remedy))
    return problems


def _is_shown_secret(value: object, path: Path, shape: Shape) -> bool:
    found = shape.at(path)
    if found is None or not found.is_secret or not isinstance(value, str) or not value or REFERENCE.search(value):
        return False
    return mask_url(value) != value if str(path[-1]).endswith("url") else True


def flag_of(path: Sequence[str]) -> str:
    """Return the flag of a setting that has one: ``--election-lease-duration``."""
    return f"--{'-'.join(path).replace('_', '-')}"


def option_of(key: str, given: object) -> str:
    """Return the option that gave a value, as problems name it."""
    return given.option if isinstance(given, Flag) else f"--set {key}"


def value_of(given: object) -> object:
    """Return the value that an option gave."""
    return given.value if isinstance(given, Flag) else given


def _apply(base: Node, shape: Shape, overrides: list[Override], problems: list[Problem]) -> Node:
    root = base
    for override in sorted(overrides, key=lambda entry: len(entry.path)):
        node = _node(override, shape, problems)
        if node is not None:
            layer = conform(at(override.path, node), shape, problems)
            root = merge(root, layer, shape) or Node({}, root.origin)
    return root


def _node(override: Override, shape: Shape, problems: list[Problem]) -> Node | None:
    target = shape.at(override.path)
    if not isinstance(override.value, str):
        return wrap(override.value, override.origin)
    if not override.value:
        return Node(None, override.origin)
    if not is_utf8(override.value):
        problems.append(Problem(override.origin, format_path(override.path), "is not UTF-8", "write it as UTF-8"))
        return None
    if target is not None and target.kind is ShapeKind.TEXT:
        return Node(override.value, override.origin)
    if "${" in override.value and (target is None or target.kind is ShapeKind.VALUE):
        return Node(override.value, override.origin)  # typed once the reference is resolved
    # The name of the setting tells the parser whether it may quote the value in a problem.
    parsed = parse_text(override.value, lambda _line: override.origin, override.path)
    problems += parsed.problems
    is_blank = all(line.lstrip()[:1] in {"", "#"} for line in override.value.splitlines())
    return None if parsed.problems else parsed.root or Node(None, override.origin, is_blank=is_blank)


def _exists(path: tuple[str, ...], shape: Shape) -> bool:
    current: Shape | None = shape
    for step in path:
        if current is not None and current.kind is ShapeKind.FREE:
            return True
        current = current.child(step) if current is not None and current.kind is not ShapeKind.LIST else None
    return current is not None


def _variable_path(name: str, base: Node, shape: Shape) -> tuple[str, ...] | None:
    path: list[str] = []
    node: Node | None = base
    current: Shape | None = shape
    for segment in name.removeprefix(PREFIX).split("__"):
        if not segment or (current is not None and current.kind in {ShapeKind.LIST, ShapeKind.TEXT, ShapeKind.VALUE}):
            return None
        step = segment.lower()
        if current is None or current.kind is not ShapeKind.SECTION:
            step = _existing_id(segment, node) or step
        elif step not in current.children:
            return None
        path.append(step)
        if current is not None:
            current = current.child(step)
        node = node.child(step) if node is not None else None
    return tuple(path)


def _existing_id(segment: str, node: Node | None) -> str | None:
    if node is None or not isinstance(node.value, dict):
        return None
    wanted = _ID_SEPARATORS.sub("_", segment).lower()
    matches = [key for key in node.value if _ID_SEPARATORS.sub("_", key).lower() == wanted]
    return segment if segment in matches else next(iter(matches), None)


def _unknown_variable(name: str, shape: Shape) -> Problem:
    known = {f"{PREFIX}{'__'.join(path).upper()}" for path in shape.paths()}
    other = f"every variable that begins with {PREFIX} is one: unset it, or write {PREFIX}SECTION__KEY"
    return Problem(name, "", "is not a setting", suggestion(name, sorted(known), other))


def _unknown_flag(origin: str, key: str, shape: Shape) -> Problem:
    remedy = suggestion(key, sorted(format_path(path) for path in shape.paths()), "write section.key=value")
    return Problem(origin, "", "is not a setting", remedy)


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing about a configuration that works today and will not for ever."""

    where: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.name}: {self.text}"


def notices_of(options: Mapping[str, str]) -> Iterator[Notice]:
    """Yield notices about flags: of ``options``, each by the path of the setting that it gave."""
    for option in options.values():
        if option in OLD_FLAGS:
            new = f"--{OLD_FLAGS[option].replace('.', '-').replace('_', '-')}"
            text = f"is the old name of {new}; it will be refused from {REMOVED_IN} on"
            yield Notice("command line", option, text)
