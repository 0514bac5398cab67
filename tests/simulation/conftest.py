"""How many worlds the simulation runs: ``--sim-seeds N``. Thousands, and every mutation: ``python -m tests.simulation``."""

from __future__ import annotations

import pytest

from tests.kit.shares import share

WORLDS = 32
WORLDS_PER_TEST = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; they exist when this folder is named on the command line."""
    parser.addoption("--sim-seeds", type=int, default=None, help="how many simulated worlds")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Deal the seeds out to tests of four worlds, so that processes share them."""
    asked = metafunc.config.getoption("--sim-seeds", None)
    if "first_seed" in metafunc.fixturenames:
        seeds = range(0, asked or WORLDS, WORLDS_PER_TEST)
        metafunc.parametrize("first_seed", seeds if asked else share(seeds, len(seeds)))
    if "mutant" in metafunc.fixturenames:
        from tests.simulation.mutants import FAST  # noqa: PLC0415 - the options are needed before the program

        metafunc.parametrize("mutant", share(FAST, 4))
