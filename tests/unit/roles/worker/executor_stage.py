"""An executor on a stage: its jobs, its clock, and the runs that a turn brings it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Envelope, Kind, Template
from supervisor.roles.worker.attempt.executor import Execution, Executor
from supervisor.store.wire.poll import Ack, FetchedRun
from tests.kit.clock import FakeClock


@dataclass
class Stage:
    """An executor with its jobs and its clock."""

    registry: Registry
    clock: FakeClock = field(default_factory=FakeClock)
    kind: Kind = Kind.SYNC

    def __post_init__(self) -> None:
        self.executor = Executor(
            kind=self.kind, registry=self.registry, worker="w", clock=self.clock, uniform=lambda: 0.5
        )

    def begin(self, fetched: FetchedRun) -> Execution:
        """Prepare and begin a run that can be."""
        prepared = self.executor.prepare(fetched)
        assert isinstance(prepared, Execution)
        self.executor.begin(prepared)
        return prepared

    def refuse(self, fetched: FetchedRun) -> Ack:
        """Prepare a run that cannot be begun."""
        prepared = self.executor.prepare(fetched)
        assert isinstance(prepared, Ack)
        return prepared


def fetched(
    name: str = "work", args: dict[str, Any] | None = None, *, attempt: int = 1, crashes: int = 0,
    maybe_duplicate: bool = False, **template: Any,
) -> FetchedRun:  # fmt: skip
    """Return a run as a turn brings it."""
    made = Template(job=name, kind=Kind.SYNC, args=args or {}, **template)
    return FetchedRun(
        queue="default",
        envelope=Envelope(
            id="r1", template=made, schedule="nightly", nominal_ms=1_699_999_999_000, maybe_duplicate=maybe_duplicate
        ),
        attempt=attempt,
        crashes=crashes,
        interrupts=2 if crashes else 0,
        suspect=False,
    )
