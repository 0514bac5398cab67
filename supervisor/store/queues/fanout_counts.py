"""Counts of a run's descendants and steps: read for people, written by scripts (lua/lib/fanout.lua)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import number, pairs, text, unpack_json
from supervisor.store.wire.envelope import check_run_id

OUTCOMES = ("ok", "dead", "cancelled", "purged", "expired", "replaced", "duplicate", "rejected")
"""How a run that another one counts can have ended. Dead: given up, until somebody requeues it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The runs that a run spawned, that they spawned, and so on: exact, each by its last end."""

    total: int
    left: int
    """How many have not ended."""

    outcomes: dict[str, int]
    counts: dict[str, int] = field(default_factory=dict)
    """What they counted, summed; from the fifty-first name on under ``other``."""

    errors: int = 0
    """How many errors they told of."""

    first_errors: list[dict[str, Any]] = field(default_factory=list)
    """Run, code and message of the first hundred."""

    waiting: list[str] = field(default_factory=list)
    """Ids of the runs that start when nothing is left."""


class Tallies(CallBuilder):
    """Builds the calls."""

    def read(self, run_id: str) -> Call[Tally | None]:
        """Read the tally of a run; None when nothing is counted below it, or it expired."""
        return self._hash(self.keys.tally(check_run_id(run_id)), _tally)

    def steps(self, run_id: str) -> Call[dict[str, dict[str, Any]]]:
        """Read the steps of a run that ended, by name, in the order in which they did."""
        return self._hash(self.keys.steps(check_run_id(run_id)), _steps)


def _tally(reply: Any) -> Tally | None:
    fields = {text(name): value for name, value in pairs(reply)}
    if "total" not in fields:
        return None
    told = sorted((int(name[2:]), value) for name, value in fields.items() if name.startswith("e:"))
    following = [text(value).split(" ", 4) for name, value in sorted(fields.items()) if name.startswith("then:")]
    return Tally(
        total=number(fields["total"]),
        left=number(fields.get("left")),
        outcomes={name: number(fields[name]) for name in OUTCOMES if number(fields.get(name))},
        counts={name[2:]: number(value) for name, value in sorted(fields.items()) if name.startswith("c:")},
        errors=number(fields.get("errors")),
        first_errors=[unpack_json(text(value).encode()) for _, value in told],
        waiting=[parts[3] for parts in following if len(parts) == 5],
    )


def _steps(reply: Any) -> dict[str, dict[str, Any]]:
    found = {text(name): unpack_json(value) for name, value in pairs(reply) if not text(name).startswith("#")}
    return dict(sorted(found.items(), key=lambda item: item[1].get("number", 0)))
