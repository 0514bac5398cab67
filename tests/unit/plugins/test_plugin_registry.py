"""Which plugins there are, and what is refused before anything runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor.app.jobs import prepare_plugins
from supervisor.core.errors import ConfigError
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.plugins import registry as plugins
from supervisor.plugins.contract import PluginDefinitionError, PluginNotRegisteredError, check_class
from supervisor.plugins.registry import PluginRegistry, check_schedules, load_class
from supervisor.settings.loader import Loaded, UnusableError, load
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.plugins import PluginSettings
from tenure import Plugin

PLUGIN = "from tenure import Plugin\nclass P(Plugin):\n    name = 'p'\n    def run(self, options, secrets, task): ...\n"


class Good(Plugin):
    """A plugin that can be used."""

    name = "good"

    def run(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> Any:
        return None


class Twin(Good):
    """Another one of the same name."""


class Absent(Good):
    """Claims a method that it does not have."""

    methods = ("collect",)


class Nothing(Plugin):
    """Has nothing to run."""

    name = "nothing"


class Nameless(Good):
    """Has a name that nobody could write."""

    name = "a b"


class Async(Good):
    """Would never be awaited."""

    async def run(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> Any:
        return None


class Reserved(Good):
    """Names a method that has a meaning of its own."""

    methods = ("verify",)


class Unversioned(Good):
    """Has a number for a version."""

    version = 3  # type: ignore[assignment]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> PluginRegistry:
    """An empty registry, in a program without installed plugins."""
    registry = PluginRegistry()
    monkeypatch.setattr(plugins, "registry", registry)
    monkeypatch.setattr(plugins, "entry_points", dict)
    return registry


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Absent, "methods names 'collect', and the class has no such method"),
        (Nothing, "has nothing to run; define run"),
        (Nameless, "name 'a b' must be 1 to 64"),
        (Async, "run is async; define it with def"),
        (Reserved, "methods names 'verify'"),
        (Unversioned, "version 3 must be text"),
        (str, "is no plugin; make it a subclass of supervisor.Plugin"),
    ],
)
def test_a_class_that_cannot_be_a_plugin_is_refused_by_name(kind: Any, said: str) -> None:
    """With its origin and the remedy, when it is registered and not when its first run is due."""
    with pytest.raises(PluginDefinitionError) as caught:
        check_class(kind)
    assert said in str(caught.value)
    assert kind.__name__ in str(caught.value)


def test_two_classes_of_one_name_are_refused_with_both_origins(known: PluginRegistry) -> None:
    """Whoever has to rename one must find both. The same one twice is one."""
    known.register(Good)
    known.register(Good)
    with pytest.raises(PluginDefinitionError, match=rf"by {__name__}:Good and by {__name__}:Twin; rename one"):
        known.register(Twin)


def test_an_installed_distribution_registers_by_its_entry_point(
    known: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class is imported when it is asked for. One that the program around has too is refused with both origins."""
    monkeypatch.setattr(plugins, "entry_points", lambda: {"good": (f"{__name__}:Good",), "other": ("no.such:Thing",)})
    assert known.names() == ["good", "other"]
    assert known.get("good").kind is Good
    with pytest.raises(PluginDefinitionError, match=r"plugin no\.such:Thing cannot be imported: ModuleNotFoundError"):
        known.get("other")
    known.register(Twin)
    with pytest.raises(PluginDefinitionError, match=r"registered twice, by .*:Good and by .*:Twin; say which by"):
        known.get("good")


def test_the_configuration_says_which_of_two_is_meant(known: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry with a module stands over what is found."""
    monkeypatch.setattr(plugins, "entry_points", lambda: {"good": ("some.other:Class",)})
    known.configure({"good": PluginSettings(module=f"{__name__}:Good")}, {})

    assert known.get("good").kind is Good


def test_an_unknown_plugin_names_the_nearest(known: PluginRegistry) -> None:
    """A slip of the pen is found at once."""
    known.register(Good)
    with pytest.raises(PluginNotRegisteredError, match=r"no plugin is called 'god'; did you mean good\?"):
        known.get("god")


def test_a_configuration_with_plugins_that_cannot_be_used_is_refused_with_all_of_them(known: PluginRegistry) -> None:
    """With the place of each."""
    settings = Settings(
        plugins={
            "a": PluginSettings(module="no.such.module:Class"),
            "b": PluginSettings(module=f"{__name__}:Good", sink="json:nothing"),
            "c": PluginSettings(),
            "d": PluginSettings(module=f"{__name__}:Good"),
        }
    )
    with pytest.raises(ConfigError) as caught:
        prepare_plugins(settings, {"plugins.a.module": "tenure.yaml:3", "plugins.b": "tenure.yaml:5"})

    found = [(problem.where, problem.path) for problem in caught.value.problems]
    assert found == [("tenure.yaml:3", "plugins.a"), ("tenure.yaml:5", "plugins.b"), ("plugins", "plugins.c")]


def test_a_schedule_of_a_plugin_that_there_is_not_is_refused(known: PluginRegistry) -> None:
    """Before it is due. A name that a placeholder gives is left to the run."""
    known.register(Good)

    def definition(name: str, plugin: str) -> ScheduleDef:
        template = Template(job="plugin.run", kind=Kind.SYNC, args={"plugin": plugin})
        return ScheduleDef(id=name, template=template, every_ms=1000)

    loaded = Loaded(Settings(), {"schedules.s.args.plugin": "tenure.yaml:9"}, ())
    check_schedules([definition("r", "good"), definition("t", "{{ schedule }}")], loaded)
    with pytest.raises(ConfigError) as caught:
        check_schedules([definition("s", "goood")], loaded)
    (problem,) = caught.value.problems
    assert str(problem) == ("tenure.yaml:9: schedules.s.args.plugin: no plugin is called 'goood'; did you mean good?")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{module: 'a:B', command: [x]}", "plugins.p.command: cannot be combined with module"),
        ("{command: ['']}", "plugins.p.command: names no program"),
        ("{module: 'a:B', cwd: /tmp}", "plugins.p.cwd: is for plugins with a command"),
        ("{command: [x], env: {'A=B': c}}", "plugins.p.env: cannot hold 'A=B'"),
        ("{module: a.B}", "plugins.p.module: must name something in a module"),
        ("{command: [x], idle_stop: 0s}", "plugins.p.idle_stop: must be at least 1s"),
        ("{command: [x], secrets: {p: 90310577}}", "plugins.p.secrets.p: must be text, got a value that is not shown"),
        ("{comand: [x]}", "plugins.p.comand: is not a setting; did you mean command?"),
    ],
)
def test_settings_of_a_plugin_that_cannot_be_are_refused_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    """Each with its line; a value that may be a secret is not quoted."""
    file = tmp_path / "tenure.yaml"
    file.write_text(f"plugins:\n  p: {text}\n")
    with pytest.raises(UnusableError) as caught:
        load(files=[file], environ={}, flags={})
    assert said in str(caught.value)
    assert f"{file}:2" in str(caught.value)
    assert "90310577" not in str(caught.value)


def test_the_secrets_of_a_plugin_are_never_shown(tmp_path: Path) -> None:
    """Neither those from a file nor those that somebody wrote into the configuration."""
    (tmp_path / "key").write_text("from-a-file\n")
    file = tmp_path / "tenure.yaml"
    file.write_text("plugins:\n  p: {command: [x], secrets: {key: '${file:key}', other: in-plain-sight}}\n")
    settings = load(files=[file], environ={}, flags={}).settings
    shown = f"{settings!r} {settings.model_dump(mode='json')} {settings.plugins['p']!r}"

    assert settings.plugins["p"].secrets["key"].get_secret_value() == "from-a-file"
    assert "from-a-file" not in shown
    assert "in-plain-sight" not in shown


def test_a_plugin_whose_import_changes_the_current_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of the configuration are used after plugins are imported."""
    monkeypatch.chdir(here := tmp_path.resolve())
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.delitem(sys.modules, "leaving_plugin", raising=False)
    (here / "leaving_plugin.py").write_text(f"import os\nos.chdir('/')\n{PLUGIN}")

    with pytest.raises(PluginDefinitionError, match="plugin leaving_plugin:P changes the current directory when it is"):
        load_class("leaving_plugin:P")

    assert Path.cwd() == here


def test_plugins_are_found_where_the_current_directory_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run asks for its plugin: it failed once a deploy had removed the directory of the former release."""
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "staying_plugin", raising=False)
    (tmp_path / "staying_plugin.py").write_text(PLUGIN)
    registry = PluginRegistry()
    registry.configure({"p": PluginSettings(module="staying_plugin:P")}, {})
    gone.rmdir()

    assert registry.get("p").origin == "staying_plugin:P"
    assert registry.get("p").origin == "staying_plugin:P"


def test_a_plugin_that_is_imported_is_found_while_a_thread_changes_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread, of a job, is none of its doing."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("imported_plugin")

    def look_up(name: str) -> type[Plugin]:
        os.chdir("/")  # as a thread may do at this moment
        return Good

    vars(module)["__getattr__"] = look_up
    monkeypatch.setitem(sys.modules, "imported_plugin", module)

    assert load_class("imported_plugin:Good") is Good
