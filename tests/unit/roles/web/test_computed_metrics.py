"""What a scrape computes, and that every metric keeps the rules of naming."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from supervisor.core.election.lease import NO_TERM
from supervisor.core.supervision import health
from supervisor.core.supervision.health import HealthEndpoint
from supervisor.roles.child import ChildContext
from supervisor.roles.web.cluster_snapshot import Overview
from supervisor.roles.web.handlers import Pages
from supervisor.roles.web.metrics import Scrape
from supervisor.telemetry import metrics
from tests.kit.tables import table

UNITS = ("_seconds", "_bytes", "_info", "_total")
COUNTS = re.compile(
    r"tenure_(deprecated_settings|feature_enabled|election_(is_leader|epoch|candidates|twins)|slot_state|slot_open_fds|workers_busy|healthcheck|redis_up|"
    r"schedules|schedules_late|schedules_overdue|schedules_invalid|schedules_paused|schedules_refused|config_(epoch|schedules_in_place|last_reload_successful)|queue_(ready|blocked|running|later|dead|paused|unserved))"
)


def scrape(child: ChildContext, overview: Overview | None) -> dict[str, Metric]:
    """Return one scrape, parsed."""
    facts = health.facts(
        child.board,
        now_ns=child.clock.elapsed_ns(),
        slot_names=child.slot_names,
        pools=tuple(child.settings.workers),
        lease_duration_s=5.0,
    )
    checks = {endpoint: health.checks(endpoint, facts) for endpoint in HealthEndpoint}
    text = metrics.exposition(collectors=[Scrape(child, checks, overview, is_redis_up=overview is not None)]).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], name: str, /, **labels: str) -> float:
    """Return the one sample of ``name`` with ``labels``."""
    family = families[name.removesuffix("_total")]
    (found,) = [sample.value for sample in family.samples if sample.name == name and sample.labels == labels]
    return float(found)


def test_a_leader_and_its_children_are_measured(make_child: Callable[..., ChildContext], overview: Overview) -> None:
    """Each from its one source: the board, /proc, Redis."""
    child = make_child()
    child.board.header.parent_pid = 1

    seen = scrape(child, overview)

    assert value(seen, "tenure_election_is_leader") == 1
    assert value(seen, "tenure_election_epoch") == 7
    assert value(seen, "tenure_election_trust_remaining_seconds") == 4
    assert value(seen, "tenure_slot_state", slot="worker-cpu-0", role="worker") == 5
    assert value(seen, "tenure_slot_restarts_total", slot="worker-cpu-0") == 3
    assert value(seen, "tenure_slot_beat_age_seconds", slot="agent") == 0.25
    assert value(seen, "tenure_workers_busy", pool="io") == 12
    assert value(seen, "tenure_workers_busy", pool="cpu") == 0
    assert value(seen, "tenure_healthcheck", name="workers", type="readyz") == 0
    assert value(seen, "tenure_healthcheck", name="ping", type="livez") == 1
    assert value(seen, "tenure_slot_resident_memory_bytes", slot="supervisor") > 0
    assert value(seen, "tenure_queue_ready", queue="default", kind="async", priority="normal") == 40
    assert value(seen, "tenure_queue_paused", queue="shell") == 1
    assert value(seen, "tenure_redis_up") == 1


def test_a_child_without_a_process_has_no_beat_age(make_child: Callable[..., ChildContext], overview: Overview) -> None:
    """A growing age of something that is not there would only alarm."""
    samples = scrape(make_child(), overview)["tenure_slot_beat_age_seconds"].samples

    assert "worker-cpu-0" not in {sample.labels["slot"] for sample in samples}


def test_without_redis_queue_depths_are_absent(make_child: Callable[..., ChildContext]) -> None:
    """Zero would say that all is done."""
    seen = scrape(make_child(), None)

    assert value(seen, "tenure_redis_up") == 0
    assert seen["tenure_queue_ready"].samples == []


def test_a_standby_trusts_nothing(make_child: Callable[..., ChildContext]) -> None:
    """The sum over replicas must be one."""
    child = make_child()
    child.board.publish_term(NO_TERM)

    assert value(scrape(child, None), "tenure_election_is_leader") == 0


def test_the_end_of_a_calendar_is_measured_and_noted(make_child: Callable[..., ChildContext]) -> None:
    """A time to alarm by, and a note for who asks; no reason to take a replica out of service."""
    child = make_child(calendars={"de": {"dates": ("1999-12-25",)}, "weekends": {"weekdays": ("sat", "sun")}})

    samples = scrape(child, None)["tenure_calendar_end_timestamp_seconds"].samples
    assert [(sample.labels["calendar"], sample.value) for sample in samples] == [("de", 946_166_400)]
    pages = Pages(child, SimpleNamespace(newest=None))  # type: ignore[arg-type]
    (check,) = [each for each in pages.checks(HealthEndpoint.READYZ) if each.name == "calendars"]
    assert check.ok
    assert check.note == "calendar de has no entries after 1999-12-25; add later ones"


def described() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Return (name, kind, labels, help) of every metric there is."""
    stored = [
        (
            metric._name + ("_total" if metric._type == "counter" else ""),
            metric._type,
            tuple(metric._labelnames),
            metric._documentation,
        )
        for metric in metrics.STORED
    ]
    return sorted([*stored, *[(one.name, one.kind, one.labels, one.help) for one in metrics.COMPUTED]])


@table("metric", described())
def test_every_metric_keeps_the_rules_of_naming(metric: tuple[str, str, tuple[str, ...], str]) -> None:
    """Prefix, base unit or a plain count, _total on counters alone, a help that is a sentence."""
    name, kind, labels, text = metric

    assert re.fullmatch(r"tenure_[a-z_]+", name)
    assert name.endswith(UNITS) or COUNTS.fullmatch(name)
    assert name.endswith("_total") == (kind == "counter")
    assert not re.search(r"_(ms|milliseconds|minutes|kb|count|sum|bucket)(_|$)", name)
    assert text.endswith(".")
    assert not {"le", "quantile", "run", "pid", "session"} & set(labels)


def test_every_scraped_metric_is_declared(make_child: Callable[..., ChildContext], overview: Overview) -> None:
    """Nothing leaves this house undocumented."""
    declared = {name for name, *_ in described()}
    seen = scrape(make_child(), overview)

    named = {name + ("_total" if family.type == "counter" else "") for name, family in seen.items()}
    assert {name for name in named if name.startswith("tenure_") and not name.endswith("_created")} <= declared
    assert {one.name for one in metrics.COMPUTED} <= named


def test_the_documentation_lists_every_metric_as_it_is() -> None:
    """docs/metrics.md is the reference that alarms are written from."""
    text = (Path(__file__).parents[4] / "docs/metrics.md").read_text()
    rows: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("| `tenure_"):
            name, kind, labels, meaning = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name.strip("`")] = (kind, labels, meaning)

    assert rows == {
        name: (kind, ", ".join(f"`{label}`" for label in labels) or "none", text)
        for name, kind, labels, text in described()
    }


def test_features_and_old_names_of_the_configuration_are_measured(
    make_child: Callable[..., ChildContext], overview: Overview
) -> None:
    """One series for each gate, on or off, and how much has to be renamed before an update."""
    child = make_child()
    settings = child.settings.model_copy(update={"features": {"AllBeta": True}}).with_references({}, deprecated=2)
    seen = scrape(replace(child, settings=settings), overview)

    assert value(seen, "tenure_deprecated_settings") == 2
    assert value(seen, "tenure_feature_enabled", name="FastCrashDetection", stage="BETA") == 1
    assert value(scrape(child, overview), "tenure_feature_enabled", name="FastCrashDetection", stage="BETA") == 0
