"""References in place of the token, and texts without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from supervisor.compat.cloudforet import config
from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.redaction import (
    REFERENCE,
    Hidden,
    TokenMissingError,
    masked,
    resolved,
    with_references,
)
from supervisor.settings.sections.cloudforet import CloudforetSettings
from supervisor.telemetry import masking
from tests.kit.canary import CANARY

TASK: dict[str, Any] = {
    "name": "t",
    "stages": [
        {
            "locator": "SERVICE",
            "name": "A",
            "method": "m",
            "metadata": {"token": CANARY, "x_domain_id": "domain-1"},
            "params": {"params": {"secret_data": {"key": "inner-s3cret", "port": 99123}, "id": "r-1"}},
        }
    ],
}


@pytest.fixture(autouse=True)
def _own_place() -> Iterator[None]:
    runtime.configure(CloudforetSettings(token=SecretStr(CANARY), config={"HOUR": 3}))
    yield
    runtime.configure(CloudforetSettings())


def test_the_token_travels_as_a_reference() -> None:
    """A queue payload never holds it; the worker that executes the task puts it back."""
    carried = with_references(TASK)

    assert carried["stages"][0]["metadata"]["token"] == REFERENCE
    assert resolved(carried) == TASK
    assert TASK["stages"][0]["metadata"]["token"] == CANARY


def test_a_reference_without_a_token_is_an_error_that_says_what_to_set() -> None:
    """A worker that was not given the token must not call a service without one."""
    carried = with_references(TASK)
    runtime.configure(CloudforetSettings())
    with pytest.raises(TokenMissingError, match=r"set cloudforet\.token"):
        resolved(carried)
    assert resolved({"stages": []}) == {"stages": []}


def test_texts_lose_the_secrets_of_their_task() -> None:
    """What an exception quotes of its parameters is not told; ids that help to find the fault are."""
    hidden = Hidden.of_task(TASK)
    text = hidden.scrub(f"cannot call domain-1 with {CANARY} and {{'key': 'inner-s3cret', 'port': 99123}} for r-1")

    assert CANARY not in text
    assert "99123" not in text
    assert "domain-1" in text
    assert "r-1" in text


def test_what_metadata_says_under_other_names_is_hidden_if_it_is_long() -> None:
    """A session id is; a word such as info would spoil every line."""
    stage = {"metadata": {"session": "s-1234567", "level": "info", "peer": "ipv4:10.0.0.1"}}
    text = Hidden.of_task({"stages": [stage]}).scrub("info: s-1234567 of ipv4:10.0.0.1")
    assert text == "info: *** of ipv4:10.0.0.1"


def test_secrets_are_found_however_many_there_are_and_however_deep() -> None:
    """A message may nest as far as its parser allows, and hold thousands of longer texts beside the token."""
    deep: Any = {"token": "s-1234567"}
    for _ in range(400):
        deep = [deep]
    many = {f"k{n}": f"a long text with number {n}" for n in range(5000)}
    hidden = Hidden.of_task({"stages": [{"metadata": {**many, "token": "short-1", "pin": 10203040}, "params": deep}]})
    assert hidden.scrub(f"s-1234567 short-1 {CANARY}") == "*** *** ***"
    assert hidden.scrubbed({"n": 10203040, "m": 7}) == {"n": "***", "m": 7}
    assert "s-1234567" not in str(masked({"stages": [deep]}))


def test_a_token_of_a_few_characters_is_a_word_within_texts() -> None:
    """A developer's ``token``: each task has a key of that name. The value itself still becomes a reference."""
    runtime.configure(CloudforetSettings(token=SecretStr("token")))
    task = {"metadata": {"token": "token", "note": "no token"}}
    assert with_references(task) == {"metadata": {"token": REFERENCE, "note": "no token"}}


def test_texts_lose_the_secrets_of_the_configuration() -> None:
    """A handler whose connector fails quotes what it was configured with."""
    config = {"CONNECTORS": {"Inventory": {"password": "pa55-of-inventory", "endpoint": "grpc://inventory"}}}
    runtime.configure(CloudforetSettings(config=config))
    text = "cannot log in at grpc://inventory with pa55-of-inventory"
    assert Hidden.of_settings().scrub(text) == "cannot log in at grpc://inventory with ***"
    assert Hidden.of_task(TASK).scrub(text) == "cannot log in at grpc://inventory with ***"


def test_values_lose_what_stands_under_secret_names() -> None:
    """The result of a stage may be what it was given."""
    shown = Hidden.of_task(TASK).scrubbed({"got": [CANARY], "password": "other", "n": 1, "note": f"x{CANARY}y"})
    assert shown == {"got": ["***"], "password": "***", "n": 1, "note": "x***y"}


def test_what_is_shown_of_a_task_has_no_metadata() -> None:
    """A rejected task is kept for inspection, and people look at it."""
    shown = masked(TASK)
    assert shown["stages"][0]["metadata"] == "***"
    assert shown["stages"][0]["params"]["params"] == {"secret_data": "***", "id": "r-1"}


def test_lines_of_the_log_lose_them_while_the_task_is_executed() -> None:
    """Service code logs its parameters as text, where no name says what they are."""
    line = f"[update] params {{'data': '{CANARY}'}}"
    with masking.hiding(Hidden.of_task(TASK).values):
        assert CANARY not in masking.mask_text(line)
    assert masking.mask_text(line) == line


def test_settings_show_neither_token_nor_other_values() -> None:
    """`tenure config show` and /configz print the section."""
    settings = CloudforetSettings(token=SecretStr(CANARY), config={"DATABASES": {"password": CANARY}})
    assert CANARY not in f"{settings!r} {settings.model_dump()} {settings.model_dump_json()}"


def test_services_read_their_configuration_as_before() -> None:
    """``config.get_global`` gives the token to code that asks for it, and copies of the rest."""
    assert config.get_global("TOKEN") == CANARY
    assert config.get_global("HOUR") == 3
    assert config.get_global("OTHER", 5) == 5
    assert config.get_global() == {"HOUR": 3, "TOKEN": CANARY}
