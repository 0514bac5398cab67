"""What breaks supervisors: kills at the wrong moment, no processes to give, pauses, storms, threads."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psutil
import pytest

from tests.integration.process.toy_harness import ToyTree, pause, wait_until

Make = Callable[..., ToyTree]

FOUR = [
    ["agent", "agent", "idle"],
    ["scheduler", "scheduler", "idle"],
    ["web", "web", "idle"],
    ["io", "worker", "idle"],
]


def test_signals_before_the_first_instruction_of_a_child_are_harmless(make_tree: Make) -> None:
    """They wait, blocked, until the child has its own answers; none runs the parent's."""
    tree = make_tree(FOUR, ways=["signals_in_prologue"])
    tree.wait_for("tree_ready")
    assert not tree.events("child_exited")
    assert tree.stop() == 0


def test_a_child_killed_inside_its_prologue_is_replaced(make_tree: Make) -> None:
    """It has no handlers, no group maybe, no row: just a status to be collected."""
    tree = make_tree(FOUR, ways=["killed_in_prologue"])
    tree.wait_for("tree_ready")
    assert tree.events("child_exited", signal=9, cause="none")
    assert len(tree.events("child_started")) == 5
    assert tree.stop() == 0


def test_forks_that_fail_leak_nothing_and_succeed_later(make_tree: Make) -> None:
    """EAGAIN, again and again, then a process: as many descriptors as before, and a tree that never stopped."""
    tree = make_tree(FOUR, ways=["forks_fail"])
    tree.wait_for("tree_ready")
    parent = psutil.Process(tree.pid)
    before = parent.num_fds()
    (tree.directory / "no_forks").touch()
    os.kill(tree.pid_of("web"), signal.SIGKILL)
    tree.wait_for("fork_failed", count=4)
    (tree.directory / "no_forks").unlink()
    tree.wait_for("child_ready", slot="web", count=2)
    assert parent.num_fds() == before
    assert tree.stop() == 0


def test_a_kernel_that_has_no_process_to_give_is_waited_for(make_tree: Make) -> None:
    """The limit of the user is reached, by whatever else runs; once it is not, the child is there again."""
    tree = make_tree(FOUR, ways=["kernel_refuses"])
    tree.wait_for("tree_ready")
    (tree.directory / "no_forks").touch()
    os.kill(tree.pid_of("web"), signal.SIGKILL)
    assert "temporarily unavailable" in tree.wait_for("fork_failed", count=2)[0]["error"]
    (tree.directory / "no_forks").unlink()
    tree.wait_for("child_ready", slot="web", count=2)
    assert tree.stop() == 0


def test_a_paused_parent_does_not_take_its_pause_for_theirs(make_tree: Make) -> None:
    """Three seconds in SIGSTOP with a hang limit of two: nobody is killed for it."""
    slots = [[*slot, {"hang_timeout_s": 2.0}] for slot in FOUR]
    tree = make_tree(slots)
    tree.wait_for("tree_ready")
    tree.send(signal.SIGSTOP)
    pause(3)
    tree.send(signal.SIGCONT)
    tree.wait_for("parent_was_paused")
    assert tree.stop() == 0
    assert len(tree.events("child_started")) == 4


def test_a_paused_tree_kills_nobody_when_it_wakes(make_tree: Make) -> None:
    """As after a suspend: every beat is old, and the parent is the first to run."""
    slots = [[*slot, {"hang_timeout_s": 2.0}] for slot in FOUR]
    tree = make_tree(slots)
    tree.wait_for("tree_ready")
    pids = tree.left()
    for pid in sorted(pids, key=lambda pid: pid != tree.pid):
        os.kill(pid, signal.SIGSTOP)
    pause(3)
    tree.send(signal.SIGCONT)
    tree.wait_for("parent_was_paused")
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    tree.send(signal.SIGUSR1)
    tree.wait_for("state_dump_slot", count=4)
    assert tree.stop() == 0
    assert not tree.events("child_hung")
    assert len(tree.events("child_started")) == 4


def test_all_children_killed_at_once_all_come_back(make_tree: Make) -> None:
    """One wave of deaths is one turn of the loop, whatever the kernel merges into one SIGCHLD."""
    tree = make_tree([*FOUR, *([f"w{n}", "worker", "idle"] for n in range(8))])
    tree.wait_for("tree_ready")
    first = [event["child_pid"] for event in tree.events("child_started")]
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    tree.wait_for("child_ready", count=24)
    assert tree.stop() == 0
    assert len(tree.events("child_exited", signal=9)) == 12
    tree.nobody_is_left()


@pytest.mark.parametrize("restarts", [10, pytest.param(100, marks=pytest.mark.long)])
def test_restarts_leave_the_parent_as_it_was(make_tree: Make, restarts: int) -> None:
    """No descriptor, no zombie, no memory that grows with every restart."""
    tree = make_tree(
        [["scheduler", "scheduler", "idle"], ["io", "worker", "flap"]],
        limits={"backoff_max_s": 0.01},
        ways=["no_fork_budget"],
    )
    parent = psutil.Process(tree.pid)
    tree.wait_for("child_started", slot="io", generation=20)
    descriptors, memory = parent.num_fds(), parent.memory_info().rss
    tree.wait_for("child_ready", slot="io", count=1)
    tree.wait_for("child_started", slot="io", generation=21 + restarts)
    assert parent.num_fds() == descriptors
    assert parent.memory_info().rss - memory < 4 * 1024 * 1024
    assert len(parent.children()) <= 2  # the one that flaps may be gone at this moment
    assert tree.stop() in {0, 1}, "1 where it fails just as it is asked to end"


def test_a_log_whose_reader_is_gone_does_not_end_the_tree(make_tree: Make) -> None:
    """Log collectors restart; supervision, replacement and a clean stop go on without them."""
    reader, writer = os.pipe()
    tree = make_tree(FOUR, pipe=writer)
    os.close(writer)
    parent = psutil.Process(tree.pid)
    first = wait_until(lambda: (found := parent.children()) and len(found) == 4 and found)
    os.close(reader)
    first[0].kill()
    wait_until(lambda: len(found := parent.children()) == 4 and first[0] not in found)
    assert tree.stop() == 0
    tree.nobody_is_left()


def test_a_parent_with_a_second_thread_refuses_to_fork(make_tree: Make) -> None:
    """A lock held by that thread would stay locked in the child for ever; better no tree than that one."""
    tree = make_tree(FOUR, ways=["second_thread"])
    assert tree.ended() == 70
    assert "2 threads" in tree.events("tree_stopped")[0]["reason"]
    tree.nobody_is_left()


def test_a_storm_of_signals_does_not_stop_the_stop(make_tree: Make) -> None:
    """Wake-ups and window changes by the thousand must not starve the loop of its deadlines."""
    tree = make_tree([*FOUR[:3], ["io", "worker", "deaf"]], limits={"grace_s": 0.5})
    tree.wait_for("tree_ready")
    tree.send(signal.SIGTERM)

    def storm() -> bool:
        if tree.process.poll() is None:
            for _ in range(200):
                tree.send(signal.SIGURG)
                tree.send(signal.SIGWINCH)
        return tree.process.poll() is not None

    wait_until(storm)
    assert tree.ended() == 1
    tree.nobody_is_left()
