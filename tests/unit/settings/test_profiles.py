"""Profiles and webhooks in a configuration: how they are put together, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from annotated_types import Le

from supervisor.core.errors import ConfigError
from supervisor.core.jobs.registry import Registry, job
from supervisor.core.model import Check, ScheduleDef
from supervisor.settings.base import Section
from supervisor.settings.render import to_json, to_yaml
from supervisor.settings.schedules import hook_sources
from supervisor.settings.schedules.complete import complete
from supervisor.settings.schedules.definitions import validate_schedules
from supervisor.settings.schedules.settings import ScheduleSettings, WhenSettings
from supervisor.settings.sections.pipeline import ProfileSettings, RetrySettings

POOLS = "workers: {a: {kind: async, queues: [default]}}\n"
Problems = Callable[[str], list[str]]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry with a job that says one policy, and one that picks a profile."""
    own = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", own)

    @job("collect", timeout=50)
    async def collect() -> None: ...

    @job("bulky", profile="bulk")
    async def bulky() -> None: ...

    @job("patient", start_deadline="2h")
    async def patient() -> None: ...

    return own


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with hooks."""
    code = """
class Budget:
    def __init__(self, limit=3): ...
    def filter(self, context): ...
    def reserve(self, context): ...
    def unreserve(self, context): ...
class Remote:
    def dispatch(self, context): ...
class Other(Remote): ...
class Leaky:
    def reserve(self, context): ...
class Nothing: ...
value = 3
"""
    (tmp_path / "thooks.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "thooks", raising=False)
    return "thooks"


def complaints(desk: Any, known: Registry, text: str) -> list[str]:
    """Return what completing ``text`` says."""
    desk.add(text)
    with pytest.raises(ConfigError) as caught:
        complete(desk.load(), known)
    return [str(problem).replace(f"{desk.directory}/", "") for problem in caught.value.problems]


def completed(desk: Any, known: Registry, text: str) -> dict[str, ScheduleDef]:
    """Return the definitions in ``text``."""
    desk.add(text)
    return {definition.id: definition for definition in complete(desk.load(), known)}


PROFILES = """
profiles:
  default: {timeout: 2m, overlap: allow, retry: {attempts: 7}}
  bulk: {priority: low, missed: skip, start_deadline: 1h, retry: {cap: 1h}}
"""


def test_a_default_profile_always_exists(desk: Any) -> None:
    """With the policies that are built in, also where a file names others only."""
    desk.add("profiles: {bulk: {missed: skip}}")

    profiles = desk.load().settings.profiles
    assert set(profiles) == {"default", "bulk"}
    assert (profiles["default"].missed, profiles["bulk"].missed, profiles["bulk"].overlap) == ("latest", "skip", "skip")


def test_explicit_options_win_over_profiles_and_profiles_over_the_default(desk: Any, known: Registry) -> None:
    """For each policy by itself: the schedule, the job, the profile that was picked, ``default``, what is built in."""
    found = completed(
        desk,
        known,
        POOLS
        + PROFILES
        + """
schedules:
  plain: {job: collect, every: 1m}
  picks: {job: collect, every: 1m, profile: bulk}
  says: {job: collect, every: 1m, profile: bulk, missed: all, priority: high, timeout: 9s, retries: 1, overlap: skip}
  of-job: {job: bulky, every: 1m}
  back: {job: bulky, every: 1m, profile: default}
  late: {job: patient, every: 1m, profile: bulk}
""",
    )

    def policies(name: str) -> tuple[Any, ...]:
        definition = found[name]
        template = definition.template
        return (
            definition.missed, definition.overlap, definition.start_deadline_ms,
            template.priority, template.timeout_s, template.retry.attempts, template.retry.cap_s, template.profile,
        )  # fmt: skip

    assert policies("plain") == ("latest", "allow", None, 1, 50.0, 7, 600.0, "")
    assert policies("picks") == ("skip", "allow", 3_600_000, 2, 50.0, 7, 3600.0, "bulk")
    assert policies("says") == ("all", "skip", 3_600_000, 0, 9.0, 2, 3600.0, "bulk")
    assert policies("of-job") == ("skip", "allow", 3_600_000, 2, 120.0, 7, 3600.0, "bulk")
    assert policies("late") == ("skip", "allow", 7_200_000, 2, 120.0, 7, 3600.0, "bulk")
    assert policies("back") == ("latest", "allow", None, 1, 120.0, 7, 600.0, "")


def test_the_expanded_configuration_loads_to_the_same_schedules(desk: Any, known: Registry, tmp_path: Path) -> None:
    """``--write-config-to`` and ``config show`` write complete profiles, and what they write means the same."""
    text = POOLS + PROFILES.replace("priority: low", "priority: low, hooks: {enabled: [weekdays], config: {weekdays: {days: [mon]}}}") + (
        "schedules: {a: {job: bulky, every: 1m}, b: {job: collect, every: 1m}}\n"
    )  # fmt: skip
    first = completed(desk, known, text)
    written = to_yaml(desk.load().settings)
    assert "attempts: 7" in written.partition("bulk:")[2]

    again = type(desk)(tmp_path / "again")
    second = completed(again, known, written)
    assert second == first
    assert to_yaml(again.load().settings) == written


def test_an_inherited_value_keeps_the_place_where_it_was_written(desk: Any) -> None:
    """A mistake in ``default`` is told where it is, not where it is inherited."""
    desk.add(PROFILES)
    assert desk.load().origin("profiles", "bulk", "timeout").endswith("tenure.yaml:3")


def test_a_secret_argument_of_a_hook_is_shown_nowhere_also_where_it_is_inherited(desk: Any) -> None:
    """The reference is shown instead; a header of a webhook is masked whatever it is."""
    desk.add(
        "profiles: {default: {hooks: {config: {budget: {token: '${env:TOKEN}'}}}}, bulk: {missed: skip}}\n"
        "webhooks: {audit: {url: 'https://x/', headers: {Authorization: plain-secret, X-Key: '${env:TOKEN}'}}}\n"
    )
    settings = desk.load({"TOKEN": "very-secret"}).settings

    shown = to_json(settings) + to_yaml(settings) + repr(settings)
    assert settings.profiles["bulk"].hooks.config["budget"]["token"] == "very-secret"
    assert "very-secret" not in shown
    assert "plain-secret" not in shown
    assert shown.count("${env:TOKEN}") == 6


def test_unknown_profiles_are_refused_with_the_place_and_a_suggestion(desk: Any, known: Registry) -> None:
    """That of a schedule at its line, that of a job at the line of its function."""
    found = complaints(
        desk, known, POOLS + "profiles: {bulq: {}}\nschedules:\n  a: {job: collect, every: 1m, profile: bulg}\n"
    )

    assert "tenure.yaml:4: schedules.a.profile: no profile is called 'bulg'; did you mean bulq?" in found
    assert any(
        "test_profiles.py:" in line and "job bulky: no profile is called 'bulk'; did you mean bulq?" in line
        for line in found
    )


def test_a_profile_that_is_written_twice_is_refused_with_both_lines(problems_of: Problems) -> None:
    """YAML would take the second without a word."""
    (line,) = problems_of("profiles:\n  bulk: {missed: skip}\n  bulk: {missed: all}\n")

    assert line.startswith("tenure.yaml:3: profiles.bulk")
    assert "2" in line


def test_a_schedule_carries_the_checks_of_its_profile(desk: Any, known: Registry) -> None:
    """In the order of the list, with windows in the schedule's zone."""
    found = completed(
        desk,
        known,
        POOLS
        + """
profiles:
  bulk:
    hooks:
      enabled: [quota, blackout, weekdays]
      disabled: [filter/weekdays]
      config:
        blackout: {windows: [2026-12-25, "* 22 * * *"]}
        quota: {runs: 3, per: 1d}
        weekdays: {days: [mon]}
schedules: {a: {job: bulky, every: 1h, timezone: Europe/Berlin}, b: {job: collect, every: 1h}}
""",
    )

    quota, blackout = found["a"].checks
    assert quota == Check(hook="quota", count=3, per_ms=86_400_000)
    assert (blackout.hook, blackout.exclude[0].from_ms, blackout.exclude[1].cron) == (
        "blackout", 1_798_153_200_000, "* 22 * * *",
    )  # fmt: skip
    assert found["b"].checks == ()


@pytest.mark.parametrize(
    ("hooks_text", "expected"),
    [
        ("{enabled: ['*']}", "enabled[0]: enables no hook by its name; list each one"),
        ("{enabled: [quota, quota], config: {quota: {runs: 1, per: 1d}}}", "enabled[1]: 'quota' is listed twice; remove one"),
        ("{enabled: [quota], config: {quota: {per: 1d}}}", "config.quota.runs: is missing"),
        ("{enabled: [weekdays], config: {weekdays: {days: [monday]}}}", "config.weekdays.days[0]: should be 'mon', 'tue'"),
        ("{enabled: [blackout], config: {blackout: {windows: ['61 * * * *']}}}", "config.blackout.windows[0].cron"),
        ("{enabled: [closed], config: {closed: {until: soon}}}", "config.closed.until"),
        ("{timeout: 0s}", "hooks.timeout: must be at least 10ms"),
    ],
)  # fmt: skip
def test_hooks_that_cannot_be_asked_so_are_refused(problems_of: Problems, hooks_text: str, expected: str) -> None:
    """When the configuration is read, with the place of the argument."""
    assert any(expected in line for line in problems_of(f"profiles:\n  bulk:\n    hooks: {hooks_text}\n"))


@pytest.mark.parametrize(
    ("webhook", "expected"),
    [
        ("{url: 'ftp://x'}", "webhooks.w.url: is no http URL"),
        ("{url: 'http://u:p@x'}", "webhooks.w.url: holds a user or password"),
        ("{url: 'http://x', ca_file: a}", "webhooks.w.ca_file: is used by https:// only"),
        ("{url: 'https://x', cert_file: a}", "a client certificate needs both cert_file and key_file"),
        ("{url: 'http://x', verbs: [score]}", "must be filter or after"),
        ("{url: 'http://x', verbs: [dispatch]}", "must be filter or after"),
        ("{url: 'https://x/**********'}", "webhooks.w.url: holds the mask"),
        ("{url: 'https://x', secret: short}", "webhooks.w.secret: has fewer than 16 characters"),
        ("{url: 'https://x', secret: '**********'}", "webhooks.w.secret: is the mask"),
        ("{url: 'http://x', headers: {Authorization: t}}", "webhooks.w.headers.Authorization: would be readable"),
        ("{url: 'http://10.0.0.1:80', headers: {X-Api-Key: t}}", "webhooks.w.headers.X-Api-Key: would be readable"),
        ("{url: 'http://x', timeout: 1h}", "webhooks.w.timeout: must be at most 30s"),
        ("{url: 'http://x', headers: {'a b': c}}", "cannot be the name of a header"),
    ],
)
def test_webhooks_that_cannot_be_asked_are_refused(problems_of: Problems, webhook: str, expected: str) -> None:
    """A weight or a verb that the original knows is named as what it is here: no setting."""
    assert any(expected in line for line in problems_of(f"webhooks:\n  w: {webhook}\n"))


def bulk(enabled: str, config: str = "{}") -> str:
    """Return a configuration whose profile ``bulk`` enables ``enabled``."""
    return POOLS + f"profiles:\n  bulk:\n    hooks:\n      enabled: {enabled}\n      config: {config}\n"


@pytest.mark.parametrize(
    ("enabled", "config", "expected"),
    [
        ("[quotta]", "{}", "no hook is called 'quotta'; did you mean quota?"),
        ("[thooks:Budgit]", "{}", "hook thooks:Budgit cannot be imported: AttributeError"),
        ("[thooks:Nothing]", "{}", "hook thooks:Nothing has none of the methods gate, filter, reserve, dispatch, after"),
        ("[thooks:Leaky]", "{}", "hook thooks:Leaky reserves and cannot undo it; add a method unreserve"),
        ("[thooks:value]", "{}", "hook thooks:value is a int; name a class, to be built in each worker"),
        ("[after/thooks:Budget]", "{}", "hook thooks:Budget is not asked at after; it has filter, reserve"),
        ("[thooks:Budget]", "{'thooks:Budget': {limitt: 1}}", "hook thooks:Budget: got an unexpected keyword argument 'limitt'"),
        ("[thooks:Remote, thooks:Other]", "{}", "hooks thooks:Other and thooks:Remote both dispatch, and one may"),
        ("[]", "{quota: {runs: 1}}", "config.quota: is for a hook that is not enabled; enable it"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("hooks")
def test_hooks_that_are_none_are_refused_before_anything_starts(
    desk: Any, known: Registry, enabled: str, config: str, expected: str
) -> None:
    """With the place in the list; nothing is built in the process that checks."""
    if enabled == "[]":
        enabled = "[closed]"
    assert any(expected in line for line in complaints(desk, known, bulk(enabled, config)))


def test_a_name_that_two_packages_claim_is_refused_with_both(
    desk: Any, known: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In-tree checks, entry points and webhooks share one registry."""
    entry = EntryPoint(name="quota", value="thooks:Budget", group=hook_sources.GROUP)
    monkeypatch.setattr(hook_sources, "entry_points", lambda *, group: [entry] if group == entry.group else [])

    (line,) = complaints(desk, known, bulk("[closed]"))

    assert "hook 'quota' is there twice, from in-tree and from entry point thooks:Budget of" in line


def test_an_entry_point_is_enabled_by_its_name(
    desk: Any, known: Registry, hooks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is imported when a profile enables it, and only then."""
    entries = [
        EntryPoint(name="budget", value=f"{hooks}:Budget", group=hook_sources.GROUP),
        EntryPoint(name="broken", value="tno_such_module:X", group=hook_sources.GROUP),
    ]
    monkeypatch.setattr(hook_sources, "entry_points", lambda *, group: entries if group == hook_sources.GROUP else [])

    assert completed(desk, known, bulk("[budget]", "{budget: {limit: 1}}")) == {}
    lines = complaints(type(desk)(desk.directory / "other"), known, bulk("[broken]"))
    assert any("hook broken cannot be imported from tno_such_module:X: ModuleNotFoundError" in line for line in lines)


@pytest.mark.parametrize("rate", [0, -1, 100_001])
def test_how_many_late_runs_go_out_at_once_has_a_range(problems_of: Problems, rate: int) -> None:
    """Nothing that paces the leader can be set to nothing."""
    (line,) = problems_of(f"scheduler: {{catchup_rate: {rate}}}\n")

    assert line.startswith("tenure.yaml:1: scheduler.catchup_rate: must be at ")


def test_dynamic_schedules_go_by_the_profiles_of_the_configuration(desk: Any, known: Registry) -> None:
    """``tenure schedule apply`` carries policies and checks into Redis, so the leader needs no profile to fire them."""
    desk.add(bulk("[weekdays]", "{weekdays: {days: [mon]}}"))
    profiles = desk.load().settings.profiles
    entries = {"a": {"job": "bulky", "every": "1h"}, "b": {"job": "collect", "every": "1h", "profile": "bulkk"}}

    validated = validate_schedules(entries, known=known, profiles=profiles)

    assert [definition.checks for definition in validated.definitions] == [(Check(hook="weekdays", days=(0,)),)]
    assert [str(problem) for problem in validated.problems] == [
        "input: schedules.b.profile: no profile is called 'bulkk'; did you mean bulk?"
    ]


@pytest.mark.parametrize("section", [ScheduleSettings, WhenSettings, ProfileSettings, RetrySettings])
def test_every_duration_that_a_schedule_is_stored_with_can_be_read_back(section: type[Section]) -> None:
    """A timeout of ten thousand years was stored, and no leader could read the schedule: it was never fired."""
    fields = {name: field for name, field in section.model_fields.items() if name.endswith("_s")}
    assert fields
    for name, field in fields.items():
        (most,) = [bound.le for bound in field.metadata if isinstance(bound, Le)]
        assert most <= 4e9, name
