"""Search path of modules that a configuration names, and the names of the jobs that ship.

Guarantees
    A module that a configuration names is taken from a ``--module-path`` or the current directory before an installed
    one of its name; nothing else is: what lies there replaces no module that other code imports.
    The current directory counts only if it is trusted, or was on the path before. Where trust lets it count, each file
    and package directory that is imported from it must be trusted too, whoever imports it. Modules of Python's own
    library, and packages that are imported already, are replaced by nothing.
    An import within ``staying_here`` leaves the process in its current directory.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from supervisor.core.errors import TenureError
from supervisor.trust import distrust_path

GROUP = "tenure.jobs"
SHIPPED = ("http", "identity", "maintenance", "shell", "tracing")
"""Modules of ``tenure.jobs`` by their short names."""

_own: list[str] = []  # directories of users that were added to sys.path; one that left it counts no more
_checked: set[str] = set()  # directories whose files are imported only where they are trusted


class AmbiguousModuleError(TenureError):
    """A short name of jobs that ship is the name of a user's module too."""


class DirectoryChangedError(TenureError):
    """The import of a module changed the current directory."""


def search(directories: Iterable[Path]) -> None:
    """Let Python find modules in ``directories`` (``--module-path``), which the caller trusts."""
    for directory in directories:
        _add(str(directory.resolve()))


def search_here() -> None:
    """Look in the current directory too, if it is trusted: a script does not, and users keep their jobs there."""
    here = _here()
    if not here:
        return
    if here not in sys.path:
        if distrust_path(Path(here)):
            return
        _check(here)
    _add(here)


def _check(directory: str) -> None:
    _checked.add(directory)
    sys.path_importer_cache.pop(directory, None)
    if _finder_of not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder_of)


def _finder_of(directory: str) -> FileFinder:
    if directory not in _checked:
        raise ImportError(directory)
    sources, extensions = (SourceFileLoader, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES)
    return _TrustedFiles(directory, extensions, sources, (SourcelessFileLoader, BYTECODE_SUFFIXES))


class _TrustedFiles(FileFinder):
    """Modules of one directory; what others may write is not imported."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = super().find_spec(fullname, target)
        if spec is not None:
            packages = [*(spec.submodule_search_locations or ())]
            for place in (*packages, *_files(spec)):
                if why := distrust_path(Path(place)):
                    raise ImportError(f"{place} is not imported: {why}", name=fullname, path=place)
            for package in packages:
                _check(package)
        return spec


def _files(spec: ModuleSpec) -> Iterator[Path]:
    """Return the files that a module is read from, and the directory of its bytecode."""
    found = [Path(file) for file in (spec.origin, spec.cached) if file and spec.has_location]
    return (file for file in (*found, *(file.parent for file in found[1:])) if file.exists())


def _add(directory: str) -> None:
    if directory not in sys.path:
        sys.path.append(directory)  # last, so that nothing in it replaces a module that nobody named
    if directory not in _own:
        _own.append(directory)


@contextmanager
def staying_here(what: str, module: str) -> Iterator[None]:
    """Go back to the current directory after the import of ``what``.

    Relative paths of the configuration are taken from where the process is when each of them is used.

    Args:
        what: name of it, for people.
        module: what is imported. One that is there already runs no code, and threads of jobs may move meanwhile.

    Raises:
        DirectoryChangedError: the import left it.
    """
    place = None if module in sys.modules else _open_here()
    if place is None:
        yield
        return
    before = _here()
    try:
        yield
    finally:
        if (after := _here()) != before:
            with suppress(OSError):  # it is refused below, by name
                os.fchdir(place)
        os.close(place)
    if after != before:
        raise DirectoryChangedError(
            f"{what} changes the current directory when it is imported, to {after or 'one that is gone'}: relative "
            f"paths, as of data_dir, would lead there; leave it, and make paths of files beside a module from __file__"
        )


def _open_here() -> int | None:
    """Return a descriptor of the current directory; None where it is gone, so that no relative path leads anywhere."""
    with suppress(OSError):
        return os.open(".", os.O_PATH | os.O_DIRECTORY) if _here() else None
    return None


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - compared as a text
    except OSError:
        return ""


def import_named(module: str) -> ModuleType:
    """Import a module that a configuration names; a user's own comes before an installed one.

    Raises:
        Exception: whatever the module raises; ModuleNotFoundError when it, or one that it needs, is not there.
    """
    spec = _own_package(module)
    with _found_first(spec) if spec is not None else nullcontext():
        return importlib.import_module(module)


def module_of(name: str) -> str:
    """Return the module that an entry of ``jobs:`` stands for: a short name's, that of a former name, or itself.

    Raises:
        AmbiguousModuleError: it is the short name of jobs that ship, and a module of the user's own has it too.
    """
    first, _, rest = name.partition(".")
    if not rest:
        return _of_short_name(name)
    if first == "jobs" and rest.partition(".")[0] in SHIPPED:  # their names before 0.2
        found = _find(name, sys.path)
        ours = Path(importlib.import_module("tenure.jobs").__file__ or "").resolve().parent
        if found is None or (found.origin and Path(found.origin).resolve().is_relative_to(ours)):
            return f"tenure.{name}"
    return name


def _of_short_name(name: str) -> str:
    if name in SHIPPED:
        module = f"tenure.jobs.{name}"
        own = _find(name, _places())
        if own is not None:
            raise AmbiguousModuleError(
                f"{name} is the short name of {module} ({_place(_find(module, sys.path))}), and a module of your own "
                f"({_place(own)}); write {module} for the one, or rename the other"
            )
        return module
    if name in sys.modules or _find(name, sys.path) is not None:
        return name
    return next((entry.value for entry in entry_points(group=GROUP, name=name)), name)


def missing_module(module: str) -> tuple[str, str]:
    """Return message and remedy for a module that was not found."""
    top = module.partition(".")[0]
    loaded, elsewhere = sys.modules.get(top), _hidden(module)
    if loaded is not None and elsewhere is not None:
        places = f"{_place(loaded.__spec__)}, and the package {top} with it in {_place(elsewhere)} is hidden by that"
        return f"there is no module {module} in {places}", "rename one of the two packages"
    here = _here()
    why = "" if not here or here in sys.path else distrust_path(Path(here))
    if not why:
        return f"there is no module {module}", "install it, or start where it lies; the name is package.module"
    remedy = f"install it; nothing in {here} is imported, since {why}: name it by --module-path if you trust it"
    return f"there is no module {module}", remedy


def _hidden(module: str) -> ModuleSpec | None:
    """Return the package on the path that has ``module`` and is not the one that was imported under its name."""
    for entry in sys.path:
        if _find_along(module, [entry]) is not None:
            return PathFinder.find_spec(module.partition(".")[0], [entry])
    return None


def _places() -> list[str]:
    return [directory for directory in _own if directory in sys.path]


def _own_package(module: str) -> ModuleSpec | None:
    """Return where the first package of ``module`` must come from; None: from where Python finds it."""
    top = module.partition(".")[0]
    places = _places()
    if top in sys.modules or top in sys.stdlib_module_names or _find_along(module, places) is None:
        return None
    spec = PathFinder.find_spec(top, places)
    if spec is not None and spec.loader is None:  # a namespace: the same one may have parts elsewhere
        whole = PathFinder.find_spec(top, [*places, *sys.path])
        return whole if whole is not None and whole.loader is None else spec
    return spec


def _find(module: str, path: Sequence[str]) -> ModuleSpec | None:
    """Return what ``module`` would be imported from, without importing anything."""
    top, _, rest = module.partition(".")
    loaded = sys.modules.get(top)
    if loaded is None or not rest:
        return _find_along(module, path)
    return _find_along(module, list(getattr(loaded, "__path__", ())), begin=1)


def _find_along(module: str, path: Sequence[str], begin: int = 0) -> ModuleSpec | None:
    spec: ModuleSpec | None = None
    for part in module.split(".")[begin:]:
        spec = PathFinder.find_spec(part, path)  # a full name needs its parent in sys.modules if it is a namespace
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec if spec is not None and spec.loader is not None else None


def _place(spec: ModuleSpec | None) -> str:
    if spec is None:
        return "?"
    if spec.submodule_search_locations:
        return str(next(iter(spec.submodule_search_locations)))
    return spec.origin or spec.name


@contextmanager
def _found_first(spec: ModuleSpec) -> Iterator[None]:
    """Have a finder of that one package before all others."""

    def find_spec(name: str, path: Sequence[str] | None, _target: Any = None) -> ModuleSpec | None:
        return spec if path is None and name == spec.name else None

    finder: Any = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
