"""What the parent looks at on every turn: readiness, deadlines, beats and requests.

A word that a child wrote is a report. It can make its own process be killed or started
afresh, and an agent's request can do that to others; nothing else follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.core.board import SlotState, Verb
from supervisor.core.liveness import STARVED_PERCENT, PauseGuard, judge, run_deadline_ns, silence_ns
from supervisor.core.restart import NS, Event, Group
from supervisor.process.slots import LiveSlot
from supervisor.process.tree import Tree

READY_POLL_NS = NS // 50
_EVENT_OF = {Verb.KILL: Event.OVERRAN, Verb.RESTART: Event.RESTART}
_MAY_BE_ASKED_FOR = frozenset({Group.WORKER, Group.SCHEDULER, Group.WEB})


def look(tree: Tree, guard: PauseGuard, now_ns: int) -> None:
    """Let everything happen that is due to a slot with a process. Readiness of all first: requests go by it."""
    for live in tree.slots:
        if live.slot.state is SlotState.STARTING and live.reports_ready():
            _note_ready(tree, live, now_ns)
    for live in tree.slots:
        if not live.has_process:
            continue
        _read_request(tree, live, now_ns)
        _check_deadline(tree, live, guard, now_ns)
        _check_life(tree, live, guard, now_ns)


def _note_ready(tree: Tree, live: LiveSlot, now_ns: int) -> None:
    tree.step(live, Event.READY, now_ns)
    live.was_ready = True
    took_s = round((now_ns - live.slot.started_ns) / NS, 3)
    tree.log("child_ready", slot=live.spec.name, child_pid=live.pid, took_s=took_s)


def _check_deadline(tree: Tree, live: LiveSlot, guard: PauseGuard, now_ns: int) -> None:
    deadline_ns = _state_deadline_ns(live, guard)
    if 0 < deadline_ns <= now_ns:
        tree.step(live, Event.LATE, now_ns)


def _state_deadline_ns(live: LiveSlot, guard: PauseGuard) -> int:
    """Return the deadline of the slot's state; a boot that was paused with the parent gets more time."""
    if live.slot.state is SlotState.STARTING:
        return max(live.slot.deadline_ns, guard.holds_until_ns(live.policy.boot_timeout_ns))
    return live.slot.deadline_ns


def _check_life(tree: Tree, live: LiveSlot, guard: PauseGuard, now_ns: int) -> None:
    event = judge(live.slot, live.row, now_ns=now_ns, hang_after_ns=live.hang_after_ns, guard=guard)
    if event is None or (event is Event.HUNG and _is_starved(tree, live, now_ns)):
        return
    silent_s = round(silence_ns(live.slot, live.row, now_ns) / NS, 3)
    name = "child_hung" if event is Event.HUNG else "run_overran"
    if not (event is Event.OVERRAN and live.slot.state is SlotState.KILLING):
        tree.log(name, level="error", slot=live.spec.name, child_pid=live.pid, silent_s=silent_s, busy=live.row.busy)
    tree.step(live, event, now_ns)


def _is_starved(tree: Tree, live: LiveSlot, now_ns: int) -> bool:
    """Return whether a silent child deserves twice its limit, because the machine has no processor to give it."""
    assert live.hang_after_ns is not None
    if silence_ns(live.slot, live.row, now_ns) > 2 * live.hang_after_ns:
        return False
    pressure = tree.kernel.pressure_percent()
    if pressure <= STARVED_PERCENT:
        return False
    if live.starved_generation != live.slot.generation:
        live.starved_generation = live.slot.generation
        tree.log("hang_limit_doubled", level="warning", slot=live.spec.name, pressure_percent=pressure)
    return True


def _read_request(tree: Tree, live: LiveSlot, now_ns: int) -> None:
    row = live.row
    number = row.request_number
    if number == row.handled_number or row.child_generation != live.slot.generation:
        return
    verb, index, generation = row.request_verb, row.request_slot, row.request_generation
    row.handled_number = number
    problem = _refusal(tree, live, verb, index, generation)
    if problem:
        tree.log("request_refused", level="warning", slot=live.spec.name, verb=verb, target=index, reason=problem)
        return
    target = tree.slots[index]
    tree.log("request_accepted", slot=live.spec.name, verb=Verb(verb).name.lower(), target=target.spec.name)
    tree.step(target, _EVENT_OF[Verb(verb)], now_ns)


def _refusal(tree: Tree, asker: LiveSlot, verb: int, index: int, generation: int) -> str:
    """Return why a request is not acted upon; empty when it is."""
    if verb not in _EVENT_OF:
        return "unknown verb"
    if index >= len(tree.slots):
        return "no such slot"
    target = tree.slots[index]
    if target is not asker and asker.spec.group is not Group.AGENT:
        return "only the agent may ask for others"
    if target is not asker and target.spec.group not in _MAY_BE_ASKED_FOR:
        return "this slot is the parent's alone"
    if target.slot.generation != generation or not target.has_process:
        return "that generation is gone"
    if verb == Verb.KILL and target.slot.state is SlotState.STARTING:
        return "it is still starting"
    return ""


def deadlines_ns(tree: Tree, guard: PauseGuard, now_ns: int) -> Iterator[int]:
    """Yield every moment at which a slot needs the parent's attention; 0 means none."""
    for live in tree.slots:
        if not live.has_process:
            yield tree.start_ns(live, now_ns) or 0
            continue
        yield _state_deadline_ns(live, guard)
        if live.slot.state is not SlotState.STARTING and not live.slot.is_killed:
            yield run_deadline_ns(live.slot, live.row)
        elif live.slot.state is SlotState.STARTING and live.spec.is_ready is not None:
            yield now_ns + READY_POLL_NS
