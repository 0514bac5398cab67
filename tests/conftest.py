"""What holds for every test of the run: nothing that it prints or logs shows a secret (tests/canary.py)."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.canary import CANARY


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
