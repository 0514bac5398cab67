"""Values that are awaited where a program returns them from a callback."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Generator, Iterator

from supervisor.store.producer.run_handle import Run, must_be_awaited


def test_all_that_does_its_work_when_it_is_awaited_is_and_the_handle_of_a_run_is_not() -> None:
    """That waits for the end of the run; a generator is awaited only where it is marked as a coroutine."""

    class Request:
        def __await__(self) -> Iterator[None]:
            yield

    async def coroutine() -> None: ...

    def generator() -> Generator[None, None, None]:
        yield

    @types.coroutine
    def marked() -> Generator[None, None, None]:
        yield

    begun = coroutine()
    assert must_be_awaited(begun)
    begun.close()
    assert must_be_awaited(Request())
    assert must_be_awaited(marked())
    loop = asyncio.new_event_loop()
    assert must_be_awaited(loop.create_future())
    loop.close()
    assert not must_be_awaited(generator())
    assert not must_be_awaited(Run[int]("r"))
    assert not must_be_awaited(7)
