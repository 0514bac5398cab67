"""A plugin's life in one worker process: started when needed, kept, asked anew, replaced, stopped when idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from supervisor.core.errors import StoreUnavailableError
from supervisor.plugins import jobs
from supervisor.plugins.contract import PluginError, PluginUnusableError
from supervisor.plugins.jobs import BATCH_MAX
from supervisor.store.plugins import Plugins, PluginState
from tenure import Plugin
from tests.integration.plugins.conftest import PluginCalls

calls: list[tuple[str, Any]] = []


class Counting(Plugin):
    """Notes how it is called."""

    name = "counting"
    version = "1"
    methods = ("double",)

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        calls.append(("init", options))
        return {"regions": ["eu"]}

    def verify(self, options: dict[str, Any], secrets: dict[str, str]) -> None:
        calls.append(("verify", dict(secrets)))
        if options.get("is_bad"):
            raise ValueError(f"bad with {secrets['key']}")
        if options.get("is_odd"):
            raise OSError("no file caf\udce9")  # as Python reads a name that is no UTF-8

    def tasks(self, options: dict[str, Any], secrets: dict[str, str]) -> Iterator[dict[str, Any]]:
        yield from ({"number": number} for number in range(3))

    def run(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for number in range(task.get("number", 0)):
            calls.append(("made", number))
            yield {"state": "FAILURE" if number % 4 == 3 else "SUCCESS", "message": f"number {number}"}
        if task.get("fails"):
            raise ConnectionError(f"no answer for {secrets['key']}")

    def double(self, options: dict[str, Any], secrets: dict[str, str], task: dict[str, Any]) -> dict[str, Any]:
        return {"state": "SUCCESS", "double": 2 * task["number"]}


@pytest.fixture
def counting(desk: PluginCalls) -> PluginCalls:
    """A desk with the plugin that notes how it is called."""
    calls.clear()
    desk.registry.register(Counting)
    desk.configure("counting", options={"lang": "en"}, secrets={"key": "k-value"})
    return desk


def count(name: str) -> int:
    """Return how often a method was called."""
    return [each for each, _ in calls].count(name)


def test_init_and_verify_are_called_once_for_many_runs(counting: PluginCalls) -> None:
    """And again when the options, the secrets or the version change, and for nothing else."""
    for _ in range(3):
        counting.run("counting")
    assert (count("init"), count("verify")) == (1, 1)
    counting.run("counting", options={"lang": "de"})
    counting.run("counting", options={"lang": "en"})
    assert (count("init"), count("verify")) == (2, 2)
    counting.configure("counting", options={"lang": "en"}, secrets={"key": "other"})
    counting.run("counting")
    assert (count("init"), calls[-1]) == (3, ("verify", {"key": "other"}))
    counting.registry.register(type("Counting", (Counting,), {"version": "2", "__module__": Counting.__module__}))
    counting.run("counting")
    assert count("init") == 4
    assert counting.host.running() == {"counting": "2"}


def test_the_options_of_a_run_stand_over_the_configured_ones(counting: PluginCalls) -> None:
    """Key by key, so that a schedule says only what is its own."""
    counting.run("counting", options={"region": "eu"})

    assert calls[0] == ("init", {"lang": "en", "region": "eu"})


def test_the_cluster_knows_what_init_said(counting: PluginCalls) -> None:
    """For `tenure plugin show`, without asking the plugin again."""
    counting.run("counting")
    record = counting.record("counting")

    assert (record.state, record.version, record.metadata) == (PluginState.ACTIVE, "1", {"regions": ["eu"]})


def test_results_are_counted_by_their_state(counting: PluginCalls) -> None:
    """With the messages of the first that failed."""
    assert counting.run("counting", task={"number": 9}) == {
        "results": 9, "succeeded": 7, "failed": 2, "messages": ["number 3", "number 7"],
    }  # fmt: skip


def test_another_method_is_named_by_the_run(counting: PluginCalls) -> None:
    """One that the plugin does not name is no fault of the plugin."""
    assert counting.run("counting", method="double", task={"number": 4})["results"] == 1
    with pytest.raises(PluginError, match=r"has no method 'verify'; it has: run, double"):
        counting.run("counting", method="verify")
    assert counting.record("counting").failures == 0


def test_a_plan_spawns_a_run_for_each_task(counting: PluginCalls) -> None:
    """The runs say which plugin and which task, and carry no secret."""
    counting.configure("counting", queue="collectors", secrets={"key": "k-value"})
    context = counting.context()

    assert jobs.plan(context, counting.host, plugin="counting", options={"lang": "de"}, method="double") == {"tasks": 3}
    assert context.children is not None
    children = context.children.envelopes
    assert [child.id for child in children] == ["a-run/0", "a-run/1", "a-run/2"]
    assert children[1].template.args == {
        "plugin": "counting", "task": {"number": 1}, "options": {"lang": "de"}, "method": "double",
    }  # fmt: skip
    assert {child.template.queue for child in children} == {"collectors"}
    assert "k-value" not in str(children)


def test_a_sink_takes_every_result_and_holds_the_plugin_back(
    counting: PluginCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches and in order; while it has one, the plugin makes no more, so memory stays bounded."""
    taken: list[dict[str, Any]] = []

    def sink(batch: list[dict[str, Any]], context: Any) -> None:
        assert context.run_id == "a-run"
        assert len(batch) <= BATCH_MAX
        assert count("made") - len(taken) <= BATCH_MAX
        taken.extend(batch)

    monkeypatch.setattr("supervisor.plugins.jobs.load_callable", lambda *_: sink)
    counting.configure("counting", sink="any:sink", secrets={"key": "k"})

    assert counting.run("counting", task={"number": 1050})["results"] == 1050
    assert [each["message"] for each in taken] == [f"number {number}" for number in range(1050)]


def test_a_sink_that_fails_fails_the_run_and_not_the_plugin(
    counting: PluginCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its schedules are not suspended because a database is down."""

    def sink(_batch: list[Any], _context: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("supervisor.plugins.jobs.load_callable", lambda *_: sink)
    counting.configure("counting", sink="any:sink", fail_after=1)

    with pytest.raises(jobs.PluginSinkError, match=r"sink any:sink failed: OSError: disk full"):
        counting.run("counting", task={"number": 1})
    assert counting.record("counting").state == "ACTIVE"


def test_progress_is_told_once_a_second_and_at_the_end(counting: PluginCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million results are a few values, not a million."""
    told: list[Any] = []
    context = counting.context()
    monkeypatch.setattr(type(context), "progress", lambda _, value, note="": told.append(value))

    def sink(_batch: list[Any], _context: Any) -> None:
        counting.clock.advance(0.4)

    monkeypatch.setattr("supervisor.plugins.jobs.load_callable", lambda *_: sink)
    counting.configure("counting", sink="any:sink")
    jobs.run(context, counting.host, plugin="counting", task={"number": 1000})

    assert 2 <= len(told) <= 6
    assert told[-1] == {"results": 1000, "failed": 250}


def test_an_error_that_holds_a_secret_is_told_without_it(counting: PluginCalls) -> None:
    """It goes into the run's record, the log and the reason of the suspension."""
    counting.configure("counting", secrets={"key": "k-value"}, fail_after=1)
    with pytest.raises(PluginError, match=r"ConnectionError: no answer for \*\*\*"):
        counting.run("counting", task={"fails": True})
    assert "k-value" not in counting.record("counting").reason


def test_a_result_and_a_task_that_hold_a_secret_do_not_reach_redis(counting: PluginCalls) -> None:
    """The messages of results are kept with the run, and tasks travel as arguments."""
    counting.configure("counting", secrets={"key": "number 3"})
    assert counting.run("counting", task={"number": 4})["messages"] == ["***"]
    counting.configure("counting", secrets={"key": '"number":2'})
    context = counting.context()

    with pytest.raises(PluginUnusableError, match="a task holds a secret"):
        jobs.plan(context, counting.host, plugin="counting")


def test_a_plugin_that_works_again_has_its_schedules_released(counting: PluginCalls) -> None:
    """By the first run that comes to its end; the failures before are forgotten."""
    counting.configure("counting", secrets={"key": "k-value"}, fail_after=2)
    counting.schedule("s-1", "counting", task={"number": 1})
    for _ in range(2):
        with pytest.raises(PluginError):
            counting.run("counting", task={"fails": True}, schedule="s-1")
    assert counting.pause("s-1") is not None
    counting.run("counting")

    assert counting.pause("s-1") is None
    record = counting.record("counting")
    assert (record.state, record.failures, record.errors) == ("ACTIVE", 0, 0)


def test_only_the_schedules_with_the_same_options_are_suspended(counting: PluginCalls) -> None:
    """One account that is locked says nothing about the others."""
    counting.schedule("s-good", "counting")
    counting.schedule("s-bad", "counting", options={"is_bad": True}, job="plugin.plan")
    counting.schedule("s-other", "counting-too", options={"is_bad": True})
    with pytest.raises(PluginUnusableError, match=r"bad with \*\*\*"):
        counting.run("counting", options={"is_bad": True})

    paused = [name for name in ("s-good", "s-bad", "s-other") if counting.pause(name) is not None]
    assert paused == ["s-bad"]


def test_a_run_suspends_no_schedule_that_does_not_give_the_plugin_its_options(counting: PluginCalls) -> None:
    """A run names its schedule as whoever enqueued it wrote it; a producer writes no pause by that."""
    counting.schedule("payroll", "counting", job="app.pay")
    counting.schedule("s-good", "counting")
    counting.schedule("s-too", "counting-too", options={"is_bad": True})
    counting.schedule("s-bad", "counting", options={"is_bad": "{{ nominal }}"})
    for name in ("payroll", "s-good", "s-too", "gone", "s-bad"):
        for _ in range(2):  # the second one is another attempt, within the suspension
            with pytest.raises(PluginUnusableError):
                counting.run("counting", options={"is_bad": True}, schedule=name)

    paused = [name for name in ("payroll", "s-good", "s-too", "s-bad") if counting.pause(name) is not None]
    assert paused == ["s-bad"]


def test_an_error_that_is_no_text_suspends_the_schedules_too(counting: PluginCalls) -> None:
    """Its words are kept as far as they can be written."""
    counting.schedule("s-odd", "counting", options={"is_odd": True})
    with pytest.raises(PluginUnusableError):
        counting.run("counting", options={"is_odd": True}, schedule="s-odd")

    pause = counting.pause("s-odd")
    assert pause is not None
    assert pause.reason.endswith("no file caf?")


def test_each_suspension_is_twice_as_long_and_attempts_of_one_run_are_one_failure(counting: PluginCalls) -> None:
    """A broken plugin is tried now and then, not all the time; up to an hour apart."""
    counting.schedule("s-1", "counting", options={"is_bad": True})
    lengths = []
    for _ in range(9):
        for _ in range(2):
            with pytest.raises(PluginUnusableError):
                counting.run("counting", options={"is_bad": True}, schedule="s-1")
        pause = counting.pause("s-1")
        assert pause is not None
        assert pause.until_ms is not None
        lengths.append(round((pause.until_ms - pause.at_ms) / 60_000))
        over = msgspec.structs.replace(counting.record("counting"), until_ms=1)
        counting.store.run(Plugins(counting.server.keys).write(over))

    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert counting.record("counting").errors == 9


def test_an_outage_of_redis_changes_nothing_of_a_run(counting: PluginCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cluster knows is told later; the work is done."""

    def no_answer(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(counting.producer, "run", no_answer)
    assert counting.run("counting", task={"number": 2})["results"] == 2
    with pytest.raises(PluginError, match="no answer for"):
        counting.run("counting", task={"fails": True})
