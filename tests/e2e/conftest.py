"""Fixtures: trees that end with their test, and a server of the test's own."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from tests.e2e.clock_shim import find_compiler
from tests.e2e.servers import Server
from tests.e2e.trees import Tree, end_all

NEEDS_COMPILER = ["test_election_clocks.py"]
collect_ignore = [] if find_compiler() else NEEDS_COMPILER
if collect_ignore:
    why = "no cc, gcc or clang to build the clock of a server with; tests/simulation steps it on every machine"
    sys.stderr.write(f"not collected: {', '.join(collect_ignore)}: {why}\n")


@pytest.fixture(scope="session", autouse=True)
def forked_commands(launcher: None) -> None:
    """Start the processes of these tests by a fork."""


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory whose path is short enough for a unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-e2e-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def start(short_directory: Path) -> Iterator[Callable[..., Tree]]:
    """Start trees that end with the test."""
    trees: list[Tree] = []

    def starter(name: str, *arguments: str, environ: dict[str, str] | None = None) -> Tree:
        trees.append(Tree(short_directory, name, *arguments, environ=environ))
        return trees[-1]

    yield starter
    end_all(trees)


@pytest.fixture
def server(short_directory: Path) -> Iterator[Server]:
    """A server of this test's own."""
    server = Server(short_directory)
    yield server
    server.kill()


@pytest.fixture
def redis_url(server: Server) -> str:
    """Where that server listens."""
    return server.url


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """A client of that server."""
    store = Store.connect(redis_url, settings=RedisSettings(), name="e2e", timeout_s=20)
    yield store
    store.close()
