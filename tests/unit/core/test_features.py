"""Feature gates: every stage against every way to set one, and what is refused."""

from __future__ import annotations

from itertools import product

from supervisor.core.features import GATES, Gate, Stage, described, faults, is_enabled, resolve, warnings
from tests.kit.tables import table

TABLE = (
    Gate("Young", Stage.ALPHA, default=False, help="."),
    Gate("Tried", Stage.BETA, default=True, help="."),
    Gate("Held", Stage.BETA, default=False, help="."),
    Gate("Settled", Stage.GA, default=True, help=".", is_locked=True),
    Gate("Leaving", Stage.DEPRECATED, default=True, help="."),
    Gate("Built", Stage.ALPHA, default=False, help=".", needs=("Tried",)),
)
DEFAULTS = {gate.name: gate.default for gate in TABLE}


def test_without_a_word_every_gate_has_its_default() -> None:
    """Nobody has to know a gate."""
    assert resolve({}, TABLE) == DEFAULTS
    assert faults({}, TABLE) == []
    assert warnings({}, TABLE) == []


@table(("alpha", "beta", "named"), list(product((None, False, True), (None, False, True), (None, False, True))))
def test_a_gate_follows_its_name_then_its_stage_then_its_default(
    alpha: bool | None,  # noqa: FBT001 - the table's columns
    beta: bool | None,  # noqa: FBT001 - as above
    named: bool | None,  # noqa: FBT001 - as above
) -> None:
    """As kube: AllAlpha and AllBeta are for gates that are not named themselves, in whatever order they stand."""
    given = {
        name: value
        for name, value in (("Young", named), ("AllAlpha", alpha), ("AllBeta", beta), ("Held", named))
        if value is not None
    }

    found = resolve(given, TABLE)

    assert found["Young"] is (named if named is not None else bool(alpha))
    assert found["Held"] is (named if named is not None else bool(beta))
    assert found["Tried"] is (beta if beta is not None else True)
    assert (found["Settled"], found["Leaving"]) == (True, True)


@table(
    ("given", "wrong"),
    [
        ({"Settled": True}, []),
        ({"Settled": False}, ["Settled is locked to true in stage GA"]),
        ({"Leaving": False}, []),
        ({"Built": True}, []),
        ({"Built": True, "Tried": False}, ["Built needs Tried, which is off"]),
        ({"Built": True, "AllBeta": False}, ["Built needs Tried, which is off"]),
        ({"AllAlpha": True, "Tried": False}, ["Built needs Tried, which is off"]),
        ({"AllAlpha": True, "Tried": False, "Built": False}, []),
        ({"Yuong": True}, ["Yuong is not a feature of this version"]),
        ({"Yuong": True, "Settled": False}, ["Yuong is not a feature of this version", "Settled is locked to true"]),
    ],
)
def test_what_cannot_be_is_refused_all_of_it_at_once(given: dict[str, bool], wrong: list[str]) -> None:
    """A typing mistake, a value for a locked gate, a gate without what it needs."""
    told = [f"{fault.path[0]} {fault.message}" for fault in faults(given, TABLE)]

    assert len(told) == len(wrong)
    for text, expected in zip(told, wrong, strict=True):
        assert text.startswith(expected)


def test_a_locked_gate_keeps_its_value_whatever_is_asked() -> None:
    """What was refused has no effect either."""
    assert resolve({"Settled": False}, TABLE)["Settled"] is True


def test_an_unknown_name_is_answered_with_the_nearest_one_or_all() -> None:
    """The remedy is in the message."""
    assert faults({"Yung": True}, TABLE)[0].remedy == "did you mean Young?"
    assert faults({"Zzz": True}, TABLE)[0].remedy.startswith("known: AllAlpha, AllBeta, Young")


def test_naming_a_gate_that_will_go_is_warned_of() -> None:
    """GA and DEPRECATED gates disappear; a configuration that names one would then be refused."""
    found = dict(warnings({"Settled": True, "Leaving": True, "Young": True}, TABLE))

    assert found == {
        "Settled": "is part of Tenure for good: its gate will be removed",
        "Leaving": "is deprecated, and will be removed",
    }


def test_names_have_no_capitals_where_a_variable_brought_them() -> None:
    """TENURE_FEATURES__YOUNG arrives in small letters."""
    assert resolve({"young": True, "allbeta": False}, TABLE) == DEFAULTS | {"Young": True, "Tried": False}
    assert faults({"young": True}, TABLE) == []


def test_the_gates_of_this_version_stand_together() -> None:
    """Names differ, needs exist, ALPHA and DEPRECATED defaults are what their stage says."""
    names = [gate.name for gate in GATES]

    assert len({name.lower() for name in names}) == len(names)
    for gate in GATES:
        assert set(gate.needs) <= set(names)
        assert not (gate.stage is Stage.ALPHA and gate.default)
        assert gate.name in described()
    assert is_enabled("FastCrashDetection", {}) is False
    assert is_enabled("FastCrashDetection", {"AllBeta": True}) is True
