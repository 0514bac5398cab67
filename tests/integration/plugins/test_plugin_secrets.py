"""Secrets that plugins tell of, in every place where a person or Redis would get to see them."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import pytest

from supervisor.plugins.contract import PluginError, PluginUnusableError
from supervisor.plugins.redaction import Masker
from tenure import Plugin
from tests.integration.plugins.conftest import PluginCalls
from tests.integration.plugins.test_plugin_faults import desk_plan
from tests.kit.canary import CANARY

KEY = f'-----BEGIN KEY-----\nMII"{CANARY}\\x1\n{CANARY}-ü\n-----END KEY-----\n'


@pytest.mark.share(4)
@pytest.mark.parametrize("fault", ["tells its request", "echoes its request", "long refusal", "repeats its secret"])
@pytest.mark.parametrize("secret", [KEY, f"short-{CANARY}"])
def test_a_program_that_tells_its_secrets_shows_none(desk: PluginCalls, fault: str, secret: str) -> None:
    """A key of several lines, with quotes, as it is or as JSON: neither whole nor cut in two."""
    desk.faulty(fault, secrets={"key": secret})

    with pytest.raises(PluginUnusableError) as caught:
        desk.run("faulty")
    shown = str(caught.value) + desk.record("faulty").reason
    assert "verify" in shown or "no message" in shown
    for part in (CANARY, CANARY[:8], CANARY[-8:], "short-", "MII"):
        assert part not in shown


@pytest.mark.parametrize("secret", [KEY, f"short-{CANARY}"])
def test_a_task_that_holds_a_secret_is_refused_however_it_is_written(desk: PluginCalls, secret: str) -> None:
    """It would lie in Redis, in the arguments of a run."""
    desk.faulty("task with a secret", secrets={"key": secret})
    context = desk.context()

    with pytest.raises(PluginUnusableError, match="a task holds a secret"):
        desk_plan(desk, context, "faulty")
    assert context.children is None


class SpeechlessError(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError(self.args[0])


class CappedReports(Plugin):
    """A class that tells its secret in errors of all kinds."""

    name = "telling"

    def verify(self, options: dict[str, Any], secrets: dict[str, str]) -> None:
        if options.get("in") == "verify":
            self.run(options, secrets, {})

    def run(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> None:
        """Fail because of the secret."""
        key = secrets["key"]
        if options["how"] == "cause":
            try:
                {}[key]
            except KeyError as error:
                raise RuntimeError("not found") from error
        if options["how"] == "note":
            noted = ValueError("not found")
            noted.add_note(key)
            raise noted
        if options["how"] == "several":
            raise ExceptionGroup("not found", [ValueError(key)])
        if options["how"] == "speechless":
            raise SpeechlessError(key)
        sys.exit(f"no such key: {key}")


@pytest.mark.share(2)
@pytest.mark.parametrize("place", ["verify", "run"])
@pytest.mark.parametrize("how", ["cause", "note", "several", "speechless", "exit"])
def test_no_error_of_a_class_shows_a_secret(desk: PluginCalls, how: str, place: str) -> None:
    """The record of a failed run holds the whole traceback, with notes and causes; and it is the plugin's failure."""
    desk.registry.register(CappedReports)
    desk.configure("telling", secrets={"key": KEY}, options={"how": how, "in": place})

    with pytest.raises(PluginError) as caught:
        desk.run("telling")
    record = desk.record("telling")
    assert record.failures == 1
    for text in (record.reason, *traceback.format_exception(caught.value)):
        assert CANARY not in text


def test_a_program_that_ended_is_not_waited_for_while_another_holds_its_pipes(desk: PluginCalls) -> None:
    """What left its group may live for ever; the run fails when the program ends, not at its own timeout."""
    desk.faulty("leaves a child")

    with pytest.raises(PluginError, match="exited with 3; its last words: out of luck"):
        desk.run("faulty")


def test_a_masker_keeps_what_is_no_secret() -> None:
    """Short words, and lines of a key that mean nothing, would blank out half of any text."""
    mask = Masker(["abc", f"one\n{CANARY}\nsix"])

    assert mask(f"abc one six {CANARY} {{}}") == "abc one six *** {}"
    assert set(mask.end_of(CANARY[4:] + "." * 200)) == {"."}
    assert Masker().end_of("nothing") == "nothing"
