"""The two promises of supervision, under whatever children and operators do."""

from __future__ import annotations

from signal import Signals

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.supervision.scoreboard import EVERY_SLOT
from supervisor.core.supervision.slot import Group
from supervisor.core.supervision.states import Verb
from supervisor.core.units import SECOND_NS
from supervisor.process.parent import ParentLimits
from tests.unit.process.fake_kernel import SLOTS, START_NS, Manner, make_world

DELAYS = st.one_of(st.none(), st.floats(0, 3))
MANNERS = st.builds(
    Manner,
    ready_s=st.one_of(st.none(), st.floats(0, 1)),
    dies_s=st.one_of(st.none(), st.floats(0, 20)),
    status=st.sampled_from([0, 0, 1, 70, 75, 78, -11]),
    silent_s=st.one_of(st.none(), st.floats(0, 5)),
    term_s=DELAYS,
    quit_s=DELAYS,
    abort_s=DELAYS,
    kill_s=st.one_of(st.just(0.001), st.none()),
)
SIGNALS = st.lists(
    st.tuples(
        st.floats(0, 25),
        st.sampled_from([Signals.SIGHUP, Signals.SIGUSR1, Signals.SIGURG, Signals.SIGCHLD, Signals.SIGWINCH]),
    ),
    max_size=5,
)


@given(
    script=st.lists(MANNERS, min_size=1, max_size=8),
    noise=SIGNALS,
    stop_s=st.floats(0, 25),
    second_s=st.one_of(st.none(), st.floats(0, 5)),
    grace_s=st.floats(0, 4),
)
def test_whatever_children_do_no_slot_has_two_processes_and_every_stop_ends(
    script: list[Manner],
    noise: list[tuple[float, Signals]],
    stop_s: float,
    second_s: float | None,
    grace_s: float,
) -> None:
    """The two promises of supervision, under crashes, hangs, refusals, deaf and unkillable children.

    The fake kernel refuses a second process in a slot, a signal to a reaped pid, and a loop that spins.
    """
    world = make_world(
        lambda name, generation: script[(len(name) * 5 + generation) % len(script)],
        has_server=True,
        limits=ParentLimits(grace_s=grace_s),
        hang_timeout_s=2.0,
        boot_timeout_s=3.0,
    )
    for at_s, number in noise:
        world.at(at_s, number)
    world.at(stop_s, Signals.SIGTERM)
    if second_s is not None:
        world.at(stop_s + second_s, Signals.SIGTERM)
    code = world.run()
    assert code in {0, 1, 70, 78}, world.said("parent_crashed")
    assert not world.said("parent_crashed")
    asked_s = (world.board.header.stop_started_ns - START_NS) / SECOND_NS
    assert asked_s <= stop_s + 0.001
    assert world.elapsed_s <= asked_s + grace_s + 3.5
    if second_s is not None and second_s >= 0.25 and asked_s > stop_s - 0.01:
        assert world.elapsed_s <= stop_s + second_s + 0.5 + 0.001
    late = [each for each in world.kernel.history if each.started_ns > world.board.header.stop_started_ns]
    assert {each.spec.group for each in late} <= {Group.AGENT, Group.EMBEDDED, Group.WEB}, (
        "they serve draining workers, or tell of them"
    )


WISHES = st.lists(
    st.tuples(
        st.floats(0, 25),
        st.one_of(
            st.sampled_from([Signals.SIGTTIN, Signals.SIGTTOU, Signals.SIGWINCH]),
            st.tuples(
                st.sampled_from([Verb.RECYCLE, Verb.QUIET, Verb.RESUME, Verb.RESTART, Verb.KILL, Verb.STACKS]),
                st.sampled_from([EVERY_SLOT, *range(9)]),
                st.integers(0, 3),
            ),
        ),
    ),
    max_size=8,
)


@given(
    script=st.lists(MANNERS, min_size=1, max_size=8), wishes=WISHES, stop_s=st.floats(0, 25), grace_s=st.floats(0, 4)
)
def test_whatever_people_wish_of_pools_the_stop_ends_and_nothing_is_started_after_it(
    script: list[Manner], wishes: list[tuple[float, object]], stop_s: float, grace_s: float
) -> None:
    """Replacements, scaling and quiet, in any order with crashes, hangs and the stop itself."""
    world = make_world(
        lambda name, generation: script[(len(name) + ord(name[-1]) + generation) % len(script)],
        slots=SLOTS[:3],
        pools={"io": 2},
        limits=ParentLimits(grace_s=grace_s),
        hang_timeout_s=2.0,
        boot_timeout_s=3.0,
    )
    for at_s, wish in wishes:
        if isinstance(wish, Signals):
            world.at(at_s, wish)
        elif isinstance(wish, tuple):
            world.ask(at_s, "agent", *wish)
    world.at(stop_s, Signals.SIGTERM)
    code = world.run()
    assert not world.said("parent_crashed"), world.said("parent_crashed")
    assert code in {0, 1, 70, 78}
    asked_s = (world.board.header.stop_started_ns - START_NS) / SECOND_NS
    assert world.elapsed_s <= asked_s + grace_s + 3.5
    late = [each for each in world.kernel.history if each.started_ns > world.board.header.stop_started_ns]
    assert {each.spec.group for each in late} <= {Group.AGENT, Group.WEB}, (
        "they serve draining workers, or tell of them"
    )
    ends = len(world.said("replacement_done")) + len(world.said("replacement_aborted"))
    ends += len(world.said("replacement_overtaken"))
    assert ends <= len(world.said("replacement_started"))
