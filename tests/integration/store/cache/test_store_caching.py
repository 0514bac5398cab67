"""``cached`` through Redis: one computes, however many processes ask, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from supervisor.core.errors import StoreUnavailableError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer import connection as producing
from supervisor.store.producer.producer import Producer
from tenure import cached
from tests.integration.store.cache.cache_checks import is_lease_over, raw_keys
from tests.kit.servers import RealServer, Server
from tests.kit.waiting import wait_until

CALLERS = 100


class Article(BaseModel):
    """A value of the application."""

    number: int


async def test_a_hundred_coroutines_compute_once(producer: Producer) -> None:
    """The stampede that takes a database down when a key expires."""
    calls: list[str] = []

    @cached(key="{tenant}", ttl="5m", name="prices")
    async def prices(tenant: str) -> dict[str, int]:
        calls.append(tenant)
        await asyncio.sleep(0)
        return {"a": 1}

    found = await asyncio.gather(*(prices("acme") for _ in range(CALLERS)))
    found[0]["a"] = 2  # everybody's own
    assert found[1:] == [{"a": 1}] * (CALLERS - 1)
    assert await prices(tenant="acme") == {"a": 1}
    assert (calls, raw_keys(producer)) == (["acme"], ["calls:prices", "value:prices#acme"])
    await producer.close_async()


def test_a_hundred_threads_compute_once(producer: Producer) -> None:
    """Plain functions may be called from threads; and each call has one at most."""
    calls: list[int] = []
    is_asked = threading.Event()

    @cached(key="k", ttl=60, name="slow")
    def slow() -> int:
        calls.append(1)
        assert is_asked.wait(60)
        return 7

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(slow())) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    is_asked.set()
    for thread in threads:
        thread.join(60)
    assert (found, len(calls)) == ([7] * CALLERS, 1)


def test_two_processes_compute_once(real_server: RealServer) -> None:
    """The lease in Redis makes one of them wait for the other's result."""
    server = Server(real_server)
    log = server.keys.prefix + "log"

    def ask() -> None:
        producing.use(Producer(RedisSettings(), cluster=server.keys.cluster, open_store=server.store))
        raw = server.raw()

        @cached(key="k", ttl=60, name="slow")
        def slow() -> int:
            raw.rpush(log, "computed")
            wait_until(lambda: raw.llen(log) >= 2, what="the other process")
            return os.getpid()

        raw.rpush(log, "asks") if raw.llen(log) else None
        raw.rpush(f"{log}:found", slow())

    first = _fork(ask)
    wait_until(lambda: server.raw().llen(log) == 1, what="the first to compute")
    second = _fork(ask)
    assert [os.waitpid(pid, 0)[1] for pid in (first, second)] == [0, 0]
    assert server.raw().lrange(f"{log}:found", 0, -1) == [str(first).encode()] * 2
    assert server.raw().lrange(log, 0, -1) == [b"computed", b"asks"]
    server.close()


def test_whoever_dies_while_computing_holds_nobody_up_for_long(real_server: RealServer) -> None:
    """Kill -9 of the one that computes; the others go on when its lease is over."""
    server = Server(real_server)
    log = server.keys.prefix + "log"

    def die() -> None:
        producing.use(Producer(RedisSettings(), cluster=server.keys.cluster, open_store=server.store))

        @cached(key="k", ttl=60, wait="200ms", name="slow")
        def slow() -> int:
            server.raw().rpush(log, "computes")
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

        slow()

    os.waitpid(_fork(die), 0)
    assert server.raw().llen(log) == 1
    producing.use(Producer(RedisSettings(), cluster=server.keys.cluster, open_store=server.store))

    @cached(key="k", ttl=60, wait="200ms", name="slow")
    def slow() -> int:
        return 5

    try:
        assert slow() == 5
    finally:
        producing.use(None)
        server.close()


def _fork(function: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        function()
        code = 0
    finally:
        os._exit(code)


def test_an_error_is_nobodys_result(producer: Producer) -> None:
    """The next caller computes again, at once: the lease is given back."""
    answers: list[Any] = [ValueError("down"), 3]

    @cached(key="k", ttl=60, name="flaky")
    def flaky() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    with pytest.raises(ValueError, match="down"):
        flaky()
    assert raw_keys(producer) == []
    assert (flaky(), flaky(), answers) == (3, 3, [])


def test_arguments_that_look_alike_together_have_results_of_their_own(producer: Producer) -> None:
    """A tenant must not get another one's result by choosing its name."""

    @cached(key="{tenant}/{region}", ttl=60, name="seats")
    def seats(tenant: str, region: str) -> list[str]:
        return [tenant, region]

    pairs = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("{region}", "c"), ("a", "*")]
    assert [seats(*pair) for pair in pairs * 2] == [list(pair) for pair in pairs * 2]
    assert seats.delete("a", "*") == 1
    assert seats.delete_pattern("a/*") == 1
    assert seats.delete_pattern("a%2Fb/*") == 1


def test_no_argument_makes_a_call_of_another_function(producer: Producer) -> None:
    """Names may hold colons: who asks for ``vip:7`` of one function must not get, or set, ``7`` of another."""

    @cached(key="{user}", ttl=60, name="user")
    def public(user: str) -> str:
        return f"public {user}"

    @cached(key="{user}", ttl=60, name="user:vip")
    def private(user: str) -> str:
        return f"private {user}"

    assert (public("vip:7"), private("7"), public("vip#7")) == ("public vip:7", "private 7", "public vip#7")
    assert public.delete("vip:7") == 1
    assert private.delete("7") == 1


def test_one_that_computed_too_long_does_not_overwrite_a_newer_result(producer: Producer) -> None:
    """Its lease was over, and somebody else computed meanwhile."""

    @cached(key="k", ttl=60, wait="1ms", name="slow")
    def newer() -> str:
        return "newer"

    @cached(key="k", ttl=60, wait="1ms", name="slow")
    def older() -> str:
        wait_until(lambda: is_lease_over(producer, "slow", "k"), what="the end of the lease")
        newer()
        return "older"

    assert (older(), newer()) == ("older", "newer")


def test_what_another_version_wrote_is_computed_anew(producer: Producer) -> None:
    """A rolling update changes what a function returns."""

    @cached(key="k", ttl=60, name="typed")
    def before() -> str:
        return "text"

    @cached(key="k", ttl=60, name="typed")
    def after() -> int:
        return 7

    assert (before(), after(), after()) == ("text", 7, 7)


def test_without_an_answer_of_redis_it_is_computed(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache must never be the reason why a job fails."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("test: down")

    monkeypatch.setattr(producer, "run", refuse)

    @cached(key="k", ttl=60, name="down")
    def down() -> int:
        return 1

    assert (down(), down()) == (1, 1)


async def test_a_coroutine_that_is_cancelled_lets_the_next_one_compute(producer: Producer) -> None:
    """A soft timeout cancels the job that computes; the jobs that waited with it go on."""
    computing, calls = asyncio.Event(), 0

    @cached(key="k", ttl=60, name="cut")
    async def cut() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            computing.set()
            await asyncio.Event().wait()
        return calls

    first = asyncio.create_task(cut())
    await computing.wait()
    second = asyncio.create_task(cut())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 2
    assert first.cancelled()
    await producer.close_async()


def test_a_key_of_any_length_and_a_value_too_large_have_an_answer(producer: Producer) -> None:
    """Keys become digests, and what is too large is computed each time."""
    calls: list[int] = []

    @cached(key="{text}", ttl=60, name="long")
    def long(text: str) -> str:
        calls.append(1)
        return text * 2

    assert long("ü " * 500) == "ü " * 1000
    assert long("ü " * 500) == "ü " * 1000
    assert len(calls) == 1
    assert raw_keys(producer)[1].startswith("value:long##")
    assert len(long("x" * 40_000)) == len(long("x" * 40_000)) == 80_000
    assert len(calls) == 3
    assert all(producer._store().raw.pttl(f"{producer.keys.prefix}cache:{key}") > 0 for key in raw_keys(producer))


def test_a_pydantic_model_is_kept_and_comes_back_as_one(producer: Producer) -> None:
    """As a result and as an argument in the key: the commonest values of a web application."""
    calls: list[int] = []

    @cached(key="{which}", ttl=60, name="price", wait=5)
    def price(which: Article) -> list[Article]:
        calls.append(which.number)
        return [which]

    wanted = Article(number=1)

    assert price(wanted) == price(Article(number=1)) == [wanted]
    assert price(Article(number=2)) == [Article(number=2)]
    assert calls == [1, 2]
    assert len(raw_keys(producer)) == 3
