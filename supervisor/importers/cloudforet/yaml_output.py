"""The native configuration that Cloudforet's files become: YAML that people read, keep and edit.

Guarantees
    It loads to the same schedules, pools and Redis. No secret is in it: each is a reference to
    a variable, and the head of the file lists those.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from supervisor.settings.base import Path as TreePath
from supervisor.settings.document import Node
from supervisor.settings.importing import Conversion
from supervisor.settings.masking import REFERENCE, looks_secret, mask_url
from supervisor.settings.render import dump_yaml

_HEADER = """\
# Made by `tenure config convert` from {names}. It replaces them: run it without --compat.
# Every schedule plans on a worker of the pool planners; its tasks go to the queue in its args.
"""
_LINE = re.compile(r"(.+):[0-9]+\Z", re.DOTALL)
_NAMES = ("authentication", "authorization", "TOKEN_INFO")  # kinds of handlers, and where a token is: no credentials
_NO_SECRET = (("redis", "url"), ("cloudforet", "packages"))


def to_yaml(conversion: Conversion, files: Sequence[Path]) -> str:
    """Return the configuration, with remarks as comments."""
    variables: dict[str, str] = {}
    plain = _plain(conversion.root, (), variables)
    lines = [_HEADER.format(names=", ".join(str(file) for file in files))]
    lines += [f"# note: {' '.join(notice.split())}\n" for notice in conversion.notices]
    lines += [f"# set the variable {name}: {what} was a secret in the original\n" for name, what in variables.items()]
    return f"{''.join(lines)}version: 1\n{dump_yaml(plain)}"


def _plain(node: Node, path: TreePath, variables: dict[str, str]) -> object:
    if isinstance(node.value, dict):
        return {key: _plain(child, (*path, key), variables) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(child, (*path, index), variables) for index, child in enumerate(node.value)]
    if not isinstance(node.value, str):
        return node.value
    if REFERENCE.search(node.value.replace("$${", "")):
        return _absolute(node)
    if _is_secret(node.value, path):
        name = _variable(path)
        variables[name] = ".".join(map(str, path))
        return f"${{env:{name}}}"
    return node.value


def _is_secret(text: str, path: TreePath) -> bool:
    if not text or path[:2] in _NO_SECRET:
        return False
    if mask_url(text) != text:
        return True
    is_free = path[:2] == ("cloudforet", "config") or (path[:1] == ("schedules",) and "options" in path)
    steps = [step for step in (path[2:] if is_free else path[-1:]) if step not in _NAMES]
    return (is_free or path in {("redis", "password"), ("cloudforet", "token")}) and any(map(looks_secret, steps))


def _variable(path: TreePath) -> str:
    if path == ("redis", "password"):
        return "REDIS_PASSWORD"
    if path == ("cloudforet", "token"):
        return "TOKEN"
    return re.sub(r"[^A-Z0-9]+", "_", "_".join(map(str, path)).upper())


def _absolute(node: Node) -> str:
    """Return a text whose files are found from anywhere: relative ones count from the file that names them."""
    match = _LINE.match(node.origin)
    base = (Path(match[1]).parent if match else Path()).resolve()

    def replaced(found: re.Match[str]) -> str:
        return f"${{file:{base / found[2]}}}" if found[1] == "file" else found[0]

    return REFERENCE.sub(replaced, str(node.value))
