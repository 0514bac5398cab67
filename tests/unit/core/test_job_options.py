"""The options of ``@job``: what they become, and what is refused where it is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.core.errors import ArgumentsError, OptionError
from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.jobs.limits import limits_of
from supervisor.core.jobs.registry import JobSpec, Registry, job
from supervisor.core.model import Template
from supervisor.store.queues.jobs import published_job
from tests.kit.tables import table


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty registry."""
    registry = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", registry)
    return registry


def declared(known: Registry, **options: Any) -> JobSpec:
    """Return a job with ``options``, of two parameters, one with a default."""

    @job("subject", **options)
    def subject(customer: str, region: str = "eu") -> None: ...

    return known.get("subject")


def test_a_parameter_may_have_any_name_that_python_allows(known: Registry) -> None:
    """A placeholder names it as the function does; a name that the function lacks is refused as ever."""

    @job("sizes", unique="{größe}/{ώρα}")
    def sizes(größe: str, ώρα: str) -> None: ...  # noqa: PLC2401

    assert limits_of(known.get("sizes").template({"größe": "L", "ώρα": "x"})).unique == "sizes:L/x"
    with pytest.raises(OptionError, match="grösse"):
        declared(known, unique="{grösse}")


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"unique": True}, {"unique": "*"}),
        ({"unique": "{customer}"}, {"unique": "{customer}"}),
        ({"concurrency": 3}, {"concurrency": "", "concurrency_max": 3}),
        ({"concurrency": ("{customer}/{region}", 1)}, {"concurrency": "{customer}/{region}", "concurrency_max": 1}),
        ({"rate": "100/m"}, {"rate_count": 100, "rate_per_ms": 60_000}),
        ({"rate": "10/s"}, {"rate_count": 10, "rate_per_ms": 1_000}),
        ({"rate": ("{customer}", "5/2h")}, {"rate": "{customer}", "rate_count": 5, "rate_per_ms": 7_200_000}),
        ({"rate": "1/250ms"}, {"rate_count": 1, "rate_per_ms": 250}),
        ({"start_deadline": "15m"}, {"start_deadline_s": 900.0}),
        ({"timeout": "2h", "soft_timeout": "90m", "result_ttl": "7d"}, {"timeout_s": 7200.0, "soft_timeout_s": 5400.0}),
    ],
)
def test_an_option_becomes_fields_of_every_run(
    known: Registry, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    """Of the job's own template, and of the card by which other programs enqueue it."""
    spec = declared(known, **options)
    card = msgspec.json.decode(msgspec.json.encode(spec.card()), type=JobCard)

    for template in (spec.template({"customer": "a"}), published_job(card).template({"customer": "a"})):
        assert {name: getattr(template, name) for name in fields} == fields


@table(
    ("options", "message"),
    [
        (
            {"unique": "{nobody}"},
            r"unique names \{nobody\}, which is no argument of it; its arguments: customer, region",
        ),
        ({"concurrency": ("{nobody}", 1)}, r"concurrency names \{nobody\}"),
        ({"rate": ("{nobody}", "1/s")}, r"rate names \{nobody\}"),
        ({"unique": ""}, "unique must not be empty"),
        ({"unique": "{customer"}, "placeholders"),
        ({"unique": "{a b}"}, "placeholders"),
        ({"unique": "x" * 129}, "at most 128"),
        ({"concurrency": 0}, "concurrency must be 1 to 100000 runs, got 0"),
        ({"concurrency": True}, "concurrency must be 1"),
        ({"concurrency": ("{customer}", 1.5)}, "concurrency must be 1"),
        ({"rate": "100"}, "rate must be runs/duration such as"),
        ({"rate": "0/s"}, "rate must be 1 to"),
        ({"rate": "10/0s"}, "rate must be 1 to"),
        ({"rate": 5}, "rate must be runs/duration"),
        ({"start_deadline": 0}, "start_deadline must be 1 ms to 366 days"),
        ({"timeout": "10"}, "timeout: '10' is not a duration: write 10s"),
        ({"timeout": True}, "timeout must be seconds, a duration"),
        ({"without": [int]}, "without= takes classes of middleware, got <class 'int'>"),
    ],
)
def test_an_option_that_cannot_be_kept_is_refused_at_import(
    known: Registry, options: dict[str, Any], message: str
) -> None:
    """With the value seen and what to write instead, and not when the first run is due."""
    with pytest.raises(ValueError, match=message):
        declared(known, **options)


def test_a_key_finds_the_default_of_an_argument_that_was_left_out(known: Registry) -> None:
    """Else the same work would have two keys, or none."""
    spec = declared(known, unique="{customer}/{region}")
    card = spec.card()

    keys = {
        limits_of(template).unique
        for template in (
            spec.template({"customer": "a"}),
            spec.template({"customer": "a", "region": "eu"}),
            published_job(card).template({"customer": "a"}),
        )
    }

    assert keys == {"subject:a/eu"}


@pytest.mark.parametrize("default", [object(), 5j, None])
def test_a_default_that_cannot_travel_is_no_part_of_a_key(default: object) -> None:
    """A run carries its key's arguments as JSON of the parameter's type."""
    with pytest.raises(ValueError, match=r"names \{region\}, whose default .* cannot travel with a run"):

        @job("subject", unique="{region}")
        def subject(region: str = default) -> None: ...  # type: ignore[assignment]


def test_without_limits_a_template_is_as_small_as_before(known: Registry) -> None:
    """What is not used takes no byte in Redis."""
    body = msgspec.json.encode(declared(known).template({"customer": "a"}))

    assert body == b'{"job":"subject","kind":"sync","args":{"customer":"a"}}'


def test_a_card_of_an_older_replica_is_read_by_this_one(known: Registry) -> None:
    """During a rolling deploy both publish theirs."""
    older = b'{"template":{"job":"subject","kind":"sync","future":1},"required":["customer"],"future":[]}'

    card = msgspec.json.decode(older, type=JobCard)

    assert published_job(card).template({"customer": "a"}) == Template(
        job="subject", kind=card.template.kind, args={"customer": "a"}
    )
    with pytest.raises(ArgumentsError, match="needs 'customer'"):
        published_job(card).template({})
