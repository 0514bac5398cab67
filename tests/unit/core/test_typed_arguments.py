"""Arguments of the types that parameters are annotated with: what is enqueued is what the worker calls the job with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, SecretStr, field_validator

from supervisor.core.errors import ArgumentsError
from supervisor.core.jobs import registry as jobs
from supervisor.core.jobs.job_spec import arguments_schema
from supervisor.core.jobs.registry import JobSpec, Registry, job
from supervisor.store.producer.job_templates import JobTemplates
from supervisor.store.wire.envelope import unpack

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Payment(msgspec.Struct, tag="payment"):
    amount: int


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    since: date


class Weight(msgspec.Struct):
    grams: int


class Item(BaseModel):
    price: Decimal
    at: datetime


class Basket(BaseModel):
    items: list[Item]
    note: str = ""


class Login(BaseModel):
    pin: int
    password: SecretStr


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "registry", Registry())


def registered(hint: Any, default: Any = None) -> JobSpec:
    """Return a job whose one parameter, ``value``, has that annotation."""

    def typed(value: Any = default) -> None: ...

    typed.__annotations__["value"] = hint
    job("typed", unique="{value}" if isinstance(default, str) else False)(typed)
    return jobs.registry.get("typed")


def journey(spec: JobSpec, args: Mapping[str, Any]) -> Any:
    """Enqueue by a producer and by a schedule, both as far as Redis; return the worker's value of both."""
    template = JobTemplates().of("typed", queue=None, priority=None)
    enqueued = unpack(template.pack("r1", args, template.tail(0, 0))).template.args
    scheduled = msgspec.json.decode(msgspec.json.encode(spec.template(args).args))
    assert enqueued == scheduled
    return spec.check(enqueued)["value"]


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (datetime, NOON),
        (date, NOON.date()),
        (timedelta, timedelta(days=1, microseconds=5)),
        (UUID, UUID(int=7)),
        (Decimal, Decimal("1.10")),
        (bytes, b"\x00\xff"),
        (Colour, Colour.RED),
        (Address, Address("Unter den Linden", date(2020, 2, 29))),
        (Weight, Weight(5)),
        (set[int], {1, 2}),
        (tuple[int, Colour], (1, Colour.RED)),
        (dict[str, Weight | None], {"a": Weight(1), "b": None}),
        (Item, Item(price=Decimal("9.99"), at=NOON)),
        (Basket | None, Basket(items=[Item(price=Decimal(1), at=NOON)])),
        (list[Item], [Item(price=Decimal("0.1"), at=NOON)] * 2),
        (dict[str, Item], {"a": Item(price=Decimal(2), at=NOON)}),
    ],
)
def test_a_value_of_the_annotated_type_arrives_as_itself(hint: Any, value: Any) -> None:
    """A producer hands over what it has; nobody converts by hand on either side."""
    assert journey(registered(hint), {"value": value}) == value


def test_a_model_may_be_given_as_json_values() -> None:
    """As a schedule in a file does, and a producer that does not have the class."""
    given = {"items": [{"price": "9.99", "at": "2026-01-01T12:00:00Z"}]}

    assert journey(registered(Basket), {"value": given}) == Basket(items=[Item(price=Decimal("9.99"), at=NOON)])


def test_a_model_that_refuses_a_value_names_the_field_and_repeats_no_value() -> None:
    """The value may be a secret, and pydantic's own message holds it."""
    with pytest.raises(ArgumentsError) as caught:
        journey(registered(Login), {"value": {"pin": "hunter2", "password": "s3cret"}})

    assert "pin: Input should be a valid integer" in str(caught.value)
    assert "$.value" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (Literal["card", "sepa"], "s3cret - at `$.", "Invalid enum value - at `$.value`"),
        (Colour, "s3cret", "Invalid enum value - at `$.value`"),
        (list[Colour], ["red", "s3cret"], "Invalid enum value - at `$.value[1]`"),
        (dict[Colour, int], {"s3cret": 1}, "Invalid enum value - at `key` in `$.value`"),
        (Payment, {"type": "s3cret", "amount": 1}, "Invalid value - at `$.value.type`"),
    ],
)
def test_a_value_that_is_none_of_a_list_is_not_repeated(kind: Any, value: Any, told: str) -> None:
    """Runs wait with arguments of before a deploy, and whoever may read sees why they failed."""
    with pytest.raises(ArgumentsError) as caught:
        registered(kind).read({"value": value})

    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_model_may_be_the_default_of_a_parameter() -> None:
    """What a caller leaves out stays out, and the function's default applies."""
    spec = registered(Item | None, Item(price=Decimal(1), at=NOON))

    assert spec.check({}) == {}
    assert spec.template({}).args == {}


def test_the_schema_of_a_model_is_in_the_schema_of_the_job() -> None:
    """Forms and other languages read it; of a model with models in it they learn that it is an object."""
    assert arguments_schema(registered(Item))["properties"]["value"]["required"] == ["price", "at"]
    assert arguments_schema(registered(Basket))["properties"]["value"] == {"title": "Basket", "type": "object"}


def test_a_model_beside_another_type_is_refused_at_import() -> None:
    """No reader could tell which of the two a JSON value is."""
    with pytest.raises(ValueError, match=r"custom type may not contain any additional types"):
        registered(Item | int)


@dataclass
class Broken:
    street: str

    def __post_init__(self) -> None:
        raise KeyError(self.street)


class Heavy(msgspec.Struct):
    grams: int

    def __post_init__(self) -> None:
        raise OSError(f"no scales for {self.grams}")


class Nosy(BaseModel):
    name: str

    @field_validator("name", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        return value.strip()


@pytest.mark.parametrize(
    ("hint", "value", "error"),
    [
        (Broken, {"street": "7531"}, "KeyError"),
        (Heavy, {"grams": 7531}, "OSError"),
        (list[Nosy], [{"name": 7531}], "AttributeError"),
    ],
)
def test_a_value_at_which_the_code_of_its_type_breaks_is_refused_like_any_other(
    hint: Any, value: Any, error: str
) -> None:
    """Whatever that raises. At the worker it ended the process, which took it for an error of its own."""
    spec = registered(hint)
    for read in (spec.check, spec.template):
        with pytest.raises(ArgumentsError, match=error) as refused:
            read({"value": value})
        assert "7531" not in str(refused.value), "a value may be a secret"
