"""How a running tree follows a changed configuration: step by step, or not at all."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from supervisor.core.supervision.pool import PoolReplacement
from supervisor.core.supervision.reload import NewLimits, ReloadOutcome, ReloadPlan, ReloadRecord
from supervisor.core.supervision.scoreboard import Header
from supervisor.core.supervision.states import Phase
from supervisor.core.units import SECOND_NS
from supervisor.process.reloading import CHECK_NS, Reloading
from tests.kit.clock import START_NS, FakeClock

NOW = START_NS
PID = 77
LIMITS = NewLimits(grace_s=5.0, boot_timeout_s=6.0, hang_timeout_s=7.0, backoff_max_s=8.0)
CHANGE = ReloadPlan(changed=("log.level",), restarts=("web",), limits=LIMITS, log_level="debug", log_format="json")


@dataclass
class Book:
    """The pools, as far as a reload sees them."""

    counts: dict[str, int] = field(default_factory=lambda: {"io": 2, "cpu": 1})
    states: dict[str, PoolReplacement] = field(default_factory=dict)
    refusal: str = ""
    calls: list[Any] = field(default_factory=list)

    def fits(self, _pool: str, _count: int) -> str:
        return self.refusal

    def processes(self, pool: str) -> int:
        return self.counts[pool]

    def set_processes(self, pool: str, count: int) -> str:
        if not self.refusal:
            self.counts[pool] = count
        return self.refusal

    def roll(self, pools: Iterable[str]) -> None:
        self.states |= dict.fromkeys(pools, PoolReplacement.GOING)

    def abort(self, pools: Iterable[str], _now_ns: int) -> None:
        self.states |= dict.fromkeys(pools, PoolReplacement.ABORTED)

    def rolling(self, pool: str) -> PoolReplacement:
        return self.states.get(pool, PoolReplacement.NEVER)

    def restart(self, slot: str, _now_ns: int) -> str:
        self.calls.append(("restart", slot))
        return ""

    def replace(self, live: Any) -> str:
        self.calls.append(("replace", live.spec.name))
        return ""


def worker(name: str, pool: str, started_ns: int) -> Any:
    """Return one worker's slot."""
    return SimpleNamespace(
        spec=SimpleNamespace(name=name, pool=pool), is_up=True, slot=SimpleNamespace(started_ns=started_ns)
    )


class Tree:
    """The tree, as far as a reload sees it."""

    def __init__(self) -> None:
        self.is_ready = True
        self.slots: list[Any] = [worker("worker-io-0", "io", NOW - SECOND_NS)]
        self.calls: list[Any] = []

    def retune(self, limits: Any, **more: float) -> None:
        self.calls.append((limits.grace_s, limits.backoff_max_s, more))

    def poke_all(self) -> None:
        self.calls.append("poke")


class Check:
    """A check whose child handed over what the test says."""

    def open(self, *_: int) -> None: ...
    def __init__(self, world: ReloadedParent) -> None:
        self._world = world

    def run(self, _number: int, _in_effect: int, _fits: Callable[[str, int], str]) -> bool:
        raise AssertionError("the check never runs in the parent")

    def plan(self, _number: int) -> bytes | None:
        return None if self._world.plan is None else msgspec.json.encode(self._world.plan)


class ReloadedParent:
    """Everything around one Reloading."""

    def __init__(self) -> None:
        self.clock, self.book, self.tree = FakeClock(), Book(), Tree()
        self.header = Header(memoryview(bytearray(8 * 72)).cast("Q"))
        self.header.phase = Phase.READY
        self.plan: ReloadPlan | None = CHANGE
        self.said: list[str] = []
        self.told: list[tuple[str, dict[str, object]]] = []
        self.endings: list[ReloadRecord] = []
        self.forks, self.killed, self.followed = 0, [], []
        self.fork_error: OSError | None = None
        self.reloading: Any = Reloading(
            Check(self),
            self.header,
            self.clock,
            notify=SimpleNamespace(  # type: ignore[arg-type]
                reloading=lambda: self.said.append("RELOADING"), reloaded=lambda note: self.said.append(f"READY {note}")
            ),
            log=lambda event, **fields: self.told.append((event, fields)),
            follow=self.followed.append,
            publish=self.endings.append,
            fork=self._fork,
            kill=self.killed.append,
        )

    def _fork(self, _check: Callable[[], bool]) -> int:
        if self.fork_error:
            raise self.fork_error
        self.forks += 1
        return PID

    def turn(self, seconds: float = 0.1) -> None:
        """Let time pass and the parent turn."""
        self.clock.now_ns += int(seconds * SECOND_NS)
        self.reloading.look(self.clock.now_ns, self.tree, self.book)

    def reload(self, *, status: int = 0) -> None:
        """Ask for a reload, and let its check end."""
        self.reloading.request()
        self.turn()
        assert self.reloading.ended(PID, status)
        self.turn()

    @property
    def epochs(self) -> tuple[int, int]:
        """Which configuration is in effect, and of which new workers are."""
        return self.header.config_epoch, self.header.worker_epoch

    @property
    def outcomes(self) -> list[ReloadOutcome | None]:
        """How the reloads ended."""
        return [ending.outcome for ending in self.endings]


@pytest.fixture
def world() -> ReloadedParent:
    """Return a tree that is ready, and a reload that would change the log level."""
    return ReloadedParent()


def test_a_good_configuration_is_followed_by_everybody(world: ReloadedParent) -> None:
    """Children read it by its number; the parent takes its limits; the web process is started afresh."""
    world.reload()

    assert world.epochs == (1, 1)
    assert world.tree.calls == [(5.0, 8.0, {"boot_timeout_s": 6.0, "hang_timeout_s": 7.0}), "poke"]
    assert world.book.calls == [("restart", "web")]
    assert world.followed == [CHANGE]
    assert world.said == ["RELOADING", "READY "]
    assert (world.outcomes, world.endings[0].changed) == ([ReloadOutcome.APPLIED], ("log.level",))
    assert (world.header.phase, world.header.reload_number) == (Phase.READY, 1)
    assert not world.header.is_reload_refused


def test_a_refused_one_changes_nothing_and_says_each_problem(world: ReloadedParent) -> None:
    """Whoever asked reads the same lines that a start would have printed."""
    world.plan = ReloadPlan(problems=("tenure.yaml:9: bogus: is not a setting",), problem_count=3)
    world.reload(status=78)

    assert world.epochs == (0, 0)
    assert (world.tree.calls, world.book.calls, world.followed) == ([], [], [])
    assert world.endings[0].reasons == ("tenure.yaml:9: bogus: is not a setting", "and 2 more")
    problems = [fields["problem"] for event, fields in world.told if event == "reload_problem"]
    assert problems == list(world.endings[0].reasons)
    assert world.said[-1] == "READY reload refused: tenure.yaml:9: bogus: is not a setting"
    assert world.header.is_reload_refused
    assert world.header.phase == Phase.READY


def test_nothing_changed_touches_no_process(world: ReloadedParent) -> None:
    """And it counts as a success."""
    world.plan = ReloadPlan()
    world.reload()

    assert (world.outcomes, world.epochs, world.book.calls) == ([ReloadOutcome.UNCHANGED], (0, 0), [])
    assert not world.header.is_reload_refused


def test_changed_code_is_told_also_when_nothing_else_changed(world: ReloadedParent) -> None:
    """It is what somebody reloads for who does not know better."""
    world.plan = ReloadPlan(stale=("own",))
    world.reload()

    assert world.outcomes == [ReloadOutcome.UNCHANGED]
    assert world.endings[0].stale == ("own",)
    assert "code_not_reloaded" in [event for event, _ in world.told]


def test_workers_go_first_and_the_rest_follows_once_they_run(world: ReloadedParent) -> None:
    """A schedule of a new job must not fire before a worker knows the job."""
    world.plan = replace_plan(rolled=("io", "cpu"), processes={"io": 4})
    world.reload()
    assert (world.epochs, world.book.counts["io"]) == ((0, 1), 4)
    world.book.states["io"] = PoolReplacement.DONE
    world.turn()
    assert world.outcomes == []

    world.book.states["cpu"] = PoolReplacement.DONE
    world.turn()
    assert (world.outcomes, world.epochs) == ([ReloadOutcome.APPLIED], (1, 1))


def test_workers_that_do_not_come_up_undo_it(world: ReloadedParent) -> None:
    """What ran before runs on, and what went ahead is replaced by what it was."""
    world.plan = replace_plan(rolled=("io", "cpu"), processes={"io": 4})
    world.reload()
    world.tree.slots.append(worker("worker-io-5", "io", world.clock.now_ns))
    world.book.states |= {"cpu": PoolReplacement.ABORTED}
    world.turn()
    assert (world.outcomes, world.epochs, world.book.counts["io"]) == ([ReloadOutcome.UNDONE], (0, 0), 2)
    assert world.book.calls == [("replace", "worker-io-5")]
    assert world.book.rolling("io") is PoolReplacement.ABORTED
    assert world.endings[0].reasons[0].startswith("new workers of cpu did not come up")
    assert world.followed == []


def test_a_count_that_fits_no_more_undoes_it(world: ReloadedParent) -> None:
    """Somebody scaled by hand since the check looked."""
    world.plan = replace_plan(processes={"io": 4})
    world.book.refusal = "there is no room"
    world.reload()

    assert (world.outcomes, world.epochs) == ([ReloadOutcome.UNDONE], (0, 0))
    assert world.endings[0].reasons == ("there is no room",)


def test_requests_during_a_reload_are_one_more_reload_afterwards(world: ReloadedParent) -> None:
    """The files may have changed since the check read them."""
    world.reloading.request()
    world.turn()
    for _ in range(3):
        world.reloading.request()
    world.turn()
    assert world.forks == 1
    world.reloading.ended(PID, 0)
    world.turn()
    world.turn()
    assert world.forks == 2
    world.reloading.ended(PID, 0)
    world.turn()
    world.turn()

    assert world.forks == 2
    assert [ending.number for ending in world.endings] == [1, 2]
    assert world.endings[1].began_ns > world.endings[0].began_ns


def test_a_check_that_hangs_is_killed_and_named(world: ReloadedParent) -> None:
    """A module under jobs that waits for the network at its import must not leave the tree reloading for ever."""
    world.reloading.request()
    world.turn()
    world.turn(CHECK_NS / SECOND_NS - 0.2)
    assert world.killed == []
    world.turn(0.3)
    assert world.killed == [PID]
    world.reloading.ended(PID, -signal.SIGKILL)
    world.turn()

    assert world.outcomes == [ReloadOutcome.REFUSED]
    assert "longer than 10 s" in world.endings[0].reasons[0]


def test_a_check_that_dies_is_a_refusal(world: ReloadedParent) -> None:
    """Out of memory, a crash in a C library: the parent knows how it ended, and nothing else."""
    world.plan = None
    world.reload(status=-signal.SIGSEGV)

    assert world.outcomes == [ReloadOutcome.REFUSED]
    assert "signal 11" in world.endings[0].reasons[0]


def test_no_process_for_the_check_is_a_refusal(world: ReloadedParent) -> None:
    """A full process table is no reason to stop supervising."""
    world.fork_error = BlockingIOError(11, "Resource temporarily unavailable")
    world.reloading.request()
    world.turn()

    assert world.outcomes == [ReloadOutcome.REFUSED]
    assert world.header.phase == Phase.READY


def test_a_reload_waits_until_the_tree_is_ready(world: ReloadedParent) -> None:
    """SIGHUP right after the start, from a deploy in a hurry."""
    world.tree.is_ready = False
    world.reloading.request()
    world.turn()
    assert world.forks == 0

    world.tree.is_ready = True
    world.turn()
    assert world.forks == 1


def test_a_stop_cuts_a_reload_off(world: ReloadedParent) -> None:
    """Whoever waits for its outcome is told, also who asked behind it for another."""
    world.reloading.request()
    world.turn()
    world.clock.advance(1)
    asked_ns = world.clock.elapsed_ns()
    world.reloading.request()

    world.reloading.stop()

    assert world.killed == [PID]
    assert world.outcomes == [ReloadOutcome.CUT]
    assert world.header.reload_began_ns >= asked_ns
    assert not world.reloading.ended(PID, -9)


def test_a_stranger_that_ends_is_no_check(world: ReloadedParent) -> None:
    """An adopted orphan has a number too."""
    world.reloading.request()
    world.turn()

    assert not world.reloading.ended(PID + 1, 0)


def replace_plan(**changes: Any) -> ReloadPlan:
    """Return CHANGE with more to do."""
    return msgspec.structs.replace(CHANGE, **changes)
