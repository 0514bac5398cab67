"""Effects of a changed configuration on a running tree: parts that follow it, and changes that need a restart.

Guarantees
    Every setting has exactly one effect, by ``EFFECTS``; a test walks all of them. A setting that
    cannot change in a running tree is a problem with its place and its remedy, never ignored.
    No value is shown, so no secret is.

Does not guarantee
    That the new configuration is good: the loader and schedules/complete.py have judged it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from supervisor.core.errors import Problem
from supervisor.settings.base import Section
from supervisor.settings.loader import Loaded
from supervisor.settings.sections.models import PoolSettings, Settings, WorkerKind

NAMED_MAX = 20
"""At most so many changed settings are told by name."""

_RESTART = "restart this replica; others go on meanwhile"


class Effect(Enum):
    """Effect of a change of one setting."""

    RESTART = auto()  # nothing in a running tree can follow
    SCHEDULES = auto()  # the scheduler compares the set anew, under the same term
    SCHEDULER = auto()  # the scheduler process is started afresh
    PARENT = auto()  # the parent judges children by it from now on
    POOLS = auto()  # every worker process is replaced, its successor first
    WEB = auto()  # the web child is started afresh, as after any reload
    LOG = auto()  # every process writes its log by it
    POOL = auto()  # one pool follows; see POOL_EFFECTS


class PoolEffect(Enum):
    """Effect of a change of one setting of a pool."""

    RESTART = auto()
    COUNT = auto()  # processes are started or retired
    ROLL = auto()  # its processes are replaced


EFFECTS = {
    "version": Effect.RESTART,
    "cluster": Effect.RESTART,
    "replica": Effect.RESTART,
    "data_dir": Effect.RESTART,
    "redis": Effect.RESTART,
    "election": Effect.RESTART,
    "workers": Effect.POOL,
    "workers_strict": Effect.PARENT,  # what reads a configuration asks it
    "jobs": Effect.POOLS,
    "plugins": Effect.POOLS,
    "profiles": Effect.POOLS,  # and what they change of schedules is compared with these
    "webhooks": Effect.POOLS,
    "calendars": Effect.WEB,  # which applies schedules by them; of those that are here the days are compared, too
    "schedules": Effect.SCHEDULES,
    "scheduler": Effect.SCHEDULER,
    "queues": Effect.RESTART,
    "supervision.grace": Effect.PARENT,
    "supervision.boot_timeout": Effect.PARENT,
    "supervision.backoff_max": Effect.PARENT,
    "supervision.stop_timeout": Effect.PARENT,
    "supervision.hang_timeout": Effect.POOLS,  # and the parent: workers keep their waits for Redis below it
    "web.host": Effect.RESTART,
    "web.socket_users": Effect.RESTART,
    "web.port": Effect.RESTART,
    "web.tokens_file": Effect.WEB,
    "web.reads": Effect.WEB,
    "web.allowed_hosts": Effect.WEB,
    "web.tls_cert_file": Effect.WEB,
    "web.tls_key_file": Effect.WEB,
    "web.tls_client_ca_file": Effect.WEB,
    "web.health_port": Effect.RESTART,
    "web.grpc_port": Effect.RESTART,
    "web.debug": Effect.WEB,
    "commands": Effect.RESTART,  # the agent, which is not replaced, obeys by it
    "shell": Effect.POOLS,
    "job_references": Effect.POOLS,
    "job_destinations": Effect.POOLS,
    "events.runs": Effect.POOLS,
    "events.kept": Effect.WEB,
    "events.webhook_url": Effect.WEB,
    "events.webhook_token": Effect.WEB,
    "events.webhook_secret": Effect.WEB,
    "events.webhook_level": Effect.WEB,
    "events.webhook_timeout": Effect.WEB,
    "features": Effect.RESTART,
    "metrics": Effect.RESTART,
    "log.level": Effect.LOG,
    "log.format": Effect.LOG,
    "log.file": Effect.RESTART,
    "log.runs": Effect.POOLS,
    "log.mask": Effect.LOG,
    "log.exclude": Effect.LOG,
    "cloudforet.packages": Effect.POOLS,
    "cloudforet.token": Effect.POOLS,
    "cloudforet.queues": Effect.RESTART,  # the agent fills queues from lists, and is not replaced
    "cloudforet.config": Effect.POOLS,
}
"""By setting, or by section where all of its settings have the same effect."""

POOL_EFFECTS = {
    "kind": PoolEffect.RESTART,
    "processes": PoolEffect.COUNT,
    "concurrency": PoolEffect.ROLL,
    "queues": PoolEffect.ROLL,
    "max_share": PoolEffect.ROLL,
    "prefetch": PoolEffect.ROLL,
    "recycle_runs": PoolEffect.ROLL,
    "recycle_growth_mib": PoolEffect.ROLL,
    "recycle_age": PoolEffect.ROLL,
}

Path = tuple[str, ...]


@dataclass(slots=True)
class ConfigDifference:
    """Difference between two configurations, and its effects."""

    changed: list[str] = field(default_factory=list)
    """Paths of what changed, in the order of the models."""

    problems: list[Problem] = field(default_factory=list)
    """What cannot change in a running tree."""

    effects: set[Effect] = field(default_factory=set)
    processes: dict[str, int] = field(default_factory=dict)
    """Pools whose number of processes changed, and to what."""

    rolled: set[str] = field(default_factory=set)
    """Pools whose processes are replaced."""


def compare(
    running: Settings,
    loaded: Loaded,
    *,
    has_other_schedules: bool,
    fits: Callable[[str, int], str],
    runs_at_once_max: int,
) -> ConfigDifference:
    """Return the effects of a reload of ``loaded`` on a tree that runs with ``running``.

    ``has_other_schedules``: the completed ones differ; a job's options change them too. ``fits`` returns why a pool may
    not have so many processes; each process of an async pool has room on the board for ``runs_at_once_max``.
    """
    found = ConfigDifference()
    wanted = loaded.settings
    for path in _changed(running, wanted):
        effect = EFFECTS.get(path[0]) or EFFECTS[".".join(path)]
        if effect is Effect.SCHEDULES:
            continue
        found.changed.append(".".join(path))
        if effect is Effect.RESTART:
            found.problems.append(_cannot(loaded, path, "cannot change while the tree runs"))
        elif effect is not Effect.POOL:
            found.effects.add(effect)
    if has_other_schedules:
        found.changed.append("schedules")
        found.effects.add(Effect.SCHEDULES)
    _compare_pools(found, running, loaded, fits=fits, runs_at_once_max=runs_at_once_max)
    if Effect.POOLS in found.effects:
        found.rolled.update(wanted.workers)
    return found


def _changed(running: Settings, wanted: Settings) -> Iterator[Path]:
    """Yield the path of each setting that differs, as people write it; sections one level deep."""
    for name, info in Settings.model_fields.items():
        before, after = getattr(running, name), getattr(wanted, name)
        if before == after:
            continue
        if not isinstance(after, Section):
            yield (name,)
            continue
        assert isinstance(after, type(before)), info
        for key in type(after).model_fields:
            if getattr(before, key) != getattr(after, key):
                yield name, key.removesuffix("_s")


def _compare_pools(
    found: ConfigDifference,
    running: Settings,
    loaded: Loaded,
    *,
    fits: Callable[[str, int], str],
    runs_at_once_max: int,
) -> None:
    before, after = running.workers, loaded.settings.workers
    if "workers" in found.changed:
        found.changed.remove("workers")
    for name in sorted(before.keys() ^ after.keys()):
        found.changed.append(f"workers.{name}")
        what = "a new pool has no rows on the board" if name in after else "a pool cannot be taken away"
        found.problems.append(_cannot(loaded, ("workers", name), f"{what} while the tree runs"))
    for name, pool in after.items():
        if name in before and before[name] != pool:
            _compare_pool(found, name, before[name], loaded, fits=fits)
            if pool.kind is WorkerKind.ASYNC and pool.concurrency > runs_at_once_max:
                message = f"is more than the {runs_at_once_max} for which the running tree has room"
                found.problems.append(_cannot(loaded, ("workers", name, "concurrency"), message))


def _compare_pool(
    found: ConfigDifference, name: str, before: PoolSettings, loaded: Loaded, *, fits: Callable[[str, int], str]
) -> None:
    after = loaded.settings.workers[name]
    for attribute in PoolSettings.model_fields:
        if getattr(before, attribute) == getattr(after, attribute):
            continue
        key = attribute.removesuffix("_s")
        path = ("workers", name, key)
        found.changed.append(".".join(path))
        match POOL_EFFECTS[key]:
            case PoolEffect.RESTART:
                found.problems.append(_cannot(loaded, path, "cannot change while the tree runs"))
            case PoolEffect.COUNT if refusal := fits(name, after.processes):
                found.problems.append(_cannot(loaded, path, refusal))
            case PoolEffect.COUNT:
                found.processes[name] = after.processes
            case PoolEffect.ROLL:
                found.rolled.add(name)


def _cannot(loaded: Loaded, path: Path, message: str) -> Problem:
    return Problem(loaded.origin(*path), ".".join(path), message, _RESTART)


def named(changed: list[str]) -> list[str]:
    """Return a summary of many changes: the first of them, and how many more there are."""
    more = len(changed) - NAMED_MAX
    return changed if more <= 0 else [*changed[:NAMED_MAX], f"and {more} more"]
