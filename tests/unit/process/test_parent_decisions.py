"""What the parent does, on a kernel that is a script and a clock that only waiting moves."""

from __future__ import annotations

from dataclasses import replace
from signal import Signals

import pytest

from supervisor.core.supervision.slot import Group
from supervisor.core.supervision.states import Verb
from supervisor.core.units import SECOND_NS
from tests.unit.process.fake_kernel import GOOD, START_NS, Manner, make_world, only


def test_a_tree_starts_in_order_gets_ready_and_drains() -> None:
    """The whole life of a good tree: exit 0, and the last line says why."""
    world = make_world(has_server=True)
    world.at(5, Signals.SIGTERM)
    assert world.run() == 0
    assert [process.spec.name for process in world.kernel.history] == [
        "server",
        "agent",
        "scheduler",
        "web",
        "io",
        "cpu",
    ]
    assert len(world.said("tree_ready")) == 1
    assert world.events[-1] == (
        "tree_stopped",
        {
            "level": "info",
            "code": 0,
            "reason": "received SIGTERM from pid 1; all drained",
            "took_s": world.events[-1][1]["took_s"],
        },
    )
    assert world.elapsed_s < 5.3


def test_nobody_starts_before_the_server_answers() -> None:
    """Dependants that find no server would only fill the log."""
    world = make_world(lambda name, _: replace(GOOD, ready_s=3.0) if name == "server" else GOOD, has_server=True)
    world.at(5, Signals.SIGTERM)
    world.run()
    server, agent = world.kernel.of("server")[0], world.kernel.of("agent")[0]
    assert agent.started_ns >= server.started_ns + 3 * SECOND_NS
    assert agent.started_ns <= server.started_ns + 3 * SECOND_NS + SECOND_NS // 10


def test_a_server_that_never_answers_ends_the_tree() -> None:
    """Three boots without an answer: exit 70, and nothing else was ever started."""
    world = make_world(lambda name, _: replace(GOOD, ready_s=None) if name == "server" else GOOD, has_server=True)
    assert world.run() == 70
    assert {process.spec.name for process in world.kernel.history} == {"server"}
    assert len(world.kernel.history) == 3


def test_a_crashed_child_is_replaced_at_once_and_the_agent_is_told() -> None:
    """One crash costs milliseconds; the agent hears of it to give the runs back."""
    world = only("scheduler", replace(GOOD, dies_s=2.0, status=-11))
    world.at(5, Signals.SIGTERM)
    assert world.run() == 0
    first, second = world.kernel.of("scheduler")
    assert second.started_ns - first.ends_ns < SECOND_NS // 100
    agent = world.kernel.of("agent")[0]
    assert any(number is Signals.SIGURG and at_ns >= first.ends_ns for at_ns, number in agent.got)


@pytest.mark.parametrize(("has_run", "wait_ns"), [(True, 2 * SECOND_NS), (False, SECOND_NS // 4)])
def test_a_worker_waits_for_the_agent_before_it_comes_back_but_not_for_ever(*, has_run: bool, wait_ns: int) -> None:
    """The in-flight table of the dead says whom to blame, until the fork clears it; an empty one is worth less."""
    world = only("io", replace(GOOD, dies_s=2.0, status=-9, has_run=has_run))
    world.at(7, Signals.SIGTERM)
    world.run()
    first, second = world.kernel.of("io")
    assert second.started_ns - first.ends_ns == wait_ns
    hint = [fields for fields in world.said("child_exited") if fields.get("signal") == 9]
    assert "memory" in str(hint[0]["hint"])


def test_a_worker_comes_back_at_once_when_the_agent_has_finished() -> None:
    """The agent's word on the row opens the gate."""
    world = only("io", replace(GOOD, dies_s=2.0, status=-9))
    world.board.rows[3].reclaimed_generation = 1
    world.at(5, Signals.SIGTERM)
    world.run()
    first, second = world.kernel.of("io")
    assert second.started_ns - first.ends_ns < SECOND_NS // 100


def test_a_failing_start_ends_the_tree_after_three_tries() -> None:
    """A rollout should fail in a second, in order, with everybody else drained."""
    world = make_world(lambda name, _: Manner(ready_s=None, dies_s=0.05, status=1) if name == "io" else GOOD)
    assert world.run() == 70
    assert len(world.kernel.of("io")) == 3
    assert world.elapsed_s < 2
    assert "io failed 3 times" in str(world.said("tree_stopped")[0]["reason"])


def test_a_refusing_start_ends_the_tree_with_78() -> None:
    """The service manager must not try a wrong configuration again and again."""
    world = make_world(lambda name, _: Manner(ready_s=None, dies_s=0.05, status=78) if name == "web" else GOOD)
    assert world.run() == 78
    assert len(world.kernel.of("web")) == 1


@pytest.mark.parametrize("name", ["agent", "web"])
def test_a_crash_loop_of_a_role_that_everything_needs_ends_the_tree(name: str) -> None:
    """Exit 70 within seconds, so that somebody above us backs off and raises an alarm."""
    world = only(name, replace(GOOD, dies_s=3.0, status=70), then=replace(GOOD, dies_s=0.05, status=70))
    assert world.run() == 70
    assert len(world.kernel.of(name)) == 6
    assert world.elapsed_s < 10


@pytest.mark.parametrize("name", ["scheduler", "io"])
def test_a_crash_loop_of_the_others_is_retried_rarely_and_for_ever(name: str) -> None:
    """The replica goes on without it; at most three starts a minute."""
    world = only(name, replace(GOOD, dies_s=3.0, status=70), then=replace(GOOD, dies_s=0.05, status=70))
    world.at(300, Signals.SIGTERM)
    assert world.run() == 0
    starts = [process.started_ns for process in world.kernel.of(name)]
    assert len(starts) <= 6 + 300 / 30
    assert len(starts) >= 12
    assert len(world.kernel.of("agent")) == 1


def test_a_hang_shows_its_stack_and_is_replaced() -> None:
    """Silent past the limit: ABRT, which ends it, and a fresh one."""
    world = only("web", replace(GOOD, silent_s=5.0))
    world.at(40, Signals.SIGTERM)
    assert world.run() == 0
    first, second = world.kernel.of("web")
    assert [number for _, number in first.got] == [Signals.SIGABRT]
    assert 19.5 <= (first.ends_ns - START_NS) / SECOND_NS <= 20.1  # its last beat was up to half a second before
    assert second.started_ns - first.ends_ns < SECOND_NS // 100
    assert world.said("child_hung")[0]["silent_s"] == pytest.approx(15, abs=0.002)  # not at the next tick


def test_a_hang_that_even_abort_does_not_end_is_killed_two_seconds_later() -> None:
    """A stopped process only dies by SIGKILL."""
    world = only("web", replace(GOOD, silent_s=5.0, abort_s=None))
    world.at(40, Signals.SIGTERM)
    world.run()
    (abort_ns, _), (kill_ns, number) = world.kernel.of("web")[0].got
    assert number is Signals.SIGKILL
    assert kill_ns - abort_ns == 2 * SECOND_NS


def test_a_pause_of_the_whole_machine_kills_nobody() -> None:
    """Everybody was silent, the judge included."""
    world = make_world(hang_timeout_s=2.0)
    world.kernel.pauses = [(START_NS + n * 20 * SECOND_NS, n * 3 * SECOND_NS) for n in range(1, 6)]
    world.at(300, Signals.SIGTERM)
    assert world.run() == 0
    assert len(world.kernel.history) == 5
    assert len(world.said("parent_was_paused")) == 5


def test_a_starved_machine_gets_twice_the_limit_once() -> None:
    """Most watchdog kills in the field were starvation; but a hang is a hang in the end."""
    world = only("web", replace(GOOD, silent_s=5.0))
    world.kernel.pressure = 80.0
    world.at(60, Signals.SIGTERM)
    world.run()
    assert 34.5 <= (world.kernel.of("web")[0].got[0][0] - START_NS) / SECOND_NS <= 35.1
    assert len(world.said("hang_limit_doubled")) == 1


def test_a_child_that_wants_no_processor_is_not_starved() -> None:
    """One that waits for a lock, or is stopped, hangs on a busy machine as on an idle one."""
    world = only("web", replace(GOOD, silent_s=5.0))
    world.kernel.pressure = 80.0
    world.kernel.wants_processor = False
    world.at(60, Signals.SIGTERM)
    world.run()
    assert 19.5 <= (world.kernel.of("web")[0].got[0][0] - START_NS) / SECOND_NS <= 20.1
    assert not world.said("hang_limit_doubled")


def test_a_run_past_its_deadline_is_killed_on_the_millisecond() -> None:
    """The wait is as long as the nearest deadline, not as long as the tick."""
    world = make_world()
    world.kernel.deadline_words["cpu"] = START_NS + 7_123 * (SECOND_NS // 1000)
    world.at(7.2, Signals.SIGTERM)
    world.run()
    (killed_ns, number), *_ = world.kernel.of("cpu")[0].got
    assert number is Signals.SIGKILL
    assert (killed_ns - START_NS) / SECOND_NS == pytest.approx(7.123, abs=0.001)
    assert world.board.rows[4].last_exit == 256 + 9


def test_the_agent_may_ask_for_a_kill_and_others_only_for_their_own() -> None:
    """A report is not a command: what a child may cause is limited by who it is."""
    world = make_world()
    rows = world.board.rows

    def ask(row: int, verb: int, slot: int, generation: int) -> None:
        rows[row].request_verb, rows[row].request_slot, rows[row].request_generation = verb, slot, generation
        rows[row].request_number += 1

    plan = [
        (0, Verb.KILL, 3, 1),  # the agent about a worker: done
        (1, Verb.KILL, 4, 1),  # the scheduler about a worker: refused
        (0, Verb.KILL, 99, 1),  # no such slot
        (0, Verb.KILL, 3, 9),  # a generation that is not there
        (0, 77, 3, 1),  # no such verb
        (4, Verb.RESTART, 4, 1),  # a worker about itself: done
    ]
    wait = world.kernel.wait

    def wait_and_ask(timeout_ns: int) -> object:
        if plan and world.elapsed_s > 2 and timeout_ns:
            ask(*plan.pop(0))
        return wait(timeout_ns)

    world.kernel.wait = wait_and_ask  # type: ignore[method-assign,assignment]
    world.at(10, Signals.SIGTERM)
    assert world.run() == 0
    assert [fields["target"] for fields in world.said("request_accepted")] == ["io", "cpu"]
    assert [fields["reason"] for fields in world.said("request_refused")] == [
        "only the agent may ask for others",
        "no such slot",
        "that generation is gone",
        "unknown verb",
    ]
    assert [len(world.kernel.of(name)) for name in ("io", "cpu", "scheduler")] == [2, 2, 1]


def test_forks_that_fail_for_a_while_are_tried_again() -> None:
    """EAGAIN on a busy machine is weather; a ready tree waits for it to pass."""
    world = only("web", replace(GOOD, dies_s=2.0, status=1))
    world.kernel.forks_fail = lambda now_ns: START_NS + SECOND_NS < now_ns < START_NS + 10 * SECOND_NS
    world.at(30, Signals.SIGTERM)
    assert world.run() == 0
    assert len(world.kernel.of("web")) == 2
    assert len(world.said("fork_failed")) >= 4


def test_forks_that_fail_from_the_start_end_the_tree() -> None:
    """A machine without processes to give will not make this rollout succeed."""
    world = make_world()
    world.kernel.forks_fail = lambda _: True
    assert world.run() == 70


def test_restarts_of_many_slots_share_one_budget() -> None:
    """Twenty at once, then five a second, however many slots fail together."""
    slots = tuple((f"w{n}", Group.WORKER) for n in range(60))
    crash = replace(GOOD, dies_s=2.0, status=1)
    world = make_world(lambda _name, generation: crash if generation == 1 else GOOD, slots=slots)
    world.at(30, Signals.SIGTERM)
    assert world.run() == 0
    restarts = sorted(process.started_ns for process in world.kernel.history[60:])
    assert len(restarts) == 60
    assert sum(at_ns < START_NS + 2 * SECOND_NS + SECOND_NS // 2 for at_ns in restarts) <= 23
    assert restarts[-1] <= START_NS + 11 * SECOND_NS


@pytest.mark.parametrize(
    ("before", "after", "hint"),
    [
        (0, 1, "killed by the kernel for memory"),
        (1, 1, "killed from outside"),
        (None, None, "killed from outside, maybe for memory"),
    ],
)
def test_a_child_that_the_kernel_killed_for_memory_is_named(before: int | None, after: int | None, hint: str) -> None:
    """On the log for people, on the board for the agent, which writes it into the record of the run."""
    world = only("io", replace(GOOD, dies_s=2.0, status=-9))
    world.kernel.kills_for_memory = before
    world.when(1.9, lambda: setattr(world.kernel, "kills_for_memory", after))
    world.at(5, Signals.SIGTERM)
    world.run()
    assert world.said("child_exited")[0]["hint"] == hint
    assert world.board.rows[3].oom_generation == int(after != before)
