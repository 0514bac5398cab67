"""What holds for every test of the run: the shell's settings do not reach it, and nothing it prints shows a secret."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdist.remote import Producer

from tests.kit.canary import CANARY
from tests.kit.dealing import Dealing, name_groups, tell_briefly
from tests.kit.isolation import FAILED, isolated
from tests.kit.launcher import launching
from tests.kit.mailboxes import mailbox
from tests.kit.shares import deal

__all__ = ["isolated", "mailbox"]

for name in [each for each in os.environ if each.startswith("TENURE_") and not each.startswith("TENURE_TEST_")]:
    del os.environ[name]  # whoever works with a cluster of their own may run the tests from the same shell

# How long an example takes says how busy the machine is. `make test-long` looks deep: --hypothesis-profile deep.
for profile, examples in (("quick", 10), ("deep", 300)):
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("quick")


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
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Deal the cases of a test that asks for it, whatever its parameters come from."""
    made = yield
    if isinstance(made, list) and made and (mark := made[0].get_closest_marker("share")) is not None:
        deal(made, *mark.args)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep the collector from walking through modules and test items: they stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Dealing | None:
    """Keep the tests of a group together."""
    return Dealing(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have a worker of pytest-xdist send few messages."""
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":  # the worker executes its source, so it has a class of its own
            tell_briefly(plugin)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread whole trees, which mostly wait, among the first four fifths of what keeps processors busy.

    Raises:
        pytest.UsageError: the name of a test holds an address, which is another one in each worker.
    """
    if wrong := [each.nodeid for each in items if " at 0x" in each.nodeid]:
        raise pytest.UsageError(f"give the parameters of these tests names that stay the same: {wrong}")
    trees = [each for each in items if each.get_closest_marker("e2e") is not None]
    others = [each for each in items if each.get_closest_marker("e2e") is None]
    step = 0.8 * len(others) / max(1, len(trees))
    placed = [*enumerate(others), *((index * step, each) for index, each in enumerate(trees))]
    items[:] = [each for _, each in sorted(placed, key=lambda place: place[0])]
    if config.getoption("loadgroup", default=False):
        name_groups(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write Hypothesis' table of characters where tests are only collected: each worker would make it, in 3 s."""
    if session.config.option.collectonly:
        settings(max_examples=1, database=None)(given(st.text())(lambda _text: None))()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seed of the random order at the end, where a failure is read."""
    if (seed := config.getoption("randomly_seed", None)) is not None:
        terminalreporter.write_line(f"random order: repeat it by --randomly-seed={seed}")


@pytest.fixture(scope="session")
def launcher() -> Iterator[None]:
    """Fork commands from one process that has imported the project; tests of whole commands ask for it."""
    with launching():
        yield
