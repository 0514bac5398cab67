"""Every variation of Cloudforet's configuration that was found, S-00 to S-13, loads as it is."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from tests.unit.settings.cloudforet_desk import DATA, QUEUES, CloudforetDesk, completed, native, notices

HOUR_MS = 3_600_000


def triggers(schedules: Any) -> dict[str, str]:
    return {name: each.get("cron") or each["every"] for name, each in schedules.items()}


def test_s00_the_short_form_with_enabled_interval_and_handler(cloudforet: CloudforetDesk) -> None:
    """A Python dict of names to enabled, seconds and a handler: jobs that run, on the queue default."""
    loaded = cloudforet.load(cloudforet.copy("s00") / "scheduler.py")
    schedules = native(loaded, "schedules")
    assert triggers(schedules) == {"DomainScheduler": "1h", "TokenCleanupScheduler": "10m", "Retired": "5m"}
    assert schedules["DomainScheduler"]["job"] == "cloudforet.run"
    assert schedules["DomainScheduler"]["queue"] == "default"
    assert schedules["DomainScheduler"]["args"]["handler"] == "identity.service.scheduler_service.DomainScheduler"
    assert loaded.settings.redis.url.get_secret_value() == "embedded"
    assert [each.id for each in completed(loaded) if each.paused] == ["Retired"]


def test_s01_identity_as_the_chart_mounts_it(cloudforet: CloudforetDesk) -> None:
    """Three hourly schedules, one queue with its list, one worker process, one Redis."""
    loaded = cloudforet.load(DATA / "s01" / "application.yaml")
    assert triggers(native(loaded, "schedules")) == {
        "trusted_account_sync_scheduler": "0 * * * *",
        "dormancy_scheduler": "30 * * * *",
        "expiring_app_check_scheduler": "0 * * * *",
    }
    assert native(loaded, "redis") == {"url": "redis://redis:6379/0"}
    assert native(loaded, "workers")["identity_worker"] == {"kind": "sync", "queues": ["identity_q"], "processes": 1}
    settings = loaded.settings.cloudforet
    assert settings.channel_of("identity_q") == "identity_job"
    assert settings.packages == ("spaceone.identity",)
    assert native(loaded, "schedules")["dormancy_scheduler"]["args"] == {
        "backend": "spaceone.identity.interface.task.v1.dormancy_scheduler.DormancyScheduler",
        "queue": "identity_q",
        "options": {"interval": 1, "minute": ":30"},
    }


def test_s02_inventory_keeps_its_four_schedules_and_its_globals(cloudforet: CloudforetDesk) -> None:
    """Upper- and lower-case globals stay for the service's code, and are listed once as not used."""
    loaded = cloudforet.load(DATA / "s02" / "application.yaml")
    assert triggers(native(loaded, "schedules")) == {
        "hourly_scheduler": "0 * * * *",
        "cleanup_scheduler": "10 * * * *",
        "stats_scheduler": "30 * * * *",
        "metric_scheduler": "30 * * * *",
    }
    assert loaded.settings.cloudforet.config == {
        "collect_queue": "collector_q", "JOB_TIMEOUT": 2, "STATS_SCHEDULE_HOUR": 15, "METRIC_SCHEDULE_HOUR": 0,
    }  # fmt: skip
    (unused,) = [notice for notice in notices(loaded) if "not used by the supervisor" in notice]
    assert unused.endswith("JOB_TIMEOUT, METRIC_SCHEDULE_HOUR, STATS_SCHEDULE_HOUR, collect_queue")


def test_s03_seconds_and_a_queue_from_another_file(cloudforet: CloudforetDesk) -> None:
    """Monitoring: its queue is under GLOBAL of one file, with db 1; its schedules count seconds."""
    loaded = cloudforet.load(DATA / "s03" / "config.yaml", DATA / "s03" / "application.yaml")
    found = triggers(native(loaded, "schedules"))
    assert found == {"monitoring_scheduler": "1m", "maintenance_window_scheduler": "1m"}
    assert native(loaded, "redis") == {"url": "redis://redis:6379/1"}


def test_s04_every_day_at_half_past(cloudforet: CloudforetDesk) -> None:
    """The plugin service's 24 hours at :30 are half past midnight."""
    assert cloudforet.entry("interval: 24\nminute: ':30'")["cron"] == "30 0 * * *"
    assert cloudforet.entry("interval: 1\nminute: ':01'")["cron"] == "1 * * * *"


def test_s05_a_worker_without_pool_has_eight_processes(cloudforet: CloudforetDesk) -> None:
    """Statistics leaves the pool out."""
    worker = "WORKERS: {w: {backend: spaceone.core.scheduler.worker.BaseWorker, queue: q}}\n"
    assert native(cloudforet.loads(QUEUES + worker), "workers")["w"]["processes"] == 8
    for pool, problem in (("0", "got 0"), ("true", "got true"), ("65", "got 65"), ("many", "got 'many'")):
        (found,) = cloudforet.problems(QUEUES + worker.replace("queue: q", f"queue: q, pool: {pool}"))
        assert found.startswith("application.yaml:2: WORKERS.w.pool: must be 1 to 64,")
        assert problem in found


def test_s06_a_class_that_fixes_its_own_timing_is_read_from_its_source(
    cloudforet: CloudforetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No timing keys: the rule stands in the constructor, and the class is never imported to see it."""
    directory = cloudforet.copy("s06")
    monkeypatch.syspath_prepend(str(directory / "src"))
    loaded = cloudforet.load(directory / "scheduler_conf.py")
    assert triggers(native(loaded, "schedules")) == {"cron_scheduler": "* * * * *", "hour_scheduler": "15 * * * *"}
    assert native(loaded, "schedules")["cron_scheduler"]["args"]["options"] == {}
    assert not any(name.startswith("spaceone") for name in sys.modules)


def test_s06_without_the_source_the_missing_timing_is_a_problem(cloudforet: CloudforetDesk) -> None:
    """Nothing is guessed: say the rule, or where the class is."""
    text = "SCHEDULERS: {c: {backend: spaceone.test.scheduler.test_scheduler.TestScheduler, queue: q}}\n"
    (problem,) = cloudforet.problems(QUEUES + text)
    assert "has neither interval nor rule" in problem
    assert problem.endswith("or say where the class is with -m DIRECTORY")


def test_s07_a_cron_rule(cloudforet: CloudforetDesk) -> None:
    """`rule` is an expression of five fields."""
    found = cloudforet.entry("rule: '*/5 * * * *'")
    assert found["cron"] == "*/5 * * * *"
    assert found["args"]["options"] == {"rule": "*/5 * * * *"}


@pytest.mark.parametrize(
    ("rule", "cron"),
    [
        ("0 0 */2 * 1", "0 0 1-31/2 * 1"),
        ("0 0 13 * */2", "0 0 13 * 0-7/2"),
        ("0 0 */10,5 * */3", "0 0 1-31/10,5 * 0-7/3"),
        ("0 0 */2 * 1 30", "30 0 0 1-31/2 * 1"),
        ("0 0 */2 * *", "0 0 */2 * *"),
        ("0 0 */2 * 0-6", "0 0 */2 * 0-6"),
        ("0 0 */2 * SUN-SAT", "0 0 */2 * SUN-SAT"),
        ("0 0 1-31 * */2", "0 0 1-31 * */2"),
        ("0 0 */1 * */2", "0 0 */1 * */2"),
        ("0 0 1-7 * */2", "0 0 1-7 * 0-7/2"),
        ("0 0 */1 * 1", "0 0 1-31/1 * 1"),
        ("0 0 ? * */2", "0 0 ? * */2"),
        ("*/5 */2 13 * 5", "*/5 */2 13 * 5"),
        ("0 0 13 * */1", "0 0 13 * 0-7/1"),
    ],
)
def test_s07_steps_in_both_fields_of_days_are_due_on_either(cloudforet: CloudforetDesk, rule: str, cron: str) -> None:
    """The original reads them by croniter, which takes `*/2` for a restriction, as cron does not: it says so."""
    text = f"{QUEUES}SCHEDULERS:\n  s: {{backend: pkg.mod.Scheduler, queue: q, rule: '{rule}'}}\n"
    loaded = cloudforet.loads(text)
    assert native(loaded, "schedules")["s"]["cron"] == cron
    assert any("as croniter has it" in each for each in notices(loaded)) is (rule != cron)


@pytest.mark.parametrize(
    ("rule", "cron"),
    [
        ("0 0 */2 * */1", "0 0 */2 * */1"),
        ("0 0 */2 * 1-7", "0 0 */2 * 1-7"),
        ("0 0 */2 * sun-sat", "0 0 */2 * sun-sat"),
        ("0 0 1-31 * */2", "0 0 1-31 * */2"),
        ("0 0 1-7 * mon#1", "0 0 * * mon#1"),
        ("0 0 */2 * 5#2", "0 0 * * 5#2"),
        ("0 0 ? * 5#2", "0 0 ? * 5#2"),
    ],
)
def test_s07_a_field_of_days_that_croniter_passes_over_adds_none(
    cloudforet: CloudforetDesk, rule: str, cron: str
) -> None:
    """Every day beside a star is `*` to it, and nothing counts beside `#`: by either field, each of these was due more often."""
    text = f"{QUEUES}SCHEDULERS:\n  s: {{backend: pkg.mod.Scheduler, queue: q, rule: '{rule}'}}\n"
    loaded = cloudforet.loads(text)
    assert native(loaded, "schedules")["s"]["cron"] == cron
    assert any("as croniter has it" in each for each in notices(loaded)) is (cron != rule)


def test_s08_the_supervisor_with_everything_under_global(cloudforet: CloudforetDesk) -> None:
    """Its schedule and worker load; its connectors are kept; its token lies where nobody reads, so it is suspended."""
    loaded = cloudforet.load(DATA / "s08" / "supervisor.yaml")
    (sync,) = native(loaded, "schedules").values()
    assert sync["every"] == "20s"
    assert sync["paused"] is True
    assert "TOKEN_INFO" in sync["pause_reason"]
    assert {"CONNECTORS", "HANDLERS", "CACHES", "BACKEND", "TAGS"} <= loaded.settings.cloudforet.config.keys()
    assert loaded.settings.replica == "root"  # HOSTNAME is a placeholder in the published file


def test_s09_the_class_decides_the_unit_and_a_contradiction_is_named(
    cloudforet: CloudforetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3600 with a minute: seconds by the class, which is found by its source; without it, a question."""
    text = (DATA / "s09" / "application.yaml").read_text()
    (asked,) = cloudforet.problems(text)
    assert "3600 with minute ':00' is a contradiction" in asked
    assert "add unit: hours" in asked
    monkeypatch.syspath_prepend(str(cloudforet.copy("s09") / "src"))
    (named,) = cloudforet.problems(text)
    assert named.partition(": ")[2] == (
        "SCHEDULERS.delete_notification_scheduler.minute: not accepted by an interval schedule; "
        "remove it (interval is 3600 seconds)"
    )
    assert triggers(cloudforet.schedules(text.replace("    minute: ':00'\n", ""))) == {
        "delete_notification_scheduler": "1h"
    }


def test_s10_files_are_laid_over_one_another_in_their_order(cloudforet: CloudforetDesk) -> None:
    """GLOBAL, then IMPORT, then REMOTE_URL: later wins, mappings merge, lists replace."""
    loaded = cloudforet.load(DATA / "s10" / "config.yaml")
    assert triggers(native(loaded, "schedules")) == {"cleanup_scheduler": "10 * * * *"}
    config = loaded.settings.cloudforet.config
    assert config["MAX_WORKERS"] == 1000
    assert config["DATABASES"] == {"default": {"db": "inventory", "host": "mongo-2", "port": 27017}}
    assert config["DELETE_EXCLUDE_DOMAINS"] == ["domain-3"]
    assert [file.name for file in loaded.files] == ["config.yaml", "database.yaml", "shared.yaml", "application.yaml"]


def test_s11_a_python_module_is_read_without_being_run(cloudforet: CloudforetDesk) -> None:
    """Assignments of literals count; what only running would tell is named, and nothing runs."""
    loaded = cloudforet.load(cloudforet.copy("s11") / "conf" / "global_conf.py")
    assert loaded.settings.cloudforet.config["collect_queue"] == "collector_q"
    assert loaded.settings.cloudforet.config["JOB_TIMEOUT"] == 2
    assert any("DATABASE_HOST: is not a literal" in notice for notice in notices(loaded))
    assert not (cloudforet.directory / "ran").exists()
    cloudforet.write("bad.py", "import os\nSCHEDULERS = os.environ\n")
    (problem, *_) = cloudforet.problems_of("bad.py")
    assert problem.startswith("bad.py:2: SCHEDULERS: is not a literal (line 2), and no code is run to find out")


def test_s12_the_order_of_keys_does_not_matter_and_queues_take_arguments_of_the_pool(
    cloudforet: CloudforetDesk,
) -> None:
    """`minute` before `queue`; `ssl`, credentials and time-outs of the connection are used, others named."""
    loaded = cloudforet.load(DATA / "s12" / "application.yaml")
    assert triggers(native(loaded, "schedules")) == {"budget_scheduler": "21 * * * *"}
    redis = loaded.settings.redis
    assert redis.url.get_secret_value() == "rediss://redis.example:6380/3"
    assert redis.username == "spaceone"
    assert redis.password is not None
    assert redis.password.get_secret_value() == "s3cret-of-redis"
    assert redis.command_timeout_s == 10
    assert any("QUEUES.finops_q: not used: max_connections" in notice for notice in notices(loaded))
    assert not any("s3cret" in notice for notice in notices(loaded))


def test_s13_the_legacy_form_is_ignored_and_said(cloudforet: CloudforetDesk) -> None:
    """SCHEDULER of old releases does nothing, beside a form that does."""
    cloudforet.write("scheduler_conf.py", "SCHEDULER = {'v1': (('publish', 'IntervalScheduler'),)}\n")
    cloudforet.write("application.yaml", f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 60}}}}\n")
    loaded = cloudforet.load("scheduler_conf.py", "application.yaml")
    assert list(native(loaded, "schedules")) == ["s"]
    assert any("SCHEDULER: is the form of old releases and is ignored" in notice for notice in notices(loaded))
    assert "SCHEDULER" not in loaded.settings.cloudforet.config


class _NoSpaceone(importlib.abc.MetaPathFinder):
    """Fails whoever imports Cloudforet's packages."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        assert fullname.partition(".")[0] != "spaceone", f"{fullname} was imported"
        return None


@pytest.mark.parametrize("name", ["identity-values.yaml", "inventory-values.yaml"])
def test_the_published_values_files_load_unchanged_and_nothing_of_spaceone_is_imported(
    cloudforet: CloudforetDesk, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The whole file, and the sections that the chart mounts, mean the same."""
    monkeypatch.setattr(sys, "meta_path", [_NoSpaceone(), *sys.meta_path])
    whole = cloudforet.load(DATA / name)
    cut = cloudforet.load(DATA / name.replace("values", "application"))
    for section in ("schedules", "workers", "redis", "cloudforet"):
        assert native(whole, section) == native(cut, section)
    assert completed(whole) == completed(cut)
    said = " ".join(notices(whole))
    assert "is a chart's values file" in said
    assert "write timezone: Asia/Seoul if schedules mean it" in said


def test_a_values_file_whose_sections_disagree_is_a_problem(cloudforet: CloudforetDesk) -> None:
    """Scheduler and worker that use different lists never meet."""
    text = (DATA / "identity-values.yaml").read_text()
    head, marker, tail = text.partition("application_worker:")
    (problem,) = cloudforet.problems(head + marker + tail.replace("channel: identity_job", "channel: other_job", 1))
    assert "application_worker.QUEUES.identity_q: differs from application_scheduler.QUEUES.identity_q" in problem


def test_a_configuration_without_schedulers_and_workers_is_a_problem(cloudforet: CloudforetDesk) -> None:
    """Three fixtures: only schedulers, only workers, neither."""
    scheduler = f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 60}}}}\n"
    worker = f"{QUEUES}WORKERS: {{w: {{backend: spaceone.core.scheduler.worker.BaseWorker, queue: q}}}}\n"
    assert set(native(cloudforet.loads(scheduler), "workers")) == {"planners"}
    assert native(cloudforet.loads(worker), "schedules") == {}
    (problem,) = cloudforet.problems(QUEUES)
    assert problem.startswith("application.yaml: has neither SCHEDULERS nor WORKERS")
