"""The tokens file of the HTTP API: one line for each token, with its digest only.

    # name    digest                scopes   limits
    deploys   sha256:9f86d0…        operate  jobs=report.*,mail.* labels=team=mail until=2027-01-01
    grafana   sha256:60303a…        read

Guarantees
    Nothing of the file but names and line numbers is in an error.
    No limit is lost in silence: a file that was cut off makes no tokens, and a comment begins where a word does.
    A token is looked up in a time that does not depend on how much of it is right, or of which line.
    A new token has 256 random bits; the file gets its digest alone, by one append of a whole line, and only if it can
    be used before and after. A new file is this user's alone (0600); one that is there keeps its owner and its mode.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import itertools
import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from fnmatch import fnmatchcase
from io import FileIO
from types import MappingProxyType
from typing import Any

from supervisor.core.errors import Problem
from supervisor.trust import distrust, open_regular

LINES_MAX = 1000
BYTES_MAX = 1 << 20
PREFIX = "tenure_"  # so that scanners of repositories know one when they see it
POWERFUL_JOBS = ("shell.*", "http.*", "identity.*", "cloudforet.*", "plugin.*")
"""Jobs whose arguments run commands, name secrets, or choose where they are sent, as options of a plugin may. A token
with ``operate`` enqueues one of them only when it names it in full."""

JOBS_OF_ALL_QUEUES = ("maintenance.*",)
"""Jobs that drop or read what lies in other queues than their own. A token with ``queues=`` enqueues one of them only
when it names it in full."""

RESULTS = "results"
"""Scope that shows results of runs, beside what ``read`` shows. Included in no other one."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})", re.ASCII)
_REMEDY = (
    "write `NAME sha256:DIGEST SCOPES [until=] [jobs=] [queues=] [labels=]`, as `tenure token new` does, with DIGEST "
    'from `printf %s "$TOKEN" | sha256sum`'
)


_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Scope(IntEnum):
    """Scope of a token; each includes those before it."""

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
    until_ms: int | None = None  # wall clock; from then on it is unknown
    jobs: tuple[str, ...] = ()  # patterns; empty: all
    queues: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()  # names with patterns of values, all of which a schedule must have
    shows_results: bool = False  # by the scope ``results``, which no other one includes

    @property
    def is_limited(self) -> bool:
        """True if there is something that its scope allows and it may not."""
        return bool(self.jobs or self.queues or self.labels)

    def reaches(self, *, job: str, queue: str | None = None, labels: Mapping[str, str] = _NO_LABELS) -> bool:
        """Return whether it may change runs and schedules of ``job`` in ``queue``, of a schedule with ``labels``."""
        has_labels = all(name in labels and fnmatchcase(labels[name], value) for name, value in self.labels)
        return has_labels and _matches(job, self.jobs) and (queue is None or _matches(queue, self.queues))

    def may_see_result(self, *, job: str, queue: str) -> bool:
        """Return whether it shows the result of a run, of which ``job`` and ``queue`` are empty if unknown.

        One limited by label shows none: ended runs have no labels.
        """
        return self.shows_results and not self.labels and self.reaches(job=job, queue=queue)

    def may_enqueue(self, job: str, queue: str | None, *, replaces: bool = False) -> bool:
        """Return whether it may choose the arguments of a run of ``job``, which has no labels."""
        return not self.must_name(job, replaces=replaces) and self.reaches(job=job, queue=queue)

    def must_name(self, job: str, *, replaces: bool = False) -> bool:
        """Return whether it lacks the name of ``job`` in full, without which it may not choose arguments for it.

        ``replaces``: newer runs of it end older ones with their key, in whatever queue those are.
        """
        reaches_beyond = bool(self.queues or self.labels) and (replaces or _matches(job, JOBS_OF_ALL_QUEUES))
        return job not in self.jobs and (reaches_beyond or (self.scope is not Scope.ADMIN and is_powerful(job)))

    def remedy(self, job: str, *, replaces: bool = False) -> str:
        """Return the way to a token that may enqueue ``job``, where that is one of the guarded jobs; else nothing."""
        if not self.must_name(job, replaces=replaces):
            return ""
        line = f"jobs={job[:200]} in the token's line"
        if self.scope is Scope.ADMIN:
            return f"; it reaches every queue, so a token with queues= or labels= needs {line}"
        return f"; such a job needs {line}" + ("" if self.queues or self.labels else ", or admin")

    @property
    def line(self) -> str:
        """The line in the form of the file."""
        limits = {
            "until": "" if self.until_ms is None else datetime.fromtimestamp(self.until_ms / 1000, UTC).isoformat(),
            "jobs": ",".join(self.jobs),
            "queues": ",".join(self.queues),
            "labels": ",".join(f"{name}={value}" for name, value in self.labels),
        }
        scopes = f"{self.scope.word},{RESULTS}" if self.shows_results else self.scope.word
        words = [self.name, f"sha256:{self.digest.hex()}", scopes]
        return " ".join([*words, *(f"{key}={text}" for key, text in limits.items() if text)])


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def is_powerful(job: str) -> bool:
    """Return whether arguments of ``job`` are as good as code, or name secrets of the worker."""
    return _matches(job, POWERFUL_JOBS)


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
        with os.fdopen(open_regular(path, follows=True), "rb") as file:
            why = distrust(os.fstat(file.fileno()))
            found = file.read(BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        problem = Problem(path, "", f"cannot be read: {reason}", "look at its path and its rights")
        raise TokenFileError([problem]) from error
    if why:
        remedy = f"run `chown {os.geteuid()} {path}` and `chmod 600 {path}`: anyone with write access can make tokens"
        raise TokenFileError([Problem(path, "", f"is not trusted, writable by others than this user: {why}", remedy)])
    return parse_tokens(path, found)


def parse_tokens(path: str, found: bytes) -> tuple[Token, ...]:
    """Return the tokens in ``path``'s content.

    Raises:
        TokenFileError: lines of it cannot be used, or there are too many.
    """
    try:
        lines = found.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise TokenFileError([Problem(path, "", "is no text in UTF-8", _REMEDY)]) from error
    if len(found) > BYTES_MAX or len(lines) > LINES_MAX:
        raise TokenFileError([Problem(path, "", f"has more than {LINES_MAX} lines or 1 MiB", "split the cluster")])
    if lines and not found.endswith(b"\n"):
        remedy = "look whether limits of that token are missing, and end the line"
        raise TokenFileError([Problem(f"{path}:{len(lines)}", "", "does not end, as if the file was cut off", remedy)])
    return _tokens(path, lines)


def _tokens(path: str, lines: Sequence[str]) -> tuple[Token, ...]:
    tokens: dict[str, Token] = {}
    problems: list[Problem] = []
    for number, line in enumerate(lines, start=1):
        words = list(itertools.takewhile(lambda word: not word.startswith("#"), line.split()))
        if not words:
            continue
        problem, token = _token(words)
        if token is not None and token.name in tokens:
            problem = f"{token.name} is there twice"
        if problem or token is None:
            problems.append(Problem(f"{path}:{number}", "", problem, _REMEDY))
        else:
            tokens[token.name] = token
    if problems:
        raise TokenFileError(problems)
    return tuple(tokens.values())


def _token(words: Sequence[str]) -> tuple[str, Token | None]:
    """Return the fault of a line, or its token. Nothing that may be a token is repeated."""
    if len(words) < 3:
        return f"has {len(words)} words instead of three", None
    name, digest, scopes, *limits = words
    if not _NAME.fullmatch(name):
        return "begins with an invalid name", None
    match = _DIGEST.fullmatch(digest)
    if match is None:
        return f"{name}: the second word is not sha256: and 64 hex digits", None
    by_word = {scope.word: scope for scope in Scope} | {RESULTS: Scope.READ}
    chosen = scopes.split(",")
    if not set(chosen) <= set(by_word):
        return f"{name}: a scope is not one of {', '.join(by_word)}", None
    scope = max(by_word[word] for word in chosen)
    token = Token(name, bytes.fromhex(match[1]), scope, shows_results=RESULTS in chosen)
    return _limited(token, limits)


def _limited(token: Token, limits: Sequence[str]) -> tuple[str, Token | None]:
    """Return the fault of the words after the scopes, or the token with them."""
    given: dict[str, Any] = {}
    for limit in limits:
        key, _, text = limit.partition("=")
        if key not in {"until", "jobs", "queues", "labels"} or not text:
            return f"{token.name}: a word after the scopes is not until=, jobs=, queues= or labels= with a value", None
        if key in given or (key == "until" and "until_ms" in given):
            return f"{token.name}: {key}= is there twice", None
        if key == "until":
            try:
                given["until_ms"] = until_of(text)
            except ValueError:
                return f"{token.name}: until= is no day and no instant with an offset, like 2027-01-01", None
        elif key == "labels":
            pairs = [each.partition("=") for each in text.split(",") if each]
            if not pairs or not all(name and value for name, _, value in pairs):
                return f"{token.name}: labels= has no pairs like team=mail, separated by commas", None
            given[key] = tuple((name, value) for name, _, value in pairs)
        else:
            given[key] = tuple(each for each in text.split(",") if each)
            if not given[key]:
                return f"{token.name}: {key}= has no names", None
    return "", replace(token, **given)


def until_of(text: str) -> int:
    """Return when a day begins in UTC, or an instant, in milliseconds since 1970.

    Raises:
        ValueError: it is neither, or an instant without an offset.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        if len(text) > len("2027-01-01"):
            raise ValueError(text)
        found = found.replace(tzinfo=UTC)
    return round(found.timestamp() * 1000)


def digest_of(secret: str) -> bytes:
    """Return the digest that the file holds in place of a token; stray bytes of a header count as they came."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def find_token(tokens: Sequence[Token], presented: str) -> Token | None:
    """Return the token that was presented. Looks at all of them, whichever it is."""
    digest = digest_of(presented)
    found = None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


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
    added = token.line.encode() + b"\n"
    parse_tokens(path, found)
    parse_tokens(path, found + added)
    if file.write(added) < len(added):
        file.truncate(len(found))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file.fileno())
