"""A sync worker in a forked process, and what it found when it had stopped.

The report is made in the child, because the child of a test on fakeredis has a server of its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvloop
from structlog.testing import capture_logs

from supervisor.process.system.linux import die_with_parent
from supervisor.roles.worker.pools import async_pool, sync_pool
from supervisor.roles.worker.pools.async_pool import AsyncPool
from supervisor.roles.worker.pools.sync_pool import SyncPool
from tests.integration.roles.worker.worker_fixture import FaultySync, WorkerKit, until
from tests.kit.servers import wait_until

CRASHED = 99
_children: list[Forked] = []
_pipes: list[int] = []
"""Ends of pipes that nobody has read yet."""


@dataclass
class Report:
    """What was left when the worker had stopped."""

    code: int
    history: list[tuple[str, str, int]]
    states: dict[str, str]
    charges: dict[str, str]
    errors: dict[str, Any]
    results: dict[str, Any]
    sessions: list[str]
    fsck: list[str]


@dataclass
class Forked:
    """A worker process that was forked off this test."""

    pid: int
    pipe: int
    shop: WorkerKit

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Return its exit code, negative for a signal, within a bound."""

        def ended() -> tuple[int] | None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return (os.waitstatus_to_exitcode(status),) if pid else None

        (code,) = wait_until(ended, what="the worker to end")
        _children.remove(self)
        return int(code)

    def close(self) -> None:
        """Leave what it found unread."""
        _pipes.remove(self.pipe)
        os.close(self.pipe)

    def report(self) -> Report:
        """Return what it found; it must have stopped by itself."""
        code = self.wait()
        _pipes.remove(self.pipe)
        with os.fdopen(self.pipe) as reader:
            text = reader.read()
        assert code != CRASHED, text
        found = json.loads(text)
        found["history"] = [tuple(line) for line in found["history"]]
        assert list(self.shop.board.inflight[0].entries()) == []
        row = self.shop.board.rows[0]
        assert (row.busy, row.deadline_ns) == (0, 0)
        return Report(code=code, **found)


def fork(
    shop: WorkerKit,
    *,
    ended: int | None = None,
    fault: Callable[[str], str] = lambda _script: "",
    main: Callable[[], int] | None = None,
) -> Forked:
    """Fork a worker.

    Args:
        shop: its workshop.
        ended: stop by SIGTERM once so many attempts have ended; None: stop when told.
        fault: what goes wrong with its calls.
        main: runs in place of the pool.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 a fork beside a thread warns; the only thread here is one that waits for a timeout.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(write)
        _children.append(Forked(pid, read, shop))
        _pipes.append(read)
        return _children[-1]
    code = CRASHED
    try:
        die_with_parent(signal.SIGKILL)
        gc.callbacks.clear()  # of Hypothesis, which measures collections; in such a call, and in finalizers of what
        gc.freeze()  # other tests left, Python drops what a signal raises; a worker of a tree is frozen, too
        for pool in (async_pool, sync_pool):  # each call that hands back has 0.2 s, short for a busy machine
            pool.LAST_WORDS_S = 20.0
        async_pool.CANCEL_NOW_S = 20.0  # which coroutines that are cancelled have at a stop that is cut short
        shop.store = shop.server.store()  # not the parent's connection
        code = main() if main else _pool(shop, ended, fault).run()
        os.write(write, json.dumps(_find(shop)).encode())
    except BaseException:  # noqa: BLE001 - this process must end here, whatever happened
        os.write(write, traceback.format_exc().encode())
    finally:
        os._exit(code)


def in_async_worker(shop: WorkerKit, check: Callable[[list[Any]], None], *, runs: int) -> Report:
    """Execute ``runs`` queued runs in a forked async worker, and check in there what it logged."""

    def main() -> int:
        async def work() -> int:
            pool = AsyncPool(shop.runtime(), shop.server.async_store(), takes_signals=True)
            task = asyncio.create_task(pool.run())
            await until(lambda: shop.ended(runs), what="the runs")
            pool.drain()
            return await task

        with capture_logs() as logs:
            code = uvloop.run(work())
        check(logs)
        return code

    return fork(shop, main=main).report()


def kill_what_is_left() -> None:
    """End the workers that a failed test left behind, and close what no test has read."""
    while _children:
        child = _children.pop()
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
    while _pipes:
        os.close(_pipes.pop())


def _pool(shop: WorkerKit, ended: int | None, fault: Callable[[str], str]) -> SyncPool:
    def stop_when_ended(script: str) -> str:
        if script == "ring" and ended is not None and shop.ended(ended):
            os.kill(os.getpid(), signal.SIGTERM)
        return fault(script)

    return SyncPool(shop.runtime(), FaultySync(shop.server.store(), stop_when_ended))  # type: ignore[arg-type]


def _find(shop: WorkerKit) -> dict[str, Any]:
    raw, queue = shop.store.raw, shop.server.keys.queue("default")
    ids = {key.decode() for key in raw.hkeys(queue.data)} | {run_id for run_id, _, _ in shop.history()}
    return {
        "history": shop.history(),
        "states": {run_id: shop.state(run_id) for run_id in ids},
        "charges": {key.decode(): value.decode() for key, value in raw.hgetall(queue.att).items()},
        "errors": {key.decode(): json.loads(value) for key, value in raw.hgetall(queue.err).items()},
        "results": {run_id: json.loads(value) for run_id in ids if (value := raw.get(shop.server.keys.result(run_id)))},
        "sessions": list(shop.store.run(shop.sessions.list())),
        "fsck": shop.store.run(shop.queues.fsck("default")),
    }
