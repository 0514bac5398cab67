"""The file of those who may use the HTTP API: a line for each token, which it holds only as a digest.

    # name    digest                scopes
    deploys   sha256:9f86d0…        operate
    grafana   sha256:60303a…        read

Guarantees
    Nothing of the file but names and line numbers stands in an error.
    A token is looked up in a time that does not depend on how much of it is right, or of which line.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from supervisor.core.errors import Problem
from supervisor.trust import distrust

LINES_MAX = 1000
BYTES_MAX = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})", re.ASCII)
_REMEDY = 'write `NAME sha256:DIGEST SCOPES`, with DIGEST from `printf %s "$TOKEN" | sha256sum`'


class Scope(IntEnum):
    """What a token allows; each allows what is before it."""

    READ = 1
    OPERATE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """As people write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Token:
    """One line."""

    name: str
    digest: bytes
    scope: Scope

    @classmethod
    def of(cls, name: str, secret: str, scope: Scope) -> Token:
        """Return the line of a token whose text is ``secret``."""
        return cls(name, digest_of(secret), scope)


class TokenFileError(Exception):
    """The file cannot be used; with every reason."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = list(problems)


def read_tokens(path: str) -> tuple[Token, ...]:
    """Return the tokens in a file.

    Raises:
        TokenFileError: it cannot be read or trusted, or lines of it cannot.
    """
    try:
        with Path(path).open("rb") as file:
            why = distrust(os.fstat(file.fileno()))
            found = file.read(BYTES_MAX + 1)
        text = found.decode("utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        problem = Problem(path, "", f"cannot be read: {reason}", "look at its path and its rights")
        raise TokenFileError([problem]) from error
    except UnicodeDecodeError as error:
        raise TokenFileError([Problem(path, "", "is no text in UTF-8", _REMEDY)]) from error
    if why:
        remedy = f"run `chown {os.geteuid()} {path}` and `chmod 600 {path}`: who writes to it makes tokens"
        raise TokenFileError([Problem(path, "", f"is not trusted, writable by others than this user: {why}", remedy)])
    lines = text.splitlines()
    if len(found) > BYTES_MAX or len(lines) > LINES_MAX:
        raise TokenFileError([Problem(path, "", f"has more than {LINES_MAX} lines or 1 MiB", "split the cluster")])
    return _tokens(path, lines)


def _tokens(path: str, lines: Sequence[str]) -> tuple[Token, ...]:
    tokens: dict[str, Token] = {}
    problems: list[Problem] = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        problem, token = _token(words)
        if token is not None and token.name in tokens:
            problem = f"{token.name} stands there twice"
        if problem or token is None:
            problems.append(Problem(f"{path}:{number}", "", problem, _REMEDY))
        else:
            tokens[token.name] = token
    if problems:
        raise TokenFileError(problems)
    return tuple(tokens.values())


def _token(words: Sequence[str]) -> tuple[str, Token | None]:
    """Return what is wrong with a line, or its token. Nothing that may be a token is repeated."""
    if len(words) != 3:
        return f"has {len(words)} words instead of three", None
    name, digest, scopes = words
    if not _NAME.fullmatch(name):
        return "begins with what is no name", None
    match = _DIGEST.fullmatch(digest)
    if match is None:
        return f"{name}: the second word is not sha256: and 64 hex digits", None
    by_word = {scope.word: scope for scope in Scope}
    chosen = scopes.split(",")
    if not set(chosen) <= set(by_word):
        return f"{name}: a scope is not one of {', '.join(by_word)}", None
    return "", Token(name, bytes.fromhex(match[1]), max(by_word[word] for word in chosen))


def digest_of(secret: str) -> bytes:
    """Return what the file holds in place of a token; stray bytes of a header count as they came."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def find_token(tokens: Sequence[Token], presented: str) -> Token | None:
    """Return the token that was presented. Looks at all of them, whichever it is."""
    digest = digest_of(presented)
    found = None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found
