"""The configuration that an imported crontab becomes: YAML that people read and edit."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import yaml

from supervisor.core.schedules.templating import literal
from supervisor.importers.crontab.reader import Entry
from supervisor.settings.interpolate import escape
from supervisor.settings.render import SettingsDumper, on_one_line

TIMEOUT = "24h"  # cron sets none; a backup that takes three hours must not be cut off by the default
WINDOW = "10m"  # cron makes up for nothing; no hand-over takes longer, whatever the lease

_HEADER = """\
# Made by `tenure import crontab` from {names}. Read it before you run it:
# - Take these lines out of cron when the tree runs; until then both run them.
# - A schedule runs once per cluster, on one replica; cron ran it on every host that had the file. All replicas of a
#   cluster run the same files: give a host with a crontab of its own its own `cluster:`, or import all into one file.
# - Commands run as Tenure's own user, in its environment and what stands under env. Those of other users are paused.
# - Commands gain no rights (no_new_privs): sudo, crontab, and ping or sendmail of some systems fail in a tree that is
#   not root's. A tree of root runs a command as another user by runuser.
# - What a command leaves in the background ends with it; cron let it go on. Lines with a bare & are paused; programs
#   that put themselves in the background are not noticed: their runs are ok, whatever becomes of the work.
# - Commands are here with the secrets in them: keep the file from others. Ids of schedules are shown to everybody.
# - Schedules of one program are numbered in the order of the lines: another import after a line was added above would
#   move pauses and history to other commands. From now on change this file.
# - overlap: allow starts a run while an earlier one is unfinished, as cron did; skip is the safer choice.
# - Times at which no tree ran are not made up for, as in cron: of several late ones missed: skip leaves out all, and
#   catchup_window a single one after ten minutes. missed: latest without a window runs the newest.
# - A command that a stop, a crash or the loss of a machine cuts off runs again from its beginning, as no command of
#   cron does: let it bear that. supervision.grace is how long a stop lets it end.
# - A command that exits with a code other than 0 has failed; check: false accepts every code, as cron did.
# - At most {places} commands run at once on a replica, further ones wait: workers.shell.processes; cron knows no limit.
# - jobs, shell and workers hold for the whole configuration: where another file of it sets them, keep one of both.
# - Files that commands make can be read by others (shell.umask), as cron's can; those of Python jobs cannot.
version: 1
jobs: [shell]
shell: {{umask: "022"}}
workers:  # all pools: naming one replaces the defaults
  io: {{kind: async}}
  cpu: {{kind: sync, processes: 2}}
  shell: {{kind: sync, processes: {places}, queues: [shell]}}
"""
_PLACES_MIN, _PLACES_MAX = 2, 16  # an idle process has 11 MiB of its own


class _Quoted(str):
    """A string that is written in double quotes, whatever it holds."""

    __slots__ = ()


class _CrontabDumper(SettingsDumper):
    """Block style; double quotes where asked for, and where text could be read as anything else."""

    quote = '"'

    def represent_quoted(self, text: _Quoted) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", str(text), style=self.quote)


_CrontabDumper.add_representer(_Quoted, _CrontabDumper.represent_quoted)


def places(entries: Sequence[Entry]) -> int:
    """Return how many commands of ``entries`` run at once on a replica: all, within bounds of memory."""
    return max(_PLACES_MIN, min(len(entries), _PLACES_MAX))


def to_yaml(entries: Sequence[Entry], names: Sequence[str]) -> str:
    """Return the configuration that runs ``entries``, which came from the files ``names``."""
    origin = ", ".join(on_one_line(name) for name in names) or "nothing"
    header = _HEADER.format(names=origin, places=places(entries))
    if not entries:
        return f"{header}schedules: {{}}\n"
    return header + "schedules:\n" + "\n".join(_schedule(entry) for entry in entries)


def _schedule(entry: Entry) -> str:
    comments = "".join(f"# {on_one_line(comment)}\n" for comment in (entry.where, *entry.comments))
    body: dict[str, Any] = {
        "job": "shell.command",
        "cron": _Quoted(entry.cron),
        "timezone": entry.timezone,
        "overlap": "allow",
        "missed": "skip",
        "catchup_window": WINDOW,
        "timeout": TIMEOUT,
    }
    if entry.pause_reason:
        body |= {"paused": True, "pause_reason": escape(entry.pause_reason)}
    if entry.description:
        body["description"] = escape(entry.description)
    body["args"] = _arguments(entry)
    text = yaml.dump(
        {entry.id: body},
        Dumper=_CrontabDumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1 << 30,
    )
    return textwrap.indent(comments + text, "  ")


def _arguments(entry: Entry) -> dict[str, Any]:
    arguments: dict[str, Any] = {"command": _text(entry.command)}
    if entry.shell != "/bin/sh":
        arguments["shell"] = _text(entry.shell)
    if entry.cwd is not None:
        arguments["cwd"] = _text(entry.cwd)
    if entry.env:
        arguments["env"] = {name: _text(value) for name, value in entry.env.items()}
    if entry.stdin is not None:
        arguments["stdin"] = _text(entry.stdin)
    return arguments


def _text(value: str) -> str:
    """Return an argument that reaches the command as ``value``: cron knows neither references nor placeholders."""
    return escape(literal(value))
