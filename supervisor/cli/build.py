"""Build information for ``tenure --version=raw`` and bug reports. Needs no configuration and no Redis."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from supervisor.version import __version__

LIBRARIES = ("click", "pydantic", "redis", "hiredis", "aiohttp", "uvloop", "msgspec", "structlog", "prometheus-client")


def build_info() -> dict[str, str | Mapping[str, str]]:
    """Return version, interpreter, platform and the versions of Tenure's dependencies; ``-`` where one is absent."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system().lower()}-{platform.machine()}",
        "executable": sys.executable,
        "installed_in": str(Path(__file__).resolve().parent.parent),
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def raw() -> str:
    """Return all of it as lines of ``name: value``, the names of libraries among them."""
    lines = []
    for name, value in build_info().items():
        if isinstance(value, Mapping):
            lines += [f"{library}: {each}" for library, each in value.items()]
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"
