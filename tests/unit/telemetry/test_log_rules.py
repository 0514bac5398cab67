"""What a log leaves out because its settings say so."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from supervisor.core.errors import ConfigError
from supervisor.settings.loader import load
from supervisor.telemetry.logs import LogRules, bind_run, configure, retune

pytestmark = pytest.mark.usefixtures("logging_restored")

Read = Callable[[], list[dict[str, Any]]]


def start(**rules: Any) -> tuple[Any, Read]:
    """Configure with these rules; return a logger, and what reads its lines."""
    out = io.StringIO()
    made = LogRules.of(mask=rules.get("mask", {}), exclude=rules.get("exclude", ()))
    configure(level="info", format="json", cluster="c", replica="r", role="web", stream=out, rules=made)
    return structlog.get_logger(), lambda: [json.loads(line) for line in out.getvalue().splitlines()]


def test_names_are_masked_on_the_lines_of_their_job_alone() -> None:
    """A field, and what lies in one at any depth, also of what a library logs inside the run."""
    log, read = start(mask={"mail.send": ["to", "iban"]})

    with bind_run(run="1", job="mail.send"):
        log.info("sent", to="a@b.c", args={"list": [{"iban": "DE1", "sum": 5}]}, to_count=2, nothing=None)
    with bind_run(run="2", job="mail.read"):
        log.info("read", to="a@b.c")
    log.info("outside", to="a@b.c")

    sent, other, outside = read()
    assert (sent["to"], sent["args"], sent["to_count"]) == ("***", {"list": [{"iban": "***", "sum": 5}]}, 2)
    assert (sent["run"], sent["job"]) == ("1", "mail.send")
    assert (other["to"], outside["to"]) == ("a@b.c", "a@b.c")


def test_a_star_holds_everywhere_and_beside_the_rules_of_a_job() -> None:
    """On lines outside of runs too; what is masked anyway stays masked."""
    log, read = start(mask={"*": ["to"], "mail.send": ["iban"]})

    log.info("outside", to="x", iban="y", password="z")
    with bind_run(run="1", job="mail.send"):
        log.info("inside", to="x", iban="y")

    outside, inside = read()
    assert (outside["to"], outside["iban"], outside["password"]) == ("***", "y", "***")
    assert (inside["to"], inside["iban"]) == ("***", "***")


def test_lines_of_excluded_events_are_not_written_but_errors_are() -> None:
    """Whoever silences an event still hears of its failure."""
    log, read = start(exclude=["noise", "from a library"])

    log.info("noise", n=1)
    log.warning("noise", n=2)
    logging.getLogger("library").warning("from a library")
    log.info("other")
    log.error("noise", n=3)
    log.critical("noise", n=4)

    assert [(each["event"], each.get("n")) for each in read()] == [("other", None), ("noise", 3), ("noise", 4)]


def test_rules_follow_a_reload() -> None:
    """With the next line, and away again."""
    log, read = start()

    log.info("said", to="x")
    retune(level="info", format="json", rules=LogRules.of(mask={"*": ["to"]}, exclude=["gone"]))
    log.info("gone")
    log.info("said", to="x")
    retune(level="info", format="json")
    log.info("said", to="x")

    assert [each["to"] for each in read()] == ["x", "***", "x"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("log: {mask: [to]}", "log.mask"),
        ("log: {mask: {'a b': [to]}}", "log.mask"),
        ("log: {mask: {mail.send: to}}", "log.mask"),
        ("log: {mask: {'mail.*': [to]}}", "log.mask"),
        ("log: {exclude: noise}", "log.exclude"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(tmp_path: Path, text: str, path: str) -> None:
    """With their place, so that nobody believes in a rule that holds nowhere."""
    file = tmp_path / "t.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load(files=[file], environ={}, flags={})

    assert f"{file}:1: {path}" in str(caught.value)
