"""One scheduler process, as the parent would fork it: the real driver on a scoreboard in a file.

``python -m bench.schedules_leader SPEC``, where SPEC is JSON: board, url, cluster.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from bench.schedules_board import SLOT_NAMES, open_board
from supervisor.clock import SystemClock
from supervisor.roles import scheduler
from supervisor.roles.child import ChildContext, preload
from supervisor.settings.sections.models import Settings
from supervisor.telemetry import logs, metrics


def main() -> int:
    """Become the scheduler."""
    spec = json.loads(sys.argv[1])
    preload()  # its garbage is left alone, as that of every child
    signal.signal(signal.SIGURG, signal.SIG_IGN)
    settings = Settings(cluster=spec["cluster"])
    logs.configure(level=spec["log_level"], format="json", cluster=settings.cluster, replica="bench", role="scheduler")
    metrics.prepare(Path(spec["metrics"]))
    metrics.claim_slot("scheduler")
    child = ChildContext(
        settings=settings,
        replica="bench.000001",
        name="scheduler",
        slot=0,
        generation=1,
        board=open_board(Path(spec["board"])),
        slot_names=SLOT_NAMES,
        parent_pid=os.getpid(),  # the wake-up of the parent goes nowhere
        clock=SystemClock(),
        redis_url=spec["url"],
    )
    return scheduler.main(child, ())


if __name__ == "__main__":
    sys.exit(main())
