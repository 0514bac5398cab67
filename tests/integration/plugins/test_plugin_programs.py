"""A program's life under a worker: started when needed, kept, replaced when it changes, stopped when idle."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from supervisor.plugins.contract import PluginUnusableError
from supervisor.plugins.instances import launch_of
from supervisor.plugins.program import Program
from supervisor.settings.sections.plugins import PluginSettings
from tests.integration.plugins.conftest import DATA, PluginCalls, family
from tests.kit.canary import CANARY
from tests.kit.waiting import wait_until

WORDS = {"command": ("sh", str(DATA / "words.sh")), "secrets": {"token": CANARY}}


def test_a_program_is_started_by_the_first_run_and_kept(desk: PluginCalls) -> None:
    """One process for many runs."""
    desk.configure("words", **WORDS)
    before = family()
    assert desk.run("words", task={"words": "a b"})["results"] == 2
    started = family() - before
    for _ in range(3):
        desk.run("words", task={"words": "a"})

    assert started
    assert family() - before == started
    assert desk.reasons() == ["plugin_started"]


def test_a_program_that_nobody_needs_is_stopped_and_started_again_when_needed(desk: PluginCalls) -> None:
    """It costs nothing while no schedule runs it."""
    desk.configure("words", idle_stop_s=600.0, **WORDS)
    before = family()
    desk.run("words", task={"words": "a"})
    desk.clock.advance(540)
    desk.host.ping()
    assert "words" in desk.host.running()
    desk.clock.advance(61)
    desk.host.ping()

    assert desk.host.running() == {}
    assert family() == before
    assert desk.run("words", task={"words": "a"})["results"] == 1
    assert desk.told[1] == ("plugin_stopped", "nobody needed it")


def test_programs_that_do_not_end_hold_their_worker_up_for_a_moment_only(desk: PluginCalls) -> None:
    """A worker that waits for all of them in turn would be killed as hung, for no fault of a run."""
    names = ["one", "two", "three"]
    for name in names:
        desk.faulty("stays", name, idle_stop_s=60.0, stop_timeout_s=10.0)
        desk.run(name)
    desk.clock.advance(61)
    before_ns = desk.clock.elapsed_ns()
    desk.host.ping()

    assert desk.host.running() == {}
    assert (desk.clock.elapsed_ns() - before_ns) / 1e9 < 15.0  # the default of `supervisor.hang_timeout`
    assert desk.told[-3:] == [("plugin_stopped", "nobody needed it")] * 3


def test_a_program_that_died_while_idle_is_started_again_without_a_failure(desk: PluginCalls) -> None:
    """The machine's memory killer is no fault of the next run."""
    desk.configure("words", **WORDS)
    before = family()
    desk.run("words", task={"words": "a"})
    for pid in family() - before:
        psutil.Process(pid).kill()
    wait_until(lambda: not desk.host.running(), what="the death to be known")

    assert desk.run("words", task={"words": "a"})["results"] == 1
    assert desk.record("words").failures == 0


def test_a_changed_program_is_verified_before_it_takes_over(desk: PluginCalls, tmp_path: Path) -> None:
    """With no setting changed: the file is another one. The one before is ended then, and not sooner."""
    program = tmp_path / "plugin.sh"
    text = (DATA / "words.sh").read_text()
    program.write_text(text)
    desk.configure("words", command=("sh", str(program)), secrets={"token": "t"})
    others = family()
    desk.run("words", task={"words": "a"})
    before = family() - others
    (tmp_path / "new").write_text(text.replace('"version\\":\\"1.2', '"version\\":\\"1.3'))
    (tmp_path / "new").rename(program)

    assert desk.run("words", task={"words": "a b"})["results"] == 2
    assert desk.host.running() == {"words": "1.3"}
    assert desk.reasons() == ["plugin_started", "plugin_upgraded"]
    assert not before & family()


def test_a_changed_program_that_cannot_be_used_does_not_end_the_one_before(desk: PluginCalls, tmp_path: Path) -> None:
    """Put back, it goes on as if nothing had been."""
    program = tmp_path / "plugin.sh"
    text = (DATA / "words.sh").read_text()
    program.write_text(text)
    desk.configure("words", command=("sh", str(program)), secrets={"token": "t"})
    desk.run("words", task={"words": "a"})
    kept = program.stat()
    program.write_text("exit 4\n")
    with pytest.raises(PluginUnusableError, match="exited with 4"):
        desk.run("words", task={"words": "a"})
    program.write_text(text)
    os.utime(program, ns=(kept.st_atime_ns, kept.st_mtime_ns))

    assert desk.run("words", task={"words": "a"})["results"] == 1
    assert desk.reasons() == ["plugin_started"]


def test_a_pinned_version_is_the_only_one_that_is_used(desk: PluginCalls) -> None:
    """`version: auto` takes what is there; a pin says what must be."""
    desk.configure("words", version="1.2", **WORDS)
    assert desk.run("words", task={"words": "a"})["results"] == 1
    desk.configure("words", version="2", **WORDS)

    with pytest.raises(PluginUnusableError, match=r"is version 1\.2, and plugins\.words\.version is 2"):
        desk.run("words", task={"words": "a"})


SHOW = """
import json, os, resource, sys
for text in sys.stdin:
    asked = json.loads(text)
    result = {"protocol": 1, "version": "1"} if asked["method"] == "hello" else {
        "env": sorted(os.environ), "cwd": os.getcwd(), "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "memory": resource.getrlimit(resource.RLIMIT_AS)[0], "cpu": resource.getrlimit(resource.RLIMIT_CPU)[0],
    }
    print(json.dumps({"id": asked["id"], "result": result}), flush=True)
"""


def test_a_program_gets_an_environment_directory_and_limits_of_its_own(
    desk: PluginCalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the tree's environment but where programs are, and how to write."""
    monkeypatch.setenv("TENURE_REDIS__PASSWORD", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    desk.configure(
        "show", command=(sys.executable, "-c", SHOW), cwd=str(tmp_path), env={"MODE": "test"},
        memory_mib_max=4096, cpu_max_s=30.0, open_files_max=64,
    )  # fmt: skip
    desk.run("show")
    found = desk.record("show").metadata

    assert set(found["env"]) <= {"MODE", "PATH", "HOME", "LANG", "LC_ALL", "TZ", "LC_CTYPE", "PWD"}
    assert "MODE" in found["env"]
    assert (found["cwd"], found["files"], found["memory"], found["cpu"]) == (str(tmp_path), 64, 4096 * 1024 * 1024, 30)


def test_a_program_that_does_not_exist_says_so(desk: PluginCalls) -> None:
    """With the name that was tried."""
    desk.configure("none", command=("/no/such/program",))

    with pytest.raises(PluginUnusableError, match=r"could not be started: its command: No such file or directory"):
        desk.run("none")


def test_ten_thousand_results_of_a_program_are_streamed(desk: PluginCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe is the window: what the host holds is one read of it, whatever the program has to say."""
    held: list[int] = []
    found: list[int] = []

    def sink(batch: list[dict[str, Any]], _context: Any) -> None:
        instance: Any = desk.host._live["numbers"].instance
        held.append(len(instance._program._lines))
        found.extend(each["value"] for each in batch)

    monkeypatch.setattr("supervisor.plugins.jobs.load_callable", lambda *_: sink)
    desk.configure("numbers", command=("perl", str(DATA / "numbers.pl")), secrets={"key": "k"}, sink="any:sink")

    assert desk.run("numbers", task={"count": 10_000}) == {
        "results": 10_000, "succeeded": 8572, "failed": 1428, "messages": ["FAILURE"] * 10,
    }  # fmt: skip
    assert found == list(range(1, 10_001))
    assert max(held) < 65_536 / 40


def test_a_program_that_nobody_holds_is_ended(desk: PluginCalls) -> None:
    """An exception may come between its start and the moment at which somebody would close it."""
    before = family()
    program = Program(desk.clock, line_bytes_max=1000)
    program.start(launch_of(PluginSettings(command=("sh", "-c", "read line"))))
    assert family() - before
    del program

    assert family() == before
