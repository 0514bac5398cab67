"""Completion: job modules imported, schedules checked against the jobs in them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.errors import ConfigError
from supervisor.core.jobs.registry import Registry, job, registry
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.worker.attempt import middleware
from supervisor.settings.loader import UnusableError
from supervisor.settings.schedules.complete import complete, import_jobs, schedules_digest, unserved, with_late_problems
from supervisor.version import install_extra


def sync_job(path: str, count: int = 1) -> None:
    """Be a job with a required and an optional argument."""


async def async_job() -> None:
    """Be a coroutine job."""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Return a registry of its own with two jobs, made by the public decorator."""
    own = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", own)
    job("files.sync", queue="files", timeout=100.0, soft_timeout=80.0)(sync_job)
    job("net.ping")(async_job)
    return own


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory on the import path; what was imported from it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(registry, "_jobs", dict(registry._jobs))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("t"):
            del sys.modules[name]


POOLS = "workers: {s: {kind: sync, queues: [files, default]}, a: {kind: async, queues: [default]}}\n"


def complaints(desk: Any, known: Registry) -> list[str]:
    """Return what completing says."""
    with pytest.raises(ConfigError) as caught:
        complete(desk.load(), known)
    return [str(problem).replace(f"{desk.directory}/", "") for problem in caught.value.problems]


def test_a_module_of_middleware_needs_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """``tenure.jobs.tracing`` is listed like any other."""
    monkeypatch.setattr(middleware, "_installed", [])
    monkeypatch.delitem(sys.modules, "tenure.jobs.tracing", raising=False)

    assert import_jobs(["tenure.jobs.tracing"]) == []
    assert [type(item).__name__ for item in middleware._installed] == ["RunTracing"]


def test_a_module_whose_extra_is_not_installed_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is optional; asking for it is not."""
    monkeypatch.setattr(middleware, "_installed", [])
    for name in ("tenure.jobs.tracing", "supervisor.roles.worker.attempt.tracing"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    (problem,) = import_jobs(["tenure.jobs.tracing"])
    assert problem.message == "module tenure.jobs.tracing needs opentelemetry, which is not installed"
    assert problem.remedy == install_extra("otel")


def test_a_schedule_becomes_a_definition_with_everything_a_run_needs(desk: Any, known: Registry) -> None:
    """What the job says, and over it what the schedule says."""
    desk.add(
        POOLS + "schedules:\n"
        "  one: {job: files.sync, every: 1m30s, args: {path: /a}, description: hi}\n"
        "  two: {job: net.ping, cron: '30 2 * * *', timezone: Europe/Berlin, overlap: allow, priority: high, timeout: 5s}\n"
        "  three: {job: files.sync, every: 1s, queue: default, timeout: 50s, args: {path: x, count: 3}}\n"
    )
    one, two, three = complete(desk.load(), known)
    assert one == ScheduleDef(
        id="one", every_ms=90_000, description="hi",
        template=Template(job="files.sync", kind=Kind.SYNC, queue="files", args={"path": "/a"}, timeout_s=100.0, soft_timeout_s=80.0),
    )  # fmt: skip
    assert (two.cron, two.timezone, two.overlap, two.every_ms) == ("30 2 * * *", "Europe/Berlin", "allow", None)
    assert (two.template.kind, two.template.priority, two.template.timeout_s) == (Kind.ASYNC, 0, 5.0)
    assert (three.template.queue, three.template.timeout_s, three.template.args["count"]) == ("default", 50.0, 3)
    assert three.template.soft_timeout_s is None, "a soft timeout above the hard one would never come"


def test_everything_that_does_not_fit_is_said_at_once(desk: Any, known: Registry) -> None:
    """Each with the line of the key to change."""
    desk.add(
        POOLS + "workers_strict: true\nschedules:\n"
        "  a:\n    job: files.snyc\n    every: 1m\n"
        "  b:\n    job: files.sync\n    every: 1m\n"
        "  c:\n    job: files.sync\n    every: 1m\n    args: {path: x, cuont: 1}\n"
        "  d:\n    job: files.sync\n    every: 1m\n    args: {path: 5, count: [x]}\n"
        "  e:\n    job: net.ping\n    every: 1m\n    queue: files\n"
        "  f:\n    job: qqqq\n    every: 1m\n"
    )
    found = complaints(desk, known)
    assert found[0] == "tenure.yaml:5: schedules.a.job: no job is called 'files.snyc'; did you mean files.sync?"
    assert found[1].startswith("tenure.yaml:7: schedules.b.args: job files.sync")
    assert "path" in found[1]
    assert found[2].startswith("tenure.yaml:13: schedules.c.args: job files.sync")
    assert "cuont" in found[2]
    assert found[3].startswith("tenure.yaml:17: schedules.d.args: job files.sync")
    assert found[4] == (
        "tenure.yaml:21: schedules.e.queue: no async pool takes runs from queue 'files', where job net.ping (a coroutine) goes; "
        "add files to the queues of a pool with kind: async"
    )
    assert found[5].startswith("tenure.yaml:23: schedules.f.job: no job is called 'qqqq'")
    assert len(found) == 6


def test_mistakes_of_every_kind_are_listed_together(desk: Any, known: Registry) -> None:
    """Fifty mistakes in many schedules are one list: those of the text and those against the jobs."""
    entry = "{job: net.ping, cron: '30 2 * * *', timezone: Europe/Berlin}"
    wrong = ["{job: net.pnig, every: 1m}", "{job: net.ping, cron: '99 * * * *'}", "{job: net.ping, every: 1m, args: {x: 1}}",
             "{job: net.ping, every: 1m, ovrlap: skip}", "{job: net.ping, at: tomorrow}"]  # fmt: skip
    lines = [f"  s{n}: {wrong[n // 40 % 5] if n % 40 == 7 else entry}\n" for n in range(2_000)]
    desk.add(POOLS + "schedules:\n" + "".join(lines))
    with pytest.raises(UnusableError) as caught:
        desk.load()
    assert len(caught.value.problems) == 30
    problems = with_late_problems(caught.value, known).problems
    assert [int(problem.where.rsplit(":", 1)[1]) for problem in problems] == [n + 3 for n in range(7, 2_000, 40)]
    assert {problem.path.split(".")[2] for problem in problems} == {"job", "cron", "args", "ovrlap", "at"}


def test_a_module_that_is_missing_is_said_once_beside_the_other_problems(desk: Any, known: Registry) -> None:
    """Every schedule that needs it would say so again."""
    desk.add("jobs: [no.such.module]\nlog: {level: loud}\nschedules:\n  a: {job: no.such.job, every: 1m}\n")
    with pytest.raises(UnusableError) as caught:
        desk.load()
    paths = [problem.path for problem in with_late_problems(caught.value, known).problems]
    assert paths == ["jobs[0]", "log.level"]


def test_with_workers_strict_a_queue_without_a_pool_is_a_problem_even_without_a_schedule(
    desk: Any, known: Registry
) -> None:
    """Where one replica does everything, a run that somebody enqueues there would lie for ever."""
    desk.add("workers_strict: true\nworkers:\n  a: {kind: async}\n")
    (line,) = complaints(desk, known)
    assert line == (
        "tenure.yaml:2: workers: no sync pool takes runs from queue 'files', where job files.sync (a plain function) goes; "
        "add files to the queues of a pool with kind: sync"
    )


def test_pools_by_role_need_not_serve_every_job_that_is_imported(desk: Any, known: Registry) -> None:
    """Another replica may take the other queues; what this one leaves is told at the start, and is no mistake."""
    desk.add(
        "workers: {gpu: {kind: sync, queues: [gpu]}}\n"
        "schedules: {a: {job: files.sync, every: 1m, args: {path: x}}, b: {job: net.ping, every: 1m}}\n"
    )
    loaded = desk.load()
    definitions = complete(loaded, known)
    assert len(definitions) == 2
    told = [problem.path for problem in unserved(loaded, definitions, known)]
    assert told == ["schedules.a.job", "schedules.b.job"]


def test_a_replica_without_pools_schedules_for_others(desk: Any, known: Registry) -> None:
    """Its own configuration cannot know what the others serve."""
    desk.add("workers: {}\nschedules: {a: {job: files.sync, every: 1m, args: {path: x}}}\n")
    assert len(complete(desk.load(), known)) == 1


def test_arguments_that_no_run_could_carry_are_refused(desk: Any, known: Registry) -> None:
    """At start, not at the first fire."""
    desk.add(POOLS + f"schedules: {{a: {{job: files.sync, every: 1m, args: {{path: {'x' * 64 * 1024}}}}}}}\n")
    (line,) = complaints(desk, known)
    assert "bytes with the rest of the run, of 65536 allowed" in line
    assert "xxxxx" not in line


def test_arguments_that_no_run_could_carry_once_filled_in_are_refused(desk: Any, known: Registry) -> None:
    """Their placeholders grow in each run: the schedule was accepted, and never fired."""
    path = "é" * 20_000 + "{{ run }}" * 150
    for name, problems in (("a", 0), ("a" * 190, 1)):
        desk.add(POOLS + f"schedules: {{{name}: {{job: files.sync, every: 1m, args: {{path: '{path}'}}}}}}\n")
        found = complaints(desk, known) if problems else complete(desk.load(), known)
        assert len(found) == 1
    assert "bytes with the rest of the run, of 65536 allowed" in str(found[0])


def test_a_secret_in_arguments_is_not_in_the_problem(desk: Any, known: Registry) -> None:
    """The error of the signature may quote a value."""
    desk.add(POOLS + "schedules: {a: {job: files.sync, every: 1m, args: {path: x, count: '${env:S}'}}}\n")
    with pytest.raises(ConfigError) as caught:
        complete(desk.load({"S": "hunter2"}), known)
    assert "hunter2" not in str(caught.value)


def test_the_digest_tells_sets_apart_and_not_their_order(desk: Any, known: Registry) -> None:
    """Replicas with equal schedules must agree that they are equal."""
    desk.add(
        POOLS
        + "schedules: {a: {job: net.ping, every: 1m}, b: {job: files.sync, every: 2m, args: {path: x, count: 1}}}\n"
    )
    first = complete(desk.load(), known)
    desk.files = [
        desk.write(
            "other.yaml",
            POOLS
            + "schedules: {b: {job: files.sync, args: {count: 1, path: x}, every: 120s}, a: {job: net.ping, every: 60s}}\n",
        )
    ]
    second = complete(desk.load(), known)
    assert schedules_digest(first) == schedules_digest(second)
    assert schedules_digest(first) != schedules_digest(first[:1])
    assert len(schedules_digest(())) == 64


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_thing_at_all\n", "module tjobs needs no_such_thing_at_all, which is not installed"),
        (
            "\n\nraise RuntimeError('boom\\nbang')\n",
            "module tjobs cannot be imported: RuntimeError: boom bang (DIR/tjobs.py:3)",
        ),
        ("def f(:\n", "module tjobs cannot be imported: SyntaxError: "),
        ("import sys\nsys.exit(3)\n", "module tjobs cannot be imported: SystemExit: 3 (DIR/tjobs.py:2)"),
        ("x = 1\n", "module tjobs registers no job; decorate a function in it with @job, or remove it from jobs"),
        (
            "from supervisor.core.jobs.registry import job\n@job(priority='x')\ndef f() -> None: ...\n",
            "priority must be one of",
        ),
    ],
)
def test_a_module_that_gives_no_jobs_says_why(source: str, message: str, modules: Path) -> None:
    """The last line of a traceback, with the place in the module, and the line of the entry in the configuration."""
    (modules / "tjobs.py").write_text(source)
    (problem,) = import_jobs(["tjobs"], {"jobs[0]": "tenure.yaml:7"})
    assert (problem.where, problem.path) == ("tenure.yaml:7", "jobs[0]")
    assert message in str(problem).replace(str(modules), "DIR")


def test_a_module_whose_import_changes_the_current_directory_is_refused(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, also where it changes it on the way to an error; the process stays where its relative paths lead."""
    here, elsewhere = modules / "here", modules / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    leaving = f"import os\nos.chdir({str(elsewhere)!r})\n"
    (modules / "tleaves.py").write_text(f"{leaving}from tenure import job\n@job('tleaves.f')\ndef f() -> None: ...\n")
    (modules / "tbreaks.py").write_text(f"{leaving}raise RuntimeError('boom')\n")
    (modules / "tremoved.py").write_text(f"{leaving}os.rmdir({str(elsewhere)!r})\n")

    left, broken, removed = import_jobs(["tleaves", "tbreaks", "tremoved"], {"jobs[0]": "tenure.yaml:7"})

    assert Path.cwd() == here
    assert (left.where, left.path) == ("tenure.yaml:7", "jobs[0]")
    assert f"module tleaves changes the current directory when it is imported, to {elsewhere}:" in left.message
    assert left.remedy == "leave it, and make paths of files beside a module from __file__"
    assert "module tbreaks cannot be imported: RuntimeError: boom" in broken.message
    assert "module tremoved changes the current directory when it is imported, to one that is gone:" in removed.message


def test_a_module_whose_import_makes_going_back_impossible_is_refused_by_name(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory that was left may be gone, or under another name."""
    here = modules / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (modules / "trenames.py").write_text(f"import os\nos.chdir('/')\nos.rename({str(here)!r}, '{here}2')\n")
    (modules / "tremoves.py").write_text(f"import os\nos.chdir('/')\nos.rmdir('{here}2')\n")

    (renamed,) = import_jobs(["trenames"])
    back = Path.cwd()
    (removed,) = import_jobs(["tremoves"])

    assert "module trenames changes the current directory when it is imported, to /:" in renamed.message
    assert back == modules / "here2"
    assert "module tremoves changes the current directory when it is imported, to /:" in removed.message


def test_modules_are_imported_where_the_current_directory_is_gone(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy may remove the directory of the former release; what is not found is told as elsewhere."""
    gone = modules / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    (modules / "tthere.py").write_text("from tenure import job\n@job('tthere.f')\ndef f() -> None: ...\n")

    (problem,) = import_jobs(["tthere", "tabsent"])

    assert problem.path == "jobs[1]"
    assert "there is no module tabsent" in problem.message


def test_every_module_is_tried_although_one_fails(modules: Path) -> None:
    """All at once, here too; a missing package of a dotted name counts as missing."""
    (modules / "tgood.py").write_text(
        "from supervisor.core.jobs.registry import job\n@job('tgood.f')\ndef f() -> None: ...\n"
    )
    found = import_jobs(["tmissing", "tgood", "tmissing.sub", "tgood.sub"])
    assert [problem.path for problem in found] == ["jobs[0]", "jobs[2]", "jobs[3]"]
    assert "there is no module tmissing" in str(found[0])
    assert "tgood.f" in registry.names()


def test_a_package_may_only_collect_the_jobs_of_others(modules: Path) -> None:
    """`jobs: [mypackage]` whose __init__ imports functions, or submodules, that are jobs."""
    (modules / "tother.py").write_text(
        "from supervisor.core.jobs.registry import job\n@job('tother.f')\ndef f() -> None: ...\n"
    )
    (modules / "tcollect.py").write_text("from tother import f\n")
    (modules / "tpack").mkdir()
    (modules / "tpack/__init__.py").write_text("import tpack.inner\n")
    (modules / "tpack/inner.py").write_text(
        "from supervisor.core.jobs.registry import job\n@job('tpack.f')\ndef f() -> None: ...\n"
    )
    assert import_jobs(["tcollect", "tpack", "tpack.inner"]) == []


def test_jobs_in_the_current_directory_are_found(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed command does not search it by itself, and what lies there must not replace what is installed."""
    here = modules / "here"
    here.mkdir()
    (here / "tlocal.py").write_text(
        "from supervisor.core.jobs.registry import job\n@job('tlocal.f')\ndef f() -> None: ...\n"
    )
    monkeypatch.chdir(here)
    assert import_jobs(["tlocal"]) == []
    assert sys.path[-1] == str(here)
