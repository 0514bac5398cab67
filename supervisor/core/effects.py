"""Effects: requests to the world, described and not yet done, and the drivers that do them.

Operations, the election and the scheduler are generators. They yield an effect, and are sent its answer or are thrown
the error; whoever drives them does the I/O. In production that is a blocking client, an event loop or a thread; tests
drive the same code in a seeded world (supervisor.testing.world).

Only errors that Tenure raises on purpose reach the generator, unless other ``errors`` are named; anything else is a
wrong program and ends the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from supervisor.core.errors import TenureError

E = TypeVar("E")
T = TypeVar("T")
Argument = str | bytes | int | float


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call of a script, ready to send by whoever has a connection."""

    script: str
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    parse: Callable[[Any], T]


@dataclass(frozen=True, slots=True)
class RunScript:
    """Run one script and answer with its parsed reply.

    ``meanwhile`` may be done once the question is sent, until the answer comes: work that asks nothing of the
    world. Whoever asks must do without, and bear that it is done and no answer comes.
    """

    call: Call[Any]
    timeout_ns: int
    meanwhile: Callable[[], None] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Listen:
    """Wait for entries after ``last_id`` in the event stream; answer ``[(id, fields)]``, empty at ``until_ns``."""

    last_id: str
    until_ns: int


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait until ``until_ns``, or until a notification of a change."""

    until_ns: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Wait until ``until_ns``, a notification of a change, or changes of schedules.

    Answer ``[(id, fields)]`` of the changes after ``last_id``, none when it ended otherwise.
    """

    last_id: str
    until_ns: int


Step = RunScript | Listen | Sleep | Watch
Steps = Generator[Step, Any, T]


class Reporter(Protocol):
    """Receiver of decisions: the log and the metrics in production, the history in a simulation."""

    def __call__(self, event: str, **fields: Any) -> None:
        """Report one decision."""
        ...


def drive(
    effects: Generator[E, Any, T], execute: Callable[[E], Any], *, errors: type[BaseException] = TenureError
) -> T:
    """Run ``effects`` to its end on ``execute`` and return its result."""

    async def at_once(effect: E) -> Any:
        return execute(effect)

    try:
        drive_async(effects, at_once, errors=errors).send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("it waited, although nothing here is awaited")


async def drive_async(
    effects: Generator[E, Any, T], execute: Callable[[E], Awaitable[Any]], *, errors: type[BaseException] = TenureError
) -> T:
    """Run ``effects`` to its end on ``execute``, awaited, and return its result."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            effect = effects.send(answer) if error is None else effects.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer, error = None, None
        try:
            answer = await execute(effect)
        except errors as raised:
            error = raised
