"""Settings as text: YAML, JSON, where each value comes from, the JSON Schema.

Guarantees
    No secret is in any of it: a password is a mask, a value from ``${file:…}`` or
    ``${env:…}`` is the reference as it was written.
    The text of ``to_yaml`` loads to equal settings, unless it holds a masked password;
    then loading it fails with that reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from supervisor.core.durations import DURATION_PATTERN, format_duration
from supervisor.settings.base import Path
from supervisor.settings.document import DEFAULT_ORIGIN, format_path
from supervisor.settings.interpolate import escape
from supervisor.settings.loader import Loaded
from supervisor.settings.masking import EMBEDDED
from supervisor.settings.scalars import resolve
from supervisor.settings.sections.models import Settings

_WIDTH = 1_000_000  # never fold: one setting is one line
_VALUE_COLUMN = 60
_BLOCK = re.compile(r"[^\s](?:.*\n)*.*[^\n]\n")  # whole lines; PyYAML writes others as blocks that it cannot read


def public_view(settings: Settings) -> dict[str, Any]:
    """Return the complete settings as plain data that may be shown to every reader of the configuration."""
    data = settings.model_dump(mode="json", by_alias=True)
    references = settings.references

    def escaped(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {key: escaped(child, (*path, key)) for key, child in value.items()}
        if isinstance(value, list):
            return [escaped(child, (*path, index)) for index, child in enumerate(value)]
        return escape(value) if isinstance(value, str) and path not in references else value

    view: dict[str, Any] = escaped(data, ())
    return view


def to_yaml(settings: Settings) -> str:
    """Return the complete settings as a configuration file."""
    return dump_yaml(public_view(settings))


def to_json(settings: Settings) -> str:
    """Return the complete settings as JSON, for programs; a configuration file is the text of ``to_yaml``."""
    return json.dumps(public_view(settings), indent=2, ensure_ascii=False)


def sources(loaded: Loaded) -> dict[str, dict[str, Any]]:
    """Return value and origin of each setting by its path."""
    return {
        format_path(path): {"value": value, "origin": loaded.origins.get(format_path(path), DEFAULT_ORIGIN)}
        for path, value in leaves(public_view(loaded.settings))
    }


def sources_text(loaded: Loaded) -> str:
    """Return one line for each setting: path, value, and as a comment where it comes from."""
    lines = []
    for path, entry in sources(loaded).items():
        setting = f"{path}: {inline_yaml(entry['value'])}"
        lines.append(f"{setting:<{_VALUE_COLUMN}}  # {entry['origin']}\n")
    return "".join(lines)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value that is no mapping, or an empty one, with its path."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from leaves(child, (*path, key))
    else:
        yield path, value


class SettingsDumper(yaml.SafeDumper):
    """Quotes every text that our own reader would not read back as that text, and writes whole lines as a block."""

    quote = "'"

    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out: an anchor helps no reader of settings."""
        del data
        return True


def _represent_text(dumper: SettingsDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _BLOCK.fullmatch(text) and text.replace("\n", "").isprintable():
        style = "|"
    elif not text.isprintable():
        style = '"'  # PyYAML folds U+0085 and U+2028 in every other style, and so loses them
    elif not isinstance(resolve(text), str):
        style = dumper.quote
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


SettingsDumper.add_representer(str, _represent_text)


def dump_yaml(value: Any) -> str:
    """Return plain data as YAML that the loader reads back unchanged."""
    text: str = yaml.dump(value, Dumper=SettingsDumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text


def inline_yaml(value: Any) -> str:
    """Return plain data as YAML on one line."""
    text: str = yaml.dump(
        value, Dumper=SettingsDumper, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file, for editors."""
    found = Settings.model_json_schema(by_alias=True)
    for model in (found, *found.get("$defs", {}).values()):
        if model.get("additionalProperties") is False:
            model["patternProperties"] = {"^x-": {}}
        for field in model.get("properties", {}).values():
            if field.get("pattern") == DURATION_PATTERN and isinstance(field.get("default"), float):
                field["default"] = format_duration(field["default"])
    # Pydantic masks the default of a secret; this one is none.
    found["$defs"]["RedisSettings"]["properties"]["url"]["default"] = EMBEDDED
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}
