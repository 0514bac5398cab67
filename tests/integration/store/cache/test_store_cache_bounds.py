"""What `cached` keeps in Redis ends: by deletion, also of what is being computed, by time and by number."""

from __future__ import annotations

import pytest

from supervisor.store.cache.cached_function import CacheCalls
from supervisor.store.producer.producer import Producer
from tenure import cached
from tests.integration.store.cache.cache_checks import is_lease_over, raw_keys
from tests.kit.servers import on_both
from tests.kit.waiting import wait_until

CALLS_MAX = 100_000


@on_both("cache_delete", "cache_put", "cache_sweep", "cache_take")
def test_deleting_forgets_one_key_or_all_that_match(producer: Producer) -> None:
    """After a change of what the result was made of; other functions keep theirs."""
    calls: list[str] = []

    @cached(key="{tenant}/{day}", ttl=60, name="sums")
    def sums(tenant: str, day: int = 1) -> str:
        calls.append(f"{tenant}/{day}")
        return tenant

    @cached(key="{tenant}/1", ttl=60, name="sums2")
    def other(tenant: str) -> str:
        return tenant

    for tenant in ("a", "b"):
        sums(tenant), sums(tenant, 2), other(tenant)
    assert (sums.delete("a"), sums.delete("a", day=1)) == (1, 0)
    assert sums.delete_pattern("b/*") == 2
    assert raw_keys(producer) == [
        "calls:sums", "calls:sums2", "value:sums#a/2", "value:sums2#a/1", "value:sums2#b/1",
    ]  # fmt: skip
    calls.clear()
    sums("a"), sums("a", 2), sums("b")
    assert calls == ["a/1", "b/1"]


@pytest.mark.parametrize("way", ["delete", "delete_pattern"])
def test_what_is_deleted_while_it_is_computed_is_not_kept(producer: Producer, way: str) -> None:
    """It may have been made of what was true before the change."""
    numbers = iter((1, 2))

    @cached(key="k", ttl=60, name="stale")
    def stale() -> int:
        number = next(numbers)
        if number == 1:
            stale.delete() if way == "delete" else stale.delete_pattern("*")
        return number

    assert (stale(), stale(), stale()) == (1, 2, 2)
    assert raw_keys(producer) == ["calls:stale", "value:stale#k"]


@pytest.mark.parametrize("way", ["delete", "delete_pattern"])
@pytest.mark.parametrize("others", [0, 1])
def test_what_is_deleted_after_its_lease_is_over_is_not_kept_either(producer: Producer, way: str, others: int) -> None:
    """Whoever computes for longer than ``wait`` must not bring back what was true before the change, nor may others."""

    def late(depth: int) -> int:
        wait_until(lambda: is_lease_over(producer, "late", "k"), what="the end of the lease")
        if depth:
            ask(depth - 1)
        else:
            kept.delete(0) if way == "delete" else kept.delete_pattern("*")
        return depth

    def ask(depth: int) -> int:  # each from a process of its own
        return cached(key="k", ttl=60, wait="1ms", name="late")(late)(depth)

    kept = cached(key="k", ttl=60, name="late")(late)

    assert ask(others) == others
    assert raw_keys(producer) == []


@pytest.mark.parametrize("way", ["delete", "delete_pattern"])
def test_what_was_deleted_is_not_kept_while_another_one_computes_it_anew(producer: Producer, way: str) -> None:
    """Nor when the lease of the other one is over: each computation that begins after a deletion has a mark of its own."""
    calls = CacheCalls(producer.keys, "late")

    def take(nonce: str) -> str:
        return producer.run(calls.take("k", nonce=nonce, lease_ms=1, ttl_ms=60_000)).mark

    def put(nonce: str, mark: str) -> int:
        return producer.run(calls.put("k", nonce=nonce, mark=mark, value=b"1", ttl_ms=60_000))

    before = take("a")
    producer.run(calls.delete("k")) if way == "delete" else producer.run(calls.sweep("*"))
    after = take("b")
    wait_until(lambda: is_lease_over(producer, "late", "k"), what="the end of the lease")

    assert (put("a", before), put("b", after)) == (0, 1)


def test_a_slow_function_that_is_called_again_and_again_is_kept(producer: Producer) -> None:
    """Each call begins after the lease of the one before: the first to come back brings a result for all."""
    calls: list[int] = []

    def slow(depth: int) -> int:
        calls.append(depth)
        wait_until(lambda: is_lease_over(producer, "slow", "k"), what="the end of the lease")
        return ask(depth - 1) if depth else 0

    def ask(depth: int) -> int:  # each from a process of its own
        return cached(key="k", ttl=60, wait="1ms", name="slow")(slow)(depth)

    assert ask(3) == ask(3) == 0
    assert calls == [3, 2, 1, 0]


def test_a_result_that_took_longer_than_it_is_kept_is_kept(producer: Producer) -> None:
    """The time to live counts from the result on, not from the question."""
    calls: list[int] = []
    raw, moment = producer._store().raw, f"{producer.keys.prefix}moment"

    @cached(key="k", ttl="1s", wait="1ms", name="slow")
    def slow() -> int:
        calls.append(1)
        raw.set(moment, 1, px=1100)
        wait_until(lambda: not raw.exists(moment), what="more than the time to live")
        return 7

    assert (slow(), slow(), calls) == (7, 7, [1])


def test_no_more_calls_are_kept_than_the_list_may_hold(producer: Producer) -> None:
    """Those whose time comes first make room, with their values; what is not on the list is not kept."""
    raw, name = producer._store().raw, producer.keys.cache_calls("many")

    @cached(key="{n}", ttl=60, name="many")
    def many(n: str) -> str:
        return n

    many("oldest"), many("next")
    soon = int(raw.zscore(name, "oldest"))
    raw.zadd(name, {f"x{n}": soon + 10**9 for n in range(CALLS_MAX - 2)})

    assert raw.zcard(name) == CALLS_MAX
    many("new")
    assert raw.zcard(name) <= CALLS_MAX
    assert {"value:many#new"} <= set(raw_keys(producer))
    assert "value:many#oldest" not in raw_keys(producer)


def test_calls_whose_time_is_over_leave_the_list(producer: Producer) -> None:
    """So that it is as long as what is kept."""

    @cached(key="{n}", ttl="1ms", name="short")
    def short(n: int) -> int:
        return n

    name, raw = producer.keys.cache_calls("short"), producer._store().raw
    for n in range(50):
        short(n)
        wait_until(lambda n=n: not raw.exists(producer.keys.cache_value("short", str(n))), what="the end of a value")

    assert raw.zcard(name) <= 3
    assert raw.pttl(name) > 0
