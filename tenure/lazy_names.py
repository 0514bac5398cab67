"""Names of a package that are loaded at their first use, so that importing the package costs next to nothing."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as ``typing`` has it, without importing that
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of ``package``, whose names lie in ``modules``; submodules in itself."""

    def load(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        is_submodule = module == package
        value: object = import_module(f"{package}.{name}") if is_submodule else getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *modules})
