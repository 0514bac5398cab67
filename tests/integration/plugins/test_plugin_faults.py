"""Plugins that do what no plugin should: contained, told, their schedules suspended, and everything else goes on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.plugins import jobs
from supervisor.plugins.contract import PluginError, PluginUnusableError
from supervisor.store.schedules.control import Control
from tenure import Context, Plugin
from tests.integration.plugins.conftest import DATA, PluginCalls
from tests.kit.canary import CANARY
from tests.kit.waiting import wait_until

GOOD = ("sh", str(DATA / "words.sh"))
AT_ONCE = [
    ("hangs in hello", "start", "did not answer in time"),
    ("exits at once", "start", "exited with 1; its last words: no licence"),
    ("protocol", "start", "speaks protocol 9, and this is 1"),
    ("hangs in init", "init", "did not answer in time"),
    ("wrong init", "init", "init must return a mapping, got list"),
    ("verify", "verify", "failed in verify: cannot log in with ***"),
    ("garbage", "run", "wrote what is no message"),
    ("binary", "run", "wrote what is no message"),
    ("other id", "run", "answered call 11 while call 4 was open"),
    ("both", "run", "must say one of item, result and error"),
    ("endless line", "run", "wrote a line longer than 64 KiB"),
    ("flood", "run", "gave more than 1000 results"),
]
AFTER_SOME = [
    ("dies", "exited with 3; its last words: out of luck"),
    ("killed", "was killed by signal 9"),
    ("fails", "failed in run: the key *** was refused"),
]
TIGHT = {"start_timeout_s": 20.0, "init_timeout_s": 20.0, "line_kib_max": 64, "results_max": 1000}


def tight(fault: str) -> dict[str, Any]:
    """Return limits; a plugin that hangs gets little time, and one that does not gets plenty on a busy machine."""
    short = {"hangs in hello": {"start_timeout_s": 0.3}, "hangs in init": {"init_timeout_s": 0.3}}
    return TIGHT | short.get(fault, {})


def with_neighbour(desk: PluginCalls) -> None:
    """Add a plugin that works, with a schedule of its own."""
    desk.configure("good", command=GOOD, secrets={"token": "t"})
    desk.schedule("s-good", "good")
    assert desk.run("good", task={"words": "a b"})["results"] == 2


def goes_on(desk: PluginCalls) -> None:
    """Hold that nothing but the faulty plugin was touched."""
    assert desk.pause("s-good") is None
    assert desk.run("good", task={"words": "a b c"})["results"] == 3


@pytest.mark.share(3)
@pytest.mark.parametrize(("fault", "phase", "reason"), AT_ONCE)
def test_a_plugin_that_cannot_be_used_is_in_error_at_once(
    desk: PluginCalls, fault: str, phase: str, reason: str
) -> None:
    """Its schedules say why they stand still, and start nothing; its neighbour works."""
    with_neighbour(desk)
    desk.faulty(fault, **tight(fault))
    for name in ("s-1", "s-2"):
        desk.schedule(name, "faulty")

    with pytest.raises(PluginUnusableError) as caught:
        desk.run("faulty", schedule="s-1")
    assert caught.value.phase == phase
    record = desk.record("faulty")
    assert (record.state, record.phase, record.suspended) == ("ERROR", phase, 2)
    assert reason in record.reason
    assert CANARY not in record.reason
    for name in ("s-1", "s-2"):
        pause = desk.pause(name)
        assert pause is not None
        assert pause.by == "plugin faulty"
        assert pause.reason.startswith("plugin faulty is in ERROR: ")
        assert reason in pause.reason
        assert pause.until_ms == record.until_ms > 0
    assert "faulty" not in desk.host.running()
    goes_on(desk)


@pytest.mark.share(3)
@pytest.mark.parametrize(("fault", "reason"), AFTER_SOME)
def test_a_plugin_that_passes_verify_and_then_fails_is_in_error_after_some_runs(
    desk: PluginCalls, fault: str, reason: str
) -> None:
    """Once may be the network; three times in a row is the plugin. The other end sees no secret."""
    with_neighbour(desk)
    desk.faulty(fault)
    desk.schedule("s-1", "faulty")

    for number in (1, 2, 3):
        assert desk.pause("s-1") is None
        with pytest.raises(PluginError) as caught:
            desk.run("faulty", schedule="s-1")
        assert not isinstance(caught.value, PluginUnusableError)
        assert reason in str(caught.value)
        assert desk.record("faulty").failures == number
    pause = desk.pause("s-1")
    assert pause is not None
    assert reason in pause.reason
    assert desk.record("faulty").state == "ERROR"
    goes_on(desk)


def test_tasks_of_a_wrong_shape_spawn_nothing(desk: PluginCalls) -> None:
    """All of them or none: what came before the wrong one never existed."""
    desk.faulty("wrong task")
    context = desk.context()

    with pytest.raises(PluginUnusableError, match="tasks must give mappings, got str"):
        desk_plan(desk, context, "faulty")
    assert context.children is None
    assert desk.record("faulty").state == "ERROR"


def desk_plan(desk: PluginCalls, context: Context, plugin: str) -> Any:
    """Execute ``plugin.plan``."""
    return jobs.plan(context, desk.host, plugin=plugin)


def test_what_a_plugin_says_unasked_ends_it_before_its_next_call(desk: PluginCalls) -> None:
    """It would be taken for the answer to the next question."""
    desk.faulty("talks on")
    desk.run("faulty")

    def refused() -> bool:
        """Whether what it said has arrived."""
        try:
            desk.run("faulty")
        except PluginUnusableError as error:
            return "although nobody had asked" in str(error)
        return False

    wait_until(refused, what="it to be found out")


def test_a_plugin_that_only_forks_children_and_ignores_the_end_is_killed_with_them(
    desk: PluginCalls, tmp_path: Path
) -> None:
    """The group goes as one: the fixture finds what is left."""
    desk.faulty("deaf", "deaf", more=(str(called := tmp_path / "called"),))
    desk.faulty("forks", "forks")
    assert desk.run("forks")["results"] == 1

    with soft_timeout(called.exists), pytest.raises(Context.SoftTimeout):
        desk.run("deaf")
    assert set(desk.host.running()) == {"forks"}
    record = desk.record("deaf")
    assert (record.failures, record.reason) == (1, "plugin deaf was still at work at the soft timeout of its run")


@contextmanager
def soft_timeout(is_reached: Callable[[], bool]) -> Iterator[None]:
    """Interrupt what runs in the block as a worker does, once it is where the test wants it."""

    def stop(_number: int, _frame: object) -> None:
        if is_reached():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Context.SoftTimeout("still running at its soft timeout")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_program_that_does_not_end_is_killed_before_its_worker_would_be(desk: PluginCalls, tmp_path: Path) -> None:
    """However patient it is to be ended: else the run would be a crash that says nothing, and its neighbours too."""
    desk.faulty("deaf", stop_timeout_s=10.0, more=(str(called := tmp_path / "called"),))
    context = desk.context(remaining_s=600.0)

    def is_late() -> bool:  # once it is called: a busy machine takes its time to start it
        if called.exists():
            desk.clock.advance(max(0.0, context.remaining_s() - 9.5))
        return called.exists()

    with soft_timeout(is_late), pytest.raises(Context.SoftTimeout):
        jobs.run(context, desk.host, plugin="faulty")
    assert context.remaining_s() > 0
    assert desk.record("faulty").failures == 1


class Hanging(Plugin):
    """A class that hangs where nobody expects it."""

    name = "hanging"
    called = threading.Event()

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        self.called.set()
        threading.Event().wait(60)
        return {}

    def run(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> None:
        """Never reached."""


def test_a_class_that_hangs_in_init_is_bounded_by_the_timeout_of_its_run(desk: PluginCalls) -> None:
    """It is in this process, so nothing else can end it; then it is in ERROR like a program."""
    Hanging.called.clear()
    desk.registry.register(Hanging)
    desk.schedule("s-1", "hanging")
    with soft_timeout(Hanging.called.is_set), pytest.raises(Context.SoftTimeout):
        desk.run("hanging")

    record = desk.record("hanging")
    assert (record.state, record.phase) == ("ERROR", "init")
    pause = desk.pause("s-1")
    assert pause is not None
    assert "had not passed init and verify at the soft timeout" in pause.reason


def test_a_plugin_that_floods_its_standard_error_is_read_and_forgotten(desk: PluginCalls) -> None:
    """Ten megabytes of warnings neither block it nor stay in memory."""
    desk.faulty("noisy")

    assert desk.run("faulty")["results"] == 1


def test_a_run_that_a_person_ends_says_nothing_against_the_plugin(
    desk: PluginCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be suspended because somebody lost patience."""

    def stop(batch: list[Any], context: Context) -> None:
        raise Context.SoftTimeout("a person asked for its end")

    monkeypatch.setattr("supervisor.plugins.jobs.load_callable", lambda *_: stop)
    desk.configure("good", command=GOOD, secrets={"token": "t"}, sink="any:thing")
    with pytest.raises(Context.SoftTimeout):
        desk.run("good", task={"words": "a"})
    record = desk.record("good")
    assert (record.state, record.failures) == ("ACTIVE", 0)


def test_a_persons_pause_outlives_error_and_recovery(desk: PluginCalls) -> None:
    """Neither takes it for its own."""
    desk.faulty("verify")
    desk.schedule("s-1", "faulty")
    desk.store.run(Control(desk.server.keys).pause(["s-1"], reason="audit", by="alice"))

    with pytest.raises(PluginUnusableError):
        desk.run("faulty", schedule="s-1")
    desk.faulty("none")
    assert desk.run("faulty")["results"] == 1
    pause = desk.pause("s-1")
    assert pause is not None
    assert pause.by == "alice"
