"""Secrets by reference: a run's arguments name the place of a secret, never its value.

Arguments travel through the queue and stay in histories and dead runs, so a password must not
be among them. ``env:NAME`` and ``file:/absolute/path`` are resolved here, on the worker that
runs the job, and their values are never put into an error or a log.

Guarantees
    Only variables and files that ``job_references`` of the configuration allows are read, links resolved, whoever
    enqueued the run.
"""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.core.jobs.references import ReferenceRule

SECRET_BYTES_MAX = 64 * 1024


class UnresolvedReferenceError(ValueError):
    """A reference names nothing that can be read here, or is no reference at all."""


def is_reference(text: str) -> bool:
    """Return whether ``text`` is a reference to a value rather than the value."""
    return text.startswith(("env:", "file:"))


def resolve(name: str, reference: str) -> str:
    """Return the value that argument ``name`` refers to, without the newline that ends a file.

    Raises:
        UnresolvedReferenceError: names the argument and where it points, never a value.
    """
    scheme, _, place = reference.partition(":")
    rule = ReferenceRule.current
    if scheme == "env":
        if not rule.allows_variable(place):
            remedy = "add it there, or name it JOB_…" if not place.upper().startswith("TENURE_") else "those never are"
            raise UnresolvedReferenceError(f"{name}: variable {place} is not among job_references.env; {remedy}")
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


def _no_link(path: str, flags: int) -> int:
    """Open the file that was judged, not a link in its place; a pipe keeps nobody waiting."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _read(name: str, path: Path) -> str:
    if not path.is_absolute():
        raise UnresolvedReferenceError(f"{name}: file:{path} must be an absolute path")
    rule = ReferenceRule.current
    real = os.path.realpath(path)
    if not rule.allows_file(real, resolve=os.path.realpath):
        raise UnresolvedReferenceError(
            f"{name}: {path} is not among job_references.files; add it or its directory there"
        )
    try:
        with open(real, "rb", opener=_no_link) as file:
            data = file.read(SECRET_BYTES_MAX + 1)
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise UnresolvedReferenceError(f"{name}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnresolvedReferenceError(f"{name}: {path} is not UTF-8 text") from None
    if not text or len(data) > SECRET_BYTES_MAX:
        raise UnresolvedReferenceError(f"{name}: {path} is empty or larger than {SECRET_BYTES_MAX} bytes")
    return text
