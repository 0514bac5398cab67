"""docs/log-schema.json says which fields a line of the log has."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from supervisor.telemetry.log_lines.schema import LogLine, schema
from supervisor.telemetry.logs import bind_run, configure

pytestmark = pytest.mark.usefixtures("logging_restored")
ROOT = Path(__file__).parents[3]


def test_the_schema_is_the_one_that_is_checked_in() -> None:
    """docs/log-schema.json is what programs that read the log are made from."""
    assert json.loads((ROOT / "docs/log-schema.json").read_text(encoding="utf-8")) == schema()


def test_every_kind_of_line_is_as_the_schema_says() -> None:
    """With a run, with an exception, of a library, too long."""
    out = io.StringIO()
    configure(level="debug", format="json", cluster="c", replica="r.1", role="worker-io-0", stream=out)
    log = structlog.get_logger()

    with bind_run(run="nightly@1", job="shell.command", schedule="nightly", attempt=2):
        log.info("inside", sum=5)
        logging.getLogger("library").error("failed %d times", 3, exc_info=ValueError("why"))
    log.debug("long", text={str(number): "x" * 500 for number in range(50)})

    lines = [msgspec.json.decode(line, type=LogLine) for line in out.getvalue().splitlines()]
    inside, library, long = lines
    assert (inside.run, inside.job, inside.schedule, inside.attempt) == ("nightly@1", "shell.command", "nightly", 2)
    assert (library.logger, library.exception, library.trace) == ("library", "ValueError: why", [])
    assert long.cut is True


@pytest.mark.parametrize("change", [{"level": "loud"}, {"pid": "7"}, {"ts": "now"}, {"role": "Web child"}, {"run": 7}])
def test_another_line_is_refused(change: dict[str, Any]) -> None:
    """The schema says something."""
    whole = {"ts": "2026-11-20T12:34:56.007Z", "level": "info", "event": "e", "cluster": "c", "replica": "r",
             "role": "web", "pid": 7}  # fmt: skip
    msgspec.json.decode(msgspec.json.encode(whole), type=LogLine)

    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(whole | change), type=LogLine)
