"""Every value of the original's timing keys: what it means here, or what is said about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.kit.tables import table
from tests.unit.settings.cloudforet_desk import QUEUES, CloudforetDesk, due, native, notices

START = datetime(2025, 1, 1, 10, 20, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
HOUR_MS = 3_600_000


@table(
    ("keys", "trigger"),
    [
        ("interval: 1\nminute: ':15'", {"cron": "15 * * * *"}),
        ("interval: 1\nminute: :15", {"cron": "15 * * * *"}),
        ("interval: 1\nminute: '15:30'", {"cron": "30 15 * * * *"}),
        ("interval: 1\nminute: 0", {"cron": "0 * * * *"}),
        ("interval: 1\nminute: 59", {"cron": "59 * * * *"}),
        ("minute: ':21'", {"cron": "21 * * * *"}),
        ("interval: 2\nminute: ':00'", {"cron": "0 */2 * * *"}),
        ("interval: 24\nminute: ':30'", {"cron": "30 0 * * *"}),
        ("interval: 5\nminute: ':07'", {"every": "5h", "phase": "7m"}),
        ("interval: 3600\nminute: ':00'\nunit: hours", {"every": "3600h"}),
        ("interval: 168\nminute: ':00'", {"every": "168h"}),
        ("interval: 60", {"every": "1m"}),
        ("interval: '30'", {"every": "30s"}),
        ("interval: 1.5", {"every": "1500ms"}),
        ("interval: 10s", {"every": "10s"}),
        ("interval: 5\nunit: hours", {"every": "5h"}),
        ("rule: '*/5 * * * *'", {"cron": "*/5 * * * *"}),
        ("rule: '0 0 * * * 30'", {"cron": "30 0 0 * * *"}),
    ],
)
def test_a_timing_is_what_the_original_made_of_it(
    cloudforet: CloudforetDesk, keys: str, trigger: dict[str, str]
) -> None:
    """Each accepted row of the table of values becomes one native trigger."""
    found = cloudforet.entry(keys)
    assert {key: found[key] for key in ("cron", "every", "phase") if key in found} == trigger


@table(
    ("keys", "problem"),
    [
        (
            "interval: 1\nminute: 15:30",
            "application.yaml:7: SCHEDULERS.s.minute: '15:30' is a base-60 number to some YAML parsers; quote it",
        ),
        ("interval: 1\nminute: '15'", "application.yaml:7: SCHEDULERS.s.minute: must be ':MM' or 'MM:SS', got '15'; write ':15'"),
        ("interval: 1\nminute: ':60'", "application.yaml:7: SCHEDULERS.s.minute: must be ':MM' or 'MM:SS', got ':60'"),
        ("interval: 1\nminute: 930", "application.yaml:7: SCHEDULERS.s.minute: must be 0 to 59 as a number, got 930; was 15:30 meant? quote it"),
        ("interval: 1\nminute: true", "application.yaml:7: SCHEDULERS.s.minute: must be ':MM' or 'MM:SS', got true"),
        ("interval: true", "application.yaml:6: SCHEDULERS.s.interval: must be a number, got true; write how many seconds"),
        ("interval: 0", "application.yaml:6: SCHEDULERS.s.interval: must be above 0 and at most 316224000, got 0; python-core would run for ever"),
        ("interval: -5", "application.yaml:6: SCHEDULERS.s.interval: must be above 0 and at most 316224000, got -5"),
        ("interval: 0.01", "application.yaml:6: SCHEDULERS.s.interval: must be at least 0.1 seconds, got 0.01; write how many seconds"),
        ("interval: soon", "application.yaml:6: SCHEDULERS.s.interval: must be a number, got 'soon'; write 30, or 30s with a unit"),
        ("interval: 1.5\nminute: ':00'", "application.yaml:6: SCHEDULERS.s.interval: must be whole hours, got 1.5"),
        ("rule: * * * * *", "application.yaml:6:12: is not YAML: did not find expected alphabetic or numeric character; quote it:"),
        ("rule: 5", "application.yaml:6: SCHEDULERS.s.rule: must be text, got 5; quote it"),
        ("rule: '61 * * * *'", 'application.yaml:6: SCHEDULERS.s.rule: cron "61 * * * *": minute "61" at character 1'),
        ("rule: '* * * * *'\ninterval: 5", "application.yaml:7: SCHEDULERS.s.interval: not accepted by a cron schedule; remove it"),
        ("interval: 60\ncolour: red", "application.yaml:7: SCHEDULERS.s.colour: is not a setting of a scheduler; remove it"),
        ("intervall: 60\nminute: ':00'", "application.yaml:6: SCHEDULERS.s.intervall: is not a setting of a scheduler; did you mean interval?"),
        ("interval: 60\nunit: days", "application.yaml:7: SCHEDULERS.s.unit: must be seconds or hours, got 'days'"),
        ("interval: 60\nenabled: maybe", "application.yaml:7: SCHEDULERS.s.enabled: must be true or false, got 'maybe'"),
        ("interval: 60\nmisfire: once", "application.yaml:7: SCHEDULERS.s.misfire: is not known, got 'once'; write coalesce, skip, all"),
        ("interval: 60\nphase: now", "application.yaml:7: SCHEDULERS.s.phase: must be anchored or start, got 'now'"),
        ("interval: 60\ntimezone: Asia/Soul", "application.yaml:7: SCHEDULERS.s.timezone: timezone 'Asia/Soul' is not in the time zone database"),
    ],
)  # fmt: skip
def test_what_the_original_choked_on_is_a_problem_with_its_place_and_remedy(
    cloudforet: CloudforetDesk, keys: str, problem: str
) -> None:
    """File and line, path, value and remedy: for each refused row of the table of values."""
    (found,) = cloudforet.entry_problems(keys)
    assert found.startswith(problem)


def test_x7_an_interval_that_hung_the_original_is_refused_before_anything_starts(cloudforet: CloudforetDesk) -> None:
    """`interval: 0` was an endless loop, `true` became 1 and a text became nothing."""
    found = [cloudforet.entry_problems(f"interval: {value}") for value in ("0", "true", "-1", "'x'")]
    assert all("SCHEDULERS.s.interval" in problems[0] for problems in found)
    loaded = cloudforet.loads(f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: '30'}}}}\n")
    assert any("'30' is text; read as 30" in notice for notice in notices(loaded))


def test_x8_a_queue_that_nobody_defined_is_a_problem_of_the_file(cloudforet: CloudforetDesk) -> None:
    """A scheduler with one never queued anything and said so nowhere; a worker with one died."""
    assert cloudforet.problems(
        f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: qq, interval: 5}}}}\n"
        "WORKERS: {w: {backend: spaceone.core.scheduler.worker.BaseWorker, queue: other}}\n"
    ) == [
        "application.yaml:2: SCHEDULERS.s.queue: 'qq' is not in QUEUES; did you mean q?",
        "application.yaml:3: WORKERS.w.queue: 'other' is not in QUEUES; QUEUES has q",
    ]


def test_numbers_that_redis_py_took_as_text_are_numbers(cloudforet: CloudforetDesk) -> None:
    """A file that ran there runs here, and is told of it."""
    queues = QUEUES.replace("6379", "'6380'").replace("channel", "db: '2', channel")
    loaded = cloudforet.loads(f"{queues}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 5}}}}\n")
    assert native(loaded, "redis")["url"] == "redis://redis:6380/2"
    assert "application.yaml:1: QUEUES.q.port: '6380' is text; read as a number" in notices(loaded)


def test_a_file_that_says_to_be_of_another_format_is_not_read_as_this_one(cloudforet: CloudforetDesk) -> None:
    """The option says one thing and the file another: that is named, and not guessed."""
    assert cloudforet.problems(
        f"compat: airflow\n{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 5}}}}\n"
    ) == ["application.yaml:1: compat: is not a known format, got 'airflow'; write cloudforet"]


@pytest.mark.parametrize("key", ["rule: '*/5 * * * *'", "interval: 5"])
def test_timing_that_the_class_does_not_take_is_a_problem_of_the_file(cloudforet: CloudforetDesk, key: str) -> None:
    """Each plan would have died of a TypeError: the class sets its own timing, and its constructor says so."""
    cloudforet.write(
        "pkg/mod.py",
        "from spaceone.core.scheduler import CronScheduler\n"
        "class Fixed(CronScheduler):\n"
        "    def __init__(self, queue):\n"
        "        super().__init__(queue, '* * * * *')\n",
    )
    (problem,) = cloudforet.problems(
        f"{QUEUES}SCHEDULERS:\n  s:\n    backend: pkg.mod.Fixed\n    queue: q\n    {key}\n"
    )
    said = "the constructor of the class does not take it" if "rule" in key else "not accepted by a cron schedule"
    assert problem.startswith(f"application.yaml:6: SCHEDULERS.s.{key.partition(':')[0]}: {said}")
    assert problem.endswith("; remove it")


def test_what_is_missing_or_too_much_is_one_report(cloudforet: CloudforetDesk) -> None:
    """The original died of the first at its start, with a TypeError or KeyError."""
    remedy = "remove it, or move options of the class under options:"
    assert cloudforet.problems(
        f"{QUEUES}SCHEDULERS:\n"
        "  a: {queue: q, interval: 5}\n"
        "  b: {backend: a.B, interval: 5}\n"
        "  c: {backend: a.B, queue: q, interval: 5, priority: 3}\n"
        "  d: {backend: 'a b', handler: a.b, queue: q, interval: 5}\n"
        "WORKERS:\n"
        "  w: {pool: 1}\n"
        "  v: {backend: spaceone.core.scheduler.worker.BaseWorker, queue: q, size: 2}\n"
    ) == [
        "application.yaml:3: SCHEDULERS.a.backend: is missing; add backend: package.module.Class",
        "application.yaml:4: SCHEDULERS.b.queue: is missing; add queue: q",
        f"application.yaml:5: SCHEDULERS.c.priority: is not a setting of a scheduler; {remedy}",
        "application.yaml:6: SCHEDULERS.d: has both backend and handler; keep one of them",
        "application.yaml:8: WORKERS.w.backend: is missing; add backend: spaceone.core.scheduler.worker.BaseWorker",
        "application.yaml:8: WORKERS.w.queue: is missing; add queue: q",
        "application.yaml:9: WORKERS.v.size: is not a setting of a worker; known: backend, queue, pool",
    ]


@pytest.mark.parametrize(
    ("keys", "first"),
    [
        ("interval: 1\nminute: ':00'", "2025-01-01T11:00:00"),
        ("interval: 1\nminute: ':15'", "2025-01-01T11:15:00"),
        ("interval: 1\nminute: ':30'", "2025-01-01T10:30:00"),
        ("interval: 1\nminute: '15:30'", "2025-01-01T11:15:30"),
        ("interval: 2\nminute: ':00'", "2025-01-01T12:00:00"),
        ("interval: 6\nminute: ':00'", "2025-01-01T12:00:00"),
        ("interval: 24\nminute: ':30'", "2025-01-02T00:30:00"),
        ("interval: 30", "2025-01-01T10:20:30"),
    ],
)
def test_the_first_due_time_after_a_start_at_twenty_past_ten(cloudforet: CloudforetDesk, keys: str, first: str) -> None:
    """As measured of the original, but for N hours, which are anchored: 6 at 12:00, 24 at half past midnight."""
    cloudforet.entry(keys)
    found = due(cloudforet.load("application.yaml"), START_MS, START_MS + 48 * HOUR_MS)["s"]
    assert datetime.fromtimestamp(found[0] / 1000, UTC).replace(tzinfo=None).isoformat() == first


def test_x10_an_interval_keeps_its_phase_whenever_the_process_starts(cloudforet: CloudforetDesk) -> None:
    """24 hours in a process that restarts daily never came; here due times do not depend on any start."""
    cloudforet.entry("interval: 24\nminute: ':30'")
    loaded = cloudforet.load("application.yaml")
    whole = due(loaded, START_MS, START_MS + 72 * HOUR_MS)["s"]
    restarted = [due(loaded, START_MS + hours * HOUR_MS, START_MS + 72 * HOUR_MS)["s"] for hours in (5, 13, 47)]
    assert len(whole) == 3
    assert all(times == whole[-len(times) :] for times in restarted)
    assert [len(times) for times in restarted] == [3, 3, 1]  # one is missed by nobody: the watermark is in Redis


def test_a_missed_time_is_caught_up_once_unless_asked_otherwise(cloudforet: CloudforetDesk) -> None:
    """The original caught up with one run after a pause; `misfire` chooses none or all."""
    assert (
        cloudforet.loads(f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 60}}}}\n")
        .settings.schedules["s"]
        .missed
        == "latest"
    )
    wanted: dict[str, Any] = {"coalesce": "latest", "skip": "skip", "all": "all"}
    assert {name: cloudforet.entry(f"interval: 60\nmisfire: {name}")["missed"] for name in wanted} == wanted
    assert cloudforet.entry("interval: 60\nmisfire_grace: 90")["catchup_window"] == "90s"


def test_an_interval_alone_that_may_be_hours_is_named_and_not_guessed(cloudforet: CloudforetDesk) -> None:
    """A class called hourly with nothing but a number: seconds by the key, hours by the name."""
    text = f"{QUEUES}SCHEDULERS: {{s: {{backend: pkg.InventoryHourlyScheduler, queue: q, interval: 1}}}}\n"
    (problem,) = cloudforet.problems(text)
    assert "1 may be seconds or hours" in problem
    assert problem.endswith("add unit: hours or unit: seconds")


def test_x11_the_zone_is_chosen_said_once_and_the_same_everywhere(cloudforet: CloudforetDesk) -> None:
    """Naive local time of a container became UTC or a zone by name; TZ is honoured in compat only."""
    text = f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 24, minute: ':30'}}}}\n"
    cases = {
        "UTC": (cloudforet.loads(text), 30),
        "Asia/Seoul": (cloudforet.loads(f"timezone: Asia/Seoul\n{text}"), 15 * 60 + 30),
        "Asia/Kolkata": (cloudforet.loads(text, environ={"TZ": ":Asia/Kolkata"}), 19 * 60),
    }
    for name, (loaded, minute_of_day) in cases.items():
        said = [notice for notice in notices(loaded) if "schedules are in" in notice]
        assert len(said) == 1
        assert name in said[0]
        (first, *_) = due(loaded, START_MS, START_MS + 48 * HOUR_MS)["s"]
        assert first // 60_000 % 1440 == minute_of_day
    assert cloudforet.problems(text, environ={"TZ": "KST-9"})[0].startswith("TZ: timezone: timezone 'KST-9' is not in")


NO_PACKAGE = "nothing names a package of services"
NO_SCHEDULERS = "there are no SCHEDULERS: where other replicas have them"


def test_a_worker_that_knows_no_package_says_so(cloudforet: CloudforetDesk) -> None:
    """The original's workers were told theirs by the command line; here every task would end dead."""
    worker = f"{QUEUES}WORKERS: {{w: {{backend: spaceone.core.scheduler.worker.BaseWorker, queue: q, pool: 1}}}}\n"
    assert any(NO_PACKAGE in notice for notice in notices(cloudforet.loads(worker)))
    scheduler = "SCHEDULERS: {s: {backend: spaceone.identity.task.S, queue: q, interval: 60}}\n"
    for more in ("packages: [spaceone.identity]\n", scheduler):
        said = notices(cloudforet.loads(worker + more))
        assert not any(NO_PACKAGE in notice for notice in said)
        assert any(NO_SCHEDULERS in notice for notice in said) == (more != scheduler)
    cloudforet.write("application.yaml", worker)
    own = cloudforet.write("native.yaml", "cloudforet: {packages: [spaceone.identity]}\n")
    assert not any(NO_PACKAGE in notice for notice in notices(cloudforet.load("application.yaml", own)))


def test_a_worker_with_a_file_of_its_own_takes_no_plans(cloudforet: CloudforetDesk) -> None:
    """A plan is made with the settings of whoever takes it; where the scheduler's are not, it finds nothing to plan."""

    def served(*files: str) -> tuple[str, ...]:
        return cloudforet.load(*files).settings.workers["planners"].queues

    worker = f"{QUEUES}WORKERS: {{w: {{backend: spaceone.core.scheduler.worker.BaseWorker, queue: q, pool: 1}}}}\n"
    cloudforet.write("worker.yaml", worker)
    cloudforet.write("defaults.yaml", "SCHEDULERS: {}\n")
    cloudforet.write("scheduler.yaml", "SCHEDULERS: {s: {backend: spaceone.identity.task.S, queue: q, interval: 60}}\n")
    cloudforet.write("native.yaml", "schedules: {s: {job: cloudforet.plan, queue: planners, every: 1h}}\n")

    assert served("worker.yaml") == served("defaults.yaml", "worker.yaml") == ("default",)
    for more in ("scheduler.yaml", "native.yaml"):
        assert served("worker.yaml", more) == ("planners", "default")
