"""``config.get_global`` and its kin, as Cloudforet's services call them. Read only."""

from __future__ import annotations

import copy
from typing import Any

from supervisor.compat.cloudforet.tasks import runtime


def get_global(key: str | None = None, default: Any = None) -> Any:
    """Return the configured value of ``key``, or all of them; ``TOKEN`` is the configured token."""
    values = {**runtime.settings().config}
    token = runtime.token()
    if token is not None:
        values["TOKEN"] = token
    return copy.deepcopy(values if key is None else values.get(key, default))


def get_package() -> str | None:
    """Return the first of the configured packages; None without any."""
    packages = runtime.settings().packages
    return packages[0] if packages else None


def get_service() -> str | None:
    """Return the name of the service: the last part of its package, unless ``SERVICE`` sets another."""
    package = get_package()
    service: str | None = get_global("SERVICE") or (package.rpartition(".")[2] if package else None)
    return service


def get_connector(name: str) -> dict[str, Any]:
    """Return the configuration of one connector; empty when there is none."""
    found: dict[str, Any] = (get_global("CONNECTORS") or {}).get(name, {})
    return found
