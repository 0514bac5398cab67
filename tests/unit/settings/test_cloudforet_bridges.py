"""Bridges to SpaceONE's lists: what could not work is refused where it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor.settings.sections.cloudforet import Bridge, CloudforetSettings

Problems = Callable[[str], list[str]]

JOBS = "jobs: [supervisor.compat.cloudforet.jobs]\n"


def queues(text: str) -> str:
    """Return a configuration with these queues."""
    return f"{JOBS}cloudforet: {{queues: {{{text}}}}}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "redis: {url: 'redis+cluster://a:6379'}\n" + queues("q: {bridge: ingest}"),
            "cloudforet.queues.q.bridge: ingest is impossible in a Redis Cluster",
        ),
        (
            "cloudforet: {queues: {q: {bridge: emit}}}\n",
            "cloudforet.queues.q.bridge: emit needs the jobs of supervisor.compat.cloudforet.jobs; list it under jobs",
        ),
        (
            queues("a: {channel: c, bridge: ingest}, b: {channel: c, bridge: emit}"),
            "cloudforet.queues.b.bridge: has the list 'c' of queue a; give each its own channel",
        ),
        (
            queues("q: {channel: '{tenure:default}:lease', bridge: ingest}"),
            "cloudforet.queues.q.bridge: has the list '{tenure:default}:lease', which is a key of ours",
        ),
        (queues("q: {bridge: both}"), "cloudforet.queues.q.bridge: "),
    ],
)
def test_a_bridge_that_could_not_work_is_refused(text: str, problem: str, problems_of: Problems) -> None:
    """With its place, why, and what to do; nothing is started."""
    found = problems_of(text)
    assert any(problem in each for each in found), found


def test_a_queue_without_a_word_has_no_bridge_and_its_own_name(desk: Any) -> None:
    """What is not listed is a queue like any other."""
    desk.add(queues("a: {channel: theirs, bridge: ingest}, b: {}, c: {bridge: emit}"))
    found: CloudforetSettings = desk.load().settings.cloudforet
    assert found.ingested() == {"a": "theirs"}
    assert [found.bridge_of(name) for name in "abcd"] == [Bridge.INGEST, Bridge.NONE, Bridge.EMIT, Bridge.NONE]
    assert [found.channel_of(name) for name in "abd"] == ["theirs", "b", "d"]
