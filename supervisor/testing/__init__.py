"""A kit for tests of programs that use Tenure: a whole cluster in one thread, under a driven clock.

Names are loaded when first used, so that the pytest plugin costs nothing where nobody uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisor.testing.plugins import plugin_conformance
    from supervisor.testing.servers import start_server

__all__ = ["plugin_conformance", "start_server"]

_MODULES = {"plugin_conformance": "supervisor.testing.plugins", "start_server": "supervisor.testing.servers"}


def __getattr__(name: str) -> object:
    """Load a name at its first use."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'supervisor.testing' has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    return value
