"""Handlers of Cloudforet's short form: which may be called, and what is told of those that fail."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from supervisor.compat.cloudforet import jobs
from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.names import NotImportableError
from supervisor.compat.cloudforet.tasks.redaction import ScrubbedError
from supervisor.roles.worker.attempt.context import Context, SoftTimeout
from supervisor.settings.sections.cloudforet import CloudforetSettings
from tests.kit.canary import CANARY

HANDLERS = """
from supervisor.compat.cloudforet import config, schedule_handler
from tenure import SoftTimeout


@schedule_handler
def fail():
    raise RuntimeError(f"no use of {config.get_global('TOKEN')}")


@schedule_handler
def wait():
    try:
        fail()
    except RuntimeError:
        raise SoftTimeout


@schedule_handler
def tell():
    return {"it is": config.get_global("TOKEN")}


@schedule_handler
def miss():
    return {}["nothing"]
"""
MARKED = """
from subprocess import Popen

from supervisor.compat.cloudforet import BaseScheduler, schedule_handler


@schedule_handler
def plain():
    return 1


@schedule_handler
def knowing(ctx):
    return ctx.run_id


@schedule_handler
class Sized:
    def __init__(self, size=3):
        self.size = size

    def run(self):
        return self.size


class DomainScheduler(BaseScheduler):
    def run(self):
        return "synchronized"


class TokenCleanupScheduler(BaseScheduler):
    def __init__(self):
        super().__init__(600, lambda: f"every {self.interval}")


class Idle(BaseScheduler):
    pass


def unmarked():
    raise AssertionError
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the directory of the modules that a configuration may name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    packages = ("old_handlers", "old_tellers", "nowhere")
    runtime.configure(CloudforetSettings(packages=packages, token=SecretStr(CANARY)))
    yield tmp_path
    runtime.configure(CloudforetSettings())
    for name in packages:
        sys.modules.pop(name, None)


def context() -> Context:
    """Return the context of a run."""
    return Context(run_id="plan", job="cloudforet.run")


def test_a_handler_is_marked_or_derived_from_the_base_class(package: Path) -> None:
    """As the identity service's scheduler was described: with or without the context, the interval or a constructor."""
    (package / "old_handlers.py").write_text(MARKED)
    run = context()
    assert jobs.run(run, "old_handlers.plain") == 1
    assert jobs.run(run, "old_handlers:knowing") == "plan"
    assert jobs.run(run, "old_handlers.Sized", {"size": 5}) == 5
    assert jobs.run(run, "old_handlers.DomainScheduler") == "synchronized"
    assert jobs.run(run, "old_handlers.DomainScheduler", {"interval": 3600}) == "synchronized"
    assert jobs.run(run, "old_handlers.TokenCleanupScheduler") == "every 600"
    with pytest.raises(NotImportableError, match="there is no module nowhere"):
        jobs.run(run, "nowhere.DomainScheduler")
    with pytest.raises(NotImplementedError, match=r"Idle\.run is not implemented"):
        jobs.run(run, "old_handlers.Idle")


@pytest.mark.parametrize("name", ["unmarked", "Popen", "__name__"])
def test_what_nobody_marked_as_a_handler_is_not_called(package: Path, name: str) -> None:
    """A configuration must not reach every callable that a module of the service holds or imported."""
    (package / "old_handlers.py").write_text(MARKED)

    with pytest.raises(NotImportableError, match=f"old_handlers.{name} is no handler: derive it from BaseScheduler"):
        jobs.run(context(), f"old_handlers.{name}", {"args": ["false"]})


def test_a_soft_timeout_of_a_handler_shows_no_token_of_the_error_that_it_was_handling(package: Path) -> None:
    """One that waits for its next try is within ``except``; the record of its run holds the error behind, too."""
    (package / "old_tellers.py").write_text(HANDLERS)
    with pytest.raises(SoftTimeout) as caught:
        jobs.run(context(), "old_tellers.wait")
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_handler_that_fails_is_told_without_the_token(package: Path) -> None:
    """Its result too; and an error that shows nothing stays what it was."""
    (package / "old_tellers.py").write_text(HANDLERS)
    with pytest.raises(ScrubbedError, match=r"RuntimeError: no use of \*\*\*") as caught:
        jobs.run(context(), "old_tellers.fail")
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert jobs.run(context(), "old_tellers.tell") == {"it is": "***"}
    with pytest.raises(KeyError):
        jobs.run(context(), "old_tellers.miss")
