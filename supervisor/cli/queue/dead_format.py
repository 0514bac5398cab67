"""Output of a dead run. Never the values of its arguments: any of them may be a secret."""

from __future__ import annotations

from typing import Any

from supervisor.cli.output import moment
from supervisor.operations.dead import DeadRun, reason_of
from supervisor.operations.runs import RunView
from supervisor.telemetry.masking import mask_text


def dead_row(dead: DeadRun) -> dict[str, Any]:
    """Return the row of one dead run in a list."""
    return {
        "run": dead.run_id,
        "queue": dead.queue,
        "job": dead.envelope.template.job if dead.envelope else None,
        "schedule": dead.envelope.schedule if dead.envelope else None,
        "died": moment(dead.died_ms),
        "attempts": dead.attempts,
        "crashes": dead.crashes,
        "interruptions": dead.interrupts,
        "reason": reason_of(dead.error) or None,
        "worker": dead.error.get("worker") or dead.error.get("session"),
    }


def dead_record(view: RunView) -> dict[str, Any]:
    """Return everything there is to know about one."""
    envelope, error = view.envelope, view.error
    record: dict[str, Any] = {
        "run": view.run_id,
        "queue": view.queue,
        "job": envelope.template.job if envelope else None,
        "schedule": envelope.schedule if envelope else None,
        "nominal": moment(envelope.nominal_ms) if envelope else None,
        "arguments": sorted(envelope.template.args) if envelope else None,
        "died": moment(view.died_ms),
        "reason": reason_of(error),
        "worker": error.get("worker") or error.get("session"),
        "failed_attempts": view.attempts,
        "crashes": view.crashes,
        "interruptions": view.interrupts,
        "traceback": mask_text(str(error["traceback"])) if error.get("traceback") else None,
        "history": [
            f"{moment(each.ended_ms)} attempt {each.attempt} {each.outcome} {mask_text(each.note)}".rstrip()
            for each in view.history
        ],
    }
    return {key: value for key, value in record.items() if value not in (None, "", {}, [])}
