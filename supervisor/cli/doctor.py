"""``tenure doctor``: everything around the tree that can be wrong, each line with its remedy."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import output_option, print_rows
from supervisor.clock import SystemClock
from supervisor.core.errors import EXIT_NO, CannotBindError, TenureError
from supervisor.process.system.linux import DESCRIPTORS_MIN, descriptors_short
from supervisor.process.system.unix_listening import is_stale
from supervisor.settings.base import split
from supervisor.settings.rules.redis_exposure import exposures
from supervisor.settings.schedules.calendars import ending_notes
from supervisor.settings.sections.models import Settings
from supervisor.trust import distrust_path

if TYPE_CHECKING:
    from supervisor.operations.leader import CandidateInfo, LeaseView
    from supervisor.operations.queues import Served, UnservedQueue

CLOCK_SKEW_MS_MAX = 500
UNSERVED_SHOWN = 10
CLUSTERS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    seen: str
    remedy: str = ""  # what to do; empty: nothing is wrong
    is_warning: bool = False  # nothing that keeps a tree from working

    @property
    def is_ok(self) -> bool:
        """True if there is nothing that must be done."""
        return not self.remedy or self.is_warning

    @property
    def state(self) -> str:
        """The same for people."""
        return "FAIL" if not self.is_ok else "warn" if self.remedy else "ok"


@click.command(cls=SectionedCommand)
@config_options
@click.option("--producer", is_flag=True, help="Check what a program that enqueues needs: Redis, replicas, queues.")
@output_option
def doctor(*, producer: bool, load_settings: LoadSettings) -> int:
    """Check environment, permissions, port, Redis, clock and imports. Exits with 3 if anything is wrong.

    \b
    Examples:
      tenure doctor --config /etc/tenure
      tenure doctor --producer
    """
    settings = load_settings().settings
    found = list(examine_producer(settings) if producer else examine(settings, settings.jobs))
    rows = [{"check": each.check, "state": each.state, "seen": each.seen, "remedy": each.remedy} for each in found]
    print_rows(rows, columns=("check", "state", "seen", "remedy"), empty="nothing was checked")
    return 0 if all(each.is_ok for each in found) else EXIT_NO


def examine(settings: Settings, modules: tuple[str, ...]) -> Iterator[Finding]:
    """Yield every finding, good or bad."""
    yield Finding("python", platform.python_version())
    yield _linux()
    yield _import_clash()
    yield _descriptors()
    yield _timezones()
    yield data_directory(Path(settings.data_dir))
    yield _port(settings)
    yield _jobs(modules)
    for note in ending_notes(settings.calendars, now_ms=SystemClock().wall_ms()):
        yield Finding("calendars", *split(note), is_warning=True)
    yield from _classes(settings)
    for found in exposures(settings.redis):
        yield Finding("redis security", found.seen, found.remedy, is_warning=True)
    yield from _redis(settings)


def examine_producer(settings: Settings) -> Iterator[Finding]:
    """Yield what keeps a program that enqueues from being served."""
    from supervisor.cli.connection import connected
    from supervisor.operations import queues
    from supervisor.store.client.preflight import known_clusters

    try:
        with connected(settings) as connection:
            connection.store.ping()
            yield Finding("redis", f"{connection.store.where} answers")
            served = connection.ask(queues.served, "default")
            yield replicas_of(settings.cluster, served, known_clusters(connection.store))
            yield unserved_queues(connection.ask(queues.unserved))
    except TenureError as error:
        yield _unreachable(error)


def replicas_of(cluster: str, served: Served, known: Sequence[str]) -> Finding:
    """Find a cluster without replicas, and its probable name."""
    from supervisor.operations.queues import Served

    if served is not Served.NO_CLUSTER:
        return Finding("cluster", f"{cluster} has, or had, replicas")
    others = sorted(set(known) - {cluster})
    holds = f"; the database holds {', '.join(others[:CLUSTERS_SHOWN])}" if others else ""
    remedy = "correct `cluster` (TENURE_CONFIG, TENURE_CLUSTER), or start a replica of it: tenure run"
    return Finding("cluster", f"no replica of {cluster} was ever seen{holds}", remedy)


def _linux() -> Finding:
    is_ok = sys.platform == "linux" and hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")
    seen = f"{platform.system()} {platform.release()}"
    return Finding("kernel", seen, "" if is_ok else "Tenure needs Linux 5.3 or newer: memfd, pidfd, PDEATHSIG")


def _import_clash() -> Finding:
    """PyPI's supervisord installs a package of the same import name."""
    try:
        version = importlib.metadata.version("supervisor")
    except importlib.metadata.PackageNotFoundError:
        return Finding("import name", "package `supervisor` is Tenure's")
    remedy = "pip uninstall supervisor, then reinstall tenure, or give supervisord an environment of its own"
    return Finding("import name", f"supervisord {version} shares this environment", remedy)


def _descriptors() -> Finding:
    short = descriptors_short()
    if short is None:
        return Finding("open files", f"limit {DESCRIPTORS_MIN} or more")
    return Finding("open files", f"limit {short}", f"raise it: ulimit -n {DESCRIPTORS_MIN}")


def _timezones() -> Finding:
    import zoneinfo

    count = len(zoneinfo.available_timezones())
    return Finding("time zones", f"{count} known", "" if count else "pip install tzdata")


def data_directory(path: Path) -> Finding:
    """Judge the data directory as a start does; where it is not there yet, the one that it will be made in."""
    remedy = f"make it a directory that uid {os.geteuid()} alone may write to, or set data_dir (TENURE_DATA_DIR)"
    places = (path.absolute(), *path.absolute().parents)
    try:
        nearest = next(place for place in places if _is_there(place))
        why = distrust_path(nearest) if nearest == places[0] else ""
    except OSError as error:
        return Finding("data directory", f"{path}: {error.strerror}", remedy)
    if not nearest.is_dir():
        why = f"{nearest} is no directory"
    elif not why and not os.access(nearest, os.W_OK | os.X_OK):
        why = f"uid {os.geteuid()} may not write to {nearest}"
    if why:
        return Finding("data directory", f"{path}: {why}", remedy)
    return Finding("data directory", f"{path} ({'exists' if nearest == places[0] else 'will be made'})")


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _port(settings: Settings) -> Finding:
    if settings.web.socket_path is not None:
        return _socket(settings.web.socket_path)
    address = f"{settings.web.host}:{settings.web.port}"
    try:
        family = socket.getaddrinfo(settings.web.host, settings.web.port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((settings.web.host, settings.web.port), family=family).close()
    except OSError as error:
        remedy = "fine if a tree runs here; else stop what uses it, or set web.port"
        return Finding("http port", f"{address}: {error.strerror or error}", remedy)
    return Finding("http port", f"{address} is free")


def _socket(path: Path) -> Finding:
    try:
        left = "left by a tree that died, and replaced at the next start" if is_stale(path) else "is free"
    except CannotBindError as error:
        seen, _, remedy = str(error).rpartition("; ")
        return Finding("http socket", seen, f"fine if a tree runs here; else {remedy}")
    return Finding("http socket", f"{path} {left}")


def _jobs(modules: tuple[str, ...]) -> Finding:
    from supervisor.settings.schedules.complete import import_jobs

    problems = import_jobs(modules)
    if problems:
        text = "; ".join(problem.message for problem in problems)
        return Finding("jobs", text, problems[0].remedy or "fix the import, or remove it from jobs:")
    return Finding("jobs", ", ".join(modules) or "no modules are listed")


def _classes(settings: Settings) -> Iterator[Finding]:
    """Import classes from Cloudforet, so that missing ones are known before the first schedule is due."""
    if not settings.cloudforet.packages:
        return
    from supervisor.compat.cloudforet.tasks.check import examine as examined

    for name, problem in examined(settings):
        yield Finding("cloudforet", problem or f"{name} can be used", problem and "see docs/cloudforet-services.md")


def _redis(settings: Settings) -> Iterator[Finding]:
    from supervisor.cli.connection import connected, is_embedded_down
    from supervisor.operations import leader, queues
    from supervisor.store.client.preflight import check

    try:
        if is_embedded_down(settings):
            yield Finding("redis", "embedded; its server starts with the tree")
            return
        with connected(settings) as connection:
            connection.store.ping()
            yield Finding("redis", f"{connection.store.where} answers")
            problems = check(connection.store, settings)
            for problem in problems:
                yield Finding("redis", problem.message, problem.remedy or "correct it, then run this again")
            if problems:
                return
            lease, candidates = connection.ask(leader.show)
            skew_ms = SystemClock().wall_ms() - lease.now_ms
            is_ok = abs(skew_ms) <= CLOCK_SKEW_MS_MAX
            remedy = "" if is_ok else "synchronise the clocks of this machine and of Redis (chrony, systemd-timesyncd)"
            yield Finding("clock", f"{skew_ms:+d} ms against Redis", remedy)
            yield replica_names(candidates, lease)
            yield schedule_sets(candidates, lease)
            yield unserved_queues(connection.ask(queues.unserved))
    except TenureError as error:
        yield _unreachable(error)


def _unreachable(error: TenureError) -> Finding:
    text, _, remedy = str(error).partition("; ")
    return Finding("redis", text, remedy or "start Redis, or correct redis.url")


def unserved_queues(found: Sequence[UnservedQueue]) -> Finding:
    """Find queues whose runs no live worker of any replica takes."""
    if not found:
        return Finding("queues", "each that has runs is served")
    shown = ", ".join(map(str, found[:UNSERVED_SHOWN]))
    more = f" and {len(found) - UNSERVED_SHOWN} more" if len(found) > UNSERVED_SHOWN else ""
    remedy = "start a replica with a pool of that kind for the queue, or purge it: tenure queue purge"
    return Finding("queues", f"no live worker takes {shown}{more}", remedy)


def replica_names(candidates: Sequence[CandidateInfo], lease: LeaseView) -> Finding:
    """Find names that two replicas have, both seen within a few lease durations."""
    from supervisor.operations.leader import is_fresh

    fresh = [candidate.replica for candidate in candidates if is_fresh(candidate, lease)]
    counts = Counter(replica.rpartition(".")[0] or replica for replica in fresh)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if not twice:
        return Finding("replica names", f"{len(fresh)} seen lately, each with a name of its own")
    seen = f"used twice: {', '.join(twice)}"
    return Finding("replica names", seen, "fine just after a crash; else give each a name of its own: set replica")


def schedule_sets(candidates: Sequence[CandidateInfo], lease: LeaseView) -> Finding:
    """Find replicas that may lead with other static schedules than the rest: those of one set alone fire."""
    from supervisor.operations.leader import differing_schedules

    seen = differing_schedules(candidates, lease)
    if not seen:
        return Finding("schedules", "all replicas that have some have the same")
    remedy = "fine during a deploy; else run the same files on all, or give those of others a cluster: of its own"
    return Finding("schedules", seen, remedy)
