"""Rules between ``cloudforet`` and the other settings."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from supervisor.settings.sections.cloudforet import Bridge
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.violation import Violation

JOBS_MODULE = "supervisor.compat.cloudforet.jobs"
_NO_SERVICE = sys.stdlib_module_names | {"supervisor", "tenure", "jobs"}
_NO_SERVICE |= {"pip", "setuptools", "pkg_resources", "wheel", "uv"}


def package_violations(settings: Settings) -> Iterator[Violation]:
    """Yield packages that are no service's: those of Python or its tools are not there to be called."""
    for index, package in enumerate(settings.cloudforet.packages):
        if package.partition(".")[0] in _NO_SERVICE:
            yield Violation(
                (("cloudforet", "packages", index),),
                f"{package} is no package of a service, and a run may call what lies in these packages",
                "name the service's own package, e.g. spaceone.identity; in Cloudforet's files: packages: [NAME]",
            )


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
