"""The page at /: this replica, its processes, queues and next runs, for a person with a browser.

Made on the server from the data of /statusz and /readyz. One column, a few colours, no script: it can be read by any
browser, by a screen reader and with the keyboard, in light and in dark.

Guarantees
    No name of a job, a schedule or a queue becomes markup. No state is shown by colour alone.
    It is not longer than ``ROWS_MAX`` rows a table.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from supervisor.core.supervision.health import HealthCheck
from supervisor.roles.web.status import served_text

ROWS_MAX = 100
REFRESH_S = 5

LIGHT = {
    "ground": "#ffffff", "panel": "#f4f5f7", "line": "#7a808a", "text": "#1b1f24", "quiet": "#545c66",
    "link": "#0550ae", "good": "#116329", "warn": "#7a4a00", "bad": "#a40e26",
}  # fmt: skip
DARK = {
    "ground": "#0d1117", "panel": "#171c24", "line": "#767e89", "text": "#e6edf3", "quiet": "#a3adb9",
    "link": "#79c0ff", "good": "#56d364", "warn": "#e3b341", "bad": "#ff9b93",
}  # fmt: skip
"""The colours by what they mean; a test holds each against the grounds that it stands on."""


def _tokens(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


STYLE = (
    f":root{{color-scheme:light dark;--gap:1rem;{_tokens(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_tokens(DARK)}}}}}"
    "body{margin:0 auto;max-width:72rem;padding:var(--gap);background:var(--ground);color:var(--text);"
    "font:1rem/1.5 system-ui,sans-serif}"
    "h1{font-size:1.5rem;margin:0}h2{font-size:1.125rem;margin:calc(2*var(--gap)) 0 .5rem}p{margin:.25rem 0}"
    "a{color:var(--link)}:focus-visible{outline:3px solid var(--link);outline-offset:2px}"
    ".skip{position:absolute;left:-99rem}.skip:focus{position:static}"
    ".quiet{color:var(--quiet)}.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad);font-weight:600}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.375rem .75rem;border-bottom:1px solid var(--line)}"
    "thead th{background:var(--panel)}tbody th{font-weight:400}"
)
POLICY = (
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
)
"""The one style sheet is named by its digest, so that no other counts, wherever it came from."""

_STATES = {"running": "good", "ready": "good", "ok": "good", "quiet": "quiet", "stopped": "quiet"}


def page(shown: Mapping[str, Any], checks: Sequence[HealthCheck], paths: Mapping[str, str], *, refreshes: bool) -> str:
    """Return the whole page: the content of /statusz, the ``checks`` of /readyz, and other pages with their purposes.

    ``refreshes``: the browser asks again by itself.
    """
    title = f"Tenure: {shown['replica']} of {shown['cluster']}"
    again = f'<meta http-equiv="refresh" content="{REFRESH_S}">' if refreshes else ""
    sections = [
        _section("Health", _health(checks)),
        _section("Processes", _processes(shown["slots"])),
        _section("Queues", _known(shown["queues"], _queues, "what waits")),
        _section("Next due", _known(shown["next_due"], _due, "what is due")),
        _section("Pages", _pages(paths)),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">{again}<style>{STYLE}</style></head>\n'
        f'<body><a class="skip" href="#main">To the content</a>\n<header>{_head(shown, refreshes=refreshes)}</header>\n'
        f'<main id="main">\n{"".join(sections)}</main></body></html>\n'
    )


def _head(shown: Mapping[str, Any], *, refreshes: bool) -> str:
    leader = shown["leader"]
    who = "this replica leads" if shown["is_leader"] else f"{leader['replica']} leads" if leader else "no leader known"
    term = f", term {leader['epoch']}" if leader else ""
    link = '<a href="/">stop asking again</a>' if refreshes else f'<a href="/?refresh">ask every {REFRESH_S} s</a>'
    reload_ = shown["config"]["last_reload"]
    refused = reload_ is not None and not shown["config"]["last_reload_successful"]
    warning = '<p class="bad">The last reload was refused: the former configuration runs.</p>' if refused else ""
    return (
        f'<h1>{_text(shown["replica"])} <span class="quiet">of cluster {_text(shown["cluster"])}</span></h1>'
        f"<p>{_state(shown['phase'])}, {_text(who + term)}. "
        f"Tenure {_text(shown['version'])}, at {_text(shown['at'])}. {link}</p>{warning}"
    )


def _section(name: str, content: str) -> str:
    anchor = name.lower().replace(" ", "-")
    return f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{name}</h2>\n{content}</section>\n'


def _health(checks: Sequence[HealthCheck]) -> str:
    rows = [[_text(each.name), _state("failed" if each.reason else "ok"), _text(each.reason or "")] for each in checks]
    return _table("Checks of readiness", ("check", "state", "why"), rows)


def _processes(slots: Sequence[Mapping[str, Any]]) -> str:
    names = ("slot", "state", "pid", "up", "restarts", "busy", "done")
    rows = [
        [_text(each["slot"]), _state(each["state"]), _text(each["pid"] or "-"), _seconds(each["uptime_s"])]
        + [_value(each[name]) for name in names[4:]]
        for each in slots
    ]
    return _table("Processes of this replica", names, rows)


def _known(rows: Sequence[Mapping[str, Any]] | None, table: Callable[[Any], str], what: str) -> str:
    return table(rows) if rows is not None else f'<p class="bad">Redis does not answer: {what} is not known.</p>'


def _queues(queues: Sequence[Mapping[str, Any]]) -> str:
    names = ("queue", "ready", "running", "later", "dead", "served", "state")
    rows = [
        [
            _text(each["queue"]),
            *(_value(each[name]) for name in names[1:5]),
            _state("no") if each["served"] == [] else _text(served_text(each)),
            _state("paused" if each["paused"] else "ok"),
        ]
        for each in queues
    ]
    return _table("Runs by queue", names, rows)


def _due(due: Sequence[Mapping[str, Any]]) -> str:
    rows = [[_text(each["schedule"]), _text(each["at"])] for each in due]
    return _table("Schedules that are due next", ("schedule", "at"), rows)


def _pages(paths: Mapping[str, str]) -> str:
    rows = [[f'<a href="{_text(path)}">{_text(path)}</a>', _text(what)] for path, what in paths.items()]
    return _table("What else this replica answers", ("path", "what it tells"), rows)


def _table(caption: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells are markup already, and those of the first column head their rows."""
    if not rows:
        return '<p class="quiet">None.</p>'
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(f"<tr>{''.join(_cells(row))}</tr>\n" for row in rows[:ROWS_MAX])
    more = f'<p class="quiet">and {len(rows) - ROWS_MAX} more</p>' if len(rows) > ROWS_MAX else ""
    return (
        f'<div class="wide"><table aria-label="{_text(caption)}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>{more}\n"
    )


def _cells(row: Sequence[str]) -> Iterable[str]:
    yield f'<th scope="row">{row[0]}</th>'
    for cell in row[1:]:
        yield f"<td>{cell}</td>"


def _state(state: str) -> str:
    colour = _STATES.get(state, "bad" if state in {"failed", "fatal"} else "warn")
    return f'<span class="{colour}">{_text(state)}</span>'


def _value(value: object) -> str:
    return "-" if value is None else _text(f"{value:,}" if isinstance(value, int) else str(value))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s"


def _text(value: object) -> str:
    return html.escape(str(value))
