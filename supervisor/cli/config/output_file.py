"""File that a command writes a configuration to: whole, private, or as it was.

Guarantees
    A plain file has its former content until it has all of the new one, so a full disk costs nothing. Others than its
    owner and group may not read it: there may be secrets in it. Both stay, as far as this user may give it to them.
    What the configuration was read from is never written. A device, a pipe, and what a link leads to is written to, and
    stays the same file.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from supervisor.core.errors import CannotCreateError


def write_file(text: str, output: str, *, replaces: bool, sources: Iterable[Path]) -> None:
    """Write a configuration to ``output``.

    Args:
        text: the whole of it.
        output: name of the file.
        replaces: whether a file that is there may be replaced.
        sources: what the text was made of. It lacks their secrets and comments, so it may not replace them.

    Raises:
        CannotCreateError: it cannot be written, is a source, or is there and may not be replaced.
    """
    path = Path(output)
    try:
        if path.is_file() and any(file.exists() and path.samefile(file) for file in sources):
            raise CannotCreateError(
                f"{output} is one of the files that are read, and secrets or comments in it would be lost; "
                f"choose another name"
            )
        is_special = path.exists() and not path.is_file()
        if is_special or (replaces and path.is_symlink()):
            with open(output, "w", encoding="utf-8", opener=_private) as stream:
                stream.write(text)
        elif replaces:
            _replace(path, text)
        else:
            _make(path, text)
    except FileExistsError as error:
        raise CannotCreateError(f"{output} exists; choose another name, or replace it with --force") from error
    except OSError as error:
        reason = error.strerror or error
        raise CannotCreateError(
            f"cannot write the configuration to {output}: {reason}; choose a writable place"
        ) from error


def _private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, 0o600)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and mode & 0o007:  # it was there; its group may be that of the tree
        os.fchmod(descriptor, stat.S_IMODE(mode) & 0o770)
    return descriptor


def _make(path: Path, text: str) -> None:
    with open(path, "x", encoding="utf-8", opener=_private) as stream:
        try:
            stream.write(text)
            stream.flush()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".tenure-")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            _give_rights_of(path, descriptor)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _give_rights_of(path: Path, descriptor: int) -> None:
    """Give a new file owner, group and mode of the one that it replaces, without the rights of others."""
    try:
        former = path.stat()
    except FileNotFoundError:
        return
    rights = 0o700  # another group than the former may not get what that one had
    with suppress(OSError):
        os.fchown(descriptor, -1, former.st_gid)
        rights = 0o770
    with suppress(OSError):
        os.fchmod(descriptor, stat.S_IMODE(former.st_mode) & rights)
        os.fchown(descriptor, former.st_uid, -1)
