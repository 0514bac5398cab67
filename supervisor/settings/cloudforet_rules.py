"""What must hold between ``cloudforet`` and the other settings."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.settings.cloudforet_settings import Bridge
from supervisor.settings.models import Settings
from supervisor.settings.violation import Violation

JOBS_MODULE = "supervisor.compat.cloudforet.jobs"


def bridge_violations(settings: Settings) -> Iterator[Violation]:
    """Yield why a bridge could not work."""
    is_cluster = "+cluster://" in settings.redis.url.get_secret_value()
    lists: dict[str, str] = {}
    for name, queue in settings.cloudforet.queues.items():
        if queue.bridge is Bridge.NONE:
            continue
        path = ("cloudforet", "queues", name, "bridge")
        if is_cluster:
            yield Violation(
                (path, ("redis", "url")),
                f"{queue.bridge.value} is impossible in a Redis Cluster: their list and our keys have other slots",
                "use a Redis of its own for the migration, or remove the bridge",
            )
        if JOBS_MODULE not in settings.jobs:
            yield Violation((path,), f"{queue.bridge.value} needs the jobs of {JOBS_MODULE}", "list it under jobs")
        channel = settings.cloudforet.channel_of(name)
        if channel in lists:
            yield Violation((path,), f"has the list {channel!r} of queue {lists[channel]}", "give each its own channel")
        lists[channel] = name
        if channel.startswith("{tenure:"):
            yield Violation((path,), f"has the list {channel!r}, which is a key of ours", "name SpaceONE's list")
