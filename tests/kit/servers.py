"""The two servers that tests of the store run on, and how to wait without a guess."""

from __future__ import annotations

import os
import socket
import subprocess
import uuid
from pathlib import Path

import fakeredis
import pytest
import redis

from supervisor.embedded.valkey import bundled_server, find_server
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import AsyncStore, Store
from supervisor.store.keys import Keys
from tests.kit.canary import keys_with_secrets
from tests.kit.waiting import wait_until

LONG_ON_FAKEREDIS = pytest.mark.parametrize(
    "server",
    [pytest.param("real", marks=pytest.mark.server), pytest.param("fakeredis", marks=pytest.mark.long)],
    indirect=True,
)
"""Of a test of many calls: each costs ten times as much there, and the real server shows the same."""


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

    def close(self) -> None:
        for store in self._stores:
            store.close()
            store.raw.connection_pool.disconnect()  # what the test asked it directly has connections of its own
        try:
            assert keys_with_secrets(self.raw()) == []
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
