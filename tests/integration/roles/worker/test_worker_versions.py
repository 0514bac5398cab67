"""Two versions of a program side by side, as in every rolling deploy."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from supervisor.core.jobs import registry as core_registry
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind
from supervisor.core.supervision.states import ChildState
from supervisor.roles import worker
from supervisor.roles.worker import entry
from supervisor.roles.worker.attempt import failure
from supervisor.store.wire.envelope import unpack
from tenure import job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.servers import RealServer, Server, wait_until

RECORDED = Path(__file__).parents[3].joinpath("data", "envelopes-v1.txt").read_bytes().splitlines()


@pytest.fixture
def older(server: Server) -> WorkerKit:
    """The workshop of the version that goes: it has no jobs but those that its test gives it."""
    return WorkerKit(server, Registry(), Kind.ASYNC)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown job comes back after five seconds; here after some milliseconds."""
    monkeypatch.setattr(failure, "UNKNOWN_DELAY_MS", 20)


async def test_a_job_of_the_new_version_waits_for_a_worker_of_it(shop: WorkerKit, older: WorkerKit) -> None:
    """The old one hands it back uncharged, and says so in its log."""

    @job("brand_new")
    async def brand_new(number: int) -> int:
        return number

    run_id = shop.enqueue("brand_new", number=7)
    with capture_logs() as lines:
        async with older.worker():
            await until(lambda: [line for line in lines if line["event"] == "job_unknown"], what="the refusal")
            async with shop.worker(slot=1):
                await until(lambda: shop.ended(1), what="the run")

    assert shop.history() == [(run_id, "ok", 1)]
    assert shop.store.raw.get(shop.server.keys.result(run_id)) == b"7"
    assert {line["outcome"] for line in lines if line["event"] == "job_unknown"} == {"giveback"}
    shop.assert_clean(1)
    older.assert_clean()


@pytest.mark.parametrize("line", [line for line in RECORDED if b'"kind":"async"' in line])
async def test_what_an_earlier_version_enqueued_is_executed(shop: WorkerKit, line: bytes) -> None:
    """Recorded envelopes, as they lay in a queue."""
    envelope = unpack(line)
    seen: list[object] = []

    for name, parameters in (("mail.send", "to: str"), ("reports.part", "part: int"), ("sync", "tenant: str")):
        scope: dict[str, object] = {"seen": seen}
        exec(f"async def function({parameters}): seen.append(locals())", scope)
        job(name)(scope["function"])  # type: ignore[type-var]

    # A start deadline of the year 2023 has passed; another digit makes it one of the year 2508.
    shop.put(unpack(line.replace(b'"not_after_ms":1700000030000', b'"not_after_ms":17000000300000')))
    async with shop.worker():
        await until(lambda: shop.ended(1), what="the run")

    assert seen == [envelope.template.args]
    assert shop.history() == [(envelope.id, "ok", 1)]


@pytest.mark.server
def test_two_processes_of_two_versions_share_the_work(real_server: RealServer, jobs: Registry) -> None:
    """The real thing: the old process never runs the new job, the new one runs both, and nothing is lost."""
    shop = WorkerKit(Server(real_server), jobs, Kind.SYNC)

    @job("known_to_both")
    def known_to_both(number: int) -> None: ...

    old_jobs = Registry()
    old_jobs.add(jobs.get("known_to_both"))

    @job("new_one")
    def new_one(number: int) -> None: ...

    def old_main() -> int:
        core_registry.registry = entry.registry = old_jobs
        return worker.main(shop.child(0))

    old = fork(shop, main=old_main)
    wait_until(lambda: shop.board.rows[0].child_state == ChildState.READY, what="the old worker")
    for number in range(10):
        shop.enqueue("known_to_both", number=number)
        shop.enqueue("new_one", number=number)
    wait_until(lambda: len(shop.history()) >= 10, what="what the old worker can run")
    new = fork(shop, main=lambda: worker.main(shop.child(1)))
    wait_until(lambda: shop.ended(20), what="the rest")
    for process in (old, new):
        process.signal(signal.SIGTERM)
        assert process.wait() == 0

    history = shop.history()
    assert sorted({attempt for _, _, attempt in history}) == [1]
    assert [outcome for _, outcome, _ in history] == ["ok"] * 20
    assert shop.store.run(shop.queues.fsck("default")) == []
