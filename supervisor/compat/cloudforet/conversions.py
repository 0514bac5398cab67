"""``utils``, as Cloudforet's services call it: ids, hashes, JSON, YAML, times, and values behind dotted keys."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

YAML_BYTES_MAX = 8 * 1024 * 1024


def generate_id(prefix: str = "id", nbytes: int = 6) -> str:
    """Return a random id: ``prefix``, a dash and two hexadecimal digits for each byte."""
    return f"{prefix}-{secrets.token_hex(nbytes)}"


def random_string(nbytes: int = 6) -> str:
    """Return two random hexadecimal digits for each byte."""
    return secrets.token_hex(nbytes)


def generate_secret(nbytes: int = 32) -> str:
    """Return a random text that fits into a URL."""
    return secrets.token_urlsafe(nbytes)


def dump_json(data: Any, indent: int | None = None, sort_keys: bool = False) -> str:  # noqa: FBT001, FBT002 - theirs
    """Return ``data`` as JSON.

    Raises:
        ValueError: it is none; the values are not shown.
    """
    try:
        return json.dumps(data, indent=indent, sort_keys=sort_keys, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be written as JSON: {type(error).__name__}") from None


def load_json(json_str: str | bytes) -> Any:
    """Parse a JSON text.

    Raises:
        ValueError: it is none; the text, which may hold a secret, is not shown.
    """
    try:
        return json.loads(json_str)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON: {type(error).__name__}") from None


def load_json_from_file(json_file: str) -> Any:
    """Parse a JSON file.

    Raises:
        ValueError: it is none.
        OSError: it cannot be read.
    """
    return load_json(_text(json_file))


def dump_yaml(data: Any) -> str:
    """Return ``data`` as YAML."""
    return yaml.safe_dump(data, allow_unicode=True)


def load_yaml(yaml_str: str) -> Any:
    """Parse a YAML text. Tags that would make objects are refused.

    Raises:
        ValueError: it is none.
    """
    try:
        return yaml.safe_load(yaml_str)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"is no YAML: {type(error).__name__}") from None


def load_yaml_from_file(yaml_file: str) -> Any:
    """Parse a YAML file.

    Raises:
        ValueError: it is none, or too large.
        OSError: it cannot be read.
    """
    return load_yaml(_text(yaml_file))


def _text(file: str) -> str:
    with Path(file).open("rb") as opened:
        data = opened.read(YAML_BYTES_MAX + 1)
    if len(data) > YAML_BYTES_MAX:
        raise ValueError(f"{file} is larger than {YAML_BYTES_MAX} bytes")
    return data.decode("utf-8-sig")


def get_dict_value(data: Any, dotted_key: str, default_value: Any = None) -> Any:
    """Return the value at ``a.b.c``; of a list on the way, a list of the values of each element there."""
    key, _, rest = dotted_key.partition(".")
    if not isinstance(data, Mapping) or key not in data:
        return default_value
    found = data[key]
    if not rest:
        return found
    if isinstance(found, list):
        return [get_dict_value(each, rest, default_value) for each in found]
    return get_dict_value(found, rest, default_value)


def deep_merge(from_dict: Mapping[str, Any], into_dict: dict[str, Any]) -> dict[str, Any]:
    """Lay ``from_dict`` over ``into_dict``, mappings into mappings, and return the latter."""
    for key, value in from_dict.items():
        if isinstance(value, Mapping):
            inner = into_dict.get(key)
            into_dict[key] = deep_merge(value, inner if isinstance(inner, dict) else {})
        else:
            into_dict[key] = value
    return into_dict


def tags_to_dict(tags: Iterable[Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """Return a list of ``{key, value}`` as a mapping; None when it is no list."""
    return {each["key"]: each["value"] for each in tags} if isinstance(tags, list) else None


def dict_to_tags(dict_value: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return a mapping as a list of ``{key, value}``; empty when it is none."""
    given = dict_value if isinstance(dict_value, Mapping) else {}
    return [{"key": key, "value": value} for key, value in given.items()]


def dict_to_hash(dict_value: Mapping[str, Any]) -> str:
    """Return the MD5 of a mapping as JSON with sorted keys: an identity that is compared, not a protection."""
    return string_to_hash(json.dumps(dict_value, sort_keys=True))


def string_to_hash(str_value: str) -> str:
    """Return the MD5 of a text: an identity that is compared, not a protection."""
    return hashlib.md5(str_value.encode(), usedforsecurity=False).hexdigest()


def date_to_string(value: Any, date_format: str = "%Y-%m-%d") -> str | None:
    """Return a date as text; None when it is none."""
    return value.strftime(date_format) if isinstance(value, date) else None


def datetime_to_iso8601(value: Any) -> str | None:
    """Return a time as ``2026-01-31T12:00:00.000Z``; None when it is none. A zone is dropped, as it is there."""
    return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z" if isinstance(value, datetime) else None


def iso8601_to_datetime(value: Any) -> datetime | None:
    """Parse a time in ISO 8601; None when the value is no text.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"is no time of ISO 8601: {value[:40]!r}") from None


def parse_endpoint(endpoint: str) -> dict[str, Any]:
    """Return ``scheme``, ``hostname``, ``port`` and ``path`` of a URL.

    Raises:
        ValueError: it is none.
    """
    parts = urlsplit(endpoint)
    return {"scheme": parts.scheme, "hostname": parts.hostname, "port": parts.port, "path": parts.path}
