"""The cache of one process: what goes first, that threads may share it, and which calls share a key."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

import pytest

from supervisor.store.cache.cached_function import BoundedCache
from supervisor.store.cache.decorator import cached
from supervisor.store.producer import connection

THREADS, ROUNDS, KEYS, ENTRIES_MAX = 4, 2000, 16, 8


@pytest.fixture
def hurried() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_the_least_recently_used_goes_first_and_nothing_outlives_its_time() -> None:
    """So that what is asked for all the time stays."""
    cache = BoundedCache(2, threading.Lock())
    cache.put("a", b"1", 10)
    cache.put("b", b"2", 10)
    assert cache.get("a", 9) == b"1"
    cache.put("c", b"3", 10)
    assert (cache.get("b", 9), cache.get("a", 9), cache.get("a", 10), len(cache)) == (None, b"1", None, 1)


@pytest.mark.usefixtures("hurried")
def test_threads_that_share_it_never_see_it_half_changed() -> None:
    """A cached function that is called in threads must not fail because of its cache."""
    cache, failures = BoundedCache(ENTRIES_MAX, threading.Lock()), []

    def use(number: int) -> None:
        try:
            for turn in range(ROUNDS):
                cache.put(f"k{(7 * turn + number) % KEYS}", b"x", 1)
                cache.get(f"k{(3 * turn + number) % KEYS}", 0)
                if turn % 10 == 0:
                    cache.delete_matching("k1*")
        except Exception as error:  # noqa: BLE001 - any would reach a caller
            failures.append(repr(error))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(cache) <= ENTRIES_MAX


async def test_a_configuration_that_cannot_be_used_at_first_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every later call of the same key waited for the first, in vain, and what it computed was not kept."""
    faults: list[Exception] = []

    def current() -> None:
        raise faults.pop() if faults else connection.NoRedisError()

    monkeypatch.setattr(connection, "current", current)
    computed = []

    @cached(key="k", ttl="1h", wait="1ms")
    def plain() -> int:
        computed.append("plain")
        return 1

    @cached(key="k", ttl="1h", wait="1ms")
    async def coroutine() -> int:
        computed.append("coroutine")
        return 1

    faults.append(ValueError("half a file"))
    with pytest.raises(ValueError, match="half a file"):
        plain()
    assert (plain(), plain()) == (1, 1)
    faults.append(ValueError("half a file"))
    with pytest.raises(ValueError, match="half a file"):
        await coroutine()
    assert (await coroutine(), await coroutine()) == (1, 1)
    assert computed == ["plain", "coroutine"]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("{a}{b}", "its placeholders need text between them"),
        ("x/{a}{b}/{a}", "its placeholders need text between them"),
        ("{a}/{c}", "names {c}, which is no parameter"),
        ("{a.id}", "names {a.id}, which is no parameter"),
        ("{a!r}", "names {a!r}, which is no parameter"),
        ("{a}/{}", "names {}, which is no parameter"),
    ],
)
def test_a_key_that_different_calls_would_share_is_refused(key: str, problem: str) -> None:
    """Of ``{a}{b}`` one caller got what another's arguments made; of ``{a.id}``, a text to us, so did everybody."""

    def function(a: str, b: str) -> str:
        return a + b

    with pytest.raises(ValueError, match=re.escape(problem)):
        cached(key=key, ttl=60, scope="local")(function)


@pytest.mark.parametrize("key", ["{a}/{b}", "{a}}{b}", "{a}%{b}", "{a}1{b}", "{a} {b}", "{a}{{b}"])
def test_no_argument_makes_the_key_of_another_call(key: str) -> None:
    """Whatever stands between two placeholders is escaped in what they stand for."""

    @cached(key=key, ttl=60, scope="local")
    def pair(a: str, b: str) -> list[str]:
        return [a, b]

    texts = ["", "1", "12", "2", "/", "1/", "}", "1}", "}{", "%", "%7D", " ", "{", "1{"]
    for a in texts:
        for b in texts:
            assert pair(a, b) == [a, b]


def test_no_text_is_the_key_of_another_one() -> None:
    """One that is no plain ASCII is kept under its digest, which is a text, too."""

    @cached(key="{user}", ttl=60, scope="local")
    def profile(user: str) -> str:
        return user

    texts = ["Müller", "a b", "x" * 201, "", "-", "#"]
    texts += [f"#{blake2b(text.encode(), digest_size=16).hexdigest()}" for text in texts]
    assert [profile(text) for text in texts] == texts


def test_delete_of_a_method_needs_its_object() -> None:
    """It is not bound to one: without it, an argument would be taken for the object, and another value go."""

    class Shop:
        @cached(key="{item}", ttl=60, scope="local")
        def price(self, item: int = 1) -> int:
            return item

    shop = Shop()
    assert (shop.price(), shop.price(2)) == (1, 2)
    for args in ((), (2,)):
        with pytest.raises(TypeError, match=r"Shop\.price is a method: delete takes the object first"):
            shop.price.delete(*args)
    assert (Shop.price.delete(shop, 2), shop.price.delete(shop), shop.price.delete(shop, 2)) == (1, 1, 0)


def test_a_call_after_a_deletion_does_not_join_what_was_begun_before_it() -> None:
    """It would get the value of before, which is what was deleted."""
    stock, begun, go = {"apples": 1}, threading.Event(), threading.Event()

    @cached(key="{item}", ttl=60, scope="local")
    def count(item: str) -> int:
        found = stock[item]
        begun.set()
        if found == 1:
            go.wait(20)
        return found

    with ThreadPoolExecutor(1) as threads:
        early = threads.submit(count, "apples")
        assert begun.wait(20)
        stock["apples"] = 2
        count.delete("apples")
        assert count("apples") == 2
        go.set()
        assert early.result(20) == 1
    assert count("apples") == 2


async def test_a_coroutine_after_a_deletion_does_not_join_what_was_begun_before_it() -> None:
    """Nor by a pattern."""
    stock, begun, go = {"apples": 1}, asyncio.Event(), asyncio.Event()

    @cached(key="{item}", ttl=60, scope="local")
    async def count(item: str) -> int:
        found = stock[item]
        begun.set()
        if found == 1:
            await go.wait()
        return found

    early = asyncio.create_task(count("apples"))
    await begun.wait()
    stock["apples"] = 2
    await count.delete_pattern("app*")
    assert await count("apples") == 2
    go.set()
    assert await early == 1
    assert await count("apples") == 2
