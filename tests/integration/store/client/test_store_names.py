"""What a name can do to a client: hang, lead to several hosts of which some are silent, or lead nowhere.

It costs the caller its bound, and the processes nothing: the look-up has a thread of its own.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from supervisor.core.errors import StoreUnavailableError
from supervisor.process.config_check import run_in_child
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client import threads
from supervisor.store.client.dialing import Dialler
from supervisor.store.client.sync_client import AsyncStore
from tests.kit.clients import CALL, Clients, unavailable, works
from tests.kit.name_servers import Names, silent
from tests.kit.proxy import Proxy
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.server
HOST, BOUND_S = "redis.example", 0.3


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """Name servers that can be broken."""
    names = Names(monkeypatch)
    names.say(HOST, "127.0.0.1")
    yield names
    names.mend()
    wait_until(lambda: not names.pending, what="the look-ups to end")


def serves(store: Any, bound_s: float = BOUND_S) -> bool:
    """Return whether a call was carried out now."""
    with suppress(StoreUnavailableError):
        store.run(CALL, timeout_s=bound_s)
        return True
    return False


def url(proxy: Proxy) -> str:
    """Return the server's address by name."""
    return f"redis://{HOST}:{proxy.port}/0"


def test_a_name_server_that_hangs_costs_the_bound_and_one_thread(connect: Clients, proxy: Proxy, names: Names) -> None:
    """An agent that starts then beats on, and look-ups do not pile up behind each other."""
    store = connect(url(proxy))
    names.hang()
    for _ in range(3):
        unavailable(store, "no answer", where=f"{HOST}:{proxy.port}", bound_s=BOUND_S)
    assert names.pending == names.pending_max == 1
    names.mend()
    works(store)


def test_the_address_that_served_stands_for_a_name_while_the_name_server_hangs(
    connect: Clients, proxy: Proxy, names: Names
) -> None:
    """A machine that lost its name server as well must reach the Redis that it knows when the network is back."""
    store = connect(url(proxy))
    works(store)
    names.hang()
    for _ in range(3):
        store.close()
        works(store)
    assert names.pending_max == 1


@pytest.mark.parametrize(("code", "serves"), [(socket.EAI_AGAIN, True), (socket.EAI_NONAME, False)])
def test_a_look_up_that_fails_is_told_from_a_name_that_is_gone(
    connect: Clients, proxy: Proxy, names: Names, *, code: int, serves: bool
) -> None:
    """A name server without an answer leaves the known address; one that says that there is no such name does not."""
    store = connect(url(proxy))
    works(store)
    names.fail(HOST, code)
    store.close()
    if serves:
        works(store)
    else:
        unavailable(store, "no answer", where=HOST)


def test_an_answer_that_came_too_late_serves_the_next_call(connect: Clients, proxy: Proxy, names: Names) -> None:
    """A name server that takes longer than a call may take would else never be of use."""
    store = connect(url(proxy))
    names.hang()
    unavailable(store, "no answer", where=HOST, bound_s=BOUND_S)
    names.mend()
    wait_until(lambda: not names.pending, what="the late answer")
    names.fail(HOST, socket.EAI_AGAIN)
    # It serves one call: whichever that is has time to connect.
    wait_until(lambda: serves(store, 20.0), what="the late answer to serve a call")


def test_a_caller_whose_time_is_over_leaves_the_answer_to_the_next(proxy: Proxy, names: Names) -> None:
    """A thread that nobody waits for any more took it, on a busy machine, and had no time to connect."""
    dialler = Dialler()

    def has_answer_too_late() -> bool:
        try:
            dialler.dial(HOST, proxy.port, dialler.until_ns(-1.0), lambda _: None)
        except TimeoutError:
            return True
        except socket.gaierror:
            return False
        raise AssertionError("it connected in no time")

    wait_until(has_answer_too_late, what="the answer")
    names.fail(HOST, socket.EAI_AGAIN)
    dialler.dial(HOST, proxy.port, dialler.until_ns(20.0), lambda _: None).close()


def test_callers_at_once_share_one_look_up(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of an event loop dials on a thread of its own; look-ups that hang must not pile up."""
    dialler, start = Dialler(), threads.start

    def start_late(work: Callable[[], None], name: str) -> threading.Thread:
        threading.Event().wait(0.2)  # as on a busy machine
        return start(work, name)

    monkeypatch.setattr(threads, "start", start_late)

    def dial(_: int) -> None:
        with suppress(OSError):
            dialler.dial(HOST, 1, dialler.until_ns(0.5), lambda _sock: None)

    names.say(HOST, "127.0.0.1")
    names.hang()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(dial, range(16)))
    assert names.pending_max == 1
    names.mend()
    wait_until(lambda: not names.pending)


def test_a_child_waits_for_no_look_up_of_its_parent(proxy: Proxy, names: Names) -> None:
    """A fork takes no threads along: nobody would end it."""
    dialler = Dialler()

    def connects() -> int:
        names.mend()
        dialler.dial(HOST, proxy.port, dialler.until_ns(20.0), lambda _: None).close()
        return 0

    names.hang()
    with pytest.raises(socket.gaierror, match="no answer in time"):
        dialler.dial(HOST, proxy.port, dialler.until_ns(0.1), lambda _: None)
    assert run_in_child(connects, timeout_s=60.0) == 0


def test_a_name_that_leads_elsewhere_is_followed(connect: Clients, proxy: Proxy, names: Names) -> None:
    """The address that served stands for the name only while there is no answer."""
    store = connect(url(proxy))
    works(store)
    names.say(HOST, "127.0.53.0")
    store.close()
    unavailable(store, "refused", where=HOST)


def test_all_addresses_of_a_name_have_one_bound(connect: Clients, proxy: Proxy, names: Names) -> None:
    """Three hosts of a lost zone must not take the bound three times: the agent would be killed as hung."""
    others = [f"127.0.53.{number}" for number in range(3)]
    names.say(HOST, *others)
    with silent(proxy.port, *others):
        unavailable(connect(url(proxy)), "no answer in time", where=HOST, bound_s=BOUND_S)


def test_silent_addresses_do_not_keep_a_client_from_the_one_that_serves(
    connect: Clients, proxy: Proxy, names: Names
) -> None:
    """IPv6 without a route stands before IPv4: each gets its turn within the bound."""
    names.say(HOST, "127.0.53.0", "127.0.53.1", "127.0.0.1")
    store = connect(url(proxy), timeout_s=2.0)
    with silent(proxy.port, "127.0.53.0", "127.0.53.1"):
        assert store.ping() is None
        store.close()
        assert store.ping() is None


@pytest.mark.parametrize("name", ["a..b", "x" * 300])
def test_what_is_no_name_is_told_as_an_unreachable_host(connect: Clients, name: str) -> None:
    """A sentinel or a node may announce anything; it must not end a process."""
    unavailable(connect(f"redis://{name}:6379/0"), "not available", where=name)


def test_look_ups_leave_the_threads_of_the_program_alone(proxy: Proxy, names: Names) -> None:
    """A program's ``asyncio.to_thread`` must not wait behind the name server of Redis."""

    async def ask() -> str:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        store = AsyncStore.connect(url(proxy), settings=RedisSettings(), name="faults:test", timeout_s=BOUND_S)
        with pytest.raises(StoreUnavailableError):
            await store.run(CALL)
        return await asyncio.wait_for(asyncio.to_thread(str, "free"), 20)

    names.hang()
    assert asyncio.run(ask()) == "free"


def test_a_call_that_waits_for_its_turn_has_the_same_bound(proxy: Proxy) -> None:
    """Twenty tasks of a web program that enqueue while Redis is silent all hear of it in time."""

    async def ask() -> float:
        store = AsyncStore.connect(proxy.url, settings=RedisSettings(), name="faults:test", timeout_s=BOUND_S)
        await store.ping()
        proxy.black_hole()
        began_s = asyncio.get_running_loop().time()
        told = await asyncio.gather(*(store.run(CALL) for _ in range(20)), return_exceptions=True)
        assert {type(each) for each in told} == {StoreUnavailableError}
        return asyncio.get_running_loop().time() - began_s

    assert asyncio.run(ask()) < 20 * BOUND_S / 2
