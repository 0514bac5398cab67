"""Steps of the election and the scheduler: requests to the world, described and not yet done.

Both are generators. They yield a step and are sent its answer, or are thrown the error;
whoever drives them does the I/O. In production a thread with a blocking client drives
them; tests drive the same code in a seeded world (supervisor.testing.world).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from supervisor.store.scripts import Call

T = TypeVar("T")


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
