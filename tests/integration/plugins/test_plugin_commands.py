"""``tenure plugin`` as a person types it, where no tree runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.trees import tenure
from tests.integration.plugins.conftest import DATA
from tests.kit.canary import CANARY

HELLO = """
from tenure import Plugin

class Hello(Plugin):
    name = "hello"
    version = "3"
    methods = ("collect",)

    def verify(self, options, secrets):
        if "token" not in secrets:
            raise ValueError("no token")

    def run(self, options, secrets, task):
        yield {"state": "SUCCESS", "hello": task.get("who", options["who"])}

    def collect(self, options, secrets, task):
        for number in range(1000000):
            yield number
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A directory with a class, a program, one that cannot be imported, and a configuration that names all three."""
    (tmp_path / "hello.py").write_text(HELLO)
    shutil.copy(DATA / "words.sh", tmp_path / "words.sh")
    plugins = {
        "hello": {"module": "hello:Hello", "options": {"who": "world"}, "secrets": {"token": CANARY}},
        "words": {"command": ["sh", "words.sh"]},
        "gone": {"module": "gone:Gone"},
    }
    (tmp_path / "tenure.yaml").write_text(yaml.safe_dump({"plugins": plugins}))
    return tmp_path


def ask(desk: Path, *arguments: str) -> Any:
    """Return what a command that must work said, from JSON."""
    done = tenure(desk, "plugin", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_list_shows_who_there_is_and_who_is_broken(desk: Path) -> None:
    """Without a tree their state is unknown, and the command says so."""
    gone, hello, words = ask(desk, "list")

    assert (gone["plugin"], gone["state"]) == ("gone", "BROKEN")
    assert "plugin gone:Gone cannot be imported: ModuleNotFoundError" in gone["reason"]
    assert hello == {
        "plugin": "hello", "state": "unknown", "kind": "class", "origin": "hello:Hello", "version": "3",
    }  # fmt: skip
    assert words == {"plugin": "words", "state": "unknown", "kind": "program", "origin": "sh"}
    table = tenure(desk, "plugin", "list")
    assert "the state of the cluster is not known" in table.stderr
    assert "PLUGIN" in table.stdout


def test_one_plugin_is_shown_with_its_settings_and_without_its_secrets(desk: Path) -> None:
    """Which there are is worth knowing; what they are is not shown."""
    shown = ask(desk, "show", "hello")

    assert shown["settings"] == {
        "module": "hello:Hello", "options": {"who": "world"}, "secrets": {"token": "**********"},
    }  # fmt: skip
    assert (shown["standing"], shown["schedules"]) == ([], [])


def test_neither_arguments_of_a_program_nor_options_from_a_file_are_shown(desk: Path) -> None:
    """Any of them may be a password; what was written as a reference is shown as one."""
    (desk / "pin").write_text(CANARY)
    spy = {"command": ["sh", "words.sh", f"--key={CANARY}"], "options": {"pin": f"${{file:{desk}/pin}}"}}
    (desk / "tenure.yaml").write_text(yaml.safe_dump({"plugins": {"spy": spy}}))
    shown = ask(desk, "show", "spy")

    assert CANARY not in str([shown, ask(desk, "list")])
    assert shown["settings"] == {"command": ["sh", "**********", "**********"], "options": spy["options"]}


def test_verify_says_whether_a_plugin_can_be_used_here(desk: Path) -> None:
    """With an exit code for scripts."""
    assert ask(desk, "verify", "hello")[0]["methods"] == "run, collect"
    failed = tenure(desk, "plugin", "verify", "words")

    assert (failed.returncode, failed.stderr) == (1, "tenure: plugin words failed in verify: no token\n")


def test_a_plugin_is_run_here_for_debugging(desk: Path) -> None:
    """Any method, with a task of one's own, as far as one wants to see."""
    (desk / "task.json").write_text('{"task": {"who": "moon"}}')
    (desk / "words.json").write_text('{"secrets": {"token": "t"}, "task": {"words": "a b"}}')

    def lines(*arguments: str) -> list[Any]:
        done = tenure(desk, "plugin", "run", *arguments)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert lines("hello") == [{"state": "SUCCESS", "hello": "world"}]
    assert lines("hello", "--params", "task.json") == [{"state": "SUCCESS", "hello": "moon"}]
    assert lines("hello", "--method", "collect", "--limit", "3") == [0, 1, 2]
    assert lines("hello", "--method", "tasks") == [{}]
    assert [each["word"] for each in lines("words", "--params", "words.json")] == ["a", "b"]


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "hello", "--method", "verify"), 2, "has no method 'verify'; it has: run, collect"),
        (("run", "helo"), 78, "no plugin is called 'helo'; did you mean hello?"),
        (("run", "gone"), 78, "cannot be imported"),
        (("run", "hello", "--params", "none.json"), 2, "cannot be read: No such file"),
        (("run", "hello", "--params", "/dev/zero"), 2, "is larger than 8 MiB"),
        (("run", "hello", "--params", "hello.py"), 2, "must hold a JSON object of options, secrets, task"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(
    desk: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """And nothing is started."""
    done = tenure(desk, "plugin", *arguments)

    assert done.returncode == code
    assert said in done.stderr


def test_a_tree_refuses_a_plugin_that_cannot_be_imported(desk: Path) -> None:
    """With the line, before anything is started; and a schedule of a plugin that there is not."""
    done = tenure(desk, "run")
    assert done.returncode == 78
    assert "tenure.yaml:3: plugins.gone: plugin gone:Gone cannot be imported" in done.stderr

    text = (desk / "tenure.yaml").read_text().replace("  gone:\n    module: gone:Gone\n", "")
    schedule = "schedules:\n  s:\n    job: plugin.plan\n    every: 1h\n    args: {plugin: wrods}\n"
    (desk / "tenure.yaml").write_text(text + schedule)
    done = tenure(desk, "run")
    assert done.returncode == 78
    assert "schedules.s.args.plugin: no plugin is called 'wrods'; did you mean words?" in done.stderr


def test_a_configuration_is_validated_with_its_plugins(desk: Path) -> None:
    """All of it: a schedule of a plugin is as good as one of a job, beside any other mistake."""
    text = (desk / "tenure.yaml").read_text().replace("  gone:\n    module: gone:Gone\n", "")
    schedule = "schedules:\n  s:\n    job: plugin.plan\n    every: 1h\n    args: {plugin: words}\n"
    (desk / "tenure.yaml").write_text(text + schedule)
    assert tenure(desk, "config", "validate").returncode == 0

    (desk / "tenure.yaml").write_text(text + schedule + "web: {port: many}\n")
    done = tenure(desk, "config", "validate")
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "web.port" in done.stderr


def test_an_installed_distribution_brings_its_plugin(desk: Path) -> None:
    """By an entry point of the group `tenure.plugins`; the configuration only says with which options."""
    folder = desk / "acme_hello-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-hello\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[tenure.plugins]\nhello = hello:Hello\n")
    (desk / "tenure.yaml").write_text(f"plugins: {{hello: {{options: {{who: us}}, secrets: {{token: {CANARY}}}}}}}\n")

    (row,) = ask(desk, "list")
    assert (row["plugin"], row["origin"], row["version"]) == ("hello", "hello:Hello", "3")
    done = tenure(desk, "plugin", "run", "hello")
    assert json.loads(done.stdout) == {"state": "SUCCESS", "hello": "us"}
