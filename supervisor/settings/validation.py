"""From a merged tree to settings, or to every problem in it, each with the place it was written.

The tree is validated as JSON in strict mode, where ``true`` is no number and ``"8080"`` no
port: YAML already distinguished texts from numbers, and a second guess would hide a mistake. When
something is wrong, the wrong values are taken out and the rest is validated again, so that
one bad key does not hide faults elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from supervisor.core.durations import format_duration
from supervisor.core.errors import Problem
from supervisor.core.suggestions import suggestion
from supervisor.settings.base import MODULE, NAME, SCHEDULE_ID, Path, Violation
from supervisor.settings.document import Node, format_path, with_text, without
from supervisor.settings.masking import ECHO_MAX, echo, mask_url
from supervisor.settings.rules.cross_rules import violations
from supervisor.settings.scalars import resolve
from supervisor.settings.schema import BOUNDS, Shape, ShapeKind
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.plugins import REFERENCE

_ROUNDS_MAX = 5
_QUOTE = "quote it"
_KEY_MARK = "[key]"
_PATTERNS = {
    NAME: ("must be 1 to 64 of letters, digits and . _ -, starting with a letter or digit", ""),
    SCHEDULE_ID: ("must be 1 to 200 of letters, digits and . _ : / -", ""),
    MODULE: ("must be the name of a module", "write package.module, not a path"),
    REFERENCE: ("must name something in a module", "write package.module:Name"),
}
_TRIGGERS = frozenset({"cron", "at"})  # of which a schedule has one, or several under ``when``
_EXPECTED = {
    ShapeKind.SECTION: "a mapping of settings",
    ShapeKind.TABLE: "a mapping from names to settings",
    ShapeKind.FREE: "a mapping from names to values",
    ShapeKind.LIST: "a list",
}


def conform(root: Node, shape: Shape, problems: list[Problem]) -> Node:
    """Return the layer without ``x-…`` keys and without unmergeable values; ``problems`` takes those of the latter."""
    return _conform(root, shape, (), problems) or Node({}, root.origin)


def _conform(node: Node, shape: Shape | None, path: Path, problems: list[Problem]) -> Node | None:
    if shape is None or shape.kind in {ShapeKind.TEXT, ShapeKind.VALUE} or node.value is None:
        return node
    wants_list = shape.kind is ShapeKind.LIST
    if not isinstance(node.value, list if wants_list else dict):
        remedy = _list_remedy(node, shape) if wants_list else ""
        message = f"must be {_EXPECTED[shape.kind]}, got {_kind_of(node)}"
        problems.append(Problem(node.origin, format_path(path), message, remedy))
        return None
    if not isinstance(node.value, dict) or shape.kind is ShapeKind.FREE:
        return node
    entries: dict[str, Node] = {}
    for key, child in node.value.items():
        if shape.kind is ShapeKind.SECTION and key.startswith("x-"):
            continue
        inner = shape.child(key)
        if inner is None:
            problems.append(_unknown_key(child, (*path, key), shape))
            continue
        kept = _conform(child, inner, (*path, key), problems)
        if kept is not None:
            entries[key] = kept
    return Node(entries, node.origin)


def _kind_of(node: Node) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(node.value), "a number")


_ELSEWHERE = {
    "tz": "timezone", "interval": "every", "schedule": "cron", "crontab": "cron", "enabled": "paused",
    "suspend": "paused", "concurrencypolicy": "overlap", "maxinstances": "max_running", "coalesce": "missed",
    "catchup": "missed", "misfiregracetime": "catchup_window", "startingdeadlineseconds": "start_deadline",
    "startdate": "start_at", "enddate": "end_at", "kwargs": "args", "task": "job", "retryperiod": "renew_period",
    "bindaddress": "host",
}  # fmt: skip
"""Names that other schedulers give to settings, in lower case and without ``_`` and ``-``."""


def _unknown_key(node: Node, path: Path, shape: Shape) -> Problem:
    key = str(path[-1])
    known = sorted(shape.children)
    elsewhere = _ELSEWHERE.get(key.lower().replace("_", "").replace("-", ""), "")
    meant = elsewhere if elsewhere in shape.children else key.replace("-", "_")
    remedy = suggestion(meant, known, f"known here: {', '.join(known)}")
    if elsewhere == meant == "paused" and isinstance(node.value, bool):
        is_paused = node.value is not key.lower().startswith("enabled")
        remedy = "write paused: true" if is_paused else "remove it: a schedule is due unless it says paused: true"
    return Problem(node.origin, format_path(path), "is not a setting", remedy)


def validate(root: Node, shape: Shape, problems: list[Problem]) -> Settings | None:
    """Return the settings without the wrong values; None when nothing is left.

    Settings named by a broken rule between settings are still in them.

    Args:
        root: the merged tree, references resolved.
        shape: the shape of the settings.
        problems: takes all of them; a path that has one already gets no second one.
    """
    wrong = {problem.path for problem in problems if problem.path}
    quoted: dict[str, int] = {}  # places in ``problems``; what is still wrong in quotes says what to do instead
    remaining = root
    settings: Settings | None = None
    for _ in range(_ROUNDS_MAX):
        try:
            settings = Settings.model_validate_json(json.dumps(remaining.plain()), strict=True)
            break
        except ValidationError as error:
            for path, problem in _problems_of(error, remaining, shape):
                if problem.path not in wrong and problem.remedy == _QUOTE:
                    quoted[problem.path] = len(problems)
                    problems.append(problem)
                    remaining = with_text(remaining, path)
                    continue
                if problem.path in quoted:
                    wrong.add(problem.path)
                    place = quoted.pop(problem.path)
                    problems[place] = replace(problems[place], remedy=problem.remedy or problem.message)
                if problem.path not in wrong:
                    problems.append(problem)
                    wrong.add(problem.path)
                # An element takes its list with it, so nothing is known about that any more.
                wrong.update(format_path(path[:index]) for index, step in enumerate(path) if isinstance(step, int))
                remaining = _prune(remaining, path)
    found = [] if settings is None else list(violations(settings))
    for violation in found:
        paths = [format_path(path) for path in violation.paths]
        if paths[0] in quoted:
            wrong.add(paths[0])
            place = quoted.pop(paths[0])
            problems[place] = replace(problems[place], remedy=violation.remedy or violation.message)
        elif not any(_touches(path, wrong) for path in paths):
            problems.append(_violation_problem(violation, remaining, shape))
    return settings


def _list_remedy(node: Node, shape: Shape) -> str:
    """Return how the one entry that was written becomes a list; a mapping only where entries are mappings."""
    if isinstance(node.value, dict):
        takes_mappings = shape.item is not None and shape.item.kind is ShapeKind.SECTION
        return f"write [{{{next(iter(node.value), '')}: …}}]" if takes_mappings and node.value else ""
    is_hidden = shape.is_secret or (shape.info is not None and not shape.info.repr)
    is_shown = isinstance(node.value, str) and node.source is None and not is_hidden
    return f"write [{mask_url(node.value) if is_shown and len(node.value) <= ECHO_MAX else _kind_of(node)}]"


def _touches(path: str, wrong: set[str]) -> bool:
    return any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in wrong)


def _prune(root: Node, path: Path) -> Node:
    """Take out the value that an error names; when that is a missing key, take out the mapping that misses it."""
    reached, _ = root.nearest(path)
    if not reached:
        return Node({}, root.origin)
    return without(root, path[: len(reached) + 1] if len(reached) < len(path) else reached)


def _problems_of(error: ValidationError, root: Node, shape: Shape) -> Iterator[tuple[Path, Problem]]:
    for details in error.errors(include_url=False):
        is_key = details["loc"][-1:] == (_KEY_MARK,)
        path = details["loc"][:-1] if is_key else details["loc"]
        reached, node = root.nearest(path)
        if details["type"] == "extra_forbidden" and (parent := shape.at(path[:-1])) is not None:
            yield path, _unknown_key(node, path, parent)  # in a list: elsewhere conform() came first
            continue
        message, remedy = _message(details, node, shape.at(path))
        if details["type"] != "missing" and not is_key and reached == path:
            message = f"{message}, got {_seen(node, shape.at(path))}" if message else message
        yield path, Problem(node.origin, format_path(path), message, remedy)


def _seen(node: Node, shape: Shape | None) -> str:
    if node.source is not None:
        return f"the value of {mask_url(node.source)}"
    if shape is not None and shape.is_secret:
        return "a value that is not shown"
    if isinstance(node.value, dict | list):
        return _kind_of(node)
    return echo(node.value) if isinstance(node.value, str) else json.dumps(node.value)


def _message(details: ErrorDetails, node: Node, shape: Shape | None) -> tuple[str, str]:
    """Return the fault, in the words of a person, and the remedy; never the value itself."""
    context: Mapping[str, Any] = details.get("ctx", {})
    kind = details["type"]
    if kind == "missing":
        return "is missing", "add it"
    if kind == "value_error":
        return "is not a duration", _duration_remedy(node, str(context.get("error", "")))
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(str(context.get("pattern")), (f"must match {context.get('pattern')}", ""))
    if kind in {"literal_error", "enum"}:
        return _choice_message(str(context.get("expected", "")), node)
    if kind == "string_type":
        if isinstance(node.value, list) and details["loc"][-1] in _TRIGGERS:
            return "must be text", f"several go into when: [{{{details['loc'][-1]}: …}}, …]"
        return "must be text", _QUOTE if isinstance(node.value, int | float) else ""
    if kind in {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}:
        key, word = next((key, word) for key, word in BOUNDS if key in context)
        shown = format_duration(context[key]) if shape is not None and shape.is_duration else context[key]
        return f"must be {word} {shown}", ""
    if kind in {"too_short", "too_long"}:
        (limit,) = (context[name] for name in ("min_length", "max_length") if name in context)
        return f"must have at {'least' if kind == 'too_short' else 'most'} {limit} entries", ""
    simple = {
        "model_type": "must be a mapping of settings",
        "model_attributes_type": "must be a mapping of settings",
        "int_type": "must be a whole number",
        "bool_type": "must be true or false",
    }
    if kind in simple:
        return simple[kind], "remove the quotes" if _is_quoted(node) else ""
    return details["msg"].replace("Input should", "should").replace("String should", "should"), ""


def _is_quoted(node: Node) -> bool:
    return isinstance(node.value, str) and node.source is None and isinstance(resolve(node.value), int)


def _duration_remedy(node: Node, error: str) -> str:
    # The error quotes the value; what follows the colon does so only for values that may be shown.
    return error.rpartition(": ")[2] if node.source is None else "write 250ms, 15s, 5m, 2h or 7d"


def _choice_message(expected: str, node: Node) -> tuple[str, str]:
    choices = [part.strip().strip("'") for part in expected.replace(" or ", ", ").split(",")]
    words = f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]
    return f"must be {words}", suggestion(str(node.value), choices) if node.source is None else ""


def _violation_problem(violation: Violation, root: Node, shape: Shape) -> Problem:
    """Place a violation where the first of its settings that anybody wrote was written."""
    found = [(path, *root.nearest(path)) for path in violation.paths]
    written = [node for path, reached, node in found if path == reached] or [found[0][2]]
    message, remedy = violation.message, violation.remedy
    hidden = [
        node.source
        for path, reached, node in found
        if path == reached and node.source is not None and not _is_secret(shape, path)
    ]
    if hidden:  # a message about a secret setting quotes nothing; any other may quote its subject
        message, remedy = f"the value of {mask_url(hidden[0])} cannot be used here", ""
    return Problem(written[0].origin, format_path(violation.paths[0]), message, remedy)


def _is_secret(shape: Shape, path: Path) -> bool:
    found = shape.at(path)
    return found is not None and found.is_secret
