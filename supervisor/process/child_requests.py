"""Reads requests of children on the board, and carries out those they may make.

Permissions are decided in ``supervisor.core.supervision.child_requests``. Requests about the whole tree go
back
to the parent, which alone stops and reloads it.
"""

from __future__ import annotations

from signal import Signals

from supervisor.core.supervision.child_requests import RULES, RequestAnswer, RequestedSlot, RequestRefusal, refusal
from supervisor.core.supervision.scoreboard import EVERY_SLOT
from supervisor.core.supervision.slot import Group, SlotEvent
from supervisor.core.supervision.states import Verb
from supervisor.process.pool_control import PoolBook
from supervisor.process.process_table import ProcessTable
from supervisor.process.slots import LiveSlot

_EVENT_OF = {Verb.KILL: SlotEvent.OVERRAN, Verb.RESTART: SlotEvent.RESTART}


def read(tree: ProcessTable, book: PoolBook, now_ns: int, *, can_reload: bool) -> list[tuple[Verb, str]]:
    """Handle every new request; return those that concern the whole tree, with the name of who asked."""
    found = []
    for live in tree.slots:
        row = live.row
        is_new = row.request_number != row.handled_number and row.child_generation == live.slot.generation
        if live.has_process and is_new and (verb := _handle(tree, book, live, now_ns, can_reload=can_reload)):
            found.append((verb, live.spec.name))
    return found


def _handle(tree: ProcessTable, book: PoolBook, asker: LiveSlot, now_ns: int, *, can_reload: bool) -> Verb | None:
    """Execute the request, or give the reason against it; return a verb that is for the parent itself."""
    row = asker.row
    number, verb, index = row.request_number, row.request_verb, row.request_slot
    is_every = index == EVERY_SLOT
    named = None if is_every or index >= len(tree.slots) else tree.slots[index]
    target = None if named is None else _target(named, asker, row.request_generation)
    refused = refusal(verb, asker.spec.group, target, is_every=is_every, is_stopping=tree.is_stopping)
    if refused is None and verb == Verb.RELOAD and not can_reload:
        refused = RequestRefusal(RequestAnswer.NOT_NOW, "this tree cannot reload")
    is_for_tree = refused is None and RULES[Verb(verb)].of_tree
    if refused is None and not is_for_tree and (reason := _do(tree, book, Verb(verb), named, now_ns)):
        refused = RequestRefusal(RequestAnswer.NOT_NOW, reason)
    row.request_result = refused.answer if refused else RequestAnswer.ACCEPTED
    row.handled_number = number
    name = asker.spec.name
    if refused:
        tree.log("request_refused", level="warning", slot=name, verb=verb, target=index, reason=refused.reason)
        return None
    about = "tree" if is_for_tree else "all workers" if named is None else named.spec.name
    tree.log("request_accepted", slot=name, verb=Verb(verb).name.lower(), target=about)
    return Verb(verb) if is_for_tree else None


def _target(named: LiveSlot, asker: LiveSlot, generation: int) -> RequestedSlot:
    return RequestedSlot(
        group=named.spec.group,
        is_asker=named is asker,
        is_current=named.slot.generation == generation,
        state=named.slot.state,
    )


def _do(tree: ProcessTable, book: PoolBook, verb: Verb, live: LiveSlot | None, now_ns: int) -> str:
    """Act on one slot, or on all workers; return why not, or an empty string."""
    if live is None:
        _do_for_every(tree, book, verb, now_ns)
        return ""
    match verb:
        case Verb.RECYCLE:
            return book.replace(live)
        case Verb.QUIET:
            return book.quiet(live, now_ns)
        case Verb.RESUME:
            return book.resume(live, now_ns)
        case Verb.STACKS:
            _show_stacks(tree, live)
        case _:
            tree.step(live, _EVENT_OF[verb], now_ns)
    return ""


def _do_for_every(tree: ProcessTable, book: PoolBook, verb: Verb, now_ns: int) -> None:
    match verb:
        case Verb.RECYCLE:
            book.roll(book.names)
        case Verb.QUIET:
            book.quiet_all(now_ns)
        case Verb.RESUME:
            book.resume_all(now_ns)
        case _:
            for live in tree.of(frozenset({Group.WORKER})):
                _show_stacks(tree, live)


def _show_stacks(tree: ProcessTable, live: LiveSlot) -> None:
    """Make a process write its stacks. It unblocks the signal only once it can."""
    if live.has_process:
        tree.kernel.send(live.pid, Signals.SIGUSR1)
