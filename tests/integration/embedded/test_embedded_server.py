"""The bundled server: keeps data over a kill, is one for each directory, and never outlives its tree."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from supervisor.cli.connection import is_embedded_down
from supervisor.core.errors import CannotCreateError
from supervisor.embedded import valkey
from supervisor.embedded.valkey import EmbeddedServer
from supervisor.settings.sections.models import RedisSettings, Settings
from tests.kit.servers import wait_until

pytestmark = pytest.mark.server

PARENT = """
import os, sys
from supervisor.embedded.valkey import EmbeddedServer
parent, child = os.getpid(), os.fork()
if child == 0:
    EmbeddedServer(sys.argv[1], "always", memory_mib_max=16).exec_locked(parent)
print(child, flush=True)
os.waitpid(child, 0)
"""


class Tree:
    """A parent process with an embedded server as its child."""

    def __init__(self, data_dir: Path) -> None:
        self.parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(data_dir)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
        )
        assert self.parent.stdout
        self.child = int(self.parent.stdout.readline())

    def end(self) -> None:
        for pid in (self.child, self.parent.pid):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.parent.wait()
        assert self.parent.stdout
        self.parent.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def is_server(pid: int) -> bool:
    """Whether the process has become the server, and does not wait for the lock any more."""
    return is_alive(pid) and b"-server" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A directory with a short path: a socket's path must fit into 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="tenure-data-"))
    yield path / "data"
    shutil.rmtree(path)


@pytest.fixture
def trees() -> Iterator[list[Tree]]:
    """What the test starts, ended with it."""
    started: list[Tree] = []
    yield started
    for tree in started:
        tree.end()


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, protocol=2)


def test_data_outlives_a_kill_of_the_server(data_dir: Path, trees: list[Tree]) -> None:
    """fsync: always loses nothing that was answered."""
    server = EmbeddedServer(data_dir, "always")
    assert not server.is_ready()
    trees.append(Tree(data_dir))
    wait_until(server.is_ready, what="the server")
    with client(server) as raw:
        for i in range(50):
            raw.set(f"k{i}", i)
        assert raw.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert raw.config_get("appendfsync")["appendfsync"] == "always"
    os.kill(trees[0].child, signal.SIGKILL)
    wait_until(lambda: not server.is_ready(), what="the kill")
    assert server.socket_path.exists()  # a killed server leaves its socket behind

    trees.append(Tree(data_dir))
    wait_until(server.is_ready, what="the second server")
    with client(server) as raw:
        assert raw.dbsize() == 50
    assert (data_dir / "redis.log.1").exists()


def test_a_flood_is_refused_at_the_bound_of_the_server_and_drops_nothing(data_dir: Path, trees: list[Tree]) -> None:
    """Whoever may enqueue could otherwise fill the memory of the machine, and the kernel would end something of it."""
    server, mebibyte = EmbeddedServer(data_dir, "always"), b"x" * (1 << 20)
    trees.append(Tree(data_dir))
    wait_until(server.is_ready, what="the server")
    with client(server) as raw:
        raw.set("before", "kept")
        flood = (raw.rpush("flood", mebibyte) for _ in range(17))
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            list(flood)
        assert raw.get("before") == b"kept"
        assert raw.delete("flood")
        assert raw.rpush("after", mebibyte) == 1


def test_a_second_tree_waits_for_the_directory_and_then_serves(data_dir: Path, trees: list[Tree]) -> None:
    """Two servers on one directory would each overwrite the other's file."""
    server = EmbeddedServer(data_dir, "always")
    trees.append(Tree(data_dir))
    wait_until(server.is_ready, what="the first server")
    with client(server) as raw:
        raw.set("from", "first")
    trees.append(Tree(data_dir))
    wait_until(lambda: os.getsid(trees[1].child) == trees[1].child, what="the second to wait in its own session")
    wait_until(server.is_ready, what="an answer in 50 ms")  # the first one's: the second tree uses it meanwhile
    assert not is_server(trees[1].child)

    os.kill(trees[0].child, signal.SIGTERM)
    wait_until(lambda: is_server(trees[1].child) and server.is_ready(), what="the second server")
    with client(server) as raw:
        assert raw.get("from") == b"first"


def test_the_server_ends_with_a_parent_that_is_killed(data_dir: Path, trees: list[Tree]) -> None:
    """Nothing outlives the tree, also not what waits for a lock."""
    server = EmbeddedServer(data_dir, "everysec")
    trees.extend(Tree(data_dir) for _ in range(2))
    wait_until(lambda: server.is_ready() and sum(is_server(t.child) for t in trees) == 1, what="one server")
    for tree in trees:
        wait_until(lambda tree=tree: os.getsid(tree.child) == tree.child, what="its own session")
        tree.parent.kill()
    wait_until(lambda: not any(is_alive(tree.child) for tree in trees), what="both children to end")
    assert not server.is_ready()


def test_a_child_whose_parent_is_gone_already_does_not_start(data_dir: Path) -> None:
    """The kernel's death signal cannot tell of a death before it was asked for."""
    code = "import sys; from supervisor.embedded.valkey import EmbeddedServer as E; E(sys.argv[1], 'always').exec_locked(1)"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(data_dir)], timeout=60, check=False, cwd=Path(__file__).parents[3]
    )

    assert ended.returncode == 0
    assert not (data_dir / "appendonlydir").exists()


def test_only_this_user_reaches_the_data(data_dir: Path, trees: list[Tree]) -> None:
    """A private directory, a private socket, and no port at all."""
    server = EmbeddedServer(data_dir, "always")
    trees.append(Tree(data_dir))
    wait_until(server.is_ready, what="the server")

    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.socket_path.stat().st_mode) == 0o700
    with client(server) as raw:
        assert raw.config_get("port")["port"] == "0"


def test_signals_ignored_before_the_start_reach_the_server(data_dir: Path, trees: list[Tree]) -> None:
    """Ignored signals stay ignored across exec, and a server deaf to SIGTERM could only be killed."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        trees.append(Tree(data_dir))
    finally:
        signal.signal(signal.SIGTERM, before)
    wait_until(EmbeddedServer(data_dir, "always").is_ready, what="the server")
    os.kill(trees[0].child, signal.SIGTERM)
    wait_until(lambda: not is_alive(trees[0].child), what="the end")


def test_a_path_too_long_for_a_socket_is_told_before_anything_starts(data_dir: Path) -> None:
    """The kernel's own message for it names neither path nor limit."""
    fits = data_dir / ("x" * (107 - len(str(data_dir)) - len("//redis.sock")))
    assert len(str(EmbeddedServer(fits, "always").socket_path)) == 107
    with pytest.raises(CannotCreateError, match="108 bytes, the kernel takes 107; set data_dir to a shorter path"):
        EmbeddedServer(f"{fits}x", "always")


def test_a_directory_that_cannot_be_made_is_named_with_the_remedy(data_dir: Path) -> None:
    """A file stands where the directory should be."""
    data_dir.write_text("")
    with pytest.raises(CannotCreateError, match=f"data_dir {data_dir} cannot be used: .*; make it a directory"):
        EmbeddedServer(data_dir, "always").prepare()
    with pytest.raises(CannotCreateError, match="cannot be used"):
        EmbeddedServer(data_dir / "below", "always").prepare()


def test_a_directory_that_cannot_be_written_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a volume mounted read-only; root may write anywhere, so the kernel's answer is given."""
    monkeypatch.setattr(valkey.os, "access", lambda *_: False)
    with pytest.raises(CannotCreateError, match="not writable"):
        EmbeddedServer(data_dir, "always").prepare()


def test_something_else_on_the_socket_is_not_ready(data_dir: Path) -> None:
    """A listener that does not answer, or that is loading, must not count as a server."""
    data_dir.mkdir()
    server = EmbeddedServer(data_dir, "always")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(server.socket_path))
        listener.listen()
        assert not server.is_ready()


def test_a_path_with_spaces_and_percent_works(data_dir: Path, trees: list[Tree]) -> None:
    """In the URL, and on the server's command line."""
    odd = data_dir / "a b%20c"
    trees.append(Tree(odd))
    server = EmbeddedServer(odd, "always")
    wait_until(server.is_ready, what="the server")
    with client(server) as raw:
        assert raw.ping()


def test_data_of_the_bundled_server_are_read_after_another_came_to_the_path(
    data_dir: Path, trees: list[Tree], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Debian's, for instance, which cannot read them."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for value in (None, b"1"):
        trees.append(Tree(data_dir))
        server = EmbeddedServer(data_dir, "always")
        wait_until(server.is_ready, what="the server")
        with client(server) as raw:
            assert raw.get("kept") == value
            raw.set("kept", "1")
        trees[-1].end()
        (tmp_path / "redis-server").write_text('#!/bin/sh\necho "Redis server v=7.0.15"\n')
        (tmp_path / "redis-server").chmod(0o755)


def test_a_command_waits_for_a_busy_server_as_long_as_for_any_other(data_dir: Path) -> None:
    """On a machine with a load of 15 the answer takes longer than the parent's short look, and the tree is there."""
    data_dir.mkdir(mode=0o700)
    settings = Settings(data_dir=str(data_dir), redis=RedisSettings(connect_timeout_s=30))
    server = EmbeddedServer(data_dir, "always")

    def answer(listener: socket.socket) -> None:
        link, _ = listener.accept()
        with link:
            link.recv(16)
            threading.Event().wait(0.2)
            link.sendall(b"+PONG\r\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(server.socket_path))
        listener.listen()
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        assert not is_embedded_down(settings)
        thread.join()
    assert is_embedded_down(settings), "nobody listens any more, which is known at once"
