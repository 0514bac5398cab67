"""Settings as text: YAML, JSON, where each value comes from, the JSON Schema, and the reference file.

The reference file has every setting with its default under a comment that explains it. It is generated from the
models, so that it cannot disagree with the program; ``config/tenure.yaml`` is this text, and a test compares the two.

Guarantees
    No secret is in any of it: a password is a mask, a value from ``${file:…}`` or
    ``${env:…}`` is the reference as it was written.
    The text of ``to_yaml`` loads to equal settings, unless it holds a masked password;
    then loading it fails with that reason.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from supervisor.core.durations import DURATION_PATTERN, format_duration
from supervisor.settings.base import Path
from supervisor.settings.document import DEFAULT_ORIGIN, format_path
from supervisor.settings.interpolate import escape
from supervisor.settings.loader import Loaded
from supervisor.settings.masking import EMBEDDED
from supervisor.settings.scalars import resolve
from supervisor.settings.schema import BOUNDS, Shape, ShapeKind, settings_shape
from supervisor.settings.sections.models import Settings, WorkerKind

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


def on_one_line(text: str) -> str:
    """Return ``text`` as a comment may hold it: what ends a line of YAML, or steers a terminal, is an escape."""
    return text if text.isprintable() else repr(text)[1:-1]


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


_COLUMNS = 100
_HEADER = """\
Every setting of Tenure with its default. This file is `tenure config default`.

Copy what you change into a file of your own; the rest keeps its default. Layers, each over the one before:
defaults, the file that an image names by TENURE_DEFAULTS, the files given with --config in their order, conf.d/*.yaml
beside them by name, variables (TENURE_REDIS__URL for redis.url), flags (--set redis.url=...). Sections, pools and
schedules merge key by key, lists and scalars replace, null goes back to the default; a section, pool or schedule with
nothing after its colon says nothing.

Durations: 250ms, 15s, 5m, 2h, 7d, 1w, sums such as 1h30m, PT5M. Keys that start with x- are yours, e.g. for anchors.
Secrets: ${file:/run/secrets/redis} and ${env:REDIS_PASSWORD} work in every value and are never printed; $${ is a
literal ${. `tenure config validate` lists every problem, `tenure config show --sources` every value in effect.
"""
_EXAMPLES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "schedules": ("token-cleanup", {"job": "identity.token_cleanup", "every": "10m", "args": {"batch": 500}}),
    "plugins": ("aws-ec2", {"module": "acme.aws:AwsEc2", "options": {"regions": ["eu-1"]}}),
}
_EXAMPLE_CRON = '# cron: "30 2 * * *"  # instead of every'


def default_file() -> str:
    """Return the reference file."""
    defaults = public_view(Settings())
    blocks = [_comment(paragraph) for paragraph in _HEADER.split("\n\n")]
    for key, shape in settings_shape().children.items():
        blocks.append(list(_entry(key, shape, defaults[key])))
        if key in _EXAMPLES:
            blocks[-1] += [f"# {line}".rstrip() for line in _example(key)]
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def _entry(key: str, shape: Shape, default: Any, indent: str = "") -> Iterator[str]:
    yield from _comment(_explanation(shape), indent)
    if shape.kind is ShapeKind.SECTION and default is not None:
        yield f"{indent}{key}:"
        for name, child in shape.children.items():
            yield from _entry(name, child, default[name], f"{indent}  ")
    elif shape.kind is ShapeKind.TABLE and default and shape.item is not None:
        yield f"{indent}{key}:"
        for index, (name, values) in enumerate(default.items()):
            yield from _table_entry(name, shape.item, values, f"{indent}  ", explained=index == 0)
    else:
        yield f"{indent}{key}: {inline_yaml(default)}"


def _table_entry(name: str, shape: Shape, values: Mapping[str, Any], indent: str, *, explained: bool) -> Iterator[str]:
    yield f"{indent}{name}:"
    for key, child in shape.children.items():
        if explained:
            yield from _entry(key, child, values[key], f"{indent}  ")
        else:
            yield f"{indent}  {key}: {inline_yaml(values[key])}"


def _example(table: str) -> Iterator[str]:
    shape = settings_shape().children[table].item
    assert shape is not None
    name, values = _EXAMPLES[table]
    yield f"{table}:"
    yield f"  {name}:"
    for key, child in shape.children.items():
        if (table, key) == ("schedules", "cron"):
            yield from _comment(_explanation(child), "    ")
            yield f"    {_EXAMPLE_CRON}"
            continue
        default = child.info.get_default(call_default_factory=True) if child.info is not None else None
        if child.is_duration and default is not None:
            default = format_duration(default)
        yield from _entry(key, child, values.get(key, default), "    ")


def _explanation(shape: Shape) -> str:
    if shape.info is None:
        return ""
    # A section is explained by its own docstring, which also has its rules; one that may be absent by its field.
    is_section = shape.kind is ShapeKind.SECTION and isinstance(shape.info.annotation, type)
    described = shape.info.annotation.__doc__ if is_section else shape.info.description
    text = " ".join((described or "").replace("``", "`").split())
    limits = _limits(shape.info, is_duration=shape.is_duration)
    return f"{text} {limits}" if limits else text


def _limits(info: FieldInfo, *, is_duration: bool) -> str:
    choices = _choices(info.annotation)
    if len(choices) > 1:
        return f"One of: {', '.join(choices)}."
    found = []
    for name, word in BOUNDS:
        limit = next((getattr(entry, name) for entry in info.metadata if hasattr(entry, name)), None)
        if limit is not None:
            found.append(f"{word} {format_duration(limit) if is_duration else limit}")
    return f"({', '.join(found)})" if found else ""


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(str(choice) for choice in get_args(annotation))
    if annotation is WorkerKind:
        return tuple(WorkerKind)
    return next((found for part in get_args(annotation) if (found := _choices(part))), ())


def _comment(text: str, indent: str = "") -> list[str]:
    width = _COLUMNS - len(indent) - 2
    return [f"{indent}# {line}" for line in textwrap.wrap(text, width, break_long_words=False)]
