"""The effective settings as /configz shows them: never a secret.

Secrets are typed (``SecretStr``) and shown as ``***``. The arguments of schedules are
shown by name only: any of them may have been interpolated from a file or a variable.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import urlsplit

from supervisor.core import features
from supervisor.settings.models import Settings
from supervisor.settings.nodes import DEFAULT_ORIGIN, format_path
from supervisor.settings.overrides import flag_of
from supervisor.settings.render import inline_yaml, leaves
from supervisor.settings.section import Path
from supervisor.settings.shape import ShapeKind, settings_shape
from supervisor.telemetry.masking import MASK, mask

_PYDANTIC_MASK = "**********"
_FLAG_KINDS = frozenset({ShapeKind.TEXT, ShapeKind.VALUE, ShapeKind.LIST})


def masked_settings(settings: Settings) -> dict[str, Any]:
    """Return ``settings`` as people write them, with nothing in it that must not be read."""
    shown: dict[str, Any] = settings.model_dump(mode="json", by_alias=True)
    for schedule in shown["schedules"].values():
        schedule["args"] = sorted(schedule["args"])
    masked: dict[str, Any] = mask(_shorten(shown))
    masked["features"] = features.resolve(settings.features)  # all there are, not only those that were named
    masked["redis"]["url"] = where(settings.redis.url.get_secret_value())
    return masked


def with_sources(settings: Settings) -> dict[str, Any]:
    """Return ``masked_settings`` and, under ``sources``, the place of each value: file:line, variable, flag or default.

    Of a schedule only where it begins, and of very many not all: ``sources_left_out`` counts those.
    """
    shown = masked_settings(settings)
    origins = settings.origins
    paths = [format_path(path) for path, _ in leaves({**shown, "schedules": {}}) if path != ("schedules",)]
    found = {path: origins.by_path.get(path, DEFAULT_ORIGIN) for path in paths}
    found |= {path: origin for path, origin in origins.by_path.items() if path.startswith("schedules")}
    return {**shown, "sources": found, "sources_left_out": origins.left_out}


def flags(settings: Settings) -> str:
    """Return what ``masked_settings`` shows as flags with their values, sorted, one on each line.

    What lies under names that people chose has no flag of its own, and stands as ``--set`` takes it. Schedules
    have none either.
    """
    shown = masked_settings(settings.model_copy(update={"schedules": {}}))
    del shown["schedules"]
    found = {_flag(path): MASK if value == MASK else inline_yaml(value) for path, value in leaves(shown)}
    return "".join(f"{flag}={found[flag]}\n" for flag in sorted(found))


def _flag(path: Path) -> str:
    steps = tuple(str(step) for step in path)
    shape = settings_shape().at(steps)
    has_flag = shape is not None and shape.kind in _FLAG_KINDS and steps in _paths()
    return flag_of(steps) if has_flag else f"--set={format_path(steps)}"


@cache
def _paths() -> frozenset[tuple[str, ...]]:
    """Return the settings that stand under no name that people chose."""
    return frozenset(settings_shape().paths())


def where(url: str) -> str:
    """Return which server ``url`` means, without who we are there."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return MASK
    if not parts.scheme:
        return url if url == "embedded" else MASK
    user = f"{MASK}@" if "@" in parts.netloc else ""
    address = f"{host or ''}:{port}" if port is not None else host or ""
    return f"{parts.scheme}://{user}{address}{parts.path}"


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shorten(item) for item in value]
    return MASK if value == _PYDANTIC_MASK else value
