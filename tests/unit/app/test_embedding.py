"""What a program may hand to ``supervisor.main.main``, and what is refused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.errors import EXIT_CONFIG, TenureError, UnknownJobError
from supervisor.core.jobs.hooks import DuplicateHookError
from supervisor.core.jobs.registry import registry
from supervisor.main import main, register
from supervisor.plugins.contract import PluginDefinitionError
from supervisor.plugins.registry import registry as plugins
from supervisor.settings.schedules import hook_sources
from supervisor.settings.schedules.search_path import DirectoryChangedError
from supervisor.settings.sections.models import Settings
from tenure import Plugin


def plugin(module: str) -> type[Plugin]:
    """Return a plugin class as if ``module`` defined it."""

    class Hello(Plugin):
        name = "embedded-hello"

        def run(self, options: dict[str, Any], secrets: dict[str, Any], task: dict[str, Any]) -> Any:
            """Do nothing."""

    Hello.__module__ = module
    return Hello


def hook(module: str) -> type:
    """Return a hook class as if ``module`` defined it."""

    class Closed:
        def gate(self, fire: Any) -> str:
            """Say no."""
            return "closed"

    Closed.__module__ = module
    return Closed


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_classes", {})
    monkeypatch.setattr(hook_sources, "_offered", {})


def test_plugins_and_hooks_of_a_program_have_their_names() -> None:
    """A schedule may name the plugin, a profile may enable the hook; no configuration lists them."""
    register([plugin("shop")], [], {"sundays": hook("shop")})

    assert plugins.get("embedded-hello").origin == "shop:plugin.<locals>.Hello"
    assert hook_sources.known_hooks(Settings()).get("sundays").points == ("gate",)


def test_a_plugin_with_a_taken_name_is_refused_with_both_origins() -> None:
    """As kube's "a plugin named … already exists", but one sees where to look."""
    with pytest.raises(PluginDefinitionError, match=r"registered twice, by shop:.* and by store:.*; rename one"):
        register([plugin("shop"), plugin("store")], [], {})


def test_a_hook_with_a_taken_name_is_refused_with_both_origins() -> None:
    """One name stands for one hook."""
    register([], [], {"sundays": hook("shop")})

    with pytest.raises(DuplicateHookError, match=r"registered twice, by shop:.* and by store:.*; rename one"):
        register([], [], {"sundays": hook("store")})


def test_a_function_that_is_no_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody forgot @job, and would look for the runs that never come."""
    del monkeypatch

    def forgotten() -> None:
        """Do nothing."""

    with pytest.raises(UnknownJobError):
        register([], [forgotten], {})


def test_a_module_of_jobs_is_imported() -> None:
    """A name does as well as the module."""
    register([], ["jobs.shell"], {})

    assert "shell.command" in registry


def test_a_module_whose_import_changes_the_current_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one under ``jobs:`` of the configuration is; relative paths are used after it."""
    monkeypatch.chdir(here := tmp_path.resolve())
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.delitem(sys.modules, "leaving_jobs", raising=False)
    (here / "leaving_jobs.py").write_text("import os\nos.chdir('/')\n")

    with pytest.raises(DirectoryChangedError, match=r"^module leaving_jobs changes the current directory when it is"):
        register([], ["leaving_jobs"], {})

    assert Path.cwd() == here


@pytest.mark.parametrize("brings", [lambda: {"plugins": [plugin("shop"), plugin("store")]}, lambda: {"jobs": [print]}])
def test_what_cannot_be_used_ends_the_command_with_one_line(
    brings: Callable[[], dict[str, Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback, and an exit code that says whose fault it is."""
    monkeypatch.setattr(sys, "argv", ["my_service.py"])
    monkeypatch.setattr("threading.enumerate", lambda: [threading.main_thread()])  # others are other tests' threads
    with pytest.raises(SystemExit) as raised:
        main(["version"], **brings())

    told = capsys.readouterr()
    assert raised.value.code in {EXIT_CONFIG, TenureError.exit_code}
    assert told.out == ""
    assert told.err.startswith("tenure: ")
    assert len(told.err.splitlines()) == 1
