"""What a child may ask for: decided for every verb, every asker and every state."""

from __future__ import annotations

from itertools import product

import pytest

from supervisor.core.supervision.child_requests import RULES, RequestAnswer, RequestedSlot, refusal
from supervisor.core.supervision.slot import Group
from supervisor.core.supervision.states import SlotState, Verb
from tests.kit.tables import table

ASKERS = [Group.AGENT, Group.SCHEDULER, Group.WEB, Group.WORKER]
OTHERS = [Group.AGENT, Group.WEB]


def target(
    group: Group, *, is_asker: bool = False, is_current: bool = True, state: SlotState = SlotState.RUNNING
) -> RequestedSlot:
    return RequestedSlot(group=group, is_asker=is_asker, is_current=is_current, state=state)


def answer(
    verb: int, asker: Group, of: RequestedSlot | None, *, is_every: bool = False, is_stopping: bool = False
) -> RequestAnswer:
    found = refusal(verb, asker, of, is_every=is_every, is_stopping=is_stopping)
    return found.answer if found else RequestAnswer.ACCEPTED


def test_every_verb_has_a_rule() -> None:
    """A new verb that nobody judged is refused, and this fails."""
    assert set(RULES) == set(Verb) - {Verb.NONE}


@pytest.mark.parametrize("verb", [0, 9, 1 << 40])
def test_words_that_are_no_verb_are_refused(verb: int) -> None:
    """A child may write anything."""
    assert answer(verb, Group.AGENT, target(Group.WORKER)) is RequestAnswer.NOT_ALLOWED


@table(("verb", "asker"), list(product(RULES, sorted(set(ASKERS) - {Group.AGENT}))))
def test_only_the_agent_asks_for_others(verb: Verb, asker: Group) -> None:
    """A job that scribbles over the board hurts its own process at most."""
    assert answer(verb, asker, target(Group.WORKER)) is RequestAnswer.NOT_ALLOWED
    assert answer(verb, asker, None, is_every=True) is RequestAnswer.NOT_ALLOWED


@table("verb", list(RULES))
def test_nobody_asks_for_the_embedded_server(verb: Verb) -> None:
    """It holds the data; it stops with the tree, last."""
    if not RULES[verb].of_tree:
        assert answer(verb, Group.AGENT, target(Group.EMBEDDED)) is RequestAnswer.NOT_ALLOWED


@pytest.mark.parametrize(
    ("verb", "may"),
    [
        (Verb.KILL, True),
        (Verb.RESTART, True),
        (Verb.RECYCLE, True),
        (Verb.QUIET, False),
        (Verb.RESUME, False),
        (Verb.STACKS, False),
    ],
)
def test_a_worker_may_ask_for_its_own_end_and_no_more(verb: Verb, *, may: bool) -> None:
    """Its deadline passed, it is worn out: those it knows best itself."""
    asked = answer(verb, Group.WORKER, target(Group.WORKER, is_asker=True))
    assert asked is (RequestAnswer.ACCEPTED if may else RequestAnswer.NOT_ALLOWED)


@table("verb", [Verb.RECYCLE, Verb.QUIET, Verb.RESUME])
@table("group", [Group.AGENT, Group.SCHEDULER, Group.WEB])
def test_only_workers_have_successors(verb: Verb, group: Group) -> None:
    """Two schedulers, even for a second, are what the whole tree exists to prevent."""
    assert answer(verb, Group.AGENT, target(group, is_asker=group is Group.AGENT)) is RequestAnswer.NOT_ALLOWED


@pytest.mark.parametrize("verb", [verb for verb, rule in RULES.items() if not rule.of_tree])
def test_a_request_for_a_process_that_is_gone_hits_nobody(verb: Verb) -> None:
    """The agent's view is a moment old; the next process of the slot is not meant."""
    assert answer(verb, Group.AGENT, target(Group.WORKER, is_current=False)) is RequestAnswer.GENERATION_GONE
    gone = answer(verb, Group.AGENT, target(Group.WORKER, state=SlotState.STOPPED))
    assert gone is (RequestAnswer.ACCEPTED if verb is Verb.RESUME else RequestAnswer.GENERATION_GONE)
    assert answer(verb, Group.AGENT, None) is RequestAnswer.NO_SUCH_SLOT


@table("verb", list(RULES))
def test_a_tree_that_stops_only_ends_and_shows(verb: Verb) -> None:
    """Deadlines stay exact until the end; nothing new begins."""
    asked = answer(verb, Group.AGENT, target(Group.WORKER), is_stopping=True)
    assert asked is (
        RequestAnswer.ACCEPTED if verb in {Verb.KILL, Verb.RESTART, Verb.STACKS} else RequestAnswer.NOT_NOW
    )


def test_a_process_that_is_still_starting_has_no_run_to_be_killed_for() -> None:
    """Its words on the board are its predecessor's."""
    asked = answer(Verb.KILL, Group.AGENT, target(Group.WORKER, state=SlotState.STARTING))
    assert asked is RequestAnswer.NOT_NOW


@pytest.mark.parametrize("verb", [Verb.RECYCLE, Verb.QUIET, Verb.RESUME, Verb.STACKS, Verb.RELOAD, Verb.STOP])
def test_the_agent_asks_for_all_or_for_the_tree(verb: Verb) -> None:
    """People mean the whole replica more often than one process."""
    assert answer(verb, Group.AGENT, None, is_every=True) is RequestAnswer.ACCEPTED
