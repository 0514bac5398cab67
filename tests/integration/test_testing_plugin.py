"""The pytest plugin that users get: each thing a cluster can be told."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.model import Outcome
from supervisor.core.retry import Retry
from tenure import Context, Resource, Run, job
from tenure.errors import RunTimeoutError

ROOT = Path(__file__).resolve().parents[2]
TICK = {"tick": {"job": "demo.tick", "every": "10s"}}

seen: list[str] = []


@job(name="testing.note")
def note(text: str) -> str:
    """Remember that it ran."""
    seen.append(text)
    return text.upper()


@job(name="testing.fail_once", retry=Retry(attempts=2, base_s=0))
async def fail_once() -> str:
    """Fail at first."""
    seen.append("try")
    if len(seen) < 2:
        raise RuntimeError("not yet")
    return "done"


class Notebook(Resource):
    """Notes that it is opened and closed."""

    async def open(self) -> None:
        """Note it."""
        seen.append("open")

    async def close(self) -> None:
        """Note it."""
        seen.append("close")


@job(name="testing.uses")
async def uses(notebook: Notebook, ctx: Context) -> str:
    """Fail, with something to undo."""
    ctx.on_failure(seen.append, "undone")
    raise RuntimeError(type(notebook).__name__)


@pytest.fixture(autouse=True)
def forget() -> None:
    """Each test starts without memories."""
    seen.clear()


def test_a_deploy_loses_no_tick(tenure_cluster: Any) -> None:
    """The example in the docstring of Cluster."""
    cluster = tenure_cluster(replicas=3, schedules={"tick": {"job": "demo.tick", "every": "10s", "overlap": "allow"}})
    cluster.advance("25s")
    cluster.kill(cluster.leader)
    cluster.advance("20s")

    assert [fired.nominal.second for fired in cluster.fired()] == [10, 20, 30, 40]


def test_a_stopped_leader_hands_over_at_once(tenure_cluster: Any) -> None:
    """A tenth of a second later somebody else leads."""
    cluster = tenure_cluster(replicas=2, schedules=TICK)
    first = cluster.leader
    cluster.stop(first)

    assert cluster.leader not in {None, first}


def test_a_paused_leader_is_replaced_and_does_no_harm_afterwards(tenure_cluster: Any) -> None:
    """It wakes up, finds its term gone, and follows."""
    cluster = tenure_cluster(schedules={"tick": {"job": "demo.tick", "every": "1s", "overlap": "allow"}})
    paused = cluster.leader
    cluster.pause(paused)
    cluster.advance("10s")
    assert cluster.leader != paused
    cluster.resume(paused)
    cluster.advance("10s")

    nominals = [fired.nominal for fired in cluster.fired("tick")]
    assert len(nominals) == len(set(nominals))
    assert cluster.leader != paused


def test_a_resumed_standby_takes_over_as_if_it_had_never_stood_still(tenure_cluster: Any) -> None:
    """What reached it in the pause is read when it is resumed, not when the pause might have ended."""
    cluster = tenure_cluster(replicas=2, schedules=TICK)
    (standby,) = set(cluster.replicas) - {cluster.leader}
    cluster.pause(standby)
    cluster.advance("1m")
    cluster.resume(standby)
    cluster.advance("1s")
    cluster.kill(cluster.leader)
    cluster.advance("6s")

    assert cluster.leader == standby, cluster.history()


def test_a_partition_is_survived_and_healed(tenure_cluster: Any) -> None:
    """The cut-off replica stands by again afterwards, and can lead."""
    cluster = tenure_cluster(replicas=2, schedules=TICK)
    cut = cluster.leader
    cluster.partition(cut)
    cluster.advance("10s")
    other = cluster.leader
    assert other != cut
    cluster.heal(cut)
    cluster.advance("10s")
    cluster.kill(other)
    cluster.advance("10s")

    assert cluster.leader == cut


def test_an_outage_of_redis_keeps_the_leader(tenure_cluster: Any) -> None:
    """And the latest missed tick is made up for."""
    cluster = tenure_cluster(schedules=TICK)
    leader = cluster.leader
    cluster.stop_redis()
    cluster.advance("35s")
    assert cluster.leader is None
    assert cluster.fired() == []
    cluster.start_redis()
    cluster.advance("1s")

    assert cluster.leader == leader
    assert [fired.nominal.second for fired in cluster.fired()] == [30]


def test_a_replica_can_be_restarted(tenure_cluster: Any) -> None:
    """A cluster of one leads again after its lease ended."""
    cluster = tenure_cluster(replicas=1, schedules=TICK)
    cluster.restart("r1")
    cluster.advance("6s")

    assert cluster.leader == "r1"


def test_a_leader_can_be_asked_to_hand_over(tenure_cluster: Any) -> None:
    """To a replica by name, or to whoever comes first."""
    cluster = tenure_cluster(schedules={"tick": {"job": "demo.tick", "every": "5s", "overlap": "allow"}})
    heir = next(name for name in cluster.replicas if name != cluster.leader)
    cluster.resign(to=heir)
    assert cluster.leader == heir
    cluster.advance("20s")
    cluster.resign()

    assert cluster.leader not in {None, heir}
    cluster.advance("10s")
    cluster.assert_single_leader()
    cluster.assert_no_gap("tick")


def test_a_dead_scheduler_process_costs_no_tick(tenure_cluster: Any) -> None:
    """Its parent starts another one, which fires with a later term."""
    cluster = tenure_cluster(schedules={"tick": {"job": "demo.tick", "every": "1s", "overlap": "allow"}})
    cluster.advance("5s")
    leader = cluster.leader
    cluster.kill_scheduler(leader)
    cluster.advance("5s")

    assert cluster.leader == leader
    cluster.assert_fired_once("tick")
    cluster.assert_no_gap("tick")


def test_a_wall_clock_that_steps_fires_nothing_early(tenure_cluster: Any) -> None:
    """Redis' clock decides, and the schedules go on."""
    cluster = tenure_cluster(schedules={"tick": {"job": "demo.tick", "every": "10s", "overlap": "allow"}})
    cluster.step_wall_clock(cluster.leader, 3600)
    cluster.advance("25s")
    cluster.step_wall_clock(cluster.leader, -3600)
    cluster.advance("20s")

    assert [fired.nominal.second for fired in cluster.fired()] == [10, 20, 30, 40]
    cluster.assert_fired_once("tick", cluster.fired()[0].nominal)
    cluster.assert_no_gap("tick")


def test_a_redis_that_lost_everything_is_set_up_again(tenure_cluster: Any) -> None:
    """The leader brings its schedules in again, with the watermarks that it remembers."""
    cluster = tenure_cluster(schedules={"tick": {"job": "demo.tick", "every": "5s", "overlap": "allow"}})
    cluster.advance("12s")
    cluster.empty_redis()
    cluster.advance("20s")

    cluster.assert_single_leader()
    cluster.assert_fired_once("tick")


def test_a_failed_assertion_shows_the_history(tenure_cluster: Any) -> None:
    """What is wrong first, then how it came to it."""
    cluster = tenure_cluster(schedules=TICK)
    cluster.advance("11s")
    cluster.stop_redis()
    cluster.advance("21s")

    with pytest.raises(AssertionError, match=r"(?s)expected one leader, found none.*leader_acquired.*leader_lapsed"):
        cluster.assert_single_leader()
    with pytest.raises(AssertionError, match="'tick' is behind: 2026-01-01T00:00:30"):
        cluster.assert_no_gap("tick")
    with pytest.raises(
        AssertionError, match=r"did not fire for 2026-01-01T00:00:20\+00:00; it did for 2026-01-01T00:00:10"
    ):
        cluster.assert_fired_once("tick", datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC))
    with pytest.raises(AssertionError, match="'tock' did not fire"):
        cluster.assert_fired_once("tock")
    with pytest.raises(AssertionError, match="there is no schedule 'tock'"):
        cluster.assert_no_gap("tock")


def test_what_was_missed_is_counted(tenure_cluster: Any) -> None:
    """A schedule that makes up for the latest due time alone misses the others, and the test says how many it allows."""
    cluster = tenure_cluster(schedules={"tick": {"job": "demo.tick", "every": "1s", "overlap": "allow"}})
    cluster.stop_redis()
    cluster.advance("20s")
    cluster.start_redis()
    cluster.advance("5s")

    cluster.assert_no_gap("tick", missed=20)
    with pytest.raises(AssertionError, match="'tick' missed"):
        cluster.assert_no_gap("tick")


def test_calendars_follow_the_start_and_the_zone(tenure_cluster: Any) -> None:
    """02:30 in Berlin does not exist on the night the clocks go forward; the run comes at the change."""
    cluster = tenure_cluster(
        schedules={"nightly": {"job": "demo.report", "cron": "30 2 * * *", "timezone": "Europe/Berlin"}},
        start="2026-03-28T23:00:00+00:00",
        replicas=1,
        lease="5m",
    )
    cluster.advance("4h")

    assert [fired.nominal for fired in cluster.fired()] == [datetime(2026, 3, 29, 1, 0, tzinfo=UTC)]
    assert cluster.now >= datetime(2026, 3, 29, 3, 0, tzinfo=UTC)


def test_runs_are_executed_inline(tenure_cluster: Any) -> None:
    """What a schedule enqueued and what the test enqueued, with the arguments of each."""
    cluster = tenure_cluster(schedules={"say": {"job": "testing.note", "every": "10s", "args": {"text": "tick"}}})
    cluster.advance("11s")
    run_id = cluster.enqueue(note, {"text": "own"})
    finished = cluster.run_pending()

    assert sorted(seen) == ["own", "tick"]
    assert {item.run_id: item.value for item in finished} == {run_id: "OWN", finished[0].run_id: "TICK"}
    assert cluster.run_pending() == []


def test_an_unfinished_run_makes_the_next_one_skip(tenure_cluster: Any) -> None:
    """overlap: skip, until the run is done."""
    cluster = tenure_cluster(schedules={"say": {"job": "testing.note", "every": "10s", "args": {"text": "x"}}})
    cluster.advance("31s")
    assert len(cluster.fired()) == 1
    cluster.run_pending()
    cluster.advance("10s")

    assert len(cluster.fired()) == 2


def test_a_failed_run_comes_back(tenure_cluster: Any) -> None:
    """The retry policy is the job's own."""
    cluster = tenure_cluster(replicas=1)
    cluster.enqueue(fail_once)
    first = cluster.run_pending(limit=1)
    cluster.advance("1s")
    second = cluster.run_pending()

    assert [item.outcome for item in first] == [Outcome.RETRY]
    assert str(first[0].error) == "not yet"
    assert [(item.outcome, item.value, item.attempt) for item in second] == [(Outcome.OK, "done", 2)]


def test_what_stands_around_a_job_stands_around_it_here_too(tenure_cluster: Any) -> None:
    """Resources are opened for each run, and what was to be undone is."""
    cluster = tenure_cluster(replicas=1)
    cluster.enqueue("testing.uses", {})

    (finished,) = cluster.run_pending()

    assert (finished.outcome, str(finished.error)) == (Outcome.RETRY, "Notebook")
    assert seen == ["open", "undone", "close"]


def test_a_second_cluster_in_one_test_is_refused(tenure_cluster: Any) -> None:
    """They would share the clock of the simulated server."""
    tenure_cluster(replicas=1)

    with pytest.raises(AssertionError, match="one cluster"):
        tenure_cluster(replicas=1)


def test_a_cluster_that_cannot_start_leaves_no_clock_behind(tenure_cluster: Any) -> None:
    """Every later test of the process was refused for the wrong schedule of one."""
    wrong = {"note": {"job": "testing.note", "every": "10s", "args": {"txt": "a"}}}
    with pytest.raises(ValueError, match="takes no argument 'txt'") as refusal:
        tenure_cluster(schedules=wrong)
    assert tenure_cluster(schedules=TICK).leader, refusal  # as pytest keeps the error of a test that failed


def test_the_history_tells_what_happened(tenure_cluster: Any) -> None:
    """It is what a user puts into the message of an assertion."""
    cluster = tenure_cluster(replicas=1, schedules=TICK)
    cluster.advance("11s")

    assert re.search(r"leader_acquired .*\n(.*\n)*.*fires .*tick@", cluster.history())


def test_loading_the_plugin_loads_nothing_else() -> None:
    """Every pytest run of every user pays for its import."""
    script = (
        "import sys, supervisor.testing.plugin as p;"
        "print([m for m in ('fakeredis', 'redis', 'pydantic', 'aiohttp', 'supervisor.testing.world') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)

    assert result.stdout.strip() == "[]"


def test_a_result_runs_what_is_ready_and_never_blocks(tenure_cluster: Any) -> None:
    """Nobody else would execute the run: a test that waits for it waits for itself."""
    cluster = tenure_cluster(replicas=1, lease="5m")
    ready = cluster.enqueue("testing.note", {"text": "a"})
    assert Run(ready, producer=cluster._producer).result() == "A"
    later = cluster.enqueue("testing.note", {"text": "b"}, delay="1h")
    with pytest.raises(RunTimeoutError, match="it is delayed"):
        Run(later, producer=cluster._producer).result()
    cluster.advance("1h")
    assert Run(later, producer=cluster._producer).result() == "B"
