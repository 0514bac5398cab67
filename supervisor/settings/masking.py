"""Masking of secrets in output.

Two kinds of secret: a setting that always is one (a password, the URL of Redis), and any
value that was read through ``${file:…}`` or ``${env:…}``. The first is masked; for the
second the reference is shown as it was written, which is more useful and gives away nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from supervisor.core.network import MARK, userinfo_of

EMBEDDED = "embedded"
MASK = "**********"
ECHO_MAX = 60
"""How many characters of a text a message echoes."""

REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_SCHEME = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*{MARK}")
_WHO = re.compile(rf"(?P<user>{REFERENCE.pattern}|[A-Za-z0-9_.-]*):(?P<password>.*)", re.DOTALL)
QUERY_SECRET = re.compile(
    r"(?i)(?P<name>[?&](?:[\w-]*(?:password|passwd|secret|token|signature)|(?:api|access)[_-]?key|auth|sig)=)[^&]+"
)
"""A credential in the query of a URL."""

_SECRET_KEY = re.compile(
    r"(?i)pass|pwd|secret|token|url|credential|(?:api|private|access|encryption|signing)_?key|auth"
)


def mask_url(text: str) -> str:
    """Return ``text`` without the passwords of any URL in it."""
    if MARK not in text:
        return text
    found = userinfo_of(text)
    if found is None:
        return _mask_query(text)
    start, end = found
    return f"{text[:start]}{_mask_who(text[start:end])}{_mask_query(text[end:])}"


def echo(text: str) -> str:
    """Return ``text`` as a message shows it: in quotes, cut short, without the passwords of URLs."""
    shown = mask_url(text)
    return repr(shown if len(shown) <= ECHO_MAX else f"{shown[:ECHO_MAX]}…")


def mask_redis_url(text: str) -> str:
    """Return where Redis is without the password; nothing of a text that is not clearly a URL."""
    return mask_url(text) if text == EMBEDDED or _SCHEME.match(text) else MASK


def mask_path(url: str) -> str:
    """Return the server that an HTTP URL means: of many services the path is the secret."""
    try:
        parts = urlsplit(url)
        has_more = bool(parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    except ValueError:
        return MASK
    if not parts.scheme or not parts.netloc:
        return MASK
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{MASK}" if has_more else url


def _mask_query(text: str) -> str:
    return QUERY_SECRET.sub(rf"\g<name>{MASK}", text)


def _mask_who(who: str) -> str:
    match = _WHO.fullmatch(who)
    if match is None:
        return MASK
    password = match["password"]
    return f"{match['user']}:{password if not password or REFERENCE.fullmatch(password) else MASK}"


def looks_secret(key: str | int) -> bool:
    """Return whether a key's name suggests that its value should not be echoed in a message."""
    return isinstance(key, str) and _SECRET_KEY.search(key) is not None


def variables_of(references: Iterable[str]) -> set[str]:
    """Return the names of the variables from which texts take secrets, by ``${env:NAME}``."""
    return {place for text in references for scheme, place in REFERENCE.findall(text) if scheme == "env"}


def mask_references(data: dict[str, Any], references: Mapping[tuple[str | int, ...], str]) -> dict[str, Any]:
    """Return a dump of settings with the text of the reference in place of each value that came from one.

    Of a value that the dump masks nothing else is shown: what stands beside a reference is a part of the secret.
    """
    for path, text in references.items():
        data = _put(data, path, text)
    return data


def _written(text: str, value: Any) -> str:
    """Return ``text`` as it may stand in place of the dumped ``value``."""
    value = MASK if isinstance(value, SecretStr) else value
    if not isinstance(value, str) or not value.endswith(MASK):
        return mask_url(text)
    head = value.removesuffix(MASK)  # of a URL its server
    at = len(head) if text.startswith(head) else 0
    shown = text[:at]
    for found in REFERENCE.finditer(text, at):
        shown += (MASK if found.start() > at else "") + found[0]
        at = found.end()
    return shown + (MASK if at < len(text) else "")


def _put(value: Any, path: tuple[str | int, ...], text: str) -> Any:
    if not path:
        return _written(text, value)
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        key = step if step in value else f"{step}_s"  # the name of a duration's field, in a dump without aliases
        return {**value, key: _put(value[key], rest, text)} if key in value else value
    if isinstance(value, list | tuple) and isinstance(step, int) and step < len(value):
        return type(value)([*value[:step], _put(value[step], rest, text), *value[step + 1 :]])
    return value
