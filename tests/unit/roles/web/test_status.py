"""What /statusz shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
from msgspec import structs

from supervisor.core.election.lease import NO_TERM
from supervisor.roles.child import ChildContext
from supervisor.roles.web.cluster_snapshot import Overview
from supervisor.roles.web.status import status, status_text


def test_the_text_is_one_screen_with_what_one_asks_first(
    make_child: Callable[..., ChildContext], overview: Overview
) -> None:
    """Who leads, which child is not well, where runs pile up, what comes next."""
    text = status_text(status(make_child(), overview))

    assert text.splitlines()[:2] == [
        "tenure 0.1.0   cluster c1   replica host.a1b2c3   2026-11-20T12:34:56.007Z",
        "phase ready   up 1h1m   leader this replica, epoch 7",
    ]
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["worker-io-0"] == ["worker-io-0", "running", "0", "1m5s", "0", "0.2s", "12", "3456"]
    assert rows["worker-cpu-0"] == ["worker-cpu-0", "backoff", "-", "-", "3", "-", "0", "0"]
    assert rows["default"] == ["default", "43", "12", "5", "1", "False", "async,", "sync"]
    assert rows["token-cleanup"] == ["token-cleanup", "2026-11-20T12:34:57.007Z"]


def test_without_redis_the_page_still_shows_the_children(make_child: Callable[..., ChildContext]) -> None:
    """An outage is when people look."""
    shown = status(make_child(), None)

    assert (shown["redis_up"], shown["queues"], shown["next_due"], shown["leader"]) == (False, None, None, None)
    assert "Redis does not answer" in status_text(shown)
    assert "worker-io-0" in status_text(shown)


def test_a_standby_names_the_leader(make_child: Callable[..., ChildContext], overview: Overview) -> None:
    """The next question is always: who, then?"""
    child = make_child()
    child.board.publish_term(NO_TERM)
    assert overview.leader is not None
    elsewhere = replace(overview, leader=structs.replace(overview.leader, holder="other.ffffff", epoch=9))

    shown = status(child, elsewhere)

    assert (shown["is_leader"], shown["trust_remaining_s"]) == (False, 0.0)
    assert "leader other.ffffff, epoch 9" in status_text(shown)
    assert "leader unknown" in status_text(status(child, None))


def test_a_queue_that_nobody_serves_is_shown(make_child: Callable[..., ChildContext], overview: Overview) -> None:
    """By the kinds of runs that live workers take; what Redis did not tell is neither yes nor no."""
    known, unknown = status(make_child(), overview), status(make_child(), replace(overview, served=None))

    assert [each["served"] for each in known["queues"]] == [["async", "sync"], []]
    assert [each["served"] for each in unknown["queues"]] == [None, None]
    lines = [
        line.split("  ")
        for shown in (known, unknown)
        for line in status_text(shown).splitlines()
        if line.startswith(("default", "shell"))
    ]
    assert [[word.strip() for word in line if word][6] for line in lines] == ["async, sync", "no", "-", "-"]


def test_everything_shown_is_json(make_child: Callable[..., ChildContext], overview: Overview) -> None:
    """People script against it."""
    shown = status(make_child(), overview)

    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown
