"""The zone that cron of this host runs in: that of /etc/localtime, or of TZ where both agree or there is no such file.

Guarantees
    A zone is named only if its rules are those that libc uses. /etc/timezone, which libc never reads, only chooses
    among names of the same rules; a link counts only while no other file is mounted over its target.

Does not guarantee
    That cron has the environment of this process: a TZ of its own (/etc/default/cron) is not seen. So a TZ that differs
    from /etc/localtime, as a session's may, names nothing.
"""

from __future__ import annotations

import os
import zoneinfo
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

FILES_MAX = 3000
"""How many files of the database are compared; it has about 600 names, three times with posix and right."""

FILE_BYTES_MAX = 64 * 1024
LINKS_MAX = 8
_FOLDER = "/zoneinfo/"
_UTC = ("Etc/UTC", "UTC")
_NOT_PORTABLE = ("localtime", "posixrules", "posix/", "right/")


class FoundZone(NamedTuple):
    """A zone, and what names it; the name is empty where nothing does."""

    name: str
    origin: str


class HostFiles(NamedTuple):
    """Places of the facts."""

    etc: Path = Path("/etc")
    databases: tuple[Path, ...] = tuple(map(Path, zoneinfo.TZPATH))
    mounts: Path = Path("/proc/self/mountinfo")


def host_zone(environ: Mapping[str, str], files: HostFiles) -> FoundZone:
    """Return the zone of this host and what names it, or why it is not known."""
    system, text = _zone_of(files.etc / "localtime", files), environ.get("TZ")
    if text is None:
        return system
    name = text.removeprefix(":") or "UTC"
    if name.startswith("/"):
        name = _zone_of(Path(name), files).name or name
    if (files.etc / "localtime").exists() and not _are_alike(name, system.name, files.databases):
        return FoundZone("", f"TZ={text}, unlike {system.name or 'another zone'} by {system.origin}")
    return FoundZone(name, f"TZ={text}")


def _are_alike(name: str, other: str, databases: tuple[Path, ...]) -> bool:
    """Return whether two names mean the same rules: else TZ may be that of a session, which cron does not have."""
    return name == other or any(_content(root / name) == _content(root / other) != b"" for root in databases if other)


def _zone_of(file: Path, files: HostFiles) -> FoundZone:
    """Return the zone of ``file`` by its place or link in a database, else by its bytes."""
    named = _content(files.etc / "timezone").decode("utf-8", "replace").strip()
    if not file.is_symlink() and not file.exists():
        if named in {"", *_UTC}:
            return FoundZone(named or "UTC", f"{file}, which is not there")
        return FoundZone("", f"{file}, which is not there, beside {files.etc / 'timezone'}, which says {named}")
    content = _content(file)
    if not content:
        return FoundZone("", f"{file}, which cannot be read")
    for target in islice(_links(file), LINKS_MAX):
        _, found, name = str(target).partition(_FOLDER)
        if found and not _is_mounted_over(target, files.mounts):
            return FoundZone(name.removeprefix("posix/"), str(file) if target == file else f"{file} -> {target}")
    for root, name in islice(_candidates(named, files.databases), FILES_MAX):
        if _content(root / name) == content and not _is_mounted_over(root / name, files.mounts):
            return FoundZone(name, f"{file}, which has its rules")
    return FoundZone("", f"{file}, which has the rules of no zone in {', '.join(map(str, files.databases))}")


def _links(file: Path) -> Iterator[Path]:
    """Yield ``file`` and what it links to, one step after the other."""
    yield file
    while file.is_symlink():
        file = Path(os.path.normpath(file.parent / file.readlink()))
        yield file


def _is_mounted_over(file: Path, mounts: Path) -> bool:
    """Return whether a file is mounted on ``file``, as containers get the /etc/localtime of their host."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return str(file.resolve()) in {line.split(" ", 5)[4] for line in lines if line.count(" ") > 4}


def _candidates(named: str, databases: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    """Yield files of the databases, names that people use first: many have the same rules."""
    for root in databases:
        table = _content(root / "zone1970.tab").decode("utf-8", "replace").splitlines()
        listed = [line.split("\t")[2].strip() for line in table if line.count("\t") >= 2 and line[0] != "#"]
        others = (str(path.relative_to(root)) for path in sorted(root.rglob("[A-Z]*")))
        for name in (named, *_UTC, *listed, *others):
            if name and not name.startswith(_NOT_PORTABLE) and ".." not in name and (root / name).is_file():
                yield root, name


def _content(file: Path) -> bytes:
    with suppress(OSError), file.open("rb") as stream:
        return stream.read(FILE_BYTES_MAX)
    return b""
