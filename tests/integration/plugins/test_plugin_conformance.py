"""The kit for authors, on plugins that keep to the contract, in three languages, and on some that do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.testing import plugin_conformance
from supervisor.testing.plugins import CHECKS
from tenure import Plugin

PLUGINS = Path(__file__).resolve().parents[2] / "data/plugins"


class Greet(Plugin):
    """A plugin as an author would write it."""

    name = "greet"
    version = "1.0"
    methods = ("shout",)

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"languages": options["languages"]}

    def verify(self, options: dict[str, Any], secrets: dict[str, str]) -> None:
        if secrets.get("token") != "good":
            raise PermissionError("the token is not accepted")

    def tasks(self, options: dict[str, Any], secrets: dict[str, str]) -> Iterator[dict[str, Any]]:
        yield from ({"language": language} for language in options["languages"])

    def run(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"state": "SUCCESS", "said": task["language"]}
        yield {"state": "FAILURE", "message": "nobody listened"}

    def shout(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> dict[str, Any]:
        return {"said": task["language"].upper()}


test_a_class = plugin_conformance(
    Greet, options={"languages": ["de", "en"]}, secrets={"token": "good"}, bad_secrets={"token": "outworn"}
)
test_a_program_in_the_shell = pytest.mark.share(3)(
    plugin_conformance(command=["sh", str(PLUGINS / "words.sh")], secrets={"token": "t"}, bad_secrets={})
)
test_a_program_in_perl = pytest.mark.share(3)(
    plugin_conformance(command=["perl", str(PLUGINS / "numbers.pl")], secrets={"key": "k"}, bad_secrets={"key": ""})
)


class Careless(Greet):
    """Breaks one promise at a time."""

    name = "careless"
    said = 0

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        Careless.said += 1
        return {"said": Careless.said if options["fault"] == "init" else 0}

    def verify(self, options: dict[str, Any], secrets: dict[str, str]) -> None:
        if options["fault"] != "verify":
            super().verify(options, secrets)

    def tasks(self, options: dict[str, Any], secrets: dict[str, str]) -> Iterator[Any]:
        yield "a text" if options["fault"] == "tasks" else {"language": "de"}

    def run(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> Iterator[Any]:
        yield {"state": "DONE" if options["fault"] == "state" else "SUCCESS"}


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("init", "init_is_repeatable"),
        ("verify", "verify_refuses_bad_secrets"),
        ("tasks", "tasks_are_mappings"),
        ("state", "methods_give_results"),
    ],
)
def test_the_kit_finds_what_a_careless_plugin_does_wrong(fault: str, check: str) -> None:
    """A kit that everything passes would prove nothing."""
    test = plugin_conformance(
        Careless,
        options={"fault": fault, "languages": []},
        secrets={"token": "good"},
        bad_secrets={"token": "bad"},
        methods=["run"],
    )
    failing = [each.__name__.lstrip("_") for each in CHECKS if not _passes(test, each)]

    assert check in failing


def _passes(test: Callable[..., None], check: Callable[..., None]) -> bool:
    try:
        test(check)
    except (AssertionError, TypeError, pytest.fail.Exception):
        return False
    return True


def test_the_kit_finds_a_program_that_stays_behind(tmp_path: Path) -> None:
    """One that ignores every request to end is killed with its group, so the check passes; one that garbles does not."""
    program = tmp_path / "garbles.py"
    program.write_text('import sys\nfor line in sys.stdin:\n    print("no message", flush=True)\n')
    test = plugin_conformance(command=[sys.executable, str(program)])

    assert not any(_passes_all(test, check) for check in CHECKS[:2])


def _passes_all(test: Callable[..., None], check: Callable[..., None]) -> bool:
    try:
        test(check)
    except Exception:  # noqa: BLE001 - whatever the kit raises, it found something
        return False
    return True
