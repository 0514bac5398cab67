"""What holds for every test of the run: the shell's settings do not reach it, and nothing it prints shows a secret."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from tests.canary import CANARY
from tests.kit.launcher import launching

for name in [each for each in os.environ if each.startswith("TENURE_") and not each.startswith("TENURE_TEST_")]:
    del os.environ[name]  # whoever works with a cluster of their own may run the tests from the same shell


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test, or what its fixtures did, when the output that was captured holds the canary."""
    report = yield
    leaking = [title for title, content in report.sections if CANARY in content]
    if leaking and not report.failed:
        report.outcome = "failed"
        report.longrepr = f"a secret is shown by {item.nodeid} ({call.when}) in: {', '.join(leaking)}"
    return report


@pytest.fixture(scope="session")
def launcher() -> Iterator[None]:
    """Fork commands from one process that has imported the project; tests of whole commands ask for it."""
    with launching():
        yield
