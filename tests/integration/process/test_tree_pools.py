"""Pools of real processes: replaced without a gap, scaled and made quiet by signals, ended by a stop at any moment."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from tests.integration.process.toy_harness import ToyTree
from tests.kit.waiting import wait_until

Make = Callable[..., ToyTree]


def pool(role: str, *, rows: int = 4, **options: Any) -> list[list[Any]]:
    return [[f"worker-w-{n}", "worker", role, {"pool": "w", **options}] for n in range(rows)]


def order(tree: ToyTree, *names: str) -> list[tuple[str, str]]:
    """Return (event, slot) of some events, in the order in which they were logged."""
    return [(each["event"], each.get("slot", "")) for each in tree.events() if each["event"] in names]


def test_a_worker_that_asks_is_replaced_by_one_that_is_up_first(make_tree: Make) -> None:
    """The old one hears of it when the new one works; nobody else is started, and the stop is clean."""
    tree = make_tree(pool("recycled"), processes={"w": 1})
    tree.wait_for("child_exited", slot="worker-w-0")
    tree.wait_for("replacement_done", pool="w", old="worker-w-0", new="worker-w-1")
    assert order(tree, "child_ready", "child_signalled", "child_exited") == [
        ("child_ready", "worker-w-0"),
        ("child_ready", "worker-w-1"),
        ("child_signalled", "worker-w-0"),
        ("child_exited", "worker-w-0"),
    ]
    assert tree.stop() == 0
    tree.nobody_is_left()


def test_a_successor_that_never_comes_up_leaves_the_old_one_at_work(make_tree: Make) -> None:
    """It is killed at its boot deadline, and its row is free again."""
    rows = [*pool("hangs_in_spare_row", rows=1), *pool("hangs_in_spare_row", boot_timeout_s=0.5)[1:]]
    tree = make_tree(rows, processes={"w": 1})
    tree.wait_for("replacement_aborted", old="worker-w-0", new="worker-w-1")
    tree.wait_for("child_exited", slot="worker-w-1")
    assert tree.events("child_signalled", slot="worker-w-0") == []
    assert tree.stop() == 0
    assert [each["slot"] for each in tree.events("child_started")] == ["worker-w-0", "worker-w-1"]


def test_a_stop_while_a_successor_boots_ends_both(make_tree: Make) -> None:
    """Neither the old nor the new one is forgotten, and nobody is started after it."""
    tree = make_tree(pool("hangs_in_spare_row"), processes={"w": 1})
    tree.wait_for("child_started", slot="worker-w-1")
    assert tree.stop() == 0
    tree.nobody_is_left()
    assert len(tree.events("child_started")) == 2


def test_signals_scale_a_pool_and_make_it_quiet(make_tree: Make) -> None:
    """One more, one less, none, and back: each by one signal of a person."""
    tree = make_tree([["agent", "agent", "idle"], *pool("idle")], processes={"w": 1})
    tree.wait_for("tree_ready")
    tree.send(signal.SIGTTIN)
    tree.wait_for("child_ready", slot="worker-w-1")
    tree.send(signal.SIGTTOU)
    tree.wait_for("child_exited", slot="worker-w-1")  # the youngest
    tree.send(signal.SIGWINCH)
    tree.wait_for("child_exited", slot="worker-w-0")
    tree.send(signal.SIGTTOU)
    tree.wait_for("signal_ignored", signal="SIGTTOU")
    wait_until(lambda: _resumed(tree), "the workers to be started again")
    tree.wait_for("child_ready", slot="worker-w-0", count=2)
    assert tree.stop() == 0


def _resumed(tree: ToyTree) -> bool:
    """Send the signal until it counts: within a quarter of a second after the first it would be the same one."""
    tree.send(signal.SIGWINCH)
    return bool(tree.events("workers_resumed"))
