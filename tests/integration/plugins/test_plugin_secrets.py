"""Secrets that plugins tell of, in every place where a person or Redis would get to see them."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from supervisor.plugins.contract import PluginError, PluginUnusableError
from supervisor.plugins.redaction import Masker, mask_of
from supervisor.roles.worker.attempt.context import SoftTimeout
from supervisor.settings.sections.plugins import PluginSettings
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
        if options["how"] == "timeout":
            try:
                {}[key]
            except KeyError:
                raise SoftTimeout  # noqa: B904 - while it waits for its next try
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


@pytest.mark.parametrize("place", ["verify", "run"])
def test_a_soft_timeout_shows_no_secret_of_the_error_that_code_was_handling(desk: PluginCalls, place: str) -> None:
    """A plugin that waits for its next try is within ``except``; the record of its run holds the error behind, too."""
    desk.registry.register(CappedReports)
    desk.configure("telling", secrets={"key": KEY}, options={"how": "timeout", "in": place})

    with pytest.raises(SoftTimeout) as caught:
        desk.run("telling")
    assert CANARY not in "".join(traceback.format_exception(caught.value))


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


@pytest.mark.parametrize("value", ["true", "False", "null", "none"])
def test_a_switch_under_the_name_of_a_secret_is_none(value: str) -> None:
    """A program with ENABLE_AUTH=true has tasks that hold true."""
    settings = PluginSettings(command=("/bin/program", f"--auth={value}"), env={"ENABLE_AUTH": value})

    mask = mask_of(settings, {("env", "ENABLE_AUTH"): "${file:/switch}"})
    assert not mask.finds_in('{"full":true,"half":false,"of":null,"mode":"none"}')
    assert mask(f"got {value}") == f"got {value}"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${env:REGISTRY}/${file:/pw}", f"ghcr.io/org/{CANARY}"),
        ("${env:PROXY}:${file:/pw}@x", f"proxy:3128:{CANARY}@x"),
        ("${file:/pw}/${env:PLACE}", f"{CANARY}/a/b"),
    ],
)
def test_a_secret_beside_a_value_that_holds_what_parts_them_is_masked(written: str, value: str) -> None:
    """A word of a value that is made of several."""
    mask = mask_of(PluginSettings(command=("/bin/program",), env={"PLACE": value}), {("env", "PLACE"): written})

    assert mask(f"login with {CANARY} refused") == "login with *** refused"
    assert mask.finds_in(CANARY)


@pytest.mark.parametrize("written", [f"{CANARY}\n", f" {CANARY} ", f"{CANARY}\r\n"])
def test_a_secret_is_masked_as_programs_use_it_without_the_white_space_around_it(written: str) -> None:
    """A variable of a Kubernetes secret ends with the line end of the file that it was made from."""
    mask = mask_of(PluginSettings(command=("/bin/program",), secrets={"key": SecretStr(written)}), {})

    assert mask(f"login of app: {CANARY}") in {"login of app: ***", "login of app:***"}
    assert mask.finds_in(CANARY)


def test_a_literal_option_under_the_name_of_a_secret_is_masked_and_may_be_in_tasks() -> None:
    """`/configz` hides it too, wherever it stands; it may be a word of no secrecy."""
    options = {"password": CANARY, "accounts": [{"api_key": [f"{CANARY}-2"], "region": "eu-central-1"}]}
    mask = mask_of(PluginSettings(command=("/bin/program",), options=options), {})

    assert mask(f"{CANARY} of eu-central-1, {CANARY}-2") == "*** of eu-central-1, ***"
    words = {"auth": "basic", "secrets": ["db-main", "name"], "credentials": "default"}
    mask = mask_of(PluginSettings(command=("/bin/program",), options=words, env={"STAGE": "production\n"}), {})
    text = '{"auth":"basic","name":"default","secret":"db-main","stage":"production"}'
    assert mask("basic: production denied by default") == "basic: production denied by default"
    assert not mask.finds_in(text)


HELD = "held-7Qm2!xZ"
GIVEN: list[tuple[dict[str, Any], str]] = [
    ({"env": {"UNSHOWN": HELD}}, "${env:PW}"),
    ({"env": {"UNSHOWN": HELD}}, "${file:/pw}"),
    ({"env": {"UNSHOWN": HELD}}, ""),
    ({"more": (HELD,)}, ""),
    ({"more": (f"--db={HELD}",)}, ""),
    ({"more": ("--token", HELD)}, ""),
    ({"env": {"UNSHOWN": HELD, "URL": f"pg://app:{HELD}@db"}}, ""),
    ({"env": {"UNSHOWN": HELD}, "options": {"db": ["", f"app:{HELD}"]}}, ""),
]


@pytest.mark.share(4)
@pytest.mark.parametrize("fault", ["dies", "quotes", "counts"])
@pytest.mark.parametrize("given", range(len(GIVEN)))
def test_what_a_program_is_started_with_is_in_no_text(desk: PluginCalls, fault: str, given: int) -> None:
    """Most programs take their credentials from the environment, and name them when they are refused."""
    settings, written = GIVEN[given]
    desk.references = {("plugins", "faulty", "env", "UNSHOWN"): written} if written else {}
    desk.faulty(f"{fault} {'with ' if fault == 'dies' else ''}what it was started with", **settings)

    shown = ""
    try:
        shown = str(desk.run("faulty"))
    except PluginError as error:
        shown = str(error)
    assert "login of app with" in shown
    assert HELD not in shown + desk.record("faulty").reason


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("settings", "written"),
    [
        ({"env": {"UNSHOWN": HELD}}, {("env", "UNSHOWN"): "${file:/pw}"}),
        ({"env": {"UNSHOWN": HELD}}, {("env", "UNSHOWN"): "${env:DB_PASSWORD}"}),
        ({"env": {"UNSHOWN": HELD, "PGPASSWORD": HELD}}, {}),
        ({"env": {"UNSHOWN": HELD, "DB": f"pg://app:{HELD}@db"}}, {("env", "DB"): "pg://app:${file:/pw}@db"}),
        ({"env": {"UNSHOWN": HELD}, "options": {"db": ["x", f"{HELD}!"]}}, {("options", "db", 1): "${file:/pw}!"}),
        ({"more": ("--token", HELD)}, {}),
        ({"more": (f"--token={HELD}",), "env": {"UNSHOWN": HELD}}, {}),
        ({"more": (HELD,)}, {("command", 3): "${file:/pw}"}),
    ],
)
@pytest.mark.parametrize("fault", ["task with what it was started with", "fact with a secret"])
def test_a_secret_that_a_program_is_started_with_does_not_reach_redis(
    desk: PluginCalls, settings: dict[str, Any], written: dict[tuple[str | int, ...], str], fault: str
) -> None:
    """Neither as the argument of a run nor as what is known of the plugin."""
    desk.references = {("plugins", "faulty", *path): text for path, text in written.items()}
    desk.faulty(fault, **settings)
    context = desk.context()

    with pytest.raises(PluginUnusableError, match=r"a task holds a secret|returned a secret"):
        desk_plan(desk, context, "faulty")
    assert context.children is None
    assert HELD not in str(desk.record("faulty"))


def test_ordinary_words_that_a_program_is_started_with_stay_readable(desk: PluginCalls, tmp_path: Path) -> None:
    """A region may be in tasks; a level, a stage, an option and the program's own file are in many messages."""
    (script := tmp_path / "collect-1.py").touch()
    command = (sys.executable, str(script), "--with-states", "inventory", "-v2")
    env = {"AWS_REGION": "eu-central-1", "STAGE": "production", "LEVEL": "1", "LANG": "C.UTF-8"}
    desk.references = {("plugins", "plain", "env", "AWS_REGION"): "${env:AWS_REGION}"}
    desk.configure("plain", command=command, env=env, options={"only": ["eu-central-1"]})
    registered = desk.registry.get("plain")
    mask = mask_of(registered.settings, registered.references)

    text = f"{script}: inventory --with-states -v2 of production, C.UTF-8, 1"
    assert mask(text) == text
    assert not mask.finds_in('{"region":"eu-central-1"}')
    assert mask("no such region: eu-central-1") == "no such region: ***"
