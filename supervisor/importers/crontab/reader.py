"""Crontabs, system and user ones, read as Debian's cron reads them.

Guarantees
    Every problem of every file is found, each with its file and line. An entry that is
    returned does the same as in cron: the variables that the crontab sets, HOME and
    SHELL, its shell, its directory, its standard input after ``%``, its zone under ``CRON_TZ``.
    No command runs as another user than cron's: Tenure runs every job as its own, so an entry
    of another user is paused, with the reason. So is one that leaves a part of it in the
    background, which cron lets go on.

Does not guarantee
    Cron's PATH and LOGNAME: variables that the crontab does not set come from the tree's environment.
    That a program which puts itself in the background goes on: that is not seen in a line.

Reads no files and knows no host: text and facts come in as arguments. The accepted form is
described by crontab(5) of Debian's cron and of cronie (for CRON_TZ).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.core.cron.elements import DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH
from supervisor.core.cron.errors import Field
from supervisor.core.cron.expression import Cron, CronError, compile_cron
from supervisor.core.cron.zones import UnknownZoneError, zone
from supervisor.core.errors import Problem
from supervisor.core.model import PAYLOAD_BYTES_MAX
from supervisor.importers.crontab.background import leaves_background
from supervisor.importers.crontab.lines import (
    BLANK,
    Setting,
    Timed,
    describes,
    first_word,
    lines,
    setting,
    split_command,
    timed,
)
from supervisor.importers.crontab.names import name_of

ENTRIES_MAX = 10_000

_NAME_OF_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FIELDS = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
_RANGE = re.compile(r"(\w+)-(\w+)", re.ASCII)
_NAME_OF_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?", re.ASCII)

_FOR_MAIL = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
_IGNORED = {
    "LOGNAME": "cron does not let a crontab set it either",
    "RANDOM_DELAY": "runs are not delayed at random; spread the minutes instead",
}


@dataclass(frozen=True, slots=True)
class Source:
    """One crontab."""

    name: str  # as people know it, for messages
    label: str  # start of the ids of its schedules
    text: str
    has_user: bool  # each entry names a user after the time
    owner: str | None = None  # whose crontab it is, where its place says so


@dataclass(frozen=True, slots=True)
class Host:
    """Host facts that an import needs: time zone, user, home directories."""

    timezone: str
    user: str  # as whom the tree will run
    homes: Mapping[str, str] = field(default_factory=dict)  # of the known users, who help to notice a user field
    sh: str = "dash"  # the program that /bin/sh is


@dataclass(frozen=True, slots=True)
class Entry:
    """One line that runs a command."""

    where: str  # "file:line"
    id: str
    cron: str
    timezone: str
    command: str
    stdin: str | None
    shell: str
    cwd: str | None
    env: Mapping[str, str]
    user: str | None  # None: whoever imports
    description: str
    comments: tuple[str, ...]  # what the operator should find beside it in the configuration
    pause_reason: str = ""  # why it must not run as it is; empty: it may


@dataclass(frozen=True, slots=True)
class Imported:
    """Entries, problems and warnings of all files."""

    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


def read_crontabs(sources: Sequence[Source], host: Host) -> Imported:
    """Return the entries, the problems and the warnings of ``sources``."""
    taken: set[str] = set()
    readers = [_Reader(source, host, taken) for source in sources]
    for reader in readers:
        reader.read()
    return Imported(
        entries=tuple(entry for reader in readers for entry in reader.entries),
        problems=tuple(problem for reader in readers for problem in reader.problems),
        warnings=tuple(warning for reader in readers for warning in reader.warnings),
    )


@dataclass(slots=True)
class _Reader:
    """Goes through one crontab from top to bottom: an environment line holds for the entries below it."""

    source: Source
    host: Host
    taken: set[str]
    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    line: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    timezone: str | None = None  # None: CRON_TZ named none that exists
    comments: list[str] = field(default_factory=list)

    def read(self) -> None:
        self.timezone = self.host.timezone
        if "\r" in self.source.text:
            self.warnings.append(f"{self.source.name}: has line ends of Windows, which cron would hand to the commands")
        for line in lines(self.source.text):
            self.line += 1
            self._read_line(line)
        self._check_users()

    def _check_users(self) -> None:
        first_words = {first_word(entry.command)[0] for entry in self.entries}
        if first_words and not self.source.has_user and first_words <= self.host.homes.keys():
            names = ", ".join(sorted(first_words))
            self.warnings.append(
                f"{self.source.name}: every command starts with a user of this host ({names}); "
                f"if that is the user field, pass --user-field yes"
            )

    def _read_line(self, line: str) -> None:
        stripped = line.strip(BLANK)
        if stripped.startswith("#"):
            self._read_comment(stripped.lstrip("#").strip())
            return
        if "\0" in line:
            self._problem("holds a NUL character", "remove it")
        elif stripped:
            found = setting(line)
            if found:
                self._read_setting(found)
            else:
                self._read_entry(stripped)
        self.comments.clear()  # only what stands directly above an entry describes it

    def _read_comment(self, text: str) -> None:
        if describes(text):
            self.comments.append(text)
        else:
            self.comments.clear()

    def _read_setting(self, found: Setting) -> None:
        name, value = found
        if name == "CRON_TZ":
            self._set_timezone(value)
        elif not _NAME_OF_VARIABLE.fullmatch(name):
            self._problem(f"{name!r} is not a name of a variable", "use letters, digits and _")
        elif name in _IGNORED:
            self._warn(f"{name}={value} is left out: {_IGNORED[name]}")
        else:
            self.environment[name] = value
            if name == "MAILTO" and value:
                self._warn(f"MAILTO={value}: no mail is sent; the end of the output is kept with each run")

    def _set_timezone(self, name: str) -> None:
        try:
            self.timezone = zone(name).name
        except UnknownZoneError as error:
            self.timezone = None
            self._problem(f"CRON_TZ: {error}", "the entries below it are left out")

    def _read_entry(self, line: str) -> None:
        entry = self._read_timed(line)
        if entry is None:
            return
        cron = self._read_time(entry.when)
        user, rest = self._read_user(entry.rest) if self.source.has_user else (self.source.owner, entry.rest)
        if cron is None or user == "":
            return
        command, stdin = split_command(rest)
        if not command.strip(BLANK):
            self._problem("no command", "add a user and a command" if self.source.has_user else "add a command")
        elif len(rest.encode()) > PAYLOAD_BYTES_MAX:
            self._problem(f"a command of more than {PAYLOAD_BYTES_MAX} bytes", "put it in a script, and run that")
        elif len(self.entries) == ENTRIES_MAX:
            self._problem(f"more than {ENTRIES_MAX} entries", "split the file")
        elif self.timezone is not None:
            self.entries.append(self._entry(cron, command, stdin, user))

    def _read_timed(self, line: str) -> Timed | None:
        if line.startswith("-"):
            self._problem(f"an entry starts with -, which Debian's cron does not know: {_shown(line)}", "remove the -")
            return None
        entry = timed(line)
        if entry is None:
            self._problem(
                f"neither a setting nor an entry: {_shown(line)}",
                "an entry is: minute hour day-of-month month day-of-week command; a setting is: NAME=value",
            )
        return entry

    def _read_time(self, when: str) -> Cron | None:
        try:
            cron = compile_cron(when, self.timezone or "UTC")
        except CronError as error:
            self._problem(str(error))
            return None
        for place, text in zip(_FIELDS, when.split(), strict=False):
            for first, last in _RANGE.findall(text):
                if _value(place, first) > _value(place, last):
                    message = f'cron "{when}": {place.name} "{first}-{last}" ends before it begins, which cron refuses'
                    self._problem(message, f"write {first}-{place.top},{place.low}-{last}, if that is meant")
                    return None
        return cron

    def _read_user(self, rest: str) -> tuple[str, str]:
        """Return the user, empty if there is none, and the command."""
        user, command = first_word(rest)
        if _NAME_OF_USER.fullmatch(user):
            return user, command
        if user:
            self._problem(f"{_shown(user)!r} is not the name of a user", "if that is the command, pass --user-field no")
        else:
            self._problem("no command", "add a user and a command")
        return "", command

    def _entry(self, cron: Cron, command: str, stdin: str | None, user: str | None) -> Entry:
        environment = dict(self.environment)
        mail = {name: environment.pop(name) for name in _FOR_MAIL if name in environment}
        shell = environment.pop("SHELL", "/bin/sh")
        home = environment.pop("HOME", self.host.homes.get(user or self.host.user))
        exported = {"SHELL": shell} if home is None else {"HOME": home, "SHELL": shell}
        return Entry(
            where=self._where(),
            id=self._new_id(command),
            cron=cron.expression,
            timezone=cron.timezone,
            command=command,
            stdin=stdin,
            shell=shell,
            cwd=home,
            env={**environment, **exported},
            user=user,
            description=self._description(user),
            comments=tuple(f"{name}={value}" for name, value in mail.items() if value),
            pause_reason="; ".join(filter(None, (self._not_ours(user), self._not_waited(command, shell)))),
        )

    def _description(self, user: str | None) -> str:
        text = " ".join(self.comments)
        if user is None or user == self.host.user:
            return text
        return f"{text} (user {user})" if text else f"(user {user})"

    def _not_ours(self, user: str | None) -> str:
        """Return why an entry of another user is paused; empty for our own."""
        if user is None or user == self.host.user:
            return ""
        ran = f"cron ran this as {user}, and Tenure runs commands as its own user"
        remedy = f"run it in a tree of {user}, or in one of root by runuser -u {user} -- COMMAND"
        self._warn(f"{ran}; it is paused: {remedy}")
        return f"{ran}: {remedy}, then remove paused"

    def _not_waited(self, command: str, shell: str) -> str:
        """Return why an entry is paused that leaves a part of it in the background; empty for others."""
        name = posixpath.basename(shell)
        if not leaves_background(command, shell=self.host.sh if name == "sh" else name):
            return ""
        left = "a bare & leaves a part of this in the background, and Tenure ends that with the command"
        remedy = "take the & away (in an address quote it, in place of &> FILE write > FILE 2>&1), or add wait"
        self._warn(f"{left}; it is paused: {remedy}")
        return f"{left}: {remedy}, then remove paused"

    def _new_id(self, command: str) -> str:
        """Return an id that stays the same while no line of the same program is added above or taken away there."""
        stem = f"{self.source.label}.{name_of(command)}"
        number, candidate = 1, stem
        while candidate in self.taken:
            number += 1
            candidate = f"{stem}-{number}"
        self.taken.add(candidate)
        return candidate

    def _where(self) -> str:
        return f"{self.source.name}:{self.line}"

    def _warn(self, message: str) -> None:
        self.warnings.append(f"{self._where()}: {message}")

    def _problem(self, message: str, remedy: str = "") -> None:
        self.problems.append(Problem(self._where(), "", message, remedy))


def _value(field: Field, text: str) -> int:
    """Return the value of a number or name that was found in ``field``."""
    return int(text) if text.isdigit() else field.value_of(text) or 0


def _shown(text: str) -> str:
    short = text if len(text) <= 60 else f"{text[:60]}…"
    return short if short.isprintable() else repr(short)[1:-1]
