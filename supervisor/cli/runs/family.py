"""Output of ``tenure runs show`` about the descendants of a run, and about its steps."""

from __future__ import annotations

from typing import Any

from supervisor.cli.output import moment
from supervisor.operations.runs import Tally
from supervisor.telemetry.masking import mask, mask_text


def family_record(tally: Tally | None, steps: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the parts of a run's record that are about its children and steps; nothing where there are none."""
    record: dict[str, Any] = {}
    if tally is not None:
        record["below"] = _below(tally)
    if steps:
        record["steps"] = [_step(name, step) for name, step in steps.items()]
    return record


def _below(tally: Tally) -> dict[str, Any]:
    shown: dict[str, Any] = {"total": tally.total, "remaining": tally.left, **tally.outcomes}
    more = {
        "counts": tally.counts,
        "errors": tally.errors,
        "first_errors": [_error(each) for each in tally.first_errors],
        "then": tally.waiting,
    }
    return shown | {key: value for key, value in more.items() if value}


def _error(error: dict[str, Any]) -> dict[str, Any]:
    return {name: mask_text(str(error.get(name, ""))) for name in ("run", "code", "message")}


def _step(name: str, step: dict[str, Any]) -> dict[str, Any]:
    shown = {
        "step": name,
        "status": step.get("status"),
        "attempt": step.get("attempt"),
        "ended": moment(step.get("ended_ms")),
        "duration_ms": step.get("duration_ms"),
        "result": mask(step.get("result")),
        "error": mask_text(str(step.get("error") or "")),
    }
    return {key: value for key, value in shown.items() if value not in (None, "")}
