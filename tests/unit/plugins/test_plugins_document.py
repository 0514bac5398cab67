"""docs/plugins.md: its examples are plugins, and its protocol is the one that is spoken."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from supervisor.plugins.contract import callable_methods, check_class
from supervisor.plugins.protocol import Done, Failed, Item, read_hello, read_line, request
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.plugins import PluginSettings

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs/plugins.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)


def run_block(number: int) -> dict[str, Any]:
    """Return what one example defines."""
    scope: dict[str, Any] = {"__name__": "example"}
    exec(BLOCKS[number], scope)  # our own document
    return scope


def test_the_class_of_the_document_is_a_plugin() -> None:
    """It can be registered, split into tasks, and run."""
    kind = check_class(run_block(0)["AwsEc2"])
    plugin = kind()
    (task,) = plugin.tasks({"regions": ["eu-1"]}, {})

    assert callable_methods(kind) == ("run", "terminate")
    assert [each["state"] for each in plugin.run({}, {}, task)] == ["SUCCESS", "FAILURE"]


def test_the_kit_of_the_document_passes_its_own_plugin() -> None:
    """What somebody copies first must work."""
    test = run_block(1)["test_hello"]
    (mark,) = test.pytestmark
    for check in mark.args[1]:
        test(check)


def test_the_protocol_of_the_document_is_the_one_that_is_spoken() -> None:
    """Each request is what a host writes, each answer is read as the text says."""
    table = DOCUMENT[DOCUMENT.index("| request |") : DOCUMENT.index("- A request is one line")]
    messages = [json.loads(text.replace("…", "")) for text in re.findall(r"`(\{\"id\".*?\})`", table)]
    requests = [each for each in messages if "method" in each]
    answers = [read_line(json.dumps(each).encode(), expected=each["id"]) for each in messages if "method" not in each]

    for each in requests:
        line = request(each["id"], each["method"], each["params"]).decode().rstrip("\n")
        assert line.replace("{}", "{…}") in table
    assert [each["method"] for each in requests] == ["hello", "init", "verify", "tasks", "run"]
    assert {type(each) for each in answers} == {Item, Done, Failed}
    first = answers[0]
    assert isinstance(first, Done)
    assert read_hello(first.value).methods == ["run", "terminate"]


def test_the_defaults_that_the_document_names_are_those_of_the_settings() -> None:
    """Numbers in prose are forgotten first."""
    settings = PluginSettings()

    assert (settings.idle_stop_s, settings.fail_after, settings.retry_after_s) == (300, 3, 60)
    assert (settings.init_timeout_s, settings.start_timeout_s, settings.line_kib_max) == (30, 10, 1024)
    for text in (
        "`idle_stop` (5m",
        "3 by default",
        "`retry_after` (1m)",
        "30 s each (`init_timeout`)",
        "10 s (`start_timeout`)",
    ):
        assert text in " ".join(DOCUMENT.split()), text
    for name in PluginSettings.model_fields:
        key = name.removesuffix("_s")
        assert f"{key}" in DOCUMENT, f"docs/plugins.md does not tell of {key}"
    assert Settings().plugins == {}
