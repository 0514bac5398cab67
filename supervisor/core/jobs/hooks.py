"""The fire pipeline: five points at which hooks are asked, the registry they come from, and their possible answers.

    gate      may this schedule, or job, be considered at all
    filter    may it fire now
    reserve   take something; ``unreserve`` gives it back when the run does not end well
    dispatch  do the work of a run in the job's place; there is one in a whole configuration at most
    after     hear how it ended

Guarantees
    A name belongs to one hook: a second one under it is refused, with both origins.
    The order at each point is the order in which a profile lists its hooks.

Pure: who asks a hook, with which patience, is in roles/worker/attempt/hooks.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from supervisor.core.durations import parse_duration
from supervisor.core.errors import EXIT_CONFIG, TenureError

REASON_CHARS_MAX = 200
DELAY_S_MAX = 86_400.0
FAILURE_DELAY_S, FAILURE_DELAY_S_MAX = 1.0, 30.0
EVERYTHING = "*"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


class Point(StrEnum):
    """Points of a run's way at which hooks are called, in their order."""

    GATE = "gate"
    FILTER = "filter"
    RESERVE = "reserve"
    DISPATCH = "dispatch"
    AFTER = "after"


POINTS = tuple(Point)
ASKED = (Point.GATE, Point.FILTER, Point.RESERVE)
"""Points at which a hook may say no."""


class DuplicateHookError(TenureError):
    """Two hooks claim one name."""

    exit_code = EXIT_CONFIG


class UnknownHookError(TenureError):
    """No hook has the name."""

    exit_code = EXIT_CONFIG


class UnknownProfileError(TenureError):
    """A run names a profile that this process does not have."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook that can be enabled by its name."""

    name: str
    origin: str
    """Where it comes from, for people: in-tree, a distribution's entry point, a module, a line of the configuration."""

    points: tuple[Point, ...]
    is_check: bool = False
    """Asked by the leader, about nominal times; every other one is asked on a worker."""

    make: Callable[[Mapping[str, Any]], Any] | None = None
    """Build what is asked, with the arguments of the configuration; None for a check."""

    verify: Callable[[Mapping[str, Any]], list[str]] = lambda _: []
    """Return what is wrong with arguments."""

    has_coroutines: bool = False
    """Some of its methods are coroutine functions."""


class HookRegistry:
    """Name to hook."""

    def __init__(self) -> None:
        self._hooks: dict[str, Hook] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._hooks

    def __iter__(self) -> Iterator[Hook]:
        return iter(self._hooks.values())

    def names(self) -> list[str]:
        """Return every name, sorted."""
        return sorted(self._hooks)

    def register(self, hook: Hook) -> None:
        """Add ``hook``.

        Raises:
            DuplicateHookError: its name is taken; names both origins.
        """
        known = self._hooks.get(hook.name)
        if known is not None:
            raise DuplicateHookError(
                f"hook {hook.name!r} is there twice, from {known.origin} and from {hook.origin}; rename one"
            )
        self._hooks[hook.name] = hook

    def unregister(self, name: str) -> None:
        """Take a hook out.

        Raises:
            UnknownHookError: there is none of that name.
        """
        self.get(name)
        del self._hooks[name]

    def merge(self, other: Iterable[Hook]) -> None:
        """Add every hook of ``other``, or none.

        Raises:
            DuplicateHookError: one of the names is taken.
        """
        merged = HookRegistry()
        for hook in (*self, *other):
            merged.register(hook)
        self._hooks = merged._hooks

    def get(self, name: str) -> Hook:
        """Return the hook called ``name``.

        Raises:
            UnknownHookError: there is none.
        """
        try:
            return self._hooks[name]
        except KeyError:
            raise UnknownHookError(f"no hook is called {name!r}; known: {', '.join(self.names())}") from None


def split_entry(entry: str) -> tuple[Point | None, str]:
    """Return point and name of an entry in a list of hooks: ``filter/budget``, or ``budget`` for all its points."""
    point, slash, name = entry.partition("/")
    return (Point(point), name) if slash and point in set(POINTS) else (None, entry)


def inherited(base: Iterable[str], disabled: Iterable[str], own: Iterable[str]) -> list[str]:
    """Return the hooks of a profile: those of ``default`` that it neither disables nor lists anew, then its own.

    Applied to its own result, it returns the same.
    """
    off, listed = set(disabled), list(dict.fromkeys(own))
    return [entry for entry in base if not ({EVERYTHING, entry} & off or entry in listed)] + listed


def order(enabled: Iterable[str], disabled: Iterable[str], point: Point) -> list[str]:
    """Return the names of the hooks that are asked at ``point``, in their order.

    ``disabled`` counts here where it names the point: ``filter/budget``, ``after/*``.
    """
    off = {name for at, name in map(split_entry, disabled) if at is point}
    entries = map(split_entry, enabled)
    found = (name for at, name in entries if at in {None, point} and not {EVERYTHING, name} & off)
    return list(dict.fromkeys(found))


class Veto(NamedTuple):
    """Veto of a hook against executing a run now, with its reason."""

    hook: str
    point: str
    reason: str
    delay_s: float | None = None
    """After how long it is asked again; None: never."""

    is_failure: bool = False
    """The hook did not answer, or not as it must: the run is asked about again, whatever ``delay_s``."""


class VetoedError(Exception):
    """A hook kept a run from being executed."""

    def __init__(self, veto: Veto) -> None:
        super().__init__(f"{veto.point} {veto.hook}: {veto.reason}")
        self.veto = veto


class HookAnswerError(ValueError):
    """A hook returned a value that is neither yes nor no."""


def read_answer(hook: str, point: str, answer: Any) -> Veto | None:
    """Parse a hook's answer; None when it has nothing against the run.

    None lets the run go on. A text ends it ``rejected``, for that reason. A text and a delay put it off, as in
    ``("closed", "5m")``.

    Raises:
        HookAnswerError: it is none of these.
    """
    if answer is None:
        return None
    if isinstance(answer, str):
        return Veto(hook, point, plain_reason(answer))
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], str):
        return Veto(hook, point, plain_reason(answer[0]), delay_of(answer[1]))
    kind = type(answer).__name__
    raise HookAnswerError(f"returned {kind}; return None to let the run go on, a reason, or (reason, delay)")


def plain_reason(text: str) -> str:
    """Return a reason as one short line."""
    line = _CONTROL.sub(" ", text).encode("utf-8", "replace").decode()  # a file's name may hold halves of characters
    return line.strip()[:REASON_CHARS_MAX] or "no reason given"


def delay_of(value: Any) -> float:
    """Return the seconds in a delay: a number, or a duration such as ``5m``; at most a day.

    Raises:
        HookAnswerError: neither, or none above 0.
    """
    try:
        seconds = parse_duration(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = 0.0
    if isinstance(value, bool) or not 0 < seconds < float("inf"):
        raise HookAnswerError(f"put the run off by {value!r:.40}; write seconds above 0, or a duration such as '5m'")
    return min(seconds, DELAY_S_MAX)


def failure_delay_s(count: int) -> float:
    """Return after how long a run is asked about again once its hooks failed ``count`` times: 1 s, doubled up to 30 s.

    Not the job fails here, so no attempt is charged, and nothing waits as long as for a failed attempt.
    """
    assert count >= 1
    return min(FAILURE_DELAY_S_MAX, FAILURE_DELAY_S * 2.0 ** min(count - 1, 10))
