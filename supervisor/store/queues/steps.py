"""The steps of a run, as Redis keeps them: one hash of a run, under the fence of the attempt that executes it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from supervisor.core.json_values import json_reader
from supervisor.store.keys import Keys
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import pairs, text
from supervisor.store.wire.envelope import check_run_id

STEPS_MAX = 100
STEP_BYTES_MAX = 16 * 1024
STEPS_BYTES_MAX = 256 * 1024


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Record of a step that ended."""

    status: str
    """``done`` or ``failed``."""

    number: int
    """Which it was, from 1."""

    attempt: int
    ended_ms: int = 0
    duration_ms: int = 0
    result: Any = None
    error: str = ""


_DECODER = json_reader(Step)


class StepCalls(CallBuilder):
    """Builds the calls of one run's attempt."""

    def __init__(self, keys: Keys, *, run_id: str, queue: str, fence: str, born: str) -> None:
        """Build it.

        Args:
            keys: of the cluster.
            run_id: the run.
            queue: where it is.
            fence: session, attempt and when it was fetched, parted by bars.
            born: distinguishes the run from an earlier one of the same id.
        """
        super().__init__(keys)
        self._steps, self._run = keys.steps(check_run_id(run_id)), keys.queue(queue).run
        self._run_id, self._fence, self._born = run_id, fence, born

    def read(self) -> Call[dict[str, Step]]:
        """Read how steps of earlier attempts ended, by name."""
        return self._call("step_read", {"born": self._born}, _steps, keys={"steps": self._steps})

    def write(self, name: str, data: bytes, *, ttl_ms: int) -> Call[int]:
        """Note a step; 1 noted, 0: the run is another's by now, -1: too many, or too large together."""
        args = {
            "id": self._run_id, "fence": self._fence, "born": self._born, "name": name, "ttl_ms": max(1, ttl_ms),
            "steps_max": STEPS_MAX, "bytes_max": STEPS_BYTES_MAX, "step": data,
        }  # fmt: skip
        return self._call("step_write", args, int, keys={"steps": self._steps, "run": self._run})


def _steps(reply: Any) -> dict[str, Step]:
    found = {}
    for name, data in pairs(reply):
        if not text(name).startswith("#"):
            with suppress(msgspec.DecodeError):  # written by hand: it is executed again
                found[text(name)] = _DECODER(data)
    return found
