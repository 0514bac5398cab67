"""How many worlds the simulation runs: ``--sim-seeds N``, and ``--sim-mutants`` for every mutation."""

from __future__ import annotations

import pytest

WORLDS = 60
WORLDS_PER_TEST = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; they exist when this folder is named on the command line."""
    parser.addoption("--sim-seeds", type=int, default=WORLDS, help="how many simulated worlds")
    parser.addoption("--sim-mutants", action="store_true", help="check every mutation, and nothing else")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Deal the seeds out to tests of ten worlds, so that processes share them."""
    worlds = metafunc.config.getoption("--sim-seeds", WORLDS)
    if "first_seed" in metafunc.fixturenames:
        metafunc.parametrize("first_seed", range(0, worlds, WORLDS_PER_TEST))
    if "mutant" in metafunc.fixturenames:
        from tests.simulation.mutants import FAST, MUTANTS  # noqa: PLC0415 - the options are needed before the program

        is_all = metafunc.config.getoption("--sim-mutants", default=False)
        metafunc.parametrize("mutant", sorted(MUTANTS) if is_all else FAST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --sim-mutants keep the mutations alone."""
    if config.getoption("--sim-mutants", default=False):
        items[:] = [item for item in items if "mutant" in getattr(item, "fixturenames", ())]
