"""Explicit-state exploration: every state within the bounds, each step checked, and the shortest path to a broken rule."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.model.invariants import Invariant
from tests.model.protocol import Protocol
from tests.model.world import ModelState

Cause = dict[ModelState, tuple[ModelState, str] | None]
"""How each state was reached first: from which other one, by which step."""


@dataclass(frozen=True)
class Explored:
    """What an exploration found."""

    states: int
    steps: int
    depth: int
    broken: str = ""  # the rule; empty when all hold
    path: tuple[str, ...] = ()
    is_whole: bool = True  # every state within the bounds was seen

    def __str__(self) -> str:
        """Render the counts, and the path for whoever must find out why a rule broke."""
        head = f"{self.states} states, {self.steps} steps, {self.depth} deep" + ("" if self.is_whole else ", cut short")
        if not self.broken:
            return head
        return "\n".join([head, f"BROKEN: {self.broken}", *(f"  {n:3} {name}" for n, name in enumerate(self.path, 1))])


def explore(
    protocol: Protocol, invariants: Mapping[str, Invariant], *, goal: Callable[[ModelState], bool] | None = None
) -> Explored:
    """Visit every state, nearest first; stop at the first step that breaks a rule.

    Args:
        protocol: the graph.
        invariants: the rules of a step.
        goal: what must stay within reach of every state that has a lease and a tick left; None: nothing.
    """
    start = protocol.start()
    cause: Cause = {start: None}
    before: dict[ModelState, list[ModelState]] = {}  # the edges backwards, for the goal
    waiting = deque([(start, 0)])
    steps = depth = 0
    while waiting:
        world, depth = waiting.popleft()
        for name, after in protocol.steps(world):
            steps += 1
            if goal is not None:
                before.setdefault(after, []).append(world)
            broken = next((rule for rule, holds in invariants.items() if not holds(world, after)), "")
            if broken:
                path = (*_path(cause, world), name)
                return Explored(len(cause), steps, depth + 1, broken, path, is_whole=False)
            if after not in cause:
                cause[after] = (world, name)
                waiting.append((after, depth + 1))
    stuck = _stuck(protocol, cause, before, goal) if goal is not None else None
    if stuck is not None:
        return Explored(len(cause), steps, depth, "from every state somebody can come to lead", _path(cause, stuck))
    return Explored(len(cause), steps, depth)


def _stuck(
    protocol: Protocol, cause: Cause, before: Mapping[ModelState, list[ModelState]], goal: Callable[[ModelState], bool]
) -> ModelState | None:
    """Return a state that has time enough and still cannot reach the goal."""
    good = {world for world in cause if goal(world)}
    waiting = deque(good)
    while waiting:
        for earlier in before.get(waiting.popleft(), ()):
            if earlier not in good:
                good.add(earlier)
                waiting.append(earlier)
    return next((world for world in cause if world not in good and protocol.has_time(world)), None)


def _path(cause: Cause, world: ModelState) -> tuple[str, ...]:
    names = []
    at = cause[world]
    while at is not None:
        names.append(at[1])
        at = cause[at[0]]
    return tuple(reversed(names))
