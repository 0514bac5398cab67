"""``tenure import``: configurations of other schedulers, turned into Tenure's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli.config.output_file import DESCRIPTOR_IN, is_standard_output, write_file
from supervisor.cli.help import SectionedGroup
from supervisor.cli.output import say
from supervisor.core.errors import EXIT_CONFIG, EXIT_OK, CannotCreateError, Problem
from supervisor.trust import is_directory

if TYPE_CHECKING:
    from supervisor.importers.crontab.reader import Host, Imported, Source

FILE_BYTES_MAX = 1024 * 1024
STANDARD_INPUT = "-"
_OF_ALL = (("jobs",), ("shell", "umask"), ("workers",))
"""What an imported file sets beside schedules: settings of the whole configuration."""

SH = Path("/bin/sh")
_SPOOLS = tuple(map(Path, ("/var/spool/cron/crontabs", "/var/spool/cron", "/var/spool/cron/tabs")))
"""Directories with a file for each user, of Debian, Red Hat and SUSE."""


@click.group("import", cls=SectionedGroup)
def import_group() -> None:
    """Turn the configuration of another scheduler into Tenure's."""


@import_group.command("crontab")
@click.argument("paths", metavar="FILE|DIR…", nargs=-1, required=True)
@click.option(
    "--user-field",
    type=click.Choice(["auto", "yes", "no"]),
    default="auto",
    show_default=True,
    help="Whether each entry names a user after the time, as in /etc/crontab. "
    "auto: yes for etc/crontab and for files in a folder cron.d, no for every other file.",
)
@click.option(
    "--output", default="-", metavar="FILE|-", show_default=True, help="Where to write; - is standard output."
)
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
@click.option("--skip-invalid", is_flag=True, help="Omit entries that cannot be converted.")
@click.option("--timezone", metavar="ZONE", help="Zone of entries without CRON_TZ.  [default: the zone of this host]")
@click.option("--user", metavar="NAME", help="User that the tree runs as.  [default: the current user]")
@click.pass_context
def crontab(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    user_field: str,
    output: str,
    force: bool,
    skip_invalid: bool,
    timezone: str | None,
    user: str | None,
) -> None:
    """Turn crontabs into a configuration that runs their commands.

    FILE is a crontab, or - for standard input. Of a DIR every file is read whose name cron
    reads in cron.d: letters, digits, _ and - only. In cron's spool a file is its user's.

    \b
    Examples:
      tenure import crontab /etc/crontab /etc/cron.d --output tenure.yaml
      crontab -l | tenure import crontab - --timezone Europe/Berlin

    Every problem is listed with its file and line; then nothing is written and the exit
    code is 78, unless --skip-invalid is given. @reboot cannot be converted. Lines that cron ran as
    another user than the tree's are converted, but paused.
    """
    from supervisor.importers.crontab.reader import read_crontabs
    from supervisor.importers.crontab.yaml_output import places, to_yaml

    host, problems = _host(timezone, user)
    sources = _sources(paths, user_field, problems)
    imported = read_crontabs(sources, host)
    problems.extend(imported.problems)
    _report(imported, problems, skip_invalid=skip_invalid)
    if problems and not (skip_invalid and imported.entries):
        say(_nothing_written(imported, skip_invalid=skip_invalid), err=True)
        context.exit(EXIT_CONFIG)
    if (at_once := places(imported.entries)) < len(imported.entries):
        say(f"warning: at most {at_once} commands run at once, further ones wait: workers.shell.processes", err=True)
    text = to_yaml(imported.entries, [source.name for source in sources])
    read: list[Path | int] = [DESCRIPTOR_IN] if STANDARD_INPUT in paths else []
    code = _write(text, output, force=force, sources=[*read, *(Path(source.name) for source in sources)])
    if code == EXIT_OK and not is_standard_output(output):
        _warn_of_others(Path(output), text)
    context.exit(code)


def _warn_of_others(written: Path, text: str) -> None:
    """Name each setting that the files of one directory have twice: without a word the file that is read last wins."""
    from supervisor.settings.loader import discover
    from supervisor.settings.yaml_source import parse_text, read_file

    folder = written.parent.parent if written.parent.name == "conf.d" else written.parent
    own, remedy = parse_text(text, str).root, "the file that is read last wins (conf.d at the end): set it in one"
    for other in discover([folder], []):
        root = None if other.exists() and other.samefile(written) else read_file(other).root
        for path in _OF_ALL:
            there, here = (None if each is None else each.nearest(path) for each in (root, own))
            if there and here and there[0] == here[0] == path and there[1].plain() != here[1].plain():
                say(f"warning: {other} sets {'.'.join(path)} too, otherwise than {written}; {remedy}", err=True)


def _host(timezone: str | None, user: str | None) -> tuple[Host, list[Problem]]:
    """Return the facts about this host that an import needs, and their faults."""
    import getpass
    import pwd

    from supervisor.core.cron.zones import UnknownZoneError, zone
    from supervisor.importers.crontab.host_zone import FoundZone, HostFiles, host_zone
    from supervisor.importers.crontab.reader import Host

    problems = []
    name, where = FoundZone(timezone, "--timezone") if timezone is not None else host_zone(os.environ, HostFiles())
    try:
        name = zone(name).name
        say(f"note: zone of entries without CRON_TZ: {name} (from {where})", err=True)
    except UnknownZoneError as error:
        remedy = "" if timezone is not None else "name the zone that cron runs in: --timezone ZONE"
        problems.append(Problem(where, "", str(error) if name else "the zone of this host is not known", remedy))
        name = "UTC"
    homes = {each.pw_name: each.pw_dir for each in pwd.getpwall()}
    if user is not None and user not in homes:
        problems.append(Problem("--user", "", f"there is no user {user} on this host", "check the name"))
    return Host(name, user or getpass.getuser(), homes, sh=SH.resolve().name), problems


def _sources(paths: tuple[str, ...], user_field: str, problems: list[Problem]) -> list[Source]:
    """Read the files that ``paths`` name; those that cannot be read become problems."""
    sources = []
    for path in paths:
        for file in _files(path, problems):
            text = _read(file, problems)
            if text is not None:
                sources.append(_source(file, text, user_field))
    return sources


def _files(path: str, problems: list[Problem]) -> list[str]:
    """Return the files of ``path``, in the order in which cron reads them."""
    if path == STANDARD_INPUT or not is_directory(Path(path)):
        return [path]
    try:
        files = sorted(file for file in Path(path).iterdir() if file.is_file())
    except OSError as error:
        problems.append(Problem(path, "", f"cannot be read: {error.strerror}", "check its permissions"))
        return []
    for file in files:
        if not _is_read(file) and not file.name.startswith("."):
            say(f"note: {file}: not read, because cron ignores files with such a name", err=True)
    return [str(file) for file in files if _is_read(file)]


def _is_read(file: Path) -> bool:
    """Return whether cron reads ``file``: in cron.d by the rule of run-parts(8), in its spool each user's."""
    name = file.name
    if _is_of_user(file):
        return not name.startswith(".")
    return name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()


def _is_of_user(file: Path) -> bool:
    return Path(os.path.abspath(file)).parent in _SPOOLS  # noqa: PTH100 - absolute() leaves .. in


def _read(file: str, problems: list[Problem]) -> str | None:
    try:
        content = _content(file)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        problems.append(Problem(file, "", reason, "check the path and its permissions"))
        return None
    if len(content) > FILE_BYTES_MAX:
        problems.append(Problem(file, "", f"larger than {FILE_BYTES_MAX} bytes", "is it a crontab?"))
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{content[error.start]:02x} is not UTF-8"
        problems.append(Problem(f"{file}:{line}", "", byte, "convert the file to UTF-8"))
        return None


def _content(file: str) -> bytes:
    if file == STANDARD_INPUT:
        return sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    with Path(file).open("rb") as stream:
        return stream.read(FILE_BYTES_MAX + 1)


def _source(file: str, text: str, user_field: str) -> Source:
    from supervisor.importers.crontab.reader import Source

    if file == STANDARD_INPUT:
        return Source("standard input", "crontab", text, has_user=user_field == "yes")
    path = Path(file).absolute()
    is_system = path.parent.name == "cron.d" or (path.name == "crontab" and path.parent.name == "etc")
    has_user = is_system if user_field == "auto" else user_field == "yes"
    owner = path.name if _is_of_user(path) else None
    return Source(file, _label(path.name), text, has_user=has_user, owner=owner)


def _label(name: str) -> str:
    """Return the name of a file in letters that the id of a schedule may hold."""
    import re

    return re.sub(r"[^A-Za-z0-9_-]+", "-", name, flags=re.ASCII).strip("-")[:64] or "crontab"


def _report(imported: Imported, problems: list[Problem], *, skip_invalid: bool) -> None:
    for warning in imported.warnings:
        say(f"warning: {warning}", err=True)
    kind = "left out" if skip_invalid else "error"
    for problem in problems:
        say(f"{kind}: {problem}", err=True)


def _nothing_written(imported: Imported, *, skip_invalid: bool) -> str:
    if skip_invalid or not imported.entries:
        return "nothing written: no entry can be converted"
    return f"nothing written; --skip-invalid converts the other entries: {len(imported.entries)}"


def _write(text: str, output: str, *, force: bool, sources: list[Path | int]) -> int:
    if is_standard_output(output):
        click.echo(text, nl=False)
        return EXIT_OK
    try:
        write_file(text, output, replaces=force, sources=sources)
    except CannotCreateError as error:
        say(f"error: {error}", err=True)
        return error.exit_code
    say(f"written: {output}", err=True)
    return EXIT_OK
