"""Output of runs from both pools: with the end of the attempt, ahead of it, and after the death of its process."""

# ruff: noqa: T201 - what jobs print is the subject

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest

from supervisor.operations import runs as operations
from supervisor.roles.worker import run_logs as module
from supervisor.store.queues.run_records import AttemptLog, RunLogs
from supervisor.telemetry.run_context import streams_heard
from tenure import Context, Retry, job
from tests.integration.roles.worker.forked import _pool, fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.waiting import wait_until


def kept(shop: WorkerKit, run_id: str) -> list[AttemptLog]:
    """Return the output that is kept of a run."""
    found: list[AttemptLog] = shop.store.run(RunLogs(shop.server.keys).read(run_id))
    return found


def heads(shop: WorkerKit, run_id: str) -> list[tuple[int, str]]:
    """Return attempt and text of each."""
    return [(log.attempt, log.head) for log in kept(shop, run_id)]


async def test_each_failed_attempt_keeps_what_it_printed_and_logged(shop: WorkerKit) -> None:
    """Many runs of one process write at once, and each has its own."""

    @job("shaky", retry=Retry(attempts=3, base_s=0))
    async def shaky(context: Context, name: str) -> None:
        for step in range(3):
            print(name, context.attempt, step)
            await asyncio.sleep(0)
        if context.attempt < 3:
            raise ValueError("not yet")

    runs = {name: shop.enqueue("shaky", name=name) for name in ("a", "b", "c")}
    with streams_heard():
        async with shop.worker():
            await until(lambda: shop.ended(9), what="nine attempts")

    for name, run_id in runs.items():
        expected = [(attempt, "".join(f"{name} {attempt} {step}\n" for step in range(3))) for attempt in (1, 2)]
        assert heads(shop, run_id) == expected
    shop.assert_clean()


async def test_a_run_that_goes_on_is_followed_and_leaves_nothing_when_it_succeeds(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person sees each line once, while it runs; the policy counts at its end."""
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    monkeypatch.setattr(operations, "EVERY_S", 0.01)
    told: list[str] = []
    go_on = asyncio.Event()

    @job("long")
    async def long() -> None:
        print("begun")
        await go_on.wait()
        print("going on")
        await until(lambda: "going on\n" in told, what="the second line to be told")

    run_id = shop.enqueue("long")

    async def follow() -> None:
        store = shop.server.async_store()
        asked = operations.follow_logs(shop.server.keys, run_id, lambda _log, text: told.append(text))
        reply = None
        try:
            while True:
                effect: Any = asked.send(reply)
                reply = await (asyncio.sleep(effect.seconds) if hasattr(effect, "seconds") else store.run(effect))
                if told:
                    go_on.set()
        except StopIteration:
            await store.close()

    with streams_heard():
        async with shop.worker(producer=shop.producer()):
            async with asyncio.timeout(60):
                await follow()
    assert told == ["begun\n", "going on\n"]
    assert kept(shop, run_id) == []
    shop.assert_clean()


@pytest.mark.parametrize("server", ["real"], indirect=True)
def test_of_a_process_that_is_killed_the_part_that_was_sent_remains(sync_shop: WorkerKit) -> None:
    """Where it stopped is what a person looks for; a plain job is followed from another thread."""

    @job("crashing", retry=Retry(attempts=1))
    def crashing() -> None:
        print("loading")
        threading.Event().wait(600)

    run_id = sync_shop.enqueue("crashing")

    def main() -> int:
        module.EVERY_S = 0.01
        sync_shop.runtime = lambda slot=0, producer=None: WorkerKit.runtime(sync_shop, slot, sync_shop.producer())  # type: ignore[method-assign]
        with streams_heard():
            return _pool(sync_shop, None, lambda _script: "").run()

    child = fork(sync_shop, main=main)
    wait_until(lambda: heads(sync_shop, run_id) == [(1, "loading\n")], what="the line to be sent")
    child.signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    (log,) = kept(sync_shop, run_id)
    assert (log.head, log.is_open) == ("loading\n", True)


@pytest.mark.parametrize("server", ["real"], indirect=True)
def test_no_output_of_a_plain_job_harms_its_worker(sync_shop: WorkerKit) -> None:
    """A flood, half a secret, a child that prints, another stdout, an interrupt in the middle of a print."""

    def interrupt(*_: Any) -> None:
        raise TimeoutError("in the middle")

    @job("hostile", retry=Retry(attempts=1), timeout=600)
    def hostile() -> None:
        print("password=hun", end="")
        print("ter2")
        if (pid := os.fork()) == 0:
            print("from a child")
            os._exit(0)
        os.waitpid(pid, 0)
        print("x" * (8 << 20))
        with suppress(UnicodeEncodeError):  # as the stream wants it
            print("\udcff binary \x00")
        signal.signal(signal.SIGPROF, interrupt)
        signal.setitimer(signal.ITIMER_PROF, 0.05)
        while True:
            print("until it is interrupted")

    @job("after", retry=Retry(attempts=1))
    def after() -> None:
        print("the next one")
        raise ValueError("no")

    hostile_id, after_id = sync_shop.enqueue("hostile"), sync_shop.enqueue("after")

    def main() -> int:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        with streams_heard():
            return _pool(sync_shop, 2, lambda _script: "").run()

    found = fork(sync_shop, main=main).report()
    assert found.errors[hostile_id]["type"] == "TimeoutError"
    (log,) = kept(sync_shop, hostile_id)
    assert log.head.startswith("password=***\nxxx")
    assert "child" not in log.head + log.tail
    assert log.cut_chars > 8_000_000
    assert heads(sync_shop, after_id) == [(1, "the next one\n")]
    assert found.fsck == []
