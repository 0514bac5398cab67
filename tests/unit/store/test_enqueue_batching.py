"""Concurrent enqueues of one loop travel together, and each caller has its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.store.keys import Keys
from supervisor.store.producer.batching import EnqueueBatcher, PackedRun
from supervisor.store.queues.runs import ENQUEUE_MAX, Enqueued, Queues


class ScriptedServer:
    """Answers calls of ``enqueue`` when it is told to, and keeps the ids of each."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.refuses: Callable[[list[str]], Exception | None] = lambda _ids: None

    async def __call__(self, call: Call[list[Enqueued]]) -> list[Enqueued]:
        """Reply that all of its runs are new."""
        ids = [str(value) for value in call.args[2 :: 5 if call.args[1] else 4]]
        self.calls.append(ids)
        self.asked.set()
        await self.gate.wait()
        error = self.refuses(ids)
        if error is not None:
            raise error
        return call.parse(b"1" * len(ids))

    def batcher(self) -> EnqueueBatcher:
        """Return the subject, sending here."""
        return EnqueueBatcher(Queues(Keys("t")), send=self, entropy=bytes)


def run_of(name: str, data: bytes = b"a1{}") -> PackedRun:
    """Return a run with that id."""
    return PackedRun(name, "mail", 0, data)


async def end_of_turn() -> None:
    """Return when all that is ready in the loop has had its turn."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()


def check(scenario: Callable[[ScriptedServer], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in a loop of its own."""

    async def whole() -> None:
        await scenario(ScriptedServer())

    asyncio.run(whole())


def test_calls_of_one_turn_travel_together() -> None:
    """A hundred coroutines cost one round trip, not a hundred."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        found = await asyncio.gather(*(batcher.put(run_of(f"r{n}"), is_chosen=False) for n in range(100)))
        assert [each.run_id for each in found] == [f"r{n}" for n in range(100)]
        assert [len(ids) for ids in server.calls] == [100]

    check(scenario)


def test_a_call_alone_leaves_at_the_end_of_the_turn() -> None:
    """Batching adds no delay where there is nothing to wait for."""

    async def scenario(server: ScriptedServer) -> None:
        answer = server.batcher().put(run_of("r"), is_chosen=False)
        await end_of_turn()
        assert server.calls == [["r"]]
        assert (await answer).is_new

    check(scenario)


def test_runs_gather_while_a_call_is_on_its_way() -> None:
    """One call at a time: what comes meanwhile is the next one."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        server.gate.clear()
        first = batcher.put(run_of("first"), is_chosen=False)
        await end_of_turn()
        later = [batcher.put(run_of(f"r{n}"), is_chosen=False) for n in range(3)]
        await end_of_turn()
        assert server.calls == [["first"]]
        server.gate.set()
        await asyncio.gather(first, *later)
        assert server.calls == [["first"], ["r0", "r1", "r2"]]

    check(scenario)


def test_a_call_carries_a_bounded_number_and_size_of_runs() -> None:
    """No script holds the server for longer than a batch takes."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        small = [batcher.put(run_of(f"s{n}"), is_chosen=False) for n in range(ENQUEUE_MAX + 1)]
        await asyncio.gather(*small)
        assert [len(ids) for ids in server.calls] == [ENQUEUE_MAX, 1]
        server.calls.clear()
        large = [batcher.put(run_of(f"l{n}", b"a1" + bytes(65_536)), is_chosen=False) for n in range(40)]
        await asyncio.gather(*large)
        assert [len(ids) for ids in server.calls] == [16, 16, 8]

    check(scenario)


def test_runs_with_chosen_ids_travel_apart() -> None:
    """Only those are remembered after their end."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        both = [batcher.put(run_of(name), is_chosen=name == "mine") for name in ("r0", "mine", "r1")]
        await asyncio.gather(*both)
        assert server.calls == [["r0", "r1"], ["mine"]]

    check(scenario)


def test_a_cancelled_caller_takes_back_its_run_alone() -> None:
    """Its neighbours are enqueued as if it had not been."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        before, gone, after = (batcher.put(run_of(name), is_chosen=False) for name in ("a", "gone", "b"))
        gone.cancel()
        assert (await before).is_new
        assert (await after).is_new
        assert server.calls == [["a", "b"]]

    check(scenario)


def test_a_caller_cancelled_under_way_harms_no_other() -> None:
    """The call is nobody's task but the batcher's."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        server.gate.clear()

        async def caller() -> Enqueued:
            return await batcher.put(run_of("gone"), is_chosen=False)

        gone = asyncio.create_task(caller())
        stays = asyncio.create_task(asyncio.wait_for(batcher.put(run_of("stays"), is_chosen=False), 60))
        await server.asked.wait()
        gone.cancel()
        server.gate.set()
        assert (await stays).is_new
        with pytest.raises(asyncio.CancelledError):
            await gone

    check(scenario)


def test_a_refused_run_fails_its_caller_alone() -> None:
    """The others of its call are enqueued without it."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        server.refuses = lambda ids: StoreRefusedError("WRONGTYPE") if "bad" in ids else None
        names = [*(f"r{n}" for n in range(6)), "bad"]
        found = await asyncio.gather(
            *(batcher.put(run_of(name), is_chosen=False) for name in names), return_exceptions=True
        )
        assert [isinstance(each, StoreRefusedError) for each in found] == [False] * 6 + [True]

    check(scenario)


def test_each_caller_of_a_lost_call_has_an_error_of_its_own() -> None:
    """A shared exception would mix their tracebacks."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        server.refuses = lambda _ids: StoreUnavailableError("Redis at x did not answer")
        found = await asyncio.gather(
            *(batcher.put(run_of(f"r{n}"), is_chosen=False) for n in range(3)), return_exceptions=True
        )
        assert {str(each) for each in found} == {"Redis at x did not answer"}
        assert len({id(each) for each in found}) == 3

    check(scenario)


def test_those_behind_a_lost_call_fail_with_it() -> None:
    """With a queue of callers and no server, none waits for more than one call to time out."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        server.refuses = lambda _ids: StoreUnavailableError("no answer")
        found = await asyncio.gather(
            *(batcher.put(run_of(f"r{n}"), is_chosen=False) for n in range(2 * ENQUEUE_MAX)), return_exceptions=True
        )
        assert all(isinstance(each, StoreUnavailableError) for each in found)
        assert [len(ids) for ids in server.calls] == [ENQUEUE_MAX]
        server.refuses = lambda _ids: None
        assert (await batcher.put(run_of("again"), is_chosen=False)).is_new

    check(scenario)


def test_a_caller_cancelled_before_the_call_is_lost_cancels_no_other() -> None:
    """One request that runs out of time while Redis is silent must not end the tasks behind it without an error."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        server.gate.clear()
        server.refuses = lambda _ids: StoreUnavailableError("no answer")
        gone = batcher.put(run_of("gone"), is_chosen=False)
        await server.asked.wait()
        behind = [batcher.put(run_of(name), is_chosen=name == "mine") for name in ("r0", "mine")]
        gone.cancel()
        server.gate.set()
        found = await asyncio.gather(*behind, return_exceptions=True)
        assert [type(each) for each in found] == [StoreUnavailableError, StoreUnavailableError]

    check(scenario)


def test_a_server_lost_while_a_batch_is_split_fails_each_with_that_error() -> None:
    """The half that was enqueued says so; the rest does not wait for another call to time out."""

    async def scenario(server: ScriptedServer) -> None:
        batcher = server.batcher()
        wrong, lost = StoreRefusedError("WRONGTYPE"), StoreUnavailableError("no answer")
        server.refuses = lambda ids: wrong if len(ids) > 2 else lost if "r2" in ids else None
        found = await asyncio.gather(
            *(batcher.put(run_of(f"r{n}"), is_chosen=False) for n in range(8)), return_exceptions=True
        )
        assert [isinstance(each, StoreUnavailableError) for each in found] == [False] * 2 + [True] * 6
        assert [len(ids) for ids in server.calls] == [8, 4, 2, 2]

    check(scenario)


class EndedTask(asyncio.Future[None]):
    """Result of a task factory that has run the task."""

    def set_name(self, name: object) -> None:
        """Take the name that a loop gives from Python 3.13 on."""


def test_an_enqueue_after_one_that_failed_as_its_task_was_made_is_sent() -> None:
    """A loop with eager tasks runs the sender before its maker knows it."""

    async def scenario(_server: ScriptedServer) -> None:
        async def fails(_call: Call[list[Enqueued]]) -> list[Enqueued]:
            raise StoreUnavailableError("no route")

        def begun(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], **_: Any) -> asyncio.Future[None]:
            with suppress(StopIteration):
                work.send(None)
            done = EndedTask(loop=loop)
            done.set_result(None)
            return done

        batcher = EnqueueBatcher(Queues(Keys("t")), send=fails, entropy=bytes)
        asyncio.get_running_loop().set_task_factory(begun)
        for name in ("first", "second"):
            with pytest.raises(StoreUnavailableError):
                await asyncio.wait_for(batcher.put(run_of(name), is_chosen=False), 10)

    check(scenario)
