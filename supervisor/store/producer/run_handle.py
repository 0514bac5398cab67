"""The handle of a run: its identity, to ask about the run later and from anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from supervisor.store.producer.producer import Producer

R = TypeVar("R")
"""Type of the run's result. The handle alone carries it, for type checkers: a run of another version may differ."""


@dataclass(frozen=True, slots=True)
class Run(Generic[R]):
    """A run that was enqueued. ``Run(run_id)`` makes the handle of one whose id is known."""

    id: str
    """Its identity. Where the job is ``unique`` and an unfinished run holds the key, it is that run's."""

    job: str = field(default="", compare=False)
    """Name of its job; empty if not known."""

    queue: str = field(default="", compare=False)
    """Queue it was enqueued into; empty if not known."""

    producer: Producer | None = field(default=None, compare=False, repr=False)
    """The producer to ask about it; None: that of the process."""

    def __str__(self) -> str:
        """Return the id."""
        return self.id

    def __reduce__(self) -> tuple[type[Run[R]], tuple[str, str, str]]:
        """Travel without the producer, whose connections belong to one process."""
        return Run, (self.id, self.job, self.queue)
