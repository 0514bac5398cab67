"""/statusz: one screen about this replica, for people and as JSON.

The JSON is stable: fields are added, never renamed. The text is for reading only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.core.supervision.health import role_of
from supervisor.core.supervision.states import Phase, SlotState
from supervisor.core.units import SECOND_NS
from supervisor.roles.child import ChildContext
from supervisor.roles.web.cluster_snapshot import Overview
from supervisor.telemetry.log_lines.render import format_ts
from supervisor.version import __version__


def status(child: ChildContext, overview: Overview | None) -> dict[str, Any]:
    """Return the content of the page, as JSON values."""
    now_ns = child.clock.elapsed_ns()
    header, term = child.board.header, child.board.term()
    trusted = term.is_trusted(now_ns)
    leader = overview.leader if overview is not None else None
    return {
        "cluster": child.settings.cluster,
        "replica": child.replica,
        "version": __version__,
        "at": format_ts(child.clock.wall_ms()),
        "phase": Phase(header.phase).name.lower(),
        "uptime_s": _age_s(now_ns, header.started_ns),
        "config": _config(child),
        "is_leader": trusted,
        "trust_remaining_s": round((term.trusted_until_ns - now_ns) / SECOND_NS, 3) if trusted else 0.0,
        "leader": None if leader is None else {"replica": leader.holder, "epoch": leader.epoch, "host": leader.host},
        "slots": [
            _slot(name, row, now_ns)
            for name, row in zip(child.slot_names, child.board.rows, strict=False)
            if row.is_used  # a pool has spare rows, for replacements
        ],
        "redis_up": overview is not None,
        "queues": None if overview is None else shown_queues(overview),
        "next_due": None if overview is None else [_due(*each) for each in overview.next_due],
    }


def _due(name: str, at_ms: int) -> dict[str, str]:
    return {"schedule": name, "at": format_ts(at_ms)}


def _config(child: ChildContext) -> dict[str, Any]:
    header = child.board.header
    return {
        "epoch": header.config_epoch,
        "reloads": header.reload_number,
        "last_reload": format_ts(header.reloaded_ms) if header.reloaded_ms else None,
        "last_reload_successful": not header.is_reload_refused,
    }


def _slot(name: str, row: Any, now_ns: int) -> dict[str, Any]:
    state = SlotState(row.state)
    alive = state.has_process
    return {
        "slot": name,
        "role": role_of(name)[0],
        "state": "quiet" if row.is_quiet and not alive else state.name.lower(),
        "pid": row.pid if alive else None,
        "generation": row.generation,
        "uptime_s": _age_s(now_ns, row.started_ns) if alive else None,
        "restarts": row.restarts,
        "beat_age_s": _age_s(now_ns, row.beat_ns) if alive else None,
        "busy": row.busy if alive else 0,
        "done": row.done,
    }


def shown_queues(overview: Overview) -> list[dict[str, Any]]:
    """Return the depth of each queue, for people and as JSON."""
    served = overview.served
    return [
        {
            "queue": depth.queue,
            "ready": depth.ready_total,
            "running": depth.running,
            "later": depth.later,
            "dead": depth.dead,
            "served": None if served is None else [kind.value for kind in served.get(depth.queue, ())],
            "paused": depth.paused is not None,
        }
        for depth in overview.queues
    ]


def served_text(queue: Mapping[str, Any]) -> str:
    """Return in words which kinds of runs live workers take from a queue of /statusz."""
    return "-" if queue["served"] is None else ", ".join(queue["served"]) or "no"


def _age_s(now_ns: int, at_ns: int) -> float | None:
    return round(max(0, now_ns - at_ns) / SECOND_NS, 3) if at_ns else None


def status_text(shown: dict[str, Any]) -> str:
    """Return the same as aligned text."""
    leader = shown["leader"]
    who = "this replica" if shown["is_leader"] else leader["replica"] if leader else "unknown"
    head = [
        f"tenure {shown['version']}   cluster {shown['cluster']}   replica {shown['replica']}   {shown['at']}",
        f"phase {shown['phase']}   up {_short(shown['uptime_s'])}   leader {who}"
        + (f", epoch {leader['epoch']}" if leader else ""),
        *_reload_lines(shown["config"]),
    ]
    slots = _table(
        ["slot", "state", "pid", "up", "restarts", "beat", "busy", "done"],
        [
            [
                slot["slot"], slot["state"], slot["pid"], _short(slot["uptime_s"]), slot["restarts"],
                _short(slot["beat_age_s"]), slot["busy"], slot["done"],
            ]
            for slot in shown["slots"]
        ],
    )  # fmt: skip
    if not shown["redis_up"]:
        return "\n".join([*head, "", *slots, "", "Redis does not answer: queues and due times are not known.", ""])
    names = ["queue", "ready", "running", "later", "dead", "paused"]
    rows = [[*(queue[name] for name in names), served_text(queue)] for queue in shown["queues"]]
    queues = _table([*names, "served"], rows)
    due = _table(["next due", "at"], [[item["schedule"], item["at"]] for item in shown["next_due"]])
    return "\n".join([*head, "", *slots, "", *queues, "", *due, ""])


def _reload_lines(config: dict[str, Any]) -> list[str]:
    if config["last_reload"] is None:
        return []
    how = "successful" if config["last_reload_successful"] else "REFUSED, the former configuration runs"
    return [f"last reload {config['last_reload']}: {how}   configuration {config['epoch']}"]


def _table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    cells = [list(titles), *[["-" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _short(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes_rest = divmod(minutes, 60)
    days, hours_rest = divmod(hours, 24)
    if days:
        return f"{days}d{hours_rest}h"
    return f"{hours}h{minutes_rest}m" if hours else f"{minutes}m{rest}s"
