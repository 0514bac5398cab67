"""The two servers that tests of the store run on, and how to wait without a guess."""

from __future__ import annotations

import os
import socket
import subprocess
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import fakeredis
import hiredis
import pytest
import redis

from supervisor.embedded.valkey import bundled_server, find_server
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import AsyncStore, Store
from supervisor.store.keys import Keys
from supervisor.store.scripts import script
from tests.kit.canary import Commands, asking, keys_with_secrets
from tests.kit.waiting import wait_until

REAL = pytest.param("real", marks=pytest.mark.server)
SERVERS = (REAL, pytest.param("fakeredis", marks=pytest.mark.long))
"""The servers of a test: a call costs ten times as much on fakeredis, where the long tests run all of them."""

_Test = TypeVar("_Test", bound=Callable[..., object])


def on_both(*scripts: str) -> Callable[[_Test], _Test]:
    """Run a test on fakeredis in every run of the tests, since it shows that ``scripts`` work there.

    The fixture ``server`` checks that they ran; a test of the sources that no script is left out.
    """

    def mark(test: _Test) -> _Test:
        both = pytest.mark.parametrize("server", [REAL, "fakeredis"], indirect=True)
        return cast("_Test", both(pytest.mark.scripts(*scripts)(test)))

    return mark


class RealServer:
    """A server process of this test session."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.socket = directory / "redis.sock"
        self.binary = os.environ.get("TENURE_TEST_SERVER") or str(bundled_server() or find_server())
        command = [self.binary, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(directory), "--save", ""]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
        wait_until(self.is_up, what=f"{self.binary} to answer")

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def is_up(self) -> bool:
        with socket.socket(socket.AF_UNIX) as link:
            try:
                link.connect(str(self.socket))
            except OSError:
                return False
            link.sendall(b"PING\r\n")
            return link.recv(5) == b"+PONG"

    def ask(self, commands: Commands) -> Sequence[Any]:
        """Send commands over a connection of their own, and return the answers: a client costs as much as a test."""
        reader, answers = hiredis.Reader(), list[Any]()
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self.socket))
            link.sendall(b"".join(hiredis.pack_command(each) for each in commands))
            while len(answers) < len(commands):
                answer = reader.gets()
                if answer is False:  # there is no whole one yet
                    data = link.recv(1 << 16)
                    assert data, "the server has ended"
                    reader.feed(data)
                else:
                    answers.append(answer)
        return answers

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Server:
    """What a test sees of either server. Stores made here are closed with the test; asynchronous ones by the test."""

    def __init__(self, real: RealServer | None) -> None:
        self.real = real
        self.is_real = real is not None
        self.keys = Keys(f"t-{uuid.uuid4().hex[:8]}")
        self.fake = None if real else fakeredis.FakeServer()
        self._stores: list[Store] = []
        self._clients: list[redis.Redis] = []

    def raw(self) -> redis.Redis:
        """Return a plain client, for looking and for sabotage; it is closed with the test."""
        if self.real:
            client = redis.Redis(unix_socket_path=str(self.real.socket), protocol=2, driver_info=None)
        else:
            client = fakeredis.FakeRedis(server=self.fake, protocol=2)
        self._clients.append(client)
        return client

    def store(self, name: str = "test", timeout_s: float = 20.0) -> Store:
        """Return a client of this server. Its bound is generous: the machine may be busy."""
        if self.real:
            store = Store.connect(self.real.url, settings=RedisSettings(), name=name, timeout_s=timeout_s)
        else:
            store = Store(self.raw(), timeout_s=timeout_s)
        self._stores.append(store)
        return store

    def async_store(self, name: str = "test", timeout_s: float = 20.0) -> AsyncStore:
        """Return an asynchronous client of this server; the test closes it."""
        if self.real:
            return AsyncStore.connect(self.real.url, settings=RedisSettings(), name=name, timeout_s=timeout_s)
        return AsyncStore(fakeredis.FakeAsyncRedis(server=self.fake, protocol=2), timeout_s=timeout_s)

    def unused(self, scripts: Sequence[str]) -> list[str]:
        """Return those of ``scripts`` that this server was never sent."""
        known: Any = self.raw().script_exists(*[script(name).sha for name in scripts])
        return [name for name, is_known in zip(scripts, known, strict=True) if not is_known]

    def close(self) -> None:
        for store in self._stores:
            store.close()
            store.raw.connection_pool.disconnect()  # what the test asked it directly has connections of its own
        try:
            assert keys_with_secrets(self.real.ask if self.real else asking(self.raw())) == []
        finally:
            for client in self._clients:
                client.connection_pool.disconnect()


BOUNDED = ("hist", "schedule:log", "events")  # capped by their scripts
KEPT_HASHES = ("stat", "candidates", "jobs", "schedule:sets", "sessions", "schedule:def", "schedule:mark")


def leaks(server: Server) -> list[str]:
    """Return what is left behind by a cluster whose runs have all ended: keys that would grow for ever."""
    prefix = server.keys.prefix
    raw = server.raw()
    allowed = (*BOUNDED, *KEPT_HASHES, "lease", "fence", "genesis", "queues", "schedule:next", "turns")
    found = []
    for key in raw.scan_iter(match=f"{prefix}*"):
        name = key.decode().removeprefix(prefix)
        if name.endswith(allowed) or ":bell:" in name or raw.pttl(key) > 0:
            continue
        found.append(name)
    raw.close()
    return sorted(found)
