"""The effective settings as /configz shows them: never a secret.

Secrets are typed (``SecretStr``) and shown as ``***``. The arguments of schedules and the environment of plugins are
shown by name only, of the commands of plugins the program: any of the rest may be a secret, or have been interpolated
from a file or a variable.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from supervisor.core import features
from supervisor.roles.web.responses import json_body
from supervisor.settings.base import Path
from supervisor.settings.document import DEFAULT_ORIGIN, format_path
from supervisor.settings.masking import mask_references
from supervisor.settings.overrides import flag_of
from supervisor.settings.render import inline_yaml, leaves
from supervisor.settings.schema import ShapeKind, settings_shape
from supervisor.settings.sections.models import Settings
from supervisor.telemetry.masking import MASK, mask

SCHEDULES_MAX = 100
_PYDANTIC_MASK = "**********"
_FLAG_KINDS = frozenset({ShapeKind.TEXT, ShapeKind.VALUE, ShapeKind.LIST})


def masked_settings(settings: Settings) -> dict[str, Any]:
    """Return ``settings`` as people write them, with nothing in it that must not be read; of schedules the number."""
    bare = settings.model_copy(update={"schedules": {}})
    shown: dict[str, Any] = bare.model_dump(mode="json", by_alias=True)
    del shown["schedules"]
    for webhook in shown["webhooks"].values():
        webhook["url"] = MASK
    for plugin in shown["plugins"].values():
        plugin["env"] = dict.fromkeys(plugin["env"], MASK)
        plugin["command"] = [*plugin["command"][:1], *[MASK] * len(plugin["command"][1:])]
    masked: dict[str, Any] = mask(_shorten(shown), items=sys.maxsize)
    masked["schedules_count"] = len(settings.schedules)
    masked["features"] = features.resolve(settings.features)  # all there are, not only those that were named
    masked["redis"]["url"] = where(settings.redis.url.get_secret_value())
    return masked


def with_sources(settings: Settings) -> dict[str, Any]:
    """Return ``masked_settings`` and, under ``sources``, the place of each value: file:line, variable, flag or default.

    Of very many settings not all places are kept: ``sources_left_out`` counts those.
    """
    shown = masked_settings(settings)
    origins = settings.origins
    paths = [format_path(path) for path, _ in leaves(shown) if path != ("schedules_count",)]
    found = {path: origins.by_path.get(path, DEFAULT_ORIGIN) for path in paths}
    return {**shown, "sources": found, "sources_left_out": origins.left_out}


def schedules_page(settings: Settings, names: Sequence[str], after: str, *, has_sources: bool) -> dict[str, Any]:
    """Return up to ``SCHEDULES_MAX`` schedules as people write them, of the sorted ``names`` those behind ``after``.

    ``cursor`` is the last name of the page, null on the last one.
    """
    start = bisect_right(names, after)
    page = names[start : start + SCHEDULES_MAX]
    shown = {name: settings.schedules[name].model_dump(mode="json", by_alias=True) for name in page}
    for schedule in shown.values():
        schedule["args"] = sorted(schedule["args"])
    own = {path: text for path, text in settings.references.items() if path[:1] == ("schedules",) and path[1] in shown}
    shown = mask_references({"schedules": shown}, own)["schedules"]
    has_more = start + len(page) < len(names)
    answer: dict[str, Any] = {
        "schedules": mask(_shorten(shown), items=sys.maxsize),
        "cursor": page[-1] if has_more else None,
    }
    if has_sources:
        by_path = settings.origins.by_path
        paths = [format_path(("schedules", name)) for name in page]
        answer["sources"] = {path: by_path[path] for path in paths if path in by_path}
    return answer


class Configuration:
    """The settings of this process as pages, made beside the loop that answers probes.

    Guarantees
        A page without schedules is made once: the settings of a process never change. A page of schedules is bounded,
        and one is made at a time, however many clients ask.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._names: list[str] | None = None
        self._made: dict[str, bytes] = {}
        self._making = asyncio.Lock()

    async def page(self, name: str, make: Callable[[Settings], bytes]) -> bytes:
        """Return the page of that name, by ``make`` where it was not asked for before."""
        async with self._making:
            if name not in self._made:
                self._made[name] = await asyncio.to_thread(make, self._settings)
            return self._made[name]

    async def schedules(self, after: str, *, has_sources: bool) -> bytes:
        """Return the page of schedules behind the name ``after``."""
        async with self._making:
            return await asyncio.to_thread(self._schedules, after, has_sources=has_sources)

    def _schedules(self, after: str, *, has_sources: bool) -> bytes:
        if self._names is None:
            self._names = sorted(self._settings.schedules)
        return json_body(schedules_page(self._settings, self._names, after, has_sources=has_sources))


def flags(settings: Settings) -> str:
    """Return ``masked_settings`` as flags with their values, sorted, one on each line.

    Settings under names that people chose have no flag of their own, and have the form of ``--set``. Schedules
    have none either.
    """
    shown = masked_settings(settings)
    del shown["schedules_count"]
    found = {_flag(path): MASK if value == MASK else inline_yaml(value) for path, value in leaves(shown)}
    return "".join(f"{flag}={found[flag]}\n" for flag in sorted(found))


def _flag(path: Path) -> str:
    steps = tuple(str(step) for step in path)
    shape = settings_shape().at(steps)
    has_flag = shape is not None and shape.kind in _FLAG_KINDS and steps in _paths()
    return flag_of(steps) if has_flag else f"--set={format_path(steps)}"


@cache
def _paths() -> frozenset[tuple[str, ...]]:
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
