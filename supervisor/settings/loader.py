"""From files, variables and flags to one frozen configuration, or to every problem at once.

Layers, each over the one before: defaults, the file of an image (``TENURE_DEFAULTS``), the
files in their order, the ``conf.d`` directories beside them by file name,
``TENURE_SECTION__KEY`` variables, flags given explicitly. Mappings merge deeply, pools and
schedules per id, lists and scalars replace, and null goes back to the default. A mapping with
nothing after its key says nothing.

Guarantees
    Either settings in which every rule of the models and of rules/cross_rules.py holds, or a
    ``ConfigError`` with all problems, each naming file and line, variable or flag.
    No secret is in a problem.

Does not guarantee
    That the jobs exist and their queues are served: schedules/complete.py, which imports them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from supervisor.core.errors import ConfigError, Problem
from supervisor.settings.base import ORIGINS_MAX, Origins
from supervisor.settings.base import Path as TreePath
from supervisor.settings.document import DEFAULT_ORIGIN, Node, format_path, merge, wrap
from supervisor.settings.interpolate import follow_files, interpolate
from supervisor.settings.overrides import (
    DEFAULTS_VARIABLE,
    Notice,
    apply_environment,
    apply_flags,
    notices_of,
    option_of,
)
from supervisor.settings.schedules.calendars import with_ics_dates
from supervisor.settings.schedules.profiles import expanded
from supervisor.settings.schema import Shape, settings_shape
from supervisor.settings.sections.models import Settings
from supervisor.settings.validation import conform, validate
from supervisor.settings.yaml_source import Parsed, read_file
from supervisor.trust import distrust_neighbour, distrust_path, is_directory, open_regular

FILES_MAX = 1000
_CONF_D = "conf.d"
_FILE_LINE = re.compile(r"(.+?):([0-9]+)(?::[0-9]+)?\Z", re.DOTALL)
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Converted:
    """Files of another format in native terms, and the native files among them."""

    root: Node
    native: tuple[Node, ...]
    files: tuple[Path, ...]
    problems: tuple[Problem, ...]
    notices: tuple[str, ...]


class Importer(Protocol):
    """Reader of files in other formats, handed in by whoever composes the program.

    Its result is a layer like any other, below native files, variables and flags, with its origins.
    """

    def convert(self, files: Sequence[Path], roots: Sequence[Node | None], problems: list[Problem]) -> Converted | None:
        """Return the conversion of ``files``, or None when all are native.

        Args:
            files: those that were found.
            roots: their native reading; empty when a format is named.
            problems: takes a format that nobody knows.
        """

    def misplaced(self, document: Node) -> Problem | None:
        """Return the problem of a file of another format that is read as a native one; None of any other."""

    def finished(self, root: Node) -> Node:
        """Return the merged settings with everything that the format adds over its files."""

    def original(self, problem: Problem) -> Problem:
        """Return ``problem`` with the place as the file calls it."""


MakeImporter = Callable[[str | None, Mapping[str, str], Mapping[str, object]], Importer]
"""From the format that was named, the environment and the flags to an importer."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where each value of it comes from."""

    settings: Settings
    origins: Mapping[str, str]
    """Path of a setting or section to file:line, variable or flag. What is absent has its default."""

    files: tuple[Path, ...]
    """Every file read, in the order of precedence."""

    notices: tuple[Notice, ...] = ()
    """Old names of flags that were used."""

    conversion: Converted | None = None
    """What files of another format became, with native ones and before variables and flags; None: all were native."""

    declared: Mapping[str, str] = field(default_factory=dict)
    """Schedule to the function, ``module:qualname``, whose code declares it."""

    def origin(self, *path: str | int) -> str:
        """Return where a setting was written, or the nearest section around it that was."""
        for length in range(len(path), 0, -1):
            found = self.origins.get(format_path(path[:length]))
            if found is not None:
                return found
        return DEFAULT_ORIGIN

    def problem(self, path: TreePath, message: str, remedy: str = "") -> Problem:
        """Return the problem of one setting, with the place of it."""
        return Problem(self.origin(*path), format_path(path), message, remedy)


class UnusableError(ConfigError):
    """A configuration with problems, and its usable part: its jobs and other schedules can still be checked."""

    def __init__(self, problems: Sequence[Problem], partial: Loaded | None) -> None:
        super().__init__(problems)
        self.partial = partial


def load(
    *,
    files: Sequence[Path],
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    compat: str | None = None,
    make_importer: MakeImporter | None = None,
    are_named: bool = True,
) -> Loaded:
    """Return the configuration.

    Args:
        files: YAML files, or directories whose ``*.yaml`` are read by name.
        environ: the environment; only ``TENURE_…`` variables are settings, all serve ``${env:…}``.
        flags: values by path, such as ``{"web.port": "8080"}``; texts are read like variables.
        compat: the format of files that are not native, or None unless a file names it.
        make_importer: the reader of other formats; None: only native files can be read.
        are_named: whether a person named the files. Native ones that were found instead are read only if trusted.

    Raises:
        UnusableError: with every problem found.
    """
    shape = settings_shape()
    problems: list[Problem] = []
    found = discover(files, problems)
    assert compat is None or make_importer is not None
    importer = make_importer(compat, environ, flags) if make_importer is not None else None
    parsed = [] if compat else [read_file(file, is_named=are_named) for file in found]
    below, own = _read_defaults(environ, shape, problems)
    root, read, conversion = _read_files(parsed, found, shape, problems, importer=importer, below=below)
    found = (*own, *read)
    if "workers" not in root.value:
        # Files name all pools or none. Variables and flags may adjust the default ones by id.
        defaults = Settings().model_dump(mode="json", by_alias=True, include={"workers"})
        root = merge(root, wrap(defaults, DEFAULT_ORIGIN), shape) or root
    root = apply_environment(root, shape, environ, problems)
    root = apply_flags(root, shape, flags, problems)
    root = interpolate(root, shape, environ, problems)
    root = with_ics_dates(expanded(root, shape), problems)
    settings = validate(root, shape, problems)
    loaded = None
    if settings is not None:
        references = {path: node.source for path, node in root.walk() if node.source is not None}
        notices = tuple(notices_of({key: option_of(key, value) for key, value in flags.items()}))
        written = ((path, node.origin) for path, node in root.walk() if path and node.origin != DEFAULT_ORIGIN)
        origins = {format_path(path): origin for path, origin in written}
        settings = settings.with_references(references, deprecated=len(notices), origins=_carried(root, origins))
        settings = follow_files(settings, root, environ)
        loaded = Loaded(settings, origins, found, notices, conversion)
    if conversion is not None and importer is not None:
        problems = [importer.original(problem) for problem in problems]
    if problems or loaded is None:
        raise UnusableError(in_reading_order(problems, found), loaded)
    return loaded


def discover(files: Sequence[Path], problems: list[Problem]) -> tuple[Path, ...]:
    """Return the files to read, in order: those named, then the conf.d directories beside them."""
    found: list[Path] = []
    drop_ins: dict[Path, Path] = {}  # each with what was named
    for file in files:
        if is_directory(file):
            told = len(problems)
            inside = _yaml_files(file, problems)
            if not inside and len(problems) == told:
                problems.append(Problem(str(file), "", "holds no *.yaml file", "name a file, or put one there"))
            found += inside
            drop_ins[file / _CONF_D] = file
        else:
            found.append(file)
            drop_ins[file.parent / _CONF_D] = file
    for directory, beside in drop_ins.items():
        if directory not in files:
            found += _drop_ins(directory, beside, problems)
    unique = tuple(dict.fromkeys(found))
    if len(unique) > FILES_MAX:
        problems.append(Problem(str(unique[FILES_MAX]), "", f"is one of more than {FILES_MAX} files"))
    return unique[:FILES_MAX]


def _read_defaults(environ: Mapping[str, str], shape: Shape, problems: list[Problem]) -> tuple[Node, tuple[Path, ...]]:
    """Return what an image sets below every file, and the file that says so; nobody named it in a command."""
    nothing = Node({}, DEFAULT_ORIGIN)
    if not (name := environ.get(DEFAULTS_VARIABLE)):
        return nothing, ()
    file = Path(name)
    with suppress(OSError):  # told when it is read
        if why := distrust_path(file):
            problems.append(Problem(name, "", f"is not read as {DEFAULTS_VARIABLE}: {why}", "name it by --config"))
            return nothing, ()
    parsed = read_file(file, is_named=False)
    problems += parsed.problems
    return merge(nothing, conform(parsed.root or nothing, shape, problems), shape) or nothing, (file,)


def _drop_ins(directory: Path, beside: Path, problems: list[Problem]) -> list[Path]:
    """Return the files of a directory that nobody named: it lies beside what was, as in /tmp anybody's may."""
    found = _yaml_files(directory, problems)
    if found and (why := distrust_neighbour(directory, beside)):
        problems.append(Problem(str(directory), "", f"is not read by itself: {why}", "name it by --config"))
        return []
    return found


def _yaml_files(directory: Path, problems: list[Problem]) -> list[Path]:
    try:
        entries = [entry for entry in directory.iterdir() if entry.suffix in _SUFFIXES]
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError | NotADirectoryError) and not directory.is_symlink()
        if not is_absent:  # nothing of it is read, so that nobody else would tell
            problems.append(Problem(str(directory), "", f"cannot be read: {error.strerror}", "check path and rights"))
        return []
    # Hidden files are locks and backups of editors, and the versions behind a mounted ConfigMap.
    found = []
    for entry in sorted(entry for entry in entries if not entry.name.startswith(".") and not is_directory(entry)):
        try:
            os.close(open_regular(entry, follows=True))  # a FIFO that nobody named would hold the start up
        except OSError as error:
            problems.append(Problem(str(entry), "", f"cannot be read: {error.strerror}"))
        else:
            found.append(entry)
    return found


def _read_files(
    parsed: Sequence[Parsed],
    files: tuple[Path, ...],
    shape: Shape,
    problems: list[Problem],
    *,
    importer: Importer | None,
    below: Node,
) -> tuple[Node, tuple[Path, ...], Converted | None]:
    """Return all files together, which they are, and what an importer made of them."""
    converted = importer.convert(files, [each.root for each in parsed], problems) if importer is not None else None
    if converted is None:
        problems += [problem for each in parsed for problem in each.problems]
        native, root = [each.root for each in parsed if each.root is not None], below
    else:
        problems += converted.problems
        native, root = list(converted.native), converted.root
    for document in native:
        misplaced = importer.misplaced(document) if importer is not None else None
        if misplaced is not None:
            problems.append(misplaced)
            continue
        root = merge(root, conform(document, shape, problems), shape) or root
    if converted is None or importer is None:
        return root, files, None
    root = importer.finished(root)
    return merge(below, root, shape) or root, converted.files, replace(converted, root=root)


def in_reading_order(problems: Sequence[Problem], files: Sequence[Path]) -> list[Problem]:
    """Return ``problems`` sorted by file and line; those of variables and flags follow, in the order found."""
    order = {str(file): index for index, file in enumerate(files)}

    def place(problem: Problem) -> tuple[int, int]:
        match = _FILE_LINE.match(problem.where)
        name, line = (match[1], int(match[2])) if match else (problem.where, 0)
        return order.get(name, len(order)), line

    return sorted(problems, key=place)


def _carried(root: Node, origins: Mapping[str, str]) -> Origins:
    """Return the origins that go with the settings: those outside schedules first, then where each schedule begins."""
    schedules = root.child("schedules")
    begun = [format_path(("schedules", name)) for name in schedules.value] if schedules is not None else []
    paths = [*(path for path in origins if not path.startswith("schedules")), *begun]
    kept = {path: origins[path] for path in paths[:ORIGINS_MAX] if path in origins}
    return Origins(kept, left_out=len(paths) - len(paths[:ORIGINS_MAX]))
