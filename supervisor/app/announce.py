"""Start-up log: one event with versions, processes and changed settings; warnings about the configuration."""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from supervisor.clock import SystemClock
from supervisor.core import features
from supervisor.core.errors import TenureError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.triggers import trigger_of
from supervisor.process.system.linux import DESCRIPTORS_MIN, descriptors_short
from supervisor.settings.document import DEFAULT_ORIGIN, format_path, parse_path
from supervisor.settings.loader import Loaded
from supervisor.settings.render import public_view, sources
from supervisor.settings.rules.redis_exposure import exposures
from supervisor.settings.schedules.complete import schedules_digest, unserved
from supervisor.settings.schema import ShapeKind, settings_shape
from supervisor.telemetry import metrics
from supervisor.version import __version__

CHANGED_MAX = 40
VALUE_CHARS_MAX = 60
FILES_SHOWN = 5
"""At most so many changed settings are in the event, each so long: a line has 4 KiB. Their number is a field."""

UNSERVED_LISTED_MAX = 20
SCHEDULES_LISTED_MAX = 100
"""At most so many get a line of their own; of further schedules one line has the number."""

Log = Callable[..., None]


def announce(loaded: Loaded, definitions: Sequence[ScheduleDef], slots: Sequence[str], log: Log) -> None:
    """Log the start, its settings and schedules, and warnings about the configuration."""
    log("startup", **startup_fields(loaded, definitions, slots))
    for notice in loaded.notices:
        log("deprecated_setting", level="warning", where=notice.where, name=notice.name, note=notice.text)
    for note in loaded.conversion.notices if loaded.conversion is not None else ():
        log("compat_note", note=note)
    _warn_of_unserved(loaded, definitions, log)
    limit = descriptors_short()
    if limit is not None:
        remedy = f"raise it to {DESCRIPTORS_MIN}: ulimit -n, LimitNOFILE="
        log("descriptors_short", level="warning", limit=limit, remedy=remedy)
    for found in exposures(loaded.settings.redis):
        log(found.event, level="warning", seen=found.seen, remedy=found.remedy)
    announce_schedules(definitions, SystemClock().wall_ms(), log)
    for name, why in features.warnings(loaded.settings.features):
        log("deprecated_feature", level="warning", name=name, note=why)
    for rule in metrics.unused_rules(metrics.STORED):
        log("metric_rule_unused", level="warning", rule=rule, consequence="metrics.label_allow names no such metric")


def announce_schedules(definitions: Sequence[ScheduleDef], now_ms: int, log: Log) -> None:
    """Log one event for each of the first schedules, and how many more there are."""
    for definition in definitions[:SCHEDULES_LISTED_MAX]:
        try:
            trigger = trigger_of(definition)
            fields = {"trigger": trigger.describe(), "next_fire": _moment(trigger.next_ms(now_ms))}
        except TenureError as error:
            fields = {"trigger": f"cannot be used: {error}", "next_fire": None}
        if definition.paused:
            fields |= {"next_fire": None, "paused": definition.pause_reason or "paused"}
        log(
            "schedule_registered",
            name=definition.id,
            job=definition.template.job,
            timezone=definition.timezone,
            **fields,
        )
    if len(definitions) > SCHEDULES_LISTED_MAX:
        log("schedules_registered", listed=SCHEDULES_LISTED_MAX, more=len(definitions) - SCHEDULES_LISTED_MAX)


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _warn_of_unserved(loaded: Loaded, definitions: Sequence[ScheduleDef], log: Log) -> None:
    """Log which runs no pool of this replica takes; whether another replica's does is not known here."""
    if not loaded.settings.workers:
        log("no_workers", level="warning", where=loaded.origin("workers"), consequence="this replica runs no jobs")
    for problem in unserved(loaded, definitions)[:UNSERVED_LISTED_MAX]:
        consequence = f"{problem.message}; they wait for another replica, or {problem.remedy}"
        log("queue_unserved", level="warning", where=problem.where, path=problem.path, consequence=consequence)


def startup_fields(loaded: Loaded, definitions: Sequence[ScheduleDef], slots: Sequence[str]) -> dict[str, Any]:
    """Return version, interpreter, digest of the configuration, processes by role, and settings other than the default.

    Secrets are masked as everywhere. Schedules count by their number: there may be very many.
    """
    settings = loaded.settings
    bare = Loaded(settings.model_copy(update={"schedules": {}}), loaded.origins, loaded.files)
    changed = _changed(bare)
    text = json.dumps(public_view(bare.settings), sort_keys=True) + schedules_digest(definitions)
    roles = Counter(name.split("-")[0] for name in slots if not name.startswith("worker-"))
    return {
        "version": __version__,
        "python": platform.python_version(),
        "config_digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        "files": [str(file) for file in loaded.files][:FILES_SHOWN],
        "roles": [*roles, *(f"worker-{pool}*{each.processes}" for pool, each in settings.workers.items())],
        "schedules": len(definitions),
        "features": [name for name, is_on in features.resolve(settings.features).items() if is_on],
        "changed": dict(list(changed.items())[:CHANGED_MAX]),
        "changed_count": len(changed),
    }


def _changed(loaded: Loaded) -> dict[str, Any]:
    """Return settings other than the default. Those without a shape, as a plugin's options, are counted only."""
    changed: dict[str, Any] = {}
    for path, entry in sources(loaded).items():
        if entry["origin"] == DEFAULT_ORIGIN or path == "schedules":
            continue
        free = _free_part(path)
        if free is None:
            changed[path] = _short(entry["value"])
        else:
            changed[free] = changed.get(free, 0) + 1
    return changed


def _free_part(path: str) -> str | None:
    """Return the mapping with any content that a path leads into, if there is one; ours, of known values, count not."""
    steps = parse_path(path) or ()
    if steps[:1] in {("features",), ("metrics",)}:
        return None
    for length in range(1, len(steps) + 1):
        shape = settings_shape().at(steps[:length])
        if shape is not None and shape.kind is ShapeKind.FREE:
            return format_path(steps[:length])
    return None


def _short(value: Any) -> Any:
    """Return a value, or the beginning of its text where that is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"


def limit_metrics(loaded: Loaded) -> None:
    """Let metrics have the series that the settings allow, here and in every process forked from here."""
    rules = loaded.settings.metrics
    metrics.limit(disabled=rules.disabled, label_allow=rules.label_allow, label_values_max=rules.label_values_max)
