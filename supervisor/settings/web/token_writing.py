"""Tokens of the HTTP API that are made: a random text for its holder, and a line for the file of tokens.

Guarantees
    A token has 256 random bits; the file gets its digest alone.
    A file is changed by one append of a whole line, and only if it can be used before and after.
    A new file is this user's alone (0600); one that is there keeps its owner and its mode.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from io import FileIO

from supervisor.core.errors import Problem
from supervisor.settings.web.tokens import BYTES_MAX, Token, TokenFileError, parse_tokens
from supervisor.trust import distrust

PREFIX = "tenure_"  # so that scanners of repositories know one when they see it


def new_secret() -> str:
    """Return the text of a new token."""
    return PREFIX + secrets.token_urlsafe(32)


def append_token(path: str, token: Token) -> None:
    """Append the line of ``token`` to the file ``path``, which is made if there is none.

    Raises:
        TokenFileError: the file cannot be used, or not with this line; it is as it was.
    """
    try:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
            _append(path, file, token)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        remedy = "name a file that is no link, in a directory that is there"
        raise TokenFileError([Problem(path, "", f"cannot be written to: {reason}", remedy)]) from error


def _append(path: str, file: FileIO, token: Token) -> None:
    status = os.fstat(file.fileno())
    why = distrust(status) if stat.S_ISREG(status.st_mode) else "it is no regular file"
    if why:
        raise TokenFileError([Problem(path, "", f"is not written to: {why}", "look at its path and its rights")])
    fcntl.flock(file, fcntl.LOCK_EX)  # against another one of these
    found = file.read(BYTES_MAX + 1)
    added = (b"" if not found or found.endswith(b"\n") else b"\n") + token.line.encode() + b"\n"
    parse_tokens(path, found)
    parse_tokens(path, found + added)
    if file.write(added) < len(added):
        file.truncate(len(found))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file.fileno())
