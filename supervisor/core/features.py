"""Feature gates: parts of Tenure that can be switched on before they are the rule, or off while they are.

A gate has a stage. ALPHA: off unless asked for, may change or go. BETA: tried, may be on. GA: always on,
its gate will go. DEPRECATED: will go. ``AllAlpha`` and ``AllBeta`` include every gate of their stage
that is not named itself.

Guarantees
    The result has every gate, and only if no input is wrong: an unknown name, another
    value for a gate that is locked, a gate whose needs are off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from supervisor.core.errors import Fault
from supervisor.core.suggestions import suggestion


class Stage(StrEnum):
    """Maturity of a feature."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature that can be switched."""

    name: str
    stage: Stage
    default: bool
    help: str
    is_locked: bool = False  # its default is the only value it may have
    needs: tuple[str, ...] = ()  # gates that must be on when it is


FAST_CRASH_DETECTION = "FastCrashDetection"

GATES = (
    Gate(
        FAST_CRASH_DETECTION,
        Stage.BETA,
        default=False,
        help="standbys notice the death of a leader by its connection; decides where election.presence is not set",
    ),
)
"""Every gate of this version."""

ALL = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}
"""Names that stand for every gate of a stage."""


def faults(given: Mapping[str, bool], gates: Sequence[Gate] = GATES) -> list[Fault]:
    """Return everything that is wrong with the values that people gave."""
    by_name = {gate.name: gate for gate in gates}
    given = _spelled(given, gates)
    states = resolve(given, gates)
    found: list[Fault] = []
    for name, value in given.items():
        gate = by_name.get(name)
        if gate is None:
            if name not in ALL:
                found.append(_unknown(name, gates))
        elif gate.is_locked and value is not gate.default:
            message = f"is locked to {_text(gate.default)} in stage {gate.stage}"
            found.append(Fault((name,), message, "remove it: it has no effect"))
    found += [
        Fault((gate.name,), f"needs {needed}, which is off", f"switch {needed} on too")
        for gate in gates
        for needed in gate.needs
        if states[gate.name] and not states[needed]
    ]
    return found


def resolve(given: Mapping[str, bool], gates: Sequence[Gate] = GATES) -> dict[str, bool]:
    """Return whether each gate is on: as named itself, else as its stage was named, else by default."""
    given = _spelled(given, gates)
    stages = {stage: given[name] for name, stage in ALL.items() if name in given}
    return {
        gate.name: gate.default if gate.is_locked else given.get(gate.name, stages.get(gate.stage, gate.default))
        for gate in gates
    }


def is_enabled(name: str, given: Mapping[str, bool]) -> bool:
    """Return whether a gate of this version is on."""
    return resolve(given)[name]


def warnings(given: Mapping[str, bool], gates: Sequence[Gate] = GATES) -> list[tuple[str, str]]:
    """Return gates that were named and need not be, each with why."""
    why = {
        Stage.GA: "is part of Tenure for good: its gate will be removed",
        Stage.DEPRECATED: "is deprecated, and will be removed",
    }
    given = _spelled(given, gates)
    return [(gate.name, why[gate.stage]) for gate in gates if gate.name in given and gate.stage in why]


def described(gates: Sequence[Gate] = GATES) -> str:
    """Return all gates for the help: name, stage, default and effect of each."""
    names = [f"{name}=true|false ({stage}, default false)" for name, stage in ALL.items()]
    names += [f"{gate.name}=true|false ({gate.stage}, default {_text(gate.default)}): {gate.help}" for gate in gates]
    return "; ".join(names)


def _spelled(given: Mapping[str, bool], gates: Sequence[Gate]) -> dict[str, bool]:
    """Return the values by the names of the gates: those in variables have lost their capitals."""
    names = {name.lower(): name for name in (*ALL, *(gate.name for gate in gates))}
    return {names.get(name.lower(), name): value for name, value in given.items()}


def _unknown(name: str, gates: Sequence[Gate]) -> Fault:
    names = [*ALL, *(gate.name for gate in gates)]
    return Fault((name,), "is not a feature of this version", suggestion(name, names, f"known: {', '.join(names)}"))


def _text(value: bool) -> str:  # noqa: FBT001 - it is what is printed
    return "true" if value else "false"
