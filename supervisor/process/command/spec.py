"""Specification of a command, checked before anything is forked.

Guarantees
    Whatever can be known to be wrong without running it is refused with the name, the value
    and the remedy; everything the forked processes need is computed here, so that after the
    fork they only make system calls.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

ARGUMENTS_MAX = 4096
STDIN_BYTES_MAX = 16 * 1024 * 1024


class CommandRefusedError(ValueError):
    """The request cannot be a command, or the system refuses to start it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom a command runs."""

    user: int
    group: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """A command ready to be executed."""

    name: str  # for people: the program, or the shell
    candidates: tuple[bytes, ...]  # paths to try in order
    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: str | None
    stdin: bytes | None
    limits: tuple[tuple[int, int], ...] = ()  # of its resources: which (setrlimit(2)), and how much
    identity: Identity | None = None  # None: the tree's
    cgroup: str | None = None
    paths: tuple[Sequence[str], Sequence[str]] | None = None  # to read, and to change; None: no limit
    umask: int | None = None  # None: that of this process


def prepare(
    *,
    command: list[str] | str,
    shell: str,
    env: Mapping[str, str],
    cwd: str | None,
    stdin: str | None,
) -> Launch:
    """Return the launch of ``command``: a list is executed as it is, a string is given to ``shell -c``.

    Raises:
        CommandRefusedError: names the argument and the fault.
    """
    argv = _argv(command, shell)
    for name, value in (("command", argv), ("cwd", [cwd or ""])):
        _refuse_nul(name, value)
    if cwd == "":
        raise CommandRefusedError("cwd is empty; leave it out to stay in the directory of the tree")
    environment = _encoded(env)
    path = environment.get(b"PATH", os.fsencode(os.defpath))
    return Launch(
        name=argv[0],
        candidates=_candidates(_bytes("command", argv[0]), path),
        argv=tuple(_bytes("command", word) for word in argv),
        env=environment,
        cwd=cwd,
        stdin=_stdin(stdin),
    )


def inherited_environment(tree: Mapping[str, str], allowed: Sequence[str]) -> dict[str, str]:
    """Return the part of the tree's environment that a program inherits: the listed variables, and nothing else."""
    return {name: value for name, value in tree.items() if any(fnmatchcase(name, each) for each in allowed)}


def _argv(command: list[str] | str, shell: str) -> list[str]:
    if isinstance(command, str):
        if not command.strip():
            raise CommandRefusedError("command is empty; give a shell line, or a list: [program, argument, …]")
        if not shell:
            raise CommandRefusedError("shell is empty; give the path of one, /bin/sh by default")
        return [shell, "-c", command]
    if not command or not command[0]:
        raise CommandRefusedError("command is empty; give a list [program, argument, …], or a shell line")
    if len(command) > ARGUMENTS_MAX:
        raise CommandRefusedError(f"command has {len(command)} words, more than {ARGUMENTS_MAX}; pass them by stdin")
    return command


def _refuse_nul(name: str, words: list[str]) -> None:
    for position, word in enumerate(words):
        if "\0" in word:
            where = f"{name}[{position}]" if len(words) > 1 else name
            raise CommandRefusedError(f"{where} contains a NUL byte, which no program can be given; remove it")


def _bytes(name: str, text: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError as error:
        raise CommandRefusedError(f"{name} cannot be encoded as {error.encoding}: {error.reason}") from None


def _encoded(env: Mapping[str, str]) -> dict[bytes, bytes]:
    encoded = {}
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            raise CommandRefusedError(f"env has a variable called {name!r}; a name is not empty and has no = or NUL")
        if "\0" in value:
            raise CommandRefusedError(f"env.{name} contains a NUL byte, which no program can be given; remove it")
        encoded[_bytes("env", name)] = _bytes(f"env.{name}", value)
    return encoded


def _candidates(program: bytes, path: bytes) -> tuple[bytes, ...]:
    """Return the paths to try, as execvp(3) does, but with the PATH that the command will have."""
    if b"/" in program:
        return (program,)
    return tuple(os.path.join(folder or b".", program) for folder in path.split(b":"))  # noqa: PTH118 - bytes


def _stdin(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise CommandRefusedError(f"stdin cannot be encoded as UTF-8: {error.reason}") from None
    if len(data) > STDIN_BYTES_MAX:
        raise CommandRefusedError(
            f"stdin has {len(data)} bytes, more than {STDIN_BYTES_MAX}; give a file's path instead"
        )
    return data
