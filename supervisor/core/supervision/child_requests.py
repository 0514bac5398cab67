"""Authorization of requests from children to the parent: permitted verbs and targets.

A report is not a command. The effects a child may cause are limited by its role: its own process, or, for the
agent, which speaks for people, others too. Nobody may ask for anything about the embedded server.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from supervisor.core.supervision.slot import Group
from supervisor.core.supervision.states import SlotState, Verb

_WORKERS = frozenset({Group.WORKER})
_REPLACEABLE = frozenset({Group.WORKER, Group.SCHEDULER, Group.WEB})
_NOBODY: frozenset[Group] = frozenset()
_ALL = frozenset(Group)


class RequestAnswer(IntEnum):
    """Answer to a request, as the board gives it to the requester."""

    NONE = 0
    ACCEPTED = 1
    NOT_ALLOWED = 2
    NO_SUCH_SLOT = 3
    GENERATION_GONE = 4
    NOT_NOW = 5


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """Refusal of a request: the answer, and its reason in words."""

    answer: RequestAnswer
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Permissions of one verb: requesters, targets and conditions."""

    of_others: frozenset[Group] = _NOBODY  # the agent may, about a slot of these
    of_itself: frozenset[Group] = _NOBODY  # a child of these may, about its own process
    of_every: bool = False  # the agent may, about all workers at once
    of_tree: bool = False  # the agent may; it concerns no slot
    needs_process: bool = True
    while_stopping: bool = False


RULES: dict[Verb, Rule] = {
    Verb.KILL: Rule(of_others=_REPLACEABLE, of_itself=_ALL, while_stopping=True),
    Verb.RESTART: Rule(of_others=_REPLACEABLE, of_itself=_ALL, while_stopping=True),
    Verb.RECYCLE: Rule(of_others=_WORKERS, of_itself=_WORKERS, of_every=True),
    Verb.QUIET: Rule(of_others=_WORKERS, of_every=True),
    Verb.RESUME: Rule(of_others=_WORKERS, of_every=True, needs_process=False),
    Verb.STACKS: Rule(of_others=_ALL - {Group.EMBEDDED}, of_every=True, while_stopping=True),
    Verb.RELOAD: Rule(of_tree=True),
    Verb.STOP: Rule(of_tree=True),
}
"""Every verb but NONE. A verb that is missing here is refused as unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSlot:
    """The slot that a request names, as the parent knows it."""

    group: Group
    is_asker: bool
    is_current: bool  # the request names its newest generation
    state: SlotState


def refusal(
    verb: int, asker: Group, target: RequestedSlot | None, *, is_every: bool = False, is_stopping: bool = False
) -> RequestRefusal | None:
    """Return why a request is not acted upon; None when it is.

    Args:
        verb: as the child wrote it, so any number.
        asker: the role of the child.
        target: None when the request names no slot that there is.
        is_every: the request names all workers in place of a slot.
        is_stopping: the tree stops.
    """
    rule = RULES.get(Verb(verb)) if verb in Verb._value2member_map_ else None
    if rule is None:
        return _not_allowed("unknown verb")
    if is_stopping and not rule.while_stopping:
        return RequestRefusal(RequestAnswer.NOT_NOW, "the tree stops")
    if rule.of_tree:
        return None if asker is Group.AGENT else _not_allowed("only the agent may ask for the whole tree")
    if is_every:
        may = rule.of_every and asker is Group.AGENT
        return None if may else _not_allowed("this cannot be asked for all workers")
    if target is None:
        return RequestRefusal(RequestAnswer.NO_SUCH_SLOT, "no such slot")
    return _refusal_of(Verb(verb), rule, asker, target)


def _not_allowed(reason: str) -> RequestRefusal:
    return RequestRefusal(RequestAnswer.NOT_ALLOWED, reason)


def _refusal_of(verb: Verb, rule: Rule, asker: Group, target: RequestedSlot) -> RequestRefusal | None:
    may_for_itself = target.is_asker and target.group in rule.of_itself
    if not target.is_asker and asker is not Group.AGENT:
        return _not_allowed("only the agent may ask for others")
    if not may_for_itself and asker is not Group.AGENT:
        return _not_allowed("only the agent may ask for this")
    if not may_for_itself and target.group not in rule.of_others:
        return _not_allowed("this slot is the parent's alone")
    if not target.is_current or (rule.needs_process and not target.state.has_process):
        return RequestRefusal(RequestAnswer.GENERATION_GONE, "that generation is gone")
    if verb is Verb.KILL and target.state is SlotState.STARTING:
        return RequestRefusal(RequestAnswer.NOT_NOW, "it is still starting")
    return None
