"""Schedules beside their jobs: read as a configuration's, replaced by one of the same name there, gone with the code."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from supervisor.core.errors import ConfigError
from supervisor.core.jobs.registry import registry
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules import declared
from supervisor.core.schedules.declared import DeclaredSchedules, schedule
from supervisor.settings.loader import Loaded, UnusableError, load
from supervisor.settings.render import sources
from supervisor.settings.schedules.complete import complete, import_jobs, schedules_digest, with_late_problems
from supervisor.settings.schedules.declarations import with_declared
from supervisor.settings.schedules.settings import ScheduleSettings
from tenure.declaring import Schedule

HEAD = "from datetime import date, datetime, timedelta, UTC\nfrom tenure import job, schedule\n"
REPORT = '@schedule("0 9 * * *", timezone="Europe/Berlin")\n@job("report")\ndef report(day: str = "") -> None: ...\n'


class Project:
    """A configuration and the job module that it lists."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.monkeypatch = monkeypatch

    def load(self, code: str, config: str = "", *, jobs: str = "[tdeclared]") -> Loaded:
        """Import the module in a process of its own, as it were, and return the configuration with what it declares."""
        self.monkeypatch.setattr(declared.schedules, "_by_function", {})
        sys.modules.pop("tdeclared", None)
        sys.modules.pop("tother", None)
        (self.directory / "tdeclared.py").write_text(HEAD + code)
        (self.directory / "tenure.yaml").write_text(f"jobs: {jobs}\n{config}")
        importlib.invalidate_caches()
        loaded = load(files=[self.directory / "tenure.yaml"], environ={}, flags={})
        assert import_jobs(loaded.settings.jobs) == []
        self.loaded = loaded
        return with_declared(loaded)

    def definitions(self, code: str, config: str = "", **more: str) -> dict[str, ScheduleDef]:
        """Return the schedules as Redis would keep them."""
        return {each.id: each for each in complete(self.load(code, config, **more))}

    def problems(self, code: str, config: str = "") -> list[str]:
        """Return what is wrong, with the place."""
        with pytest.raises(ConfigError) as caught:
            self.definitions(code, config)
        return [str(problem).replace(f"{self.directory}/", "") for problem in caught.value.problems]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project of its own; what it declares is forgotten afterwards. Written without bytecode, which has a clock."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(registry, "_jobs", dict(registry._jobs))
    monkeypatch.setattr(registry, "_by_function", dict(registry._by_function))
    monkeypatch.setattr(registry, "_policies", registry._policies)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield Project(tmp_path, monkeypatch)
    for name in ("tdeclared", "tother"):
        sys.modules.pop(name, None)


def test_a_declared_schedule_is_one_of_the_configurations(project: Project) -> None:
    """Same fields, same defaults, named after its job; and it tells which function has it."""
    found = project.definitions(REPORT)
    written = project.definitions(
        '@job("report")\ndef report(day: str = "") -> None: ...\n',
        "schedules: {report: {job: report, cron: 0 9 * * *, timezone: Europe/Berlin}}\n",
    )

    assert found == {"report": structs.replace(written["report"], declared_by="tdeclared:report")}


def test_values_of_python_mean_what_the_texts_mean(project: Project) -> None:
    """Durations as timedelta or seconds, moments and days as objects of datetime, tuples as lists."""
    found = project.definitions(
        "@schedule(every=timedelta(minutes=5), jitter=30, start_at=datetime(2030, 1, 1, tzinfo=UTC), "
        'exclude=(date(2030, 12, 25),), args={"day": date(2030, 1, 1)}, labels={"team": "a"}, timeout=None)\n'
        '@job("tick")\ndef tick(day: date) -> None: ...\n'
    )["tick"]

    assert (found.every_ms, found.jitter_ms, found.start_at_ms) == (300_000, 30_000, 1_893_456_000_000)
    assert found.template.args == {"day": "2030-01-01"}
    assert len(found.exclude) == 1


def test_a_declared_schedule_uses_what_the_configuration_names(project: Project) -> None:
    """Calendars, profiles and other schedules are the environment's; who follows whom may cross the two, either way."""
    found = project.definitions(
        '@schedule(every="1h", exclude=[{"calendar": "de"}], profile="calm")\n@job("j")\ndef f() -> None: ...\n'
        '@schedule(after={"schedule": "load"})\n@job("k")\ndef g() -> None: ...\n',
        "calendars: {de: {dates: [2030-12-25]}}\nprofiles: {calm: {}}\n"
        "schedules: {load: {job: j, every: 2h}, last: {job: j, after: {schedule: k}}}\n",
    )

    assert set(found) == {"j", "k", "load", "last"}
    assert len(found["j"].exclude) > 0


def test_one_job_may_have_several_schedules_in_any_order_of_decorators(project: Project) -> None:
    """One with the name of the job, the others with their own."""
    found = project.definitions(
        '@schedule(every="1h")\n@job("sync")\n@schedule("0 3 * * *", name="sync-nightly", args={"full": True})\n'
        "def sync(full: bool = False) -> None: ...\n"
    )

    assert {name: each.template.job for name, each in found.items()} == {"sync": "sync", "sync-nightly": "sync"}


LOOP = 'for tenant in ("a", "b"):\n    @schedule("0 3 * * *")\n    @job(f"sync.{tenant}")\n    def sync(): ...\n'
FACTORY = """def made(tenant):
    @schedule(every="1h", name=f"hourly-{tenant}")
    @job(f"sync.{tenant}")
    def sync(): ...
for tenant in ("a", "b"):
    made(tenant)
"""
NAMESAKES = "".join(f'@schedule("0 3 * * *")\n@job("sync.{tenant}")\ndef sync(): ...\n' for tenant in "ab")


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (LOOP, ["sync.a", "sync.b"]),
        (FACTORY, ["hourly-a", "hourly-b"]),
        (FACTORY + 'made("b")\n', ["hourly-a", "hourly-b"]),
        (NAMESAKES, ["sync.a", "sync.b"]),
    ],
    ids=["loop", "factory", "factory called again", "namesakes"],
)
def test_functions_of_one_name_have_a_schedule_each(project: Project, code: str, names: list[str]) -> None:
    """One for each tenant; a module that is imported again, or reloaded, replaces its own."""
    assert sorted(project.definitions(code)) == names
    again = dict(declared.schedules._by_function)
    module = sys.modules.pop("tdeclared")
    importlib.import_module("tdeclared")
    assert sorted(each.id for each in complete(with_declared(project.loaded))) == names
    sys.modules["tdeclared"] = module
    importlib.reload(module)
    assert {name: len(several) for name, several in declared.schedules._by_function.items()} == {
        name: len(several) for name, several in again.items()
    }


def test_a_schedule_of_the_configuration_replaces_the_declared_one_wholly(project: Project) -> None:
    """An environment that needs another time says all of it: nothing of the code is left to be guessed."""
    loaded = project.load(REPORT, "schedules: {report: {job: report, every: 1h, paused: true}}\n")
    (found,) = complete(loaded)

    assert (found.cron, found.every_ms, found.timezone, found.paused, found.declared_by) == (
        None, 3_600_000, "UTC", True, ""
    )  # fmt: skip
    assert loaded.origin("schedules", "report", "every").endswith("tenure.yaml:2")


def test_the_configuration_that_is_shown_names_file_and_line(project: Project) -> None:
    """Whoever asks where a schedule comes from finds the function."""
    shown = sources(project.load(REPORT))

    assert shown["schedules.report.cron"]["value"] == "0 9 * * *"
    assert shown["schedules.report.cron"]["origin"].endswith("tdeclared.py:3")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('@schedule("0 9 * *")\n@job("j")\ndef f() -> None: ...\n', ["tdeclared.py:3", "schedules.j.cron", "4 fields"]),
        ('@schedule(every="soon")\n@job("j")\ndef f() -> None: ...\n', ["schedules.j.every", "is not a duration"]),
        ('@schedule(every="1h", tz="UTC")\n@job("j")\ndef f() -> None: ...\n', ["schedules.j.tz", "timezone"]),
        ('@schedule(every="1h", args={"x": 1})\n@job("j")\ndef f() -> None: ...\n', ["tdeclared.py:3", "j", "x"]),
        ('@schedule(every="1h", args={"x": {1}})\n@job("j")\ndef f(x: int) -> None: ...\n', ["j.args.x", "type set"]),
        ('@schedule(every="1h", overlap="never")\n@job("j")\ndef f() -> None: ...\n', ["schedules.j.overlap", "skip"]),
        ('@schedule(every=float("nan"))\n@job("j")\ndef f() -> None: ...\n', ["schedules.j.every"]),
        ('@schedule(every=10**400)\n@job("j")\ndef f() -> None: ...\n', ["schedules.j.every", "at most 64 bits"]),
        (
            '@schedule(every="1h", name=["a"])\n@job("j")\ndef f() -> None: ...\n',
            ["tdeclared.py:3", "name=", "must be 1 to 200"],
        ),
        ('@schedule(every="1h", name="a b")\n@job("j")\ndef f() -> None: ...\n', ["a b", "must be 1 to 200"]),
        (
            '@schedule(every="1h")\n@schedule(every="2h")\n@job("j")\ndef f() -> None: ...\n',
            ["schedules.j", "is declared twice, also at tdeclared.py:3", "name="],
        ),
        (
            '@job("j")\ndef f() -> None: ...\n@schedule(every="1h")\ndef g() -> None: ...\n',
            ["tdeclared.py:5", "tdeclared:g is no job", "add @job"],
        ),
        (
            '@schedule(every="1h", renamed_from="old")\n@job("j")\ndef f() -> None: ...\n',
            ["renamed_from", "'old' is another schedule, still defined"],
        ),
    ],
)
def test_a_mistake_is_told_as_of_a_configuration_with_the_line_of_the_function(
    project: Project, code: str, words: list[str]
) -> None:
    """The start, `config validate` and a reload refuse it; the time is not found out at the first fire."""
    more = "@job('old')\ndef h() -> None: ...\n"
    told = " ".join(project.problems(code + more, "schedules: {old: {job: old, every: 1h}}\n"))

    for word in words:
        assert word in told, told


@pytest.mark.parametrize("call", ["schedule()", "schedule(lambda: None)"])
def test_a_schedule_without_a_time_is_refused_where_it_is_written(call: str) -> None:
    """`@schedule` without brackets is a mistake that imports would hide."""
    with pytest.raises(TypeError, match="needs to know when"):
        eval(call, {"schedule": schedule})


def test_code_that_is_removed_removes_its_schedule(project: Project) -> None:
    """As for a configuration: the set of a replica is what its code and files have now."""
    assert "report" in project.definitions(REPORT)
    assert project.definitions('@job("report")\ndef report(day: str = "") -> None: ...\n') == {}


def test_a_module_that_is_listed_no_longer_brings_none(project: Project) -> None:
    """A reload cannot unload it, and its jobs stay known; its schedules end."""
    (project.directory / "tother.py").write_text('from tenure import job\n@job("other")\ndef other() -> None: ...\n')

    assert "report" in project.definitions(REPORT)
    assert project.definitions(REPORT, jobs="[tother]") == {}


def test_a_program_of_ones_own_brings_its_schedules_unlisted(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """``tenure.main`` keeps what the program declares, as it keeps its jobs."""
    (project.directory / "tother.py").write_text('from tenure import job\n@job("other")\ndef other() -> None: ...\n')
    monkeypatch.setattr(declared.schedules, "_own", set())
    project.load(REPORT)
    declared.schedules.keep()

    loaded = load(files=[], environ={}, flags={})
    assert list(with_declared(loaded).settings.schedules) == ["report"]


def test_an_edit_beside_the_schedule_changes_no_set(project: Project) -> None:
    """Replicas of two builds bring one set if the schedules are equal, and two, of which the newest rules, if not."""

    def digest(code: str) -> str:
        return schedules_digest(project.definitions(code).values())

    assert digest(REPORT) == digest(f"import os\n\n\n{REPORT}")
    assert digest(REPORT) != digest(REPORT.replace("0 9", "0 8"))


def test_a_program_that_only_enqueues_loads_no_settings_for_it() -> None:
    """Job modules are imported by web applications, which know no schedules."""
    code = (
        "from tenure import job, schedule\n@schedule(every='5m')\n@job\ndef f(): ...\n"
        "import sys; print([name for name in ('pydantic', 'redis', 'supervisor.settings') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)

    assert done.stdout == "[]\n"


def test_the_decorator_takes_every_field_of_a_schedule() -> None:
    """A field that the configuration gains is one that type checkers let pass."""
    named = {field.alias or name for name, field in ScheduleSettings.model_fields.items()}
    hints = set(Schedule.__call__.__annotations__)

    assert hints - {"return", "cron", "name"} == {name.removesuffix("_s") for name in named} - {"job", "cron"}


def test_a_function_without_code_of_its_own_names_itself() -> None:
    """A callable object has no line."""
    declared_here = DeclaredSchedules()
    function = SimpleNamespace(__module__="m", __qualname__="q", __call__=lambda: None)
    each = declared.DeclaredSchedule(function, None, {})  # type: ignore[arg-type]
    declared_here.add(each)

    assert each.origin == "m:q"


def test_a_fault_elsewhere_hides_no_schedule_that_code_declares_from_its_followers(project: Project) -> None:
    """Else the second of two messages tells of a mistake that nobody made."""
    config = (
        "schedules:\n"
        "  follower: {job: report, after: {schedule: report}}\n"
        "  faulty: {job: report, cron: '0 9 * * *', exclude: 5}\n"
    )
    with pytest.raises(UnusableError) as caught:
        project.load(REPORT, config)

    problems = with_late_problems(caught.value).problems
    assert [problem.path for problem in problems] == ["schedules.faulty.exclude"]


def test_a_value_that_holds_itself_or_is_too_deep_is_refused_where_it_is_written() -> None:
    """The import ended with RecursionError."""
    loop: list[object] = []
    loop += [loop, loop]
    nested: object = 0
    for _ in range(5000):
        nested = [nested]
    for fields in ({"args": {"x": loop}}, {"args": {"x": nested}}, {"when": loop}, {"args": {"x": {"y": (loop,)}}}):
        with pytest.raises(ValueError, match=r"holds itself, or is nested deeper than 100"):
            schedule(every="5m", **fields)
    twice = [1]
    schedule(every="5m", args={"x": [twice, twice]})
