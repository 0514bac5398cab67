"""What may be a resource, and which jobs may ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.errors import ArgumentsError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind
from tenure import Context, Resource, job


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty registry."""
    registry = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", registry)
    return registry


class Database(Resource):
    """For plain jobs."""

    def open(self) -> None:
        """Connect."""


class Client(Resource):
    """For coroutine jobs."""

    async def open(self) -> None:
        """Connect."""


class Counter(Resource):
    """For both."""


def test_a_parameter_with_the_type_of_a_resource_is_no_argument(known: Registry) -> None:
    """Callers do not see it, and cannot give it."""

    @job("uses")
    def uses(number: int, database: Database, context: Context, counter: Counter) -> None: ...

    spec = known.get("uses")
    assert spec.resources == (("database", Database), ("counter", Counter))
    assert (spec.signature, spec.card().required) == ("(number: int)", ["number"])
    with pytest.raises(ArgumentsError, match="takes no argument 'database'"):
        spec.check({"number": 1, "database": {}})


def test_a_job_is_called_with_a_stand_in_by_hand() -> None:
    """The decorated function is the function."""

    class Fake(Database):
        rows = (1, 2)

    @job("sums")
    def sums(database: Database) -> int:
        return sum(database.rows)  # type: ignore[attr-defined]

    assert sums(Fake()) == 3


def test_the_kind_of_a_resource_follows_from_its_methods() -> None:
    """Nobody has to say it twice."""
    assert (Database.kind, Client.kind, Counter.kind) == (Kind.SYNC, Kind.ASYNC, None)


def test_methods_of_two_kinds_are_refused() -> None:
    """Such a resource could serve nobody."""
    with pytest.raises(TypeError, match=r"Mixed: define open, ping, close either all with async def"):

        class Mixed(Resource):
            async def open(self) -> None: ...

            def close(self) -> None: ...


class Needy(Resource):
    """Cannot be made by the worker."""

    def __init__(self, url: str, port: int = 1) -> None: ...


async def coroutine(thing: Any) -> None: ...


def plain(thing: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "hint", "message"),
    [
        (coroutine, Database, "the job is a coroutine and resource Database has plain methods"),
        (plain, Client, "the job is a plain function and resource Client has async methods"),
        (plain, Resource, "annotate it with a subclass of Resource"),
        (plain, Needy, r"a resource is made without arguments; __init__ of Needy needs \['url'\]"),
    ],
)
def test_a_resource_that_a_job_cannot_be_given_is_refused_at_import(function: Any, hint: Any, message: str) -> None:
    """With the parameter's name and the remedy."""
    function.__annotations__ = {"thing": hint}

    with pytest.raises(ValueError, match=f"parameter 'thing': {message}"):
        job("mismatched")(function)
