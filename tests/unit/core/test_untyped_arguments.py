"""Arguments for parameters without a type: what JSON has no form for is refused where a run is enqueued."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel

from supervisor.core.errors import ArgumentsError
from supervisor.core.jobs import registry as jobs
from supervisor.core.jobs.registry import Registry, job
from supervisor.store.producer.job_templates import JobTemplates

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Size(Enum):
    LARGE = "large"


@dataclass
class Line:
    article: str
    at: datetime


class Parcel(msgspec.Struct):
    grams: int


class Order(BaseModel):
    number: int
    lines: list[Line]


@pytest.fixture(autouse=True)
def _jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job for each way to leave a type out."""
    monkeypatch.setattr(jobs, "registry", Registry())

    @job("any")
    def anything(value: Any) -> None: ...

    @job("bare")
    def bare(value=None) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001

    @job("optional")
    def optional(value: dict[str, list[Any]] | None = None) -> None: ...

    @job("typed")
    def typed(value: datetime, key: UUID | None = None, seen: set[int] | None = None) -> None: ...


def pack(name: str, args: dict[str, Any]) -> bytes:
    """Enqueue by a producer, as far as Redis."""
    return JobTemplates().of(name, queue=None, priority=None).pack("r1", args, b"}")


def instantiate(name: str, args: dict[str, Any]) -> object:
    """Make what schedules and children are made of."""
    return jobs.registry.get(name).template(args)


@pytest.mark.share(2)
@pytest.mark.parametrize("make", [pack, instantiate])
@pytest.mark.parametrize(
    ("value", "kind", "instead"),
    [
        (b"x", "bytes", "base64"),
        (bytearray(b"x"), "bytearray", "base64"),
        ({1}, "set", "a list"),
        (frozenset({1}), "frozenset", "a list"),
        (NOON, "datetime", "isoformat()"),
        (NOON.date(), "date", "isoformat()"),
        (time(12), "time", "isoformat()"),
        (timedelta(1), "timedelta", "total_seconds()"),
        (Decimal("1.1"), "Decimal", "str()"),
        (UUID(int=1), "UUID", "str()"),
        (Size.LARGE, "Size", "its value"),
        (Line("pen", NOON), "Line", "asdict()"),
        (Parcel(3), "Parcel", "to_builtins()"),
        (Order(number=1, lines=[]), "Order", "model_dump"),
    ],
)
def test_what_json_has_no_form_for_is_refused_with_place_type_and_remedy(
    make: Callable[[str, dict[str, Any]], object], value: object, kind: str, instead: str
) -> None:
    """It would arrive as a text or a list, and fail far from who sent it."""
    with pytest.raises(ArgumentsError) as caught:
        make("any", {"value": {"a": [1, (2, value)]}})

    for part in ("job any: argument value.a.1.1", f"of type {kind},", instead, "annotate the parameter"):
        assert part in str(caught.value)
    for name, args in {"any": value, "bare": value, "optional": {"b": [value]}}.items():
        with pytest.raises(ArgumentsError, match=f"of type {kind},"):
            make(name, {"value": args})


def test_what_the_parameter_says_travels() -> None:
    """The worker converts it back by the annotation; what is JSON needs none."""
    assert pack("typed", {"value": NOON, "key": UUID(int=1), "seen": {1}})
    assert pack("any", {"value": [None, True, 1, 0.5, "x", (1, 2), {"a": {1: 2}}]})
    assert pack("optional", {})


def test_arguments_that_hold_themselves_are_refused_without_end_of_time() -> None:
    """The search for what has no form meets each of them once."""
    loop: list[object] = []
    loop += [loop, loop]

    with pytest.raises(ArgumentsError, match=r"JSON|nested"):
        pack("any", {"value": loop})


@pytest.mark.parametrize("hint", ["object", "list[object]", "dict[str, object] | None"])
def test_an_argument_annotated_as_object_is_refused_with_the_remedy(hint: str) -> None:
    """At import: no JSON value says which object it is to be."""
    scope: dict[str, Any] = {}
    exec(f"def wrong(x: {hint}): ...", scope)

    with pytest.raises(ValueError, match=r"converts to the type object; annotate with Any"):
        job("wrong")(scope["wrong"])
