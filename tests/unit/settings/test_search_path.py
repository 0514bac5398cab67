"""Modules that a configuration names: a user's own beside those that ship, and clashes that say both places."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from supervisor.core.jobs.registry import registry
from supervisor.settings.schedules import hook_sources, search_path
from supervisor.settings.schedules.complete import import_jobs
from supervisor.settings.schedules.search_path import SHIPPED, import_named, module_of, search
from supervisor.settings.sections.models import Settings
from tenure.jobs import http, identity, shell

JOB = "from tenure import job\n@job('{name}')\ndef f() -> None: ...\n"


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Start in an empty directory; forget what the test imported."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(registry, "_jobs", dict(registry._jobs))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(search_path, "_own", [])
    before = dict(sys.modules)
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    yield
    for name in set(sys.modules) - set(before):
        if name.partition(".")[0] in {"jobs", "clash", "spread"}:
            del sys.modules[name]


def package(directory: Path, *modules: str, is_namespace: bool = False) -> Path:
    """Make a package with a job in each of its modules, called like package and module."""
    directory.mkdir(parents=True)
    if not is_namespace:
        (directory / "__init__.py").touch()
    for module in modules:
        (directory / f"{module}.py").write_text(JOB.format(name=f"{directory.parent.name}.{module}"))
    return directory


def test_jobs_that_ship_have_short_names_and_their_former_ones() -> None:
    """``jobs: [shell]`` is enough, and a configuration that named ``jobs.shell`` goes on."""
    for name in SHIPPED:
        assert module_of(name) == module_of(f"jobs.{name}") == f"tenure.jobs.{name}"
    assert import_jobs(["shell", "jobs.http", "tenure.jobs.identity"]) == []
    assert [module.__name__ for module in (shell, http, identity)] == [
        module_of(name) for name in ("shell", "http", "identity")
    ]


@pytest.mark.parametrize("is_namespace", [False, True])
def test_a_package_jobs_of_a_user_loads_beside_those_that_ship(*, is_namespace: bool) -> None:
    """The commonest name of all is the user's, with or without ``__init__.py``."""
    package(Path.cwd() / "jobs", "mail", is_namespace=is_namespace)

    assert import_jobs(["jobs.mail", "shell", "jobs.shell"]) == []

    assert sys.modules["jobs.mail"].__file__ == str(Path.cwd() / "jobs/mail.py")
    assert {"here.mail", "shell.command"} <= set(registry.names())


def test_a_module_within_two_namespaces_is_found() -> None:
    """Neither directory has an ``__init__.py``, and neither was imported yet."""
    package(Path.cwd() / "spread" / "far", "mail", is_namespace=True)
    assert import_jobs(["spread.far.mail"]) == []
    assert "spread.mail" in registry.names()


def test_a_users_own_module_comes_before_an_installed_one_of_its_name(tmp_path: Path) -> None:
    """From the working directory and from ``--module-path``; what nobody named stays where it was."""
    package(tmp_path / "site/clash", "mail", "other")
    package(tmp_path / "given/clash", "mail")
    (tmp_path / "given/stat.py").write_text("raise SystemExit('replaced')\n")
    sys.path.insert(0, str(tmp_path / "site"))
    search([tmp_path / "given"])

    assert import_jobs(["clash.mail"]) == []

    assert "given.mail" in registry.names()
    assert sys.path[-2:] == [str(tmp_path / "given"), str(Path.cwd())]
    assert import_named("stat").__name__ == "stat"


def test_an_installed_module_is_found_where_a_users_package_has_none_of_its_name(tmp_path: Path) -> None:
    """A folder that happens to have the same name hides nothing."""
    package(tmp_path / "site/clash", "mail")
    (Path.cwd() / "clash").mkdir()
    sys.path.insert(0, str(tmp_path / "site"))

    assert import_jobs(["clash.mail"]) == []
    assert "site.mail" in registry.names()


def test_a_package_that_another_hides_is_named_with_both_places(tmp_path: Path) -> None:
    """Python imports one package of a name; "there is no such module" would be said where everybody sees it."""
    package(tmp_path / "site/clash", "other")
    package(Path.cwd() / "clash", "mail")
    sys.path.insert(0, str(tmp_path / "site"))

    (found,) = import_jobs(["clash.mail", "clash.other"])

    assert found.message == (
        f"there is no module clash.other in {Path.cwd() / 'clash'}, and the package clash with it in "
        f"{tmp_path / 'site/clash'} is hidden by that"
    )
    assert found.remedy == "rename one of the two packages"


def test_a_package_that_is_spread_over_directories_stays_whole(tmp_path: Path) -> None:
    """A namespace of a company has parts that are installed."""
    package(tmp_path / "site/spread", "library", is_namespace=True)
    package(Path.cwd() / "spread", "mail", is_namespace=True)
    (Path.cwd() / "spread/mail.py").write_text("import spread.library\n" + JOB.format(name="here.mail"))
    sys.path.insert(0, str(tmp_path / "site"))

    assert import_jobs(["spread.mail"]) == []


def test_a_short_name_that_is_a_users_module_too_is_refused_with_both_places() -> None:
    """Neither may run in the place of the other."""
    (Path.cwd() / "shell.py").write_text(JOB.format(name="mine"))

    (found,) = import_jobs(["shell"])

    assert "shell is the short name of tenure.jobs.shell (" in found.message
    assert f"a module of your own ({Path.cwd() / 'shell.py'})" in found.message
    assert found.remedy == "write tenure.jobs.shell for the one, or rename the other"
    assert "mine" not in registry.names()


def test_an_installed_distribution_gives_its_jobs_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the group ``tenure.jobs``, as those that ship have theirs."""
    package(tmp_path / "site/clash", "mail")
    info = tmp_path / "site/clash-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: clash\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tenure.jobs]\nletters = clash.mail\n")
    monkeypatch.syspath_prepend(tmp_path / "site")

    assert module_of("letters") == "clash.mail"
    assert import_jobs(["letters"]) == []


def test_a_hook_whose_import_changes_the_current_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of the configuration are used after hooks are imported: `module:class` and entry points alike."""
    here = Path.cwd()
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "leaving_hook.py").write_text(
        "import os\nos.chdir('/')\nclass Hook:\n    def filter(self, context): ...\n"
    )
    entry = EntryPoint(name="leaving", value="leaving_hook:Hook", group=hook_sources.GROUP)
    monkeypatch.setattr(hook_sources, "entry_points", lambda *, group: [entry] if group == entry.group else [])
    known = hook_sources.known_hooks(Settings())

    for name in ("leaving_hook:Hook", "leaving"):
        monkeypatch.delitem(sys.modules, "leaving_hook", raising=False)
        with pytest.raises(hook_sources.UnusableHookError, match=f"^hook {name} changes the current directory when"):
            hook_sources.find_hook(name, known)
        assert Path.cwd() == here
