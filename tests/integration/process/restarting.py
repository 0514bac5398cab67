"""Restarts by the thousand: the parent's own tree and real forks, under a clock that is driven.

``python restarting.py N`` prints what the process grew by, as JSON. A program of its own, since it must have one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from supervisor.clock import SystemClock
from supervisor.core.errors import EXIT_RESTART
from supervisor.core.supervision.slot import Group, SlotEvent
from supervisor.core.units import SECOND_NS
from supervisor.process.kernel import Kernel
from supervisor.process.process_table import plant
from supervisor.process.slots import ChildIdentity, ParentLimits, SlotSpec
from supervisor.process.spawn import allocate

SLOTS = 8
STEP_NS = 10 * SECOND_NS  # more than every pause between two starts
WARM_RESTARTS = 400  # what Python allocates once is no growth
ROOT = Path(__file__).resolve().parents[3]


def grown_after(restarts: int, *, each: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """Run this file; return by how many KiB its RSS grew and how many descriptors it gained after the first hundreds."""
    command = [sys.executable, __file__, str(restarts)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == ".\n":
                each()
            else:
                found = json.loads(line)
    assert process.returncode == 0
    return found["grown_kib"], found["descriptors"]


def _leave(_: ChildIdentity) -> int:
    return EXIT_RESTART


def main(restarts: int) -> None:
    """Restart children so often, and print what is left of it."""
    specs = [SlotSpec(name=f"worker-{n}", run=_leave, group=Group.WORKER) for n in range(SLOTS)]
    board = allocate(slots=SLOTS, inflight=1)
    kernel = Kernel(SystemClock())
    kernel.prepare()
    tree = plant(specs, board, kernel=kernel, log=lambda *_, **__: None, limits=ParentLimits(), jitter=lambda: 1.0)
    now_ns, first = SECOND_NS, (0, 0)
    done = 0
    while done < restarts + WARM_RESTARTS:
        now_ns += STEP_NS
        tree.start_due(now_ns)
        for live in tree.slots:
            if live.has_process:
                tree.step(live, SlotEvent.READY, now_ns)
        while any(live.has_process for live in tree.slots):
            kernel.wait(SECOND_NS)
            tree.collect(now_ns)
        done += SLOTS
        first = first if first != (0, 0) or done < WARM_RESTARTS else _held()
        if done > WARM_RESTARTS:
            sys.stdout.write(".\n" * min(SLOTS, restarts + WARM_RESTARTS - done + SLOTS))
            sys.stdout.flush()
    grown_kib, descriptors = (now - then for now, then in zip(_held(), first, strict=True))
    assert all(live.slot.generation > restarts // SLOTS for live in tree.slots)
    sys.stdout.write(json.dumps({"grown_kib": grown_kib, "descriptors": descriptors}))


def _held() -> tuple[int, int]:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    return resident, len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
