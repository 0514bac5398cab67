"""What the tests of the shipped jobs share: a run's context, databases, and waiting for what must come true."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from supervisor.clock import SystemClock
from supervisor.core.jobs.references import DestinationRule, ReferenceRule
from tenure import Context
from tenure.jobs.identity.database import open_database
from tenure.jobs.identity.models import metadata
from tests.integration.jobs.databases import Postgres, kinds

PATIENCE_S = 30.0


@pytest.fixture
def ctx() -> Context:
    """A context as a worker makes it, for a run that no schedule made."""
    return Context(run_id="a-run", job="a.job")


@pytest.fixture(autouse=True)
def _any_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow what these tests refer to; the rule itself has tests of its own."""
    rule = ReferenceRule(env=["*"], files=["/"])
    monkeypatch.setattr(ReferenceRule, "current", rule)


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow the servers of these tests, which listen on loopback; the rule itself has tests of its own."""
    monkeypatch.setattr(DestinationRule, "current", DestinationRule(["127.0.0.0/8", "::1"]))


def wait_for(fact: Callable[[], bool], what: str) -> None:
    """Return once ``fact`` holds; fail if it does not within a generous time."""
    clock = SystemClock()
    until_ns = clock.elapsed_ns() + int(PATIENCE_S * 1e9)
    pause = threading.Event()
    while not fact():
        assert clock.elapsed_ns() < until_ns, f"{what} did not happen within {PATIENCE_S} s"
        pause.wait(0.01)


@pytest.fixture
def until() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a fact."""
    return wait_for


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres | None]:
    """One PostgreSQL, where its binaries are installed, for the xdist worker that has the tests of databases."""
    if "postgresql" not in kinds():
        yield None
        return
    server = Postgres()
    try:
        wait_for(server.is_up, "PostgreSQL's start")
        yield server
    finally:
        server.stop()


@pytest.fixture(params=kinds())
def database(request: pytest.FixtureRequest, postgres: Postgres | None, tmp_path: Path) -> Iterator[str]:
    """The ``database`` argument of an empty database, of each kind that can be had here."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/folder/identity.db"
        return
    assert postgres is not None
    yield postgres.url
    engine = create_engine(postgres.url, poolclass=NullPool)
    metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    """The same database, opened, for looking and for preparing."""
    with open_database(database) as opened:
        yield opened
