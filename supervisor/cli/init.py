"""``tenure init``: a project to start from, whose own tests pass at once."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from supervisor.cli.help import SectionedCommand
from supervisor.cli.output import say
from supervisor.core.errors import CannotCreateError
from supervisor.version import __version__

TEMPLATES = ("app", "plugin")
NAME_MAX = 31  # of a user in Linux: the unit runs as one of this name
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_SUFFIX = ".tmpl"  # so that no tool takes a template for one of our own files
_TAKEN = frozenset({"config", "jobs", "supervisor", "systemd", "tenure", "test", "tests"})


@dataclass(slots=True)
class ScaffoldedFiles:
    """Files of a new project by their path within it: written ones, and existing ones that were kept."""

    new: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def package_of(name: str) -> str:
    """Return the name of the package that a project of this name imports.

    Raises:
        ValueError: the name cannot be used; the message has the reason.
    """
    if len(name) > NAME_MAX or not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name for a project: lower-case letters, digits and single hyphens, "
            f"a letter first, at most {NAME_MAX} characters, such as night-jobs"
        )
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package in _TAKEN:
        raise ValueError(f"{name!r} would hide a module of that name; choose another, such as {name}-app")
    owners = sorted(set(packages_distributions().get(package, ())) - {name})
    if owners:
        raise ValueError(f"{name!r} would hide the module that {', '.join(owners)} installs; choose another name")
    return package


def rendered(template: str, name: str) -> dict[str, str]:
    """Return the content of each file of a project by its path within it."""
    values = {"@name@": name, "@package@": package_of(name), "@class@": _class_of(name), "@version@": __version__}
    root = files("supervisor.cli") / "templates" / template
    return {
        _filled(path.removesuffix(_SUFFIX), values): _filled(each.read_text("utf-8"), values)
        for path, each in sorted(_walk(root))
    }


def write(directory: Path, contents: Mapping[str, str]) -> ScaffoldedFiles:
    """Write the files that do not exist yet.

    Guarantees
        A file that exists is never written to. When anything fails, created files are removed
        again, so that a second try meets the same state as the first one.

    Raises:
        CannotCreateError: with the path and the reason; nothing of this call is left.
    """
    written = ScaffoldedFiles()
    made: list[Path] = []
    try:
        for path, content in contents.items():
            target = directory / path
            _make_directories(target.parent, within=directory, made=made)
            try:
                with target.open("x", encoding="utf-8") as file:
                    made.append(target)
                    file.write(content)
            except FileExistsError:
                written.kept.append(path)
                continue
            written.new.append(path)
    except OSError as error:
        _remove(made)
        where = error.filename or directory
        raise CannotCreateError(f"cannot write {where}: {error.strerror or error}; nothing was left behind") from error
    return written


def _class_of(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


def _filled(text: str, values: Mapping[str, str]) -> str:
    for token, value in values.items():
        text = text.replace(token, value)
    return text


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _walk(each, f"{prefix}{each.name}/")
        elif each.name.endswith(_SUFFIX):
            yield f"{prefix}{each.name}", each


def _make_directories(folder: Path, *, within: Path, made: list[Path]) -> None:
    """Make ``folder`` and its missing parents; a link that leads out of ``within`` is an error."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        made.append(each)
    if within.resolve() not in (folder.resolve(), *folder.resolve().parents):
        raise NotADirectoryError(20, "is a link that leads out of the project", str(folder))


def _remove(made: list[Path]) -> None:
    for each in reversed(made):
        with suppress(OSError):  # somebody else put something there meanwhile
            each.rmdir() if each.is_dir() else each.unlink()


_SHOWN_MAX = 5

_NEXT = {
    "app": ("pip install --editable '.[test]'", "pytest", "tenure run"),
    "plugin": ("pip install --editable '.[test]'", "pytest", "tenure plugin verify {name}"),
}


@click.command(cls=SectionedCommand)
@click.argument("name")
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="app",
    show_default=True,
    help="app: jobs, configuration, tests, unit and image. plugin: a plugin, held to its contract.",
)
@click.option("--force", is_flag=True, help="Write into a directory that holds something; no file in it is changed.")
def init(*, name: str, template: str, force: bool) -> None:
    """Make a directory NAME with a project to start from.

    Its tests pass as it is: jobs called as functions, schedules and the election under a driven clock. A file that
    exists is never written to.

    \b
    Examples:
      tenure init night-jobs
      tenure init cloud-inventory --template plugin
    """
    try:
        contents = rendered(template, name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    directory = Path(name)
    _refuse_what_is_there(directory, force=force)
    written = write(directory, contents)
    for path in written.new:
        say(f"  {directory / path}")
    for path in written.kept:
        say(f"  {directory / path} was there already, and is as it was", err=True)
    say(f"{len(written.new)} files written. Next, in a virtual environment:\n  cd {name}")
    for command in _NEXT[template]:
        say(f"  {command.format(name=name)}")


def _refuse_what_is_there(directory: Path, *, force: bool) -> None:
    if not directory.exists() and not directory.is_symlink():
        return
    if not directory.is_dir():
        raise click.UsageError(f"{directory} exists and is no directory; choose another NAME")
    try:
        inside = sorted(each.name for each in directory.iterdir())
    except OSError as error:
        raise CannotCreateError(f"cannot read {directory}: {error.strerror or error}") from error
    if inside and not force:
        shown = ", ".join(inside[:_SHOWN_MAX]) + (" …" if len(inside) > _SHOWN_MAX else "")
        raise click.UsageError(
            f"{directory} holds something already ({shown}); choose another NAME, or write the missing files beside it "
            "with --force, which changes no file"
        )
