"""``tenure events`` as a user types it, in this process, against a real server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from supervisor.core.events import Event
from supervisor.store.client.sync_client import Store
from tests.integration.cli.conftest import ClusterWithJobs

pytestmark = [pytest.mark.server]
YESTERDAY_MS = 1_700_000_000_000


def add(desk: ClusterWithJobs, reason: str, event_id: str = "*") -> None:
    event = Event(reason, "warning", "", "", 1, YESTERDAY_MS, YESTERDAY_MS, "r1", "agent", {})
    desk.world.raw.xadd(desk.world.keys.event_log, {"e": msgspec.json.encode(event)}, id=event_id)


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        (("--since", "1h"), ["new"]),
        (("--after", f"{YESTERDAY_MS}-2"), ["new"]),
        (("--count", "1"), ["old2"]),
        ((), ["old0"]),
    ],
)
def test_a_follower_begins_where_the_list_of_past_events_ends(
    desk: ClusterWithJobs, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], reasons: list[str]
) -> None:
    """Where none is as new as that, all that Redis keeps was shown as new, and a script with ``--limit 1`` ended."""
    for number in range(3):
        add(desk, f"old{number}", f"{YESTERDAY_MS}-{number}")
    listen = Store.listen

    def listen_to_a_new_one(store: Store, *arguments: Any) -> Any:
        add(desk, "new")
        return listen(store, *arguments)

    monkeypatch.setattr(Store, "listen", listen_to_a_new_one)
    shown = desk._invoke("events", "--follow", "--limit", str(len(reasons)), *options, "-o", "json")

    assert [json.loads(line)["reason"] for line in shown.out.splitlines()] == reasons, shown.err
