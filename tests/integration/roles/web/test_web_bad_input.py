"""Input that the API cannot use: told to the client as its mistake."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.roles.web.api.routes import PATH
from tests.integration.roles.web.api_client import ask

TOO_LARGE = "99999999999999999999"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("schedules/team/nightly/trigger", {"key": "k" * 400}), ("schedules/team/nightly/trigger", {"key": "a/b:c@d!e"}),
        ("runs/r-1/cancel", {"queue": "{}"}), ("runs/r-1/cancel", {"queue": "a:b"}), ("runs/%00/cancel", {}),
        ("jobs/mail.send/runs", {"run_id": "a b"}), ("jobs/mail.send/runs", {"queue": "../x"}),
        (f"schedules?cursor={TOO_LARGE}", None), ("schedules?cursor=-1", None), (f"events?after={TOO_LARGE}-9", None),
        ("schedules?limit=00000025099", None), ("jobs?limit=00000025099", None), ("events?limit=000000100099", None),
        (f"events?limit=000000001{'0' * 5000}", None), ("schedules?limit=0", None),
    ],
)  # fmt: skip
def test_names_that_cannot_be_used_are_bad_requests(api: Any, path: str, body: Any) -> None:
    """A client's mistake is told to the client, and is no error of the program."""
    code, _ = ask(api, "GET" if body is None else "POST", f"{PATH}/{path}", "driver", body)

    assert code == 400
    assert "request_failed" not in api.log.read_text()
