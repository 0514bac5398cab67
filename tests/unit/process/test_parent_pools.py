"""Pools under a parent: replaced without a gap, grown, shrunk, made quiet, and all of it undone by a stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from signal import Signals
from types import SimpleNamespace

import msgspec
import pytest

from supervisor.core.supervision.child_requests import RequestAnswer
from supervisor.core.supervision.reload import ReloadOutcome, ReloadPlan, ReloadRecord
from supervisor.core.supervision.scoreboard import EVERY_SLOT
from supervisor.core.supervision.slot import Cause, Group
from supervisor.core.supervision.states import SlotState, Verb
from supervisor.core.units import SECOND_NS
from supervisor.process.reloading import Reloading
from supervisor.process.slots import ParentLimits
from supervisor.process.system.systemd import Notifier
from tests.kit.shares import share
from tests.unit.process.fake_kernel import GOOD, START_NS, Manner, SimulatedParent, make_world

SLOTS = (("agent", Group.AGENT), ("scheduler", Group.SCHEDULER), ("web", Group.WEB))
Manners = Callable[[str, int], Manner]


def world_of(
    manners: Manners = lambda _name, _generation: GOOD, *, grace_s: float = 20.0, **pools: int
) -> SimulatedParent:
    return make_world(manners, slots=SLOTS, pools=pools or {"io": 1}, limits=ParentLimits(grace_s=grace_s))


def run_until(world: SimulatedParent, stop_s: float) -> int:
    world.at(stop_s, Signals.SIGTERM)
    return world.run()


def starts(world: SimulatedParent) -> list[str]:
    return [process.spec.name for process in world.kernel.history if process.spec.group is Group.WORKER]


def test_a_pool_starts_as_many_as_it_is_told_and_the_tree_is_ready_with_them() -> None:
    """Spare rows are nobody's business until they are needed."""
    world = world_of(io=2, cpu=1)
    assert run_until(world, 5) == 0
    assert starts(world) == ["worker-io-0", "worker-io-1", "worker-cpu-0"]
    assert len(world.said("tree_ready")) == 1
    assert not world.row("worker-io-2").is_used


def test_a_worker_that_asks_is_replaced_without_a_gap() -> None:
    """The old one is told once the new one runs; its end is nobody's failure, and no restart."""
    world = world_of(lambda _name, _generation: replace(GOOD, ready_s=1.0))
    world.ask(3, "worker-io-0", Verb.RECYCLE, "worker-io-0", 1)
    assert run_until(world, 10) == 0
    old, new = world.kernel.history[3:]
    assert (old.spec.name, new.spec.name) == ("worker-io-0", "worker-io-1")
    told_ns = next(at_ns for at_ns, number in old.got if number is Signals.SIGTERM)
    assert told_ns >= new.started_ns + SECOND_NS
    assert [world.row(name).restarts for name in ("worker-io-0", "worker-io-1")] == [0, 0]
    assert world.row("worker-io-0").cause == Cause.RETIRED
    assert world.row("worker-io-0").request_result == RequestAnswer.ACCEPTED


@pytest.mark.parametrize(
    "bad",
    [Manner(ready_s=None), Manner(ready_s=None, dies_s=0.1, status=1), Manner(ready_s=None, dies_s=0.1, status=78)],
)
def test_a_successor_that_hangs_crashes_or_refuses_leaves_the_old_one_at_work(bad: Manner) -> None:
    """The pool is what it was, and the tree goes on."""
    world = world_of(lambda name, _: bad if name == "worker-io-1" else GOOD)
    world.ask(3, "worker-io-0", Verb.RECYCLE, "worker-io-0", 1)
    world.when(45, lambda: world.events.append(("seen", {"running": world.running()})))
    assert run_until(world, 50) == 0
    assert starts(world) == ["worker-io-0", "worker-io-1"]
    assert len(world.said("replacement_aborted")) == 1
    assert "worker-io-0" in str(world.said("seen"))


def test_an_old_one_that_dies_while_its_successor_boots_is_not_started_again() -> None:
    """One boot, not two; and the pool ends with as many as it had."""
    world = world_of(lambda _name, _generation: replace(GOOD, ready_s=1.0))
    world.ask(3, "worker-io-0", Verb.RECYCLE, "worker-io-0", 1)
    world.when(3.5, lambda: world.kernel.of("worker-io-0")[0].end(world.clock.now_ns, -9))
    assert run_until(world, 10) == 0
    assert starts(world) == ["worker-io-0", "worker-io-1"]
    assert len(world.said("replacement_overtaken")) == 1


def test_a_stop_in_the_middle_of_a_replacement_starts_nobody_and_ends_both() -> None:
    """A successor that boots is told to go like everybody."""
    world = world_of(lambda _name, _generation: replace(GOOD, ready_s=1.0))
    world.ask(3, "worker-io-0", Verb.RECYCLE, "worker-io-0", 1)
    assert run_until(world, 4.0) == 0
    assert starts(world) == ["worker-io-0", "worker-io-1"]
    assert world.elapsed_s < 4.5


def test_an_agent_that_dies_in_the_middle_of_a_replacement_changes_nothing() -> None:
    """The parent keeps what was asked; the next agent may ask again."""
    world = world_of(
        lambda name, generation: replace(GOOD, ready_s=1.0, dies_s=2.6 if (name, generation) == ("agent", 1) else None)
    )
    world.ask(2.5, "agent", Verb.RECYCLE, "worker-io-0", 1)
    world.ask(5, "agent", Verb.RECYCLE, "worker-io-0", 1)
    assert run_until(world, 10) == 0
    assert starts(world) == ["worker-io-0", "worker-io-1"]
    assert len(world.said("replacement_done")) == 1


@pytest.mark.parametrize("grace_s", share([20.0, 0.0], 2))
@pytest.mark.parametrize("run_s", [600.0, pytest.param(3600.0, marks=pytest.mark.long)])
def test_a_retired_worker_may_finish_a_long_run(grace_s: float, run_s: float) -> None:
    """A replacement has no hurry: the run has a deadline of its own, and the grace counts from its end."""
    world = world_of(lambda name, _: replace(GOOD, term_s=run_s) if name == "worker-io-0" else GOOD, grace_s=grace_s)
    world.kernel.deadline_words["worker-io-0"] = START_NS + int(run_s + 100) * SECOND_NS
    world.ask(3, "worker-io-0", Verb.RECYCLE, "worker-io-0", 1)
    assert run_until(world, run_s + 50) == 0
    assert [number for _, number in world.kernel.of("worker-io-0")[0].got] == [Signals.SIGTERM]


def test_a_retired_worker_may_wait_until_redis_takes_the_ends_of_its_runs() -> None:
    """They would be repeated; the grace counts from the answer."""
    world = world_of(lambda name, _: replace(GOOD, term_s=3600.0, has_run=True) if name == "worker-io-0" else GOOD)
    world.ask(3, "worker-io-0", Verb.RECYCLE, "worker-io-0", 1)
    row = world.row("worker-io-0")
    world.when(3.5, lambda: setattr(row, "asking_ns", world.clock.now_ns))
    world.when(300, lambda: setattr(row, "asking_ns", 0))
    assert run_until(world, 400) == 0
    (_, _), (quit_ns, number) = world.kernel.of("worker-io-0")[0].got
    assert number is Signals.SIGQUIT
    assert 319 <= (quit_ns - START_NS) / SECOND_NS <= 321


def test_a_retired_worker_that_runs_nothing_gets_the_grace_and_no_more() -> None:
    """One that does not go by itself holds its row for ever otherwise."""
    world = world_of(lambda name, _: replace(GOOD, term_s=None) if name == "worker-io-0" else GOOD)
    world.ask(3, "worker-io-0", Verb.RECYCLE, "worker-io-0", 1)
    assert run_until(world, 60) == 0
    (term_ns, _), (quit_ns, number) = world.kernel.of("worker-io-0")[0].got
    assert (number, quit_ns - term_ns) == (Signals.SIGQUIT, 20 * SECOND_NS)


def test_ttin_and_ttou_change_the_first_pool_within_its_rows() -> None:
    """Two rows are left at most: one worker at least, one row free for a successor."""
    world = world_of(io=1, cpu=1)
    for n in range(3):
        world.at(2 + n, Signals.SIGTTIN)
    for n in range(3):
        world.at(10 + n, Signals.SIGTTOU)
    assert run_until(world, 20) == 0
    assert [(fields["was"], fields["processes"]) for fields in world.said("pool_resized")] == [
        (1, 2),
        (2, 3),
        (3, 2),
        (2, 1),
    ]
    assert ["1 to 3" in str(fields["reason"]) for fields in world.said("signal_ignored")] == [True, True]
    assert starts(world).count("worker-cpu-0") == 1


def test_winch_makes_all_workers_quiet_and_the_next_one_starts_them_again() -> None:
    """A person looks at something without new runs getting in the way, and everything else goes on."""
    world = world_of(io=2)
    seen: list[list[str]] = []
    world.at(2, Signals.SIGWINCH)
    world.at(2.1, Signals.SIGWINCH)
    world.when(5, lambda: seen.append(world.running()))
    world.at(6, Signals.SIGWINCH)
    world.when(9, lambda: seen.append(world.running()))
    assert run_until(world, 10) == 0
    assert seen == [["agent", "scheduler", "web"], ["agent", "scheduler", "web", "worker-io-0", "worker-io-1"]]
    assert world.row("worker-io-0").is_quiet == 0


@pytest.mark.parametrize("number", [Signals.SIGWINCH, Signals.SIGHUP, Signals.SIGTTIN, Signals.SIGTTOU])
def test_what_a_terminal_sends_by_itself_changes_nothing(number: Signals) -> None:
    """A window that is resized must not stop all work."""
    world = world_of(io=2)
    world.at(2, number, is_from_kernel=True)
    assert run_until(world, 5) == 0
    assert len(starts(world)) == 2
    assert world.said("signal_ignored")[0]["reason"] == "it came from the terminal"


@pytest.mark.parametrize("number", [Signals.SIGWINCH, Signals.SIGHUP, Signals.SIGTTIN, Signals.SIGTTOU])
def test_nothing_changes_while_the_tree_stops(number: Signals) -> None:
    """The stop has begun; what is wanted otherwise does not matter any more."""
    world = world_of(lambda _name, _generation: replace(GOOD, term_s=2.0), io=2)
    world.at(6, number)
    assert run_until(world, 5) == 0
    assert len(starts(world)) == 2
    assert world.said("signal_ignored")[0]["reason"] == "the tree stops"


def test_the_agent_makes_one_worker_quiet_and_starts_it_again() -> None:
    """By command, for one process; its place is kept."""
    world = world_of(io=2)
    seen: list[tuple[int, int]] = []
    world.ask(2, "agent", Verb.QUIET, "worker-io-1", 1)
    world.when(5, lambda: seen.append((world.row("worker-io-1").state, world.row("worker-io-1").is_quiet)))
    world.ask(6, "agent", Verb.RESUME, "worker-io-1", 1)
    assert run_until(world, 10) == 0
    assert seen == [(SlotState.STOPPED, 1)]
    assert starts(world) == ["worker-io-0", "worker-io-1", "worker-io-1"]


@pytest.mark.parametrize("slot", [EVERY_SLOT, "worker-io-0"])
def test_what_is_resumed_while_it_still_drains_has_a_free_row_at_once(slot: int | str) -> None:
    """It came back once its last run had ended: after an hour, or never."""
    world = world_of(lambda name, _: replace(GOOD, term_s=600.0) if name == "worker-io-0" else GOOD)
    world.kernel.deadline_words["worker-io-0"] = START_NS + 700 * SECOND_NS
    seen: list[list[str]] = []
    for at_s, verb in ((2, Verb.QUIET), (4, Verb.RESUME)):
        world.ask(at_s, "agent", verb, slot, 1)
    for at_s in (3.5, 6, 650):
        world.when(at_s, lambda: seen.append(world.running()[3:]))
    assert run_until(world, 660) == 0
    assert seen == [[], ["worker-io-1"], ["worker-io-1"]]
    assert [number for _, number in world.kernel.of("worker-io-0")[0].got] == [Signals.SIGTERM]


def test_the_agent_speaks_for_all_workers_at_once() -> None:
    """One request in place of one for each."""
    world = world_of(io=2, cpu=1)
    world.ask(2, "agent", Verb.STACKS, EVERY_SLOT, 0)
    world.ask(3, "agent", Verb.QUIET, EVERY_SLOT, 0)
    world.ask(4, "agent", Verb.RESUME, EVERY_SLOT, 0)
    world.ask(8, "agent", Verb.RECYCLE, EVERY_SLOT, 0)
    assert run_until(world, 20) == 0
    first = [world.kernel.of(name)[0] for name in ("worker-io-0", "worker-io-1", "worker-cpu-0")]
    assert all(process.got[0][1] is Signals.SIGUSR1 for process in first)
    assert len(starts(world)) == 9
    assert [fields["pool"] for fields in world.said("roll_done")] == ["cpu", "io"]


def test_the_agent_stops_the_tree_as_a_signal_would_and_a_signal_after_it_is_the_first() -> None:
    """A person stops it by command, and the service manager signals a moment later: nobody meant force."""
    world = world_of(lambda _name, _generation: replace(GOOD, term_s=2.0))
    world.ask(2, "agent", Verb.STOP, 0, 0)
    assert run_until(world, 3) == 0
    assert "asked by agent" in str(world.said("tree_stopped")[0]["reason"])


def test_a_request_that_is_refused_says_why_on_the_board() -> None:
    """Whoever asked for a person can tell them."""
    world = world_of(io=2)
    plan = [
        (Verb.RECYCLE, "worker-io-0", 7, RequestAnswer.GENERATION_GONE),
        (Verb.RECYCLE, 999, 1, RequestAnswer.NO_SUCH_SLOT),
        (Verb.RECYCLE, "web", 1, RequestAnswer.NOT_ALLOWED),
        (Verb.RELOAD, 0, 0, RequestAnswer.NOT_NOW),
        (Verb.QUIET, "worker-io-0", 1, RequestAnswer.ACCEPTED),
    ]
    seen: list[int] = []
    for n, (verb, slot, generation, _) in enumerate(plan):
        world.ask(2 + n, "agent", verb, slot, generation)
        world.when(2.9 + n, lambda: seen.append(world.row("agent").request_result))
    assert run_until(world, 10) == 0
    assert seen == [answer for *_, answer in plan]


def test_a_roll_tries_again_at_once_what_was_given_up() -> None:
    """The worker that could not start is not left to its pause when a person replaces all."""
    crash = Manner(dies_s=0.05, status=70)
    world = world_of(lambda name, n: crash if name == "worker-io-1" and 2 <= n <= 7 else GOOD, io=2)
    world.when(2, lambda: world.kernel.of("worker-io-1")[0].end(world.clock.now_ns, -11))
    world.ask(8, "agent", Verb.RECYCLE, EVERY_SLOT, 0)
    assert run_until(world, 12) == 0
    given_up = [process.started_ns for process in world.kernel.of("worker-io-1")]
    assert START_NS + 8 * SECOND_NS <= given_up[-1] <= START_NS + 9 * SECOND_NS


class FakeReloading:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.deadline_ns = 0

    def request(self) -> None:
        self.told.append("request")

    def look(self, now_ns: int, tree: object, book: object) -> None:
        self.told.append("look")

    def ended(self, pid: int, status: int) -> bool:
        return False

    def stop(self) -> None:
        self.told.append("stop")


def test_hangup_and_request_reach_what_reloads_and_the_stop_ends_it() -> None:
    """After the stop it is not asked any more."""
    reloading = FakeReloading()
    world = make_world(slots=SLOTS, pools={"io": 1}, reloading=reloading)
    world.at(2, Signals.SIGHUP)
    world.ask(3, "agent", Verb.RELOAD, 0, 0)
    assert run_until(world, 5) == 0
    assert reloading.told.count("request") == 2
    assert reloading.told[-1] == "stop"


def test_a_pool_whose_successor_fails_ends_the_replacements_of_the_other_pools() -> None:
    """Their successors could come up with the former configuration and replace workers for nothing."""
    bad, slow = Manner(ready_s=None, dies_s=0.05, status=3), replace(GOOD, ready_s=1.0)
    world = world_of(lambda name, _: {"worker-io-1": bad, "worker-cpu-1": slow}.get(name, GOOD), io=1, cpu=1)
    endings: list[ReloadRecord] = []
    plan = msgspec.json.encode(ReloadPlan(changed=("jobs",), rolled=("io", "cpu")))
    reloading = Reloading(
        SimpleNamespace(open=lambda *_: None, plan=lambda _: plan),  # type: ignore[arg-type]
        world.board.header,
        world.clock,
        notify=Notifier(),
        log=lambda *_, **__: None,
        follow=lambda _: None,
        publish=endings.append,
        fork=lambda _: 77,
    )
    world.parent._reloading = reloading
    world.at(3, Signals.SIGHUP)
    world.when(3.5, lambda: reloading.ended(77, 0))
    assert run_until(world, 10) == 0
    assert starts(world) == ["worker-io-0", "worker-cpu-0", "worker-io-1", "worker-cpu-1"]
    assert [ending.outcome for ending in endings] == [ReloadOutcome.UNDONE]
    assert endings[0].reasons[0].startswith("new workers of io did not come up")
    stop_ns = START_NS + 10 * SECOND_NS
    assert all(at_ns >= stop_ns for name in ("io", "cpu") for at_ns, _ in world.kernel.of(f"worker-{name}-0")[0].got)
