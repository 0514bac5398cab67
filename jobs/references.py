"""Secrets by reference: a run's arguments say where a secret is, never what it is.

Arguments travel through the queue and stay in histories and dead runs, so a password must not
be among them. ``env:NAME`` and ``file:/absolute/path`` are resolved here, on the worker that
runs the job, and what they hold is never put into an error or a log.

Does not guarantee
    That only some secrets can be referred to: whoever may enqueue a job may have it use any
    variable and any file that the worker can read.
"""

from __future__ import annotations

import os
from pathlib import Path

SECRET_BYTES_MAX = 64 * 1024


class UnresolvedReferenceError(ValueError):
    """A reference names nothing that can be read here, or is no reference at all."""


def is_reference(text: str) -> bool:
    """Return whether ``text`` says where a value is rather than being one."""
    return text.startswith(("env:", "file:"))


def resolve(name: str, reference: str) -> str:
    """Return the value that argument ``name`` refers to, without the newline that ends a file.

    Raises:
        UnresolvedReferenceError: names the argument and where it points, never a value.
    """
    scheme, _, place = reference.partition(":")
    if scheme == "env":
        value = os.environ.get(place, "")
        if not value:
            raise UnresolvedReferenceError(f"{name}: environment variable {place} is not set on this worker; set it")
    elif scheme == "file":
        value = _read(name, Path(place))
    else:
        raise UnresolvedReferenceError(f"{name} must say where the secret is, env:NAME or file:/path; it is neither")
    if "\0" in value:
        raise UnresolvedReferenceError(f"{name}: what {reference} holds contains a NUL byte; it is not text")
    return value


def _read(name: str, path: Path) -> str:
    if not path.is_absolute():
        raise UnresolvedReferenceError(f"{name}: file:{path} must be an absolute path")
    try:
        with path.open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise UnresolvedReferenceError(f"{name}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnresolvedReferenceError(f"{name}: {path} is not UTF-8 text") from None
    if not text or len(data) > SECRET_BYTES_MAX:
        raise UnresolvedReferenceError(f"{name}: {path} is empty or larger than {SECRET_BYTES_MAX} bytes")
    return text
