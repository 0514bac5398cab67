"""Real trees: forks, signals, stacks, groups and sessions, as the kernel does them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.integration.process.toy_harness import ToyTree, pause, wait_until

Make = Callable[..., ToyTree]

FULL = [
    ["server", "embedded", "server"],
    ["agent", "agent", "idle"],
    ["scheduler", "scheduler", "idle"],
    ["web", "web", "idle"],
    ["io", "worker", "idle"],
    ["cpu", "worker", "idle"],
]


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_a_tree_starts_gets_ready_and_stops_in_order(make_tree: Make) -> None:
    """Exit 0, the server told last and after everybody else has gone, nobody left."""
    tree = make_tree(FULL)
    tree.wait_for("tree_ready")
    assert tree.stop() == 0
    exits = [event["slot"] for event in tree.events("child_exited")]
    assert sorted(exits[:3]) == ["cpu", "io", "scheduler"]
    assert exits[3:] == ["agent", "web", "server"]
    told_s = int((tree.directory / "server.stopped").read_text()) / 1e9
    assert all(event["at_s"] <= told_s for event in tree.events("child_exited") if event["slot"] != "server")
    last = tree.events()[-1]
    assert (last["event"], last["code"]) == ("tree_stopped", 0)
    assert "all drained" in last["reason"]
    tree.nobody_is_left()


def test_a_child_finds_nothing_of_its_parent(make_tree: Make) -> None:
    """No blocked signal, handler, descriptor or variable, whatever the tree itself was started with."""
    tree = make_tree(
        [["agent", "agent", "guest"]],
        ways=["hostile_starter", "inheritable_descriptors"],
        environment={"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "30000000"},
    )
    guest = tree.wait_for("guest")[0]
    assert guest["blocked"] == []
    assert guest["environment"] == []
    assert guest["group"] == guest["pid"]
    assert guest["name"] == "agent"
    assert guest["oom"] >= 300
    # It survived these signals; programs that it starts need not. 32 and 33 are the C library's own.
    assert int(guest["ignored_by_programs"], 16) & ~(0b11 << 31) == 0
    assert guest["sigchld"] == "0"
    assert guest["descriptors"]["0"] == "/dev/null"
    kept = [target for target in guest["descriptors"].values() if target != "/dev/null"]
    assert len(kept) == 3  # output, errors, and the copy for stacks
    assert len(guest["descriptors"]) > 20  # numbers that objects of the parent know are not given out again
    tree.wait_for("tree_ready")
    assert tree.stop() == 0


def test_no_child_draws_the_random_numbers_of_another(make_tree: Make) -> None:
    """Python seeds its generator after a fork, numpy does not: all workers drew one sequence, and so after a restart."""
    slots = [["agent", "agent", "guest"], ["io", "worker", "guest"]]
    tree = make_tree(slots, ways=["seeded_generators"])
    tree.wait_for("tree_ready")
    drawn = [number for guest in tree.events("guest") for number in guest["drawn"]]
    assert len(drawn) == len(set(drawn)) == 4
    assert tree.stop() == 0


def test_nobody_of_a_tree_touches_dev_shm(make_tree: Make) -> None:
    """Containers have a tiny one, or none: the board is anonymous memory that is handed down."""
    tree = make_tree(FULL[1:])
    tree.wait_for("tree_ready")
    for pid in tree.left():
        descriptors = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
        mapped = Path(f"/proc/{pid}/maps").read_text()
        assert "/memfd:" in mapped
        assert "/dev/shm" not in mapped + " ".join(descriptors)
    assert tree.stop() == 0


def test_the_server_is_started_without_blocked_signals(make_tree: Make) -> None:
    """A mask survives exec, and a server that cannot hear SIGTERM loses data on SIGKILL."""
    tree = make_tree(FULL[:2], ways=["hostile_starter"])
    tree.wait_for("tree_ready")
    assert (tree.directory / "server").read_text().strip() == "[]"
    assert tree.stop() == 0


def test_a_crashed_child_is_replaced_and_says_why(make_tree: Make) -> None:
    """The traceback on standard error, without secrets and controls, an event in the log, a new process in the slot."""
    tree = make_tree([["agent", "agent", "idle"], ["io", "worker", "crash_once"]])
    tree.wait_for("child_started", slot="io", generation=2)
    tree.wait_for("tree_ready")
    crash = tree.events("child_crashed")[0]
    assert (crash["slot"], crash["code"]) == ("io", 70)
    assert "the role failed on purpose" in tree.errors
    assert "in crash_once" in tree.errors
    assert "hunter2" not in tree.errors
    assert "\x1b" not in tree.errors
    assert tree.stop() == 0


def test_kill_9_of_the_parent_leaves_nobody(make_tree: Make) -> None:
    """No child may go on without its parent: a second scheduler would be next."""
    tree = make_tree(FULL)
    tree.wait_for("tree_ready")
    assert len(tree.left()) == 7
    tree.send(signal.SIGKILL)
    assert tree.ended() == -9
    tree.nobody_is_left()


def test_a_child_orphaned_before_its_first_instruction_leaves_by_itself(make_tree: Make) -> None:
    """The request to die with the parent comes too late when the parent is dead already."""
    tree = make_tree([["agent", "agent", "idle"]], ways=["orphaned_in_prologue"])
    wait_until((tree.directory / "in_prologue").exists)
    tree.send(signal.SIGKILL)
    tree.nobody_is_left()


def test_a_busy_worker_may_finish_what_it_runs(make_tree: Make) -> None:
    """It drains in a second, well inside the grace: exit 0, and the tree waits no longer than that."""
    tree = make_tree([["agent", "agent", "idle"], ["io", "worker", "slow"]])
    tree.wait_for("tree_ready")
    assert tree.stop() == 0
    assert tree.events("child_exited", slot="io", code=0)
    assert not tree.events("child_signalled", signal="SIGKILL")


def test_a_worker_that_does_not_drain_is_killed_after_its_grace(make_tree: Make) -> None:
    """TERM, QUIT at the grace, SIGKILL two seconds later, exit 1; the others still stop in order."""
    tree = make_tree([*FULL[:4], ["io", "worker", "deaf"]], limits={"grace_s": 0.3})
    tree.wait_for("tree_ready")
    assert tree.stop() == 1
    told = [event["signal"] for event in tree.events("child_signalled", slot="io")]
    assert told == ["SIGTERM", "SIGQUIT", "SIGKILL"]
    asked = [event["slot"] for event in tree.events("child_signalled", signal="SIGTERM")]
    assert asked == ["scheduler", "io", "agent", "web", "server"]
    tree.nobody_is_left()


def test_a_second_signal_ends_everything_at_once(make_tree: Make) -> None:
    """Exit 1, without waiting for a grace of minutes."""
    tree = make_tree([*FULL[:4], ["io", "worker", "deaf"]], limits={"grace_s": 300})
    tree.wait_for("tree_ready")
    tree.send(signal.SIGTERM)
    tree.wait_for("child_exited", slot="scheduler")
    pause(0.3)  # past the debounce
    tree.send(signal.SIGINT)
    assert tree.ended() == 1
    assert tree.events()[-1]["took_s"] < 60
    assert (tree.directory / "server.stopped").exists()
    tree.nobody_is_left()


def test_the_same_signal_twice_within_milliseconds_is_one(make_tree: Make) -> None:
    """A group signal from a launcher plus our own must not turn a drain into a massacre."""
    tree = make_tree([["agent", "agent", "idle"], ["io", "worker", "slow"]], ways=["long_debounce"])
    tree.wait_for("tree_ready")
    tree.send(signal.SIGTERM)
    tree.send(signal.SIGINT)
    assert tree.ended() == 0


def test_quit_forces_at_once(make_tree: Make) -> None:
    """SIGQUIT is the operator's shortest way."""
    tree = make_tree([["agent", "agent", "idle"], ["io", "worker", "deaf"]], limits={"grace_s": 300})
    tree.wait_for("tree_ready")
    tree.send(signal.SIGQUIT)
    assert tree.ended() == 1
    tree.nobody_is_left()


@pytest.mark.share(3)
@pytest.mark.parametrize("count", range(1, 7))
def test_a_stop_in_the_middle_of_a_start_leaves_nobody(make_tree: Make, count: int) -> None:
    """Whichever child was being forked: its signal waits for its handlers, and the exit is clean."""
    tree = make_tree(FULL)
    tree.wait_for("child_started", count=count)
    assert tree.stop() == 0
    tree.nobody_is_left()


def test_a_hung_child_shows_its_stack_and_is_replaced(make_tree: Make) -> None:
    """The function that hangs stands in the log: that is the whole point of SIGABRT."""
    tree = make_tree([["agent", "agent", "idle"], ["web", "web", "hang_once", {"hang_timeout_s": 1.0}]])
    tree.wait_for("child_ready", slot="web", count=2)
    assert tree.events("child_hung", slot="web")
    assert tree.events("child_exited", slot="web", signal=6, cause="hang")
    assert "a_function_that_hangs" in tree.errors
    assert tree.stop() == 0


def test_a_stopped_child_is_replaced_and_leaves_its_stack(make_tree: Make) -> None:
    """SIGSTOP would keep it from dying of SIGABRT, so SIGCONT follows."""
    tree = make_tree([["agent", "agent", "idle"], ["web", "web", "idle", {"hang_timeout_s": 1.0}]])
    tree.wait_for("tree_ready")
    os.kill(tree.pid_of("web"), signal.SIGSTOP)
    tree.wait_for("child_ready", slot="web", count=2)
    assert tree.events("child_exited", slot="web", signal=6, cause="hang")
    assert "Fatal Python error: Aborted" in tree.errors
    assert tree.stop() == 0


def test_a_stopped_child_drains_when_it_is_told_to(make_tree: Make) -> None:
    """Somebody who looked at a worker with a debugger must not cost the tree its grace."""
    tree = make_tree([["agent", "agent", "idle"], ["cpu", "worker", "idle"]])
    tree.wait_for("tree_ready")
    os.kill(tree.pid_of("cpu"), signal.SIGSTOP)
    assert tree.stop() == 0
    assert tree.events("child_exited", slot="cpu", code=0)


def test_a_run_past_its_deadline_takes_its_process_with_it(make_tree: Make) -> None:
    """Its loop spins, so only the parent can end it; the next one is good."""
    tree = make_tree([["agent", "agent", "idle"], ["cpu", "worker", "overrun_once"]])
    tree.wait_for("child_ready", slot="cpu", count=2)
    assert tree.events("child_exited", slot="cpu", signal=9, cause="overrun")
    assert not tree.events("child_hung")
    assert tree.stop() == 0


def test_a_silent_child_inside_its_deadline_is_left_alone(make_tree: Make) -> None:
    """Computing for longer than the hang limit is what the deadline promised it may."""
    tree = make_tree([["agent", "agent", "idle"], ["cpu", "worker", "busy", {"hang_timeout_s": 6.0}]])
    tree.wait_for("toy_was_busy")
    assert tree.stop() == 0
    assert not tree.events("child_hung")
    assert len(tree.events("child_started", slot="cpu")) == 1


def test_the_agent_has_a_worker_killed_and_restarted(make_tree: Make) -> None:
    """Requests travel over the board; nonsense is refused and logged."""
    tree = make_tree([["agent", "agent", "asks_to_kill"], ["cpu", "worker", "idle"]])
    tree.wait_for("child_ready", slot="cpu", count=3)
    assert [event["verb"] for event in tree.events("request_accepted")] == ["kill", "restart"]
    assert len(tree.events("request_refused")) == 2
    assert [event["cause"] for event in tree.events("child_exited", slot="cpu")] == ["overrun", "restart"]
    assert tree.stop() == 0


def test_the_group_of_a_dead_child_dies_with_it(make_tree: Make) -> None:
    """What a job started must not go on working when its worker is dead."""
    tree = make_tree([["agent", "agent", "idle"], ["cpu", "worker", "grandchildren"]])
    tree.wait_for("tree_ready")
    kinds = {event["kind"]: event["pid"] for event in tree.events("grandchild")}
    os.kill(tree.pid_of("cpu"), signal.SIGKILL)
    wait_until(lambda: not alive(kinds["same group"]))
    tree.wait_for("child_ready", slot="cpu", count=2)
    assert tree.stop() == 0


def test_whatever_hides_in_another_group_or_session_is_gone_when_the_tree_is(make_tree: Make) -> None:
    """The parent adopts it, and sweeps before it leaves."""
    tree = make_tree([["agent", "agent", "idle"], ["cpu", "worker", "grandchildren"]])
    tree.wait_for("tree_ready")
    assert len(tree.left()) == 6
    assert tree.stop() == 0
    assert tree.left() == []


def test_adopted_orphans_are_collected(make_tree: Make) -> None:
    """A parent that leaves zombies fills the process table of its container."""
    tree = make_tree([["agent", "agent", "orphans"]])
    tree.wait_for("orphan_collected", count=5)
    children = psutil.Process(tree.pid).children
    wait_until(lambda: all(alive(child.pid) for child in children()))
    assert tree.stop() == 0


def test_a_refusing_child_ends_the_start_with_78(make_tree: Make) -> None:
    """Its error stands in the log in one line, and a service manager will not try again."""
    tree = make_tree([["agent", "agent", "idle"], ["web", "web", "refuse"]])
    assert tree.ended() == 78
    crash = tree.events("child_crashed")[0]
    assert "toy.yaml:1: toy: is wrong; make it right" in crash["error"]
    assert "Traceback" not in tree.errors
    tree.nobody_is_left()


def test_a_child_that_never_gets_ready_ends_the_start_with_70(make_tree: Make) -> None:
    """Three boots past their deadline, each with its stack in the log."""
    tree = make_tree([["agent", "agent", "idle"], ["io", "worker", "never_ready", {"boot_timeout_s": 0.5}]])
    assert tree.ended() == 70
    assert len(tree.events("child_started", slot="io")) == 3
    assert "Fatal Python error: Aborted" in tree.errors
    assert "3 times" in tree.events()[-1]["reason"]


def test_signals_with_nothing_to_do_kill_nobody(make_tree: Make) -> None:
    """HUP comes from closing terminals, WINCH from resizing them, USR1 from the curious."""
    tree = make_tree(FULL)
    tree.wait_for("tree_ready")
    for number in (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGWINCH, signal.SIGUSR2):
        tree.send(number)
        tree.wait_for("signal_ignored", signal=number.name)
    tree.send(signal.SIGUSR1)
    tree.wait_for("state_dump_slot", count=6)
    assert tree.stop() == 0
    assert len(tree.events("child_started")) == 6


def test_a_child_answers_usr1_with_its_stacks(make_tree: Make) -> None:
    """The question to a process that seems stuck, without harming it."""
    tree = make_tree([["agent", "agent", "idle"]])
    tree.wait_for("tree_ready")
    os.kill(tree.pid_of("agent"), signal.SIGUSR1)
    wait_until(lambda: "toy_tree.py" in tree.errors)
    assert tree.stop() == 0
    assert len(tree.events("child_started")) == 1
