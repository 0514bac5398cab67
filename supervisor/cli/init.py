"""``tenure init``: a project to start from, whose own tests pass at once."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli import scaffold
from supervisor.cli.help import SectionedCommand
from supervisor.core.errors import CannotCreateError

_SHOWN_MAX = 5

_NEXT = {
    "app": ("pip install --editable '.[test]'", "pytest", "tenure run"),
    "plugin": ("pip install --editable '.[test]'", "pytest", "tenure plugin verify {name}"),
}


@click.command(cls=SectionedCommand)
@click.argument("name")
@click.option(
    "--template",
    type=click.Choice(scaffold.TEMPLATES),
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
        contents = scaffold.rendered(template, name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    directory = Path(name)
    _refuse_what_is_there(directory, force=force)
    written = scaffold.write(directory, contents)
    for path in written.new:
        click.echo(f"  {directory / path}")
    for path in written.kept:
        click.echo(f"  {directory / path} was there already, and is as it was", err=True)
    click.echo(f"{len(written.new)} files written. Next, in a virtual environment:\n  cd {name}")
    for command in _NEXT[template]:
        click.echo(f"  {command.format(name=name)}")


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
