"""The JSON Schema of a job's arguments says what its signature accepts."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest

from supervisor.core.jobs.job_spec import arguments_schema
from supervisor.core.jobs.registry import Registry, job


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of the test's own."""
    own = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", own)
    return own


@dataclass
class Place:
    """Where something is."""

    x: int
    y: int = 0


def test_types_defaults_and_required_arguments_are_in_the_schema(known: Registry) -> None:
    """What is not named is refused, by the schema as by the worker."""

    @job("schema.whole")
    def whole(customer: int, tags: list[str] | None = None, at: Place | None = None) -> None:
        """Do nothing."""

    schema = arguments_schema(known.get("schema.whole"))
    assert schema["title"] == "schema.whole"
    assert schema["required"] == ["customer"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["customer"] == {"type": "integer"}
    assert schema["properties"]["tags"]["anyOf"][0] == {"type": "array", "items": {"type": "string"}}
    assert schema["$defs"]["Place"]["required"] == ["x"]


def test_a_job_without_arguments_and_one_with_amounts_have_a_schema_too(known: Registry) -> None:
    """Every registered job can be shown."""

    @job("schema.none")
    def none() -> None:
        """Do nothing."""

    @job("schema.amount")
    def amount(how_much: Decimal) -> None:
        """Do nothing."""

    assert arguments_schema(known.get("schema.none"))["properties"] == {}
    assert arguments_schema(known.get("schema.amount"))["required"] == ["how_much"]
