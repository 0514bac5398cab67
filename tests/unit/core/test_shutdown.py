"""The stop of a tree: its order, its bounds, and what counts as a second signal."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.supervision.shutdown import (
    BOUND_AFTER_GRACE_NS,
    DEBOUNCE_NS,
    FORCED,
    FORCED_BOUND_NS,
    PLANS,
    TRANSITIONS,
    ImpossibleStopError,
    ShutdownStage,
    Stop,
    StopEvent,
    advance,
    ask,
    signalled,
)
from supervisor.core.supervision.slot import Group, SlotEvent
from supervisor.core.units import SECOND_NS
from tests.kit.tables import table

T = 1000 * SECOND_NS
GRACE_NS = 20 * SECOND_NS


def fresh(grace_ns: int = GRACE_NS) -> Stop:
    return Stop(grace_ns=grace_ns)


def told(stop: Stop, now_ns: int = T, *, is_quit: bool = False) -> Stop:
    return signalled(stop, now_ns=now_ns, is_quit=is_quit, reason="received SIGTERM")


def run_out(stop: Stop) -> tuple[list[ShutdownStage], int]:
    """Let every stage take as long as it may; return the stages and when the last one ended."""
    stages, now_ns = [stop.stage], stop.entered_ns
    while stop.stage is not ShutdownStage.DONE:
        now_ns = max(now_ns, stop.deadline_ns)
        stop = advance(stop, StopEvent.LATE, now_ns=now_ns)
        stages.append(stop.stage)
    return stages, now_ns


@table(("stage", "event"), list(product(ShutdownStage, StopEvent)))
def test_every_pair_of_stage_and_event_is_decided(stage: ShutdownStage, event: StopEvent) -> None:
    """A pair is either in the table or refused: nothing falls through."""
    stop = Stop(grace_ns=GRACE_NS, stage=stage, asked_ns=T, entered_ns=T)
    if (stage, event) in TRANSITIONS:
        assert advance(stop, event, now_ns=T).stage is TRANSITIONS[stage, event]
    else:
        with pytest.raises(ImpossibleStopError, match=event.value):
            advance(stop, event, now_ns=T)


@table("stage", sorted(set(ShutdownStage) - {ShutdownStage.RUNNING, ShutdownStage.DONE}, key=str))
def test_every_stage_that_waits_has_a_deadline_and_an_order(stage: ShutdownStage) -> None:
    """A wait without an end is how a supervisor hangs for ever on one child."""
    stop = Stop(grace_ns=GRACE_NS, stage=stage, asked_ns=T, entered_ns=T)
    assert stop.deadline_ns > T
    assert stage in PLANS


@pytest.mark.parametrize("grace_ns", [0, SECOND_NS, 20 * SECOND_NS, 3600 * SECOND_NS])
def test_a_stop_ends_within_its_bound_although_nobody_goes(grace_ns: int) -> None:
    """Grace plus 3.5 s, so that it fits in what the service manager and Kubernetes allow."""
    stages, ended_ns = run_out(told(fresh(grace_ns)))
    assert ended_ns <= T + grace_ns + BOUND_AFTER_GRACE_NS
    assert ShutdownStage.KILLING_SERVER in stages


@table("before", sorted(set(ShutdownStage) - {ShutdownStage.DONE}, key=str))
def test_a_forced_stop_ends_within_half_a_second_from_any_stage(before: ShutdownStage) -> None:
    """Somebody waits at the keyboard; the last 50 ms are for what was adopted."""
    stop = Stop(grace_ns=GRACE_NS, stage=before, asked_ns=T - SECOND_NS, entered_ns=T, first_signal_ns=T - SECOND_NS)
    forced = told(stop, T)
    assert forced.stage is (before if before in {*FORCED, ShutdownStage.KILLING_SERVER} else ShutdownStage.FORCED_WORK)
    _, ended_ns = run_out(forced)
    assert forced.sweep_until_ns(ended_ns) - T <= FORCED_BOUND_NS


def test_the_order_is_work_then_agent_then_web_then_server() -> None:
    """Runs need a beating session, the agent a server, and probes should see the whole of it."""
    stop = told(fresh())
    seen = [PLANS[stop.stage].groups]
    while (stop := advance(stop, StopEvent.GONE, now_ns=T)).stage is not ShutdownStage.DONE:
        seen.append(PLANS[stop.stage].groups)
    assert seen == [{"scheduler", "worker"}, {"agent"}, {"web"}, {"embedded"}]
    assert stop.exit_code == 0


def test_a_forced_stop_keeps_the_order_and_asks_agent_and_server_first() -> None:
    """The agent gets a moment to release, the server one to write; the others get none."""
    assert [PLANS[stage][:2] for stage in run_out(told(fresh(), is_quit=True))[0][:-1]] == [
        (SlotEvent.KILL, {Group.SCHEDULER, Group.WORKER}),
        (SlotEvent.STOP, {Group.AGENT}),
        (SlotEvent.KILL, {Group.AGENT}),
        (SlotEvent.KILL, {Group.WEB}),
        (SlotEvent.STOP, {Group.EMBEDDED}),
        (SlotEvent.KILL, {Group.EMBEDDED}),
    ]


def test_a_second_signal_in_the_last_moment_makes_no_stop_longer() -> None:
    """Everybody was killed by then; a fresh round of six stages would end after the bound."""
    stop = Stop(
        grace_ns=0,
        stage=ShutdownStage.KILLING_SERVER,
        asked_ns=T,
        entered_ns=T + 3300 * SECOND_NS // 1000,
        first_signal_ns=T,
    )
    forced = told(stop, stop.deadline_ns)
    assert forced.forced_ns == stop.deadline_ns
    assert run_out(forced)[1] <= T + BOUND_AFTER_GRACE_NS


def test_one_ctrl_c_that_arrives_twice_is_one() -> None:
    """Terminals, launchers and group signals repeat themselves within milliseconds."""
    stop = told(fresh())
    assert told(stop, T + DEBOUNCE_NS - 1).stage is ShutdownStage.DRAINING
    assert told(stop, T + DEBOUNCE_NS).stage is ShutdownStage.FORCED_WORK


def test_quit_waits_for_no_debounce() -> None:
    """SIGQUIT says at once, whether it comes first or second."""
    assert told(fresh(), is_quit=True).stage is ShutdownStage.FORCED_WORK
    assert told(told(fresh()), T + 1, is_quit=True).stage is ShutdownStage.FORCED_WORK


def test_the_first_signal_during_a_stop_that_nobody_sent_is_still_the_first() -> None:
    """A tree that ends by itself drains; an operator's TERM meanwhile asks for just that."""
    stop = ask(fresh(), now_ns=T, code=70, reason="web keeps failing")
    stop = told(stop, T + 5 * SECOND_NS)
    assert stop.stage is ShutdownStage.DRAINING
    assert told(stop, T + 6 * SECOND_NS).stage is ShutdownStage.FORCED_WORK


def test_the_first_reason_is_the_one_that_counts() -> None:
    """What fails while a tree stops is a consequence, not the cause."""
    stop = told(fresh())
    assert ask(stop, now_ns=T, code=70, reason="late") == stop
    assert stop.reason == "received SIGTERM"


@pytest.mark.parametrize(
    ("late_in", "code"),
    [
        (None, 0),
        (ShutdownStage.DRAINING, 1),
        (ShutdownStage.STOPPING_AGENT, 1),
        (ShutdownStage.STOPPING_WEB, 0),
        (ShutdownStage.STOPPING_SERVER, 1),
    ],
)
def test_the_exit_code_says_whether_everything_drained(late_in: ShutdownStage | None, code: int) -> None:
    """A slow client of the web child lost nobody's work; everybody else who is cut off did."""
    stop = told(fresh())
    while stop.stage is not ShutdownStage.DONE:
        event = StopEvent.LATE if stop.stage is late_in else StopEvent.GONE
        stop = advance(stop, event, now_ns=T)
    assert stop.exit_code == code


def test_a_reason_of_its_own_beats_clean_and_forced() -> None:
    """A crash loop exits 70, however well the rest drained."""
    stop = ask(fresh(), now_ns=T, code=70, reason="agent keeps failing")
    assert told(stop, is_quit=True).exit_code == 70


def test_a_parent_that_slept_through_the_stop_still_gives_each_child_a_moment() -> None:
    """After a suspend every bound has passed at once; the agent should release nevertheless."""
    stop = advance(told(fresh()), StopEvent.GONE, now_ns=T + 3600 * SECOND_NS)
    assert stop.deadline_ns > T + 3600 * SECOND_NS


@given(st.lists(st.tuples(st.sampled_from(["gone", "late", "term", "quit"]), st.floats(0, 3)), max_size=40))
def test_no_order_of_events_makes_a_stop_longer_than_its_bound(events: list[tuple[str, float]]) -> None:
    """Whatever goes, stays or is sent in between: the clock of the first request decides."""
    stop, now_ns = told(fresh(2 * SECOND_NS)), T
    for name, wait_s in events:
        if stop.stage is ShutdownStage.DONE:
            break
        now_ns = min(now_ns + int(wait_s * SECOND_NS), max(now_ns, stop.deadline_ns))
        if name in {"term", "quit"}:
            stop = told(stop, now_ns, is_quit=name == "quit")
        elif name == "gone" or now_ns >= stop.deadline_ns:
            stop = advance(stop, StopEvent.GONE if name == "gone" else StopEvent.LATE, now_ns=now_ns)
    ended_ns = run_out(stop)[1] if stop.stage is not ShutdownStage.DONE else now_ns
    assert max(ended_ns, now_ns) <= T + 2 * SECOND_NS + BOUND_AFTER_GRACE_NS


@pytest.mark.parametrize(("done_s", "until_s"), [(0.1, 2.1), (22.0, 23.5), (23.49, 23.54)])
def test_the_last_sweep_may_use_what_is_left_of_the_bound(done_s: float, until_s: float) -> None:
    """Killed descendants take a moment to be gone on a busy machine, and a quick stop has time for that."""
    assert told(fresh()).sweep_until_ns(T + int(done_s * SECOND_NS)) == T + int(until_s * SECOND_NS)
