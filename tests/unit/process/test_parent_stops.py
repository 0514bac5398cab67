"""How the parent stops and what it tells, on a scripted kernel."""

from __future__ import annotations

from dataclasses import replace
from signal import Signals

import pytest

from supervisor.core.supervision.slot import Cause, Group
from supervisor.core.supervision.states import Phase, SlotState
from supervisor.core.units import SECOND_NS
from tests.unit.process.fake_kernel import GOOD, START_NS, Manner, make_world, only


def test_a_worker_that_does_not_drain_is_cancelled_then_killed() -> None:
    """Grace, QUIT, two seconds, SIGKILL; exit 1, and never later than the bound."""
    world = only("io", replace(GOOD, term_s=None, quit_s=None))
    world.at(5, Signals.SIGTERM)
    assert world.run() == 1
    assert [(round((at_ns - START_NS) / SECOND_NS), number) for at_ns, number in world.kernel.of("io")[0].got] == [
        (5, Signals.SIGTERM),
        (25, Signals.SIGQUIT),
        (27, Signals.SIGKILL),
    ]
    assert world.elapsed_s <= 5 + 23.5


def test_the_board_says_draining_before_anybody_is_told() -> None:
    """The agent must stop campaigning before the scheduler goes."""
    world = make_world()
    seen: list[tuple[str, Signals, int]] = []
    send = world.kernel.send

    def send_and_note(pid: int, number: Signals) -> None:
        seen.append((world.kernel.alive[pid].spec.name, number, world.board.header.phase))
        send(pid, number)

    world.kernel.send = send_and_note  # type: ignore[method-assign]
    world.at(5, Signals.SIGTERM)
    world.run()
    stop = [entry for entry in seen if entry[2] == Phase.DRAINING]
    assert stop[0] == ("agent", Signals.SIGURG, Phase.DRAINING)
    assert [name for name, number, _ in stop if number is Signals.SIGTERM] == ["scheduler", "io", "cpu", "agent", "web"]


def test_a_second_signal_kills_work_at_once_and_gives_the_agent_a_moment() -> None:
    """Exit 1 within half a second, the server last and asked first."""
    deaf = replace(GOOD, term_s=None, quit_s=None)
    world = make_world(lambda _name, _generation: deaf, has_server=True)
    world.at(5, Signals.SIGTERM)
    world.at(6, Signals.SIGINT)
    assert world.run() == 1
    assert world.elapsed_s <= 6.5
    assert world.board.header.phase == Phase.KILLING
    agent, server = world.kernel.of("agent")[0], world.kernel.of("server")[0]
    assert [number for _, number in agent.got if number is not Signals.SIGURG] == [Signals.SIGTERM, Signals.SIGKILL]
    assert [number for _, number in server.got] == [Signals.SIGTERM, Signals.SIGKILL]
    others = [process for process in world.kernel.history if process is not server]
    assert all(process.ends_ns <= server.got[0][0] for process in others)


def test_a_child_that_crashes_while_draining_makes_the_stop_unclean() -> None:
    """What it ran did not finish, so exit 0 would be a lie; and it is not started again."""
    world = only("io", replace(GOOD, term_s=1.0, status=70))
    world.at(5, Signals.SIGTERM)
    assert world.run() == 1
    assert len(world.kernel.of("io")) == 1


@pytest.mark.parametrize(("has_run", "code"), [(True, 1), (False, 0)])
def test_a_worker_that_the_signal_itself_ends_makes_the_stop_unclean_if_it_had_runs(
    *, has_run: bool, code: int
) -> None:
    """A job took its handlers; without a run there was nothing to drain."""
    world = only("io", replace(GOOD, term_s=0.0, status=-Signals.SIGTERM, has_run=has_run))
    world.at(5, Signals.SIGTERM)
    assert world.run() == code


def test_a_stop_before_the_tree_is_ready_is_clean() -> None:
    """Somebody changed their mind; nothing was lost."""
    world = make_world(lambda name, _: replace(GOOD, ready_s=20.0) if name == "server" else GOOD, has_server=True)
    world.at(1, Signals.SIGTERM)
    assert world.run() == 0
    assert len(world.kernel.history) == 1


def test_signals_that_mean_nothing_yet_are_logged_and_do_no_harm() -> None:
    """Their default would end the parent, and the tree with it."""
    world = make_world()
    numbers = (Signals.SIGHUP, Signals.SIGTTIN, Signals.SIGTTOU, Signals.SIGWINCH, Signals.SIGUSR2)
    for n, number in enumerate(numbers):
        world.at(2 + n, number)
    world.at(10, Signals.SIGTERM)
    assert world.run() == 0
    assert [fields["signal"] for fields in world.said("signal_ignored")] == [number.name for number in numbers]


def test_a_state_dump_names_every_slot() -> None:
    """SIGUSR1 answers what the parent believes, when the log alone does not."""
    world = make_world()
    world.at(2, Signals.SIGUSR1)
    world.at(3, Signals.SIGTERM)
    world.run()
    slots = world.said("state_dump_slot")
    assert [(fields["slot"], fields["state"]) for fields in slots] == [
        (name, "running") for name in ("agent", "scheduler", "web", "io", "cpu")
    ]


def test_an_error_in_the_parent_itself_leaves_nobody_behind() -> None:
    """A supervisor that dies and leaves its children is worse than none: kill all, exit 70."""
    world = make_world()

    def fail() -> float:
        raise RuntimeError("a bug")

    world.kernel.pressure_percent = fail  # type: ignore[method-assign]
    world.kernel.manners = lambda _name, _generation: replace(GOOD, silent_s=1.0)
    assert world.run() == 70
    assert not world.kernel.alive
    assert "a bug" in str(world.said("tree_stopped")[0]["reason"])


def test_a_log_that_nobody_reads_any_more_ends_nothing() -> None:
    """A log collector restarts, its pipe breaks, and the service should not even notice."""
    world = make_world(log_fails=True)
    world.at(5, Signals.SIGTERM)
    assert world.run() == 0
    assert len(world.kernel.history) == 5


def test_the_board_mirrors_what_the_parent_decided() -> None:
    """Everybody else reads it there."""
    world = only("io", replace(GOOD, dies_s=2.0, status=70))
    world.at(5, Signals.SIGTERM)
    world.run()
    row = world.board.rows[3]
    assert (row.state, row.generation, row.restarts, row.pid) == (SlotState.STOPPED, 2, 1, 0)
    assert (row.cause, row.last_exit, row.desired) == (Cause.STOP, 0, 0)


def test_an_idle_parent_sleeps() -> None:
    """At most four wake-ups a second, whatever the number of slots."""
    world = make_world(slots=tuple((f"w{n}", Group.WORKER) for n in range(32)))
    world.at(100, Signals.SIGTERM)
    world.run()
    assert world.kernel.waits < 100 * 4 + 300


@pytest.mark.parametrize(("name", "code"), [("scheduler", 0), ("web", 0), ("io", 1)])
def test_only_who_has_work_to_lose_makes_a_stop_unclean_by_dying(name: str, code: int) -> None:
    """A scheduler that is killed a moment before the service manager stops the replica is no failure to report."""
    world = only(name, replace(GOOD, dies_s=5.0, status=-9, term_s=1.0))
    world.at(4.999, Signals.SIGTERM)
    assert world.run() == code


def test_a_worker_that_was_dead_before_the_stop_was_not_lost_by_it() -> None:
    """The kernel hands out the lower signal first: the stop is known before the death is."""
    world = only("io", replace(GOOD, dies_s=5.0, status=-9))
    world.at(5, Signals.SIGTERM)
    assert world.run() == 0


def test_a_child_that_fails_at_its_start_while_the_tree_stops_lost_nothing() -> None:
    """It had not begun to work."""
    world = make_world(
        lambda name, _: Manner(dies_s=0.5, ready_s=None, status=70, term_s=None) if name == "io" else GOOD
    )
    world.at(0.2, Signals.SIGTERM)
    assert world.run() == 0
