"""From dotted names to classes, and the classes that services derive from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.compat import cloudforet
from supervisor.compat.cloudforet.locator import Locator, LocatorError
from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.names import NotImportableError, known, resolve, split
from supervisor.compat.cloudforet.transaction import Transaction, entered
from supervisor.settings.sections.cloudforet import CloudforetSettings

HERE = "supervisor.compat.cloudforet.schedulers"


@pytest.fixture(autouse=True)
def _own_packages() -> Iterator[None]:
    packages = ("spaceone.nowhere", "supervisor.compat", "old_broken", "old_needy", "old_leaving")
    runtime.configure(CloudforetSettings(packages=packages))
    yield
    runtime.configure(CloudforetSettings())


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("spaceone.core.scheduler.worker.BaseWorker", (HERE, "BaseWorker")),
        ("spaceone.core.scheduler.scheduler.HourlyScheduler", (HERE, "HourlyScheduler")),
        ("spaceone.core.scheduler.CronScheduler", (HERE, "CronScheduler")),
        ("spaceone.core.scheduler:IntervalScheduler", (HERE, "IntervalScheduler")),
        ("a.b.C", ("a.b", "C")),
        ("a.b:C", ("a.b", "C")),
    ],
)
def test_both_separators_and_the_framework_are_known(name: str, found: tuple[str, str]) -> None:
    """Files of services name the framework's classes; those are ours, and nothing called spaceone.core is imported."""
    assert split(name) == found
    assert known(name) == (found[0] == HERE)


def test_the_framework_is_ours_and_never_imported() -> None:
    """The name in a file means our class, whether or not the framework is installed."""
    assert resolve("spaceone.core.scheduler.worker.BaseWorker") is cloudforet.BaseWorker
    assert not [name for name in sys.modules if name.startswith("spaceone")]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("spaceone.core.queue.redis_queue.RedisQueue", "belongs to Cloudforet's framework"),
        ("spaceone.nowhere.task.CleanupScheduler", "there is no module spaceone; install the service"),
        ("supervisor.compat.cloudforet.schedulers.Nothing", "has no Nothing; correct the name"),
        ("no dots", "is no class: write module.Class or module:Class"),
        ("os.system('x')", "is no class"),
    ],
)
def test_what_cannot_be_imported_says_the_class_and_the_remedy(name: str, reason: str) -> None:
    """The run that meets it is dead at once: the same import fails the same way next time."""
    with pytest.raises(NotImportableError) as caught:
        resolve(name)
    assert name in str(caught.value)
    assert reason in str(caught.value)
    assert caught.value.ends_run


def test_nothing_outside_the_configured_packages_is_imported_for_a_run() -> None:
    """Whoever can write to a queue must not be able to choose code."""
    for name in ("os.system", "subprocess.Popen", "spaceone_other.task.Scheduler", "jobs.shell.command"):
        with pytest.raises(NotImportableError, match=r"lies in none of cloudforet\.packages \(spaceone\.nowhere, "):
            resolve(name)


def test_a_module_that_fails_is_told_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as a module that is missing: what is to be done differs."""
    (tmp_path / "old_broken.py").write_text("raise RuntimeError('no database')\n")
    (tmp_path / "old_needy.py").write_text("import nothing_of_the_kind\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotImportableError, match="module old_broken fails with RuntimeError: no database"):
        resolve("old_broken.A")
    with pytest.raises(NotImportableError, match="it needs nothing_of_the_kind, which is not installed"):
        resolve("old_needy.A")


def test_a_module_whose_import_changes_the_current_directory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of the configuration are used after its classes are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "old_leaving", raising=False)
    (tmp_path / "old_leaving.py").write_text("import os\nos.chdir('/')\nclass A: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotImportableError, match="module old_leaving changes the current directory when it is"):
        resolve("old_leaving.A")
    assert Path.cwd() == tmp_path.resolve()


def test_schedulers_keep_what_they_were_made_with() -> None:
    """Subclasses read these attributes, and so does the loader."""
    hourly = cloudforet.HourlyScheduler("q", 2, ":30")
    assert (hourly.queue, hourly.config, hourly.minute, hourly.kind) == ("q", 2, ":30", "hourly")
    assert cloudforet.HourlyScheduler("q").minute == ":00"
    assert cloudforet.IntervalScheduler("q", 30).config == 30
    assert cloudforet.CronScheduler("q", "* * * * *").config == "* * * * *"
    with pytest.raises(NotImplementedError, match=r"CronScheduler\.create_task is not implemented"):
        cloudforet.CronScheduler("q", "* * * * *").create_task()
    with pytest.raises(TypeError):
        cloudforet.IntervalScheduler("q", 30, minute=":00")  # type: ignore[call-arg]


def test_a_locator_says_where_it_looked() -> None:
    """Without configured packages no name leads anywhere."""
    runtime.configure(CloudforetSettings())
    with pytest.raises(LocatorError, match=r"cloudforet\.packages is empty"):
        Locator().get_service("CleanupService", {})


def test_a_class_gets_what_its_constructor_takes() -> None:
    """A plain class will do: metadata and transaction are given to those who take them."""

    class Plain:
        def hello(self) -> str:
            return "hello"

    class Named:
        def __init__(self, metadata: dict[str, str]) -> None:
            self.metadata = metadata

    transaction = Transaction()
    manager = Locator(transaction).get_manager(cloudforet.BaseManager, size=3)
    assert Locator().get_service(Plain, {"a": "b"}).hello() == "hello"
    assert Locator().get_service(Named, {"a": "b"}).metadata == {"a": "b"}
    assert (manager.transaction, manager.size) == (transaction, 3)


def test_rollbacks_run_backwards_and_only_after_a_failure() -> None:
    """Each once; one that fails itself stops none of the others."""
    done: list[str] = []

    def fail() -> None:
        raise OSError("gone")

    def work() -> None:
        service = cloudforet.BaseService({"token": "x"})
        service.transaction.add_rollback(done.append, "first")
        service.transaction.add_rollback(fail)
        service.locator.get_manager(cloudforet.BaseManager).transaction.add_rollback(done.append, "last")

    with entered(Transaction()):
        work()
    assert done == []
    with suppress(ValueError), entered(Transaction()):
        work()
        raise ValueError("no")
    assert done == ["last", "first"]


def test_required_parameters_are_asked_for_by_name() -> None:
    """The error is the one that services know."""

    class Service(cloudforet.BaseService):
        @cloudforet.transaction(permission="x")
        @cloudforet.check_required(["domain_id"])
        def work(self, params: dict[str, str]) -> str:
            return params["domain_id"]

    assert Service().work({"domain_id": "d"}) == "d"
    with pytest.raises(Exception, match=r"ERROR_REQUIRED_PARAMETER: Required parameter. \(key = domain_id\)"):
        Service().work({})
