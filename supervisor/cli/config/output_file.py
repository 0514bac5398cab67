"""File that a command writes a configuration to: whole, private, or as it was.

Guarantees
    A plain file has its former content until there is room for all of the new one, so a full disk costs nothing: it is
    written beside it and renamed, also where a link leads to it, which stays a link. Where its directory takes no new
    file, and where it is mounted by itself, it is written in place.
    Others than its owner and group may not read it: there may be secrets in it. Both stay, as far as this user may give
    it to them.
    What the configuration was read from is never written. A device or a pipe is written to, and stays the same file; so
    does a file that is standard error, or input.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from supervisor.core.errors import CannotCreateError

DESCRIPTOR_IN, DESCRIPTOR_OUT, DESCRIPTOR_ERR = range(3)
_IN_PLACE_ALONE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})
"""Why a directory takes no new file, or no other one under the name of a file."""


def is_standard_output(target: str) -> bool:
    """Return whether ``target`` is ``-``, or the file that standard output goes to, as ``/dev/stdout`` is."""
    return target == "-" or _is_same(target, DESCRIPTOR_OUT)


def write_file(text: str, output: str, *, replaces: bool, sources: Iterable[Path | int]) -> None:
    """Write a configuration to ``output``.

    Args:
        text: the whole of it.
        output: name of the file.
        replaces: whether a file that is there may be replaced.
        sources: what the text was made of, names or descriptors. It lacks their secrets and comments, so it may not
            replace them.

    Raises:
        CannotCreateError: it cannot be written, is a source, or is there and may not be replaced.
    """
    path = Path(output)
    try:
        if path.is_file() and any(_is_same(path, source) for source in sources):
            raise CannotCreateError(
                f"{output} is one of the files that are read, and secrets or comments in it would be lost; "
                f"choose another name"
            )
        if path.exists() and not path.is_file():
            _overwrite(path, text)
        elif not replaces:
            _make(path, text)
        elif path.is_symlink():
            _replace_behind(path, text)
        else:
            _replace(path, text)
    except FileExistsError as error:
        raise CannotCreateError(f"{output} exists; choose another name, or replace it with --force") from error
    except OSError as error:
        reason = error.strerror or error
        raise CannotCreateError(
            f"cannot write the configuration to {output}: {reason}; choose a writable place"
        ) from error


def _is_same(path: Path | str, other: Path | int) -> bool:
    with suppress(OSError):  # one that is not there is no other
        return os.path.samestat(os.stat(path), os.stat(other))  # noqa: PTH116 - takes descriptors
    return False


def _private(path: str, flags: int) -> int:
    """Open a file without cutting it, and take the rights of others from it, as far as this user may."""
    descriptor = os.open(path, flags & ~os.O_TRUNC, 0o600)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and mode & 0o007:  # it was there; its group may be that of the tree
        with suppress(OSError):
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


def _overwrite(path: Path, text: str) -> None:
    """Write into a file and keep it; a plain one is left as it was where there is no room for the text."""
    content = text.encode()
    with open(path, "wb", opener=_private) as stream:
        is_plain = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
        if is_plain:
            _reserve(stream.fileno(), len(content))
        stream.write(content)
        if is_plain:
            stream.truncate()


def _reserve(descriptor: int, size: int) -> None:
    former = os.fstat(descriptor).st_size
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.ftruncate(descriptor, former)
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:  # file systems that cannot reserve room
            raise


def _replace_behind(link: Path, text: str) -> None:
    """Replace the plain file that a link leads to, where the kernel lets this user follow the link and write there."""
    target = Path(os.path.realpath(link))  # before the check: a link of somebody else may be exchanged meanwhile
    if not link.exists() or any(_is_same(link, each) for each in (DESCRIPTOR_IN, DESCRIPTOR_ERR)):
        _overwrite(link, text)
        return
    descriptor = os.open(link, os.O_WRONLY | os.O_NONBLOCK)
    try:
        is_target = _is_same(target, descriptor)
    finally:
        os.close(descriptor)
    if is_target:
        _replace(target, text)
    else:
        _overwrite(link, text)


def _replace(path: Path, text: str) -> None:
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".tenure-")
    except OSError as error:
        _overwrite_instead(path, text, error)
        return
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            _give_rights_of(path, descriptor)
        try:
            draft.replace(path)
        except OSError as error:
            _overwrite_instead(path, text, error)
    finally:
        draft.unlink(missing_ok=True)


def _overwrite_instead(path: Path, text: str, error: OSError) -> None:
    """Write in place where nothing else may be done.

    Raises:
        OSError: ``error``, where it has another reason, or no file is there.
    """
    if error.errno not in _IN_PLACE_ALONE or not path.exists():
        raise error
    _overwrite(path, text)


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
