"""A planner, a thousand children, and a worker that is killed in between: what is on record at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CHILDREN = 1000

JOBS = """
from pathlib import Path

from tenure import Context, job


@job("fan.part", queue="parts")
async def part(number: int) -> None:
    pass


@job("fan.plan", timeout=60)
def plan(directory: str, ctx: Context) -> None:
    for number in range({children}):
        if ctx.fence == 1 and number == {children} // 2:
            Path(directory, "half").touch()
            while True:
                ctx.remaining_s()
        ctx.spawn(part, {{"number": number}})
    Path(directory, f"planned-{{ctx.fence}}").touch()
"""

CONFIG = """
version: 1
cluster: e2e
web: {{port: 0}}
log: {{format: json}}
workers:
  plan: {{kind: sync, processes: 1, queues: [default]}}
  io: {{kind: async, processes: 2, concurrency: 20, queues: [parts]}}
jobs: [fan_jobs]
redis: {{url: "{url}"}}
"""


def test_a_fan_out_killed_half_way_is_exactly_a_thousand_runs_on_record(
    start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store
) -> None:
    """Killed in the middle of spawning, then around its acknowledgement, then beside its children's workers."""
    (short_directory / "fan_jobs.py").write_text(JOBS.format(children=CHILDREN))
    (short_directory / "tenure.yaml").write_text(CONFIG.format(url=redis_url))
    tree = start("fan", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")
    queues = Queues(Keys("e2e"))
    template = Template(
        job="fan.plan", kind=Kind.SYNC, args={"directory": str(short_directory)}, timeout_s=60, max_crashes=10
    )
    store.run(queues.enqueue(nonce="plan", envelopes=[Envelope(id="plan", template=template)]))

    wait_until((short_directory / "half").exists, what="the planner to be half-way")
    assert store.raw.hlen(Keys("e2e").queue("parts").data) == 0
    tree.kill("worker-plan-0")
    wait_until((short_directory / "planned-2").exists, what="the second attempt to have spawned everything")
    tree.kill("worker-plan-0")  # before, during or after its acknowledgement, as it happens
    tree.kill("worker-io-0")

    def ended() -> Counter[str]:
        return Counter(line.run_id for line in store.run(queues.recent("parts", 5000)) if line.outcome == "ok")

    wait_until(lambda: len(ended()) >= CHILDREN, what="all children to end", bound_s=120)
    wait_until(lambda: store.raw.hlen(Keys("e2e").queue("default").data) == 0, what="the planner to end")
    assert ended() == Counter({f"plan/{number}": 1 for number in range(CHILDREN)})
    planned = [line for line in store.run(queues.recent("default", 50)) if line.outcome == "ok"]
    assert [line.run_id for line in planned] == ["plan"]
    assert store.run(queues.fsck("parts")) == store.run(queues.fsck("default")) == []
    assert store.raw.hlen(Keys("e2e").queue("parts").data) == 0
    tree.terminate()
    assert tree.wait() == 0
