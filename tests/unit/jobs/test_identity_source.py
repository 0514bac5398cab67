"""Which documents are believed to be lists of domains."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tenure.jobs.identity import source
from tenure.jobs.identity.source import DOMAINS_MAX, SourceRefusedError, UpstreamDomain, source_label
from tests.kit.tables import table


def parse(data: bytes, label: str) -> list[UpstreamDomain]:
    """Return the domains of one document, if they are believed."""
    domains, _ = source._page(data, label)
    source._refuse_problems(domains, label)
    return domains


def domain(**fields: Any) -> dict[str, Any]:
    """Return one domain of a document."""
    return {"id": "a", "name": "A", **fields}


@pytest.mark.parametrize("wrap", [lambda domains: {"domains": domains, "next": None}, lambda domains: domains])
def test_a_list_is_read_with_or_without_its_wrapping(wrap: Any) -> None:
    """Upstreams do both, and list more about a domain than we want."""
    document = wrap([domain(tenant="t", endpoints=["https://a.example/"], plan="gold"), domain(id="b", name="B")])

    assert parse(json.dumps(document).encode(), "https://s/") == [
        UpstreamDomain("a", "A", "t", ("https://a.example/",)),
        UpstreamDomain("b", "B", "", None),
    ]


@table(
    ("document", "message"),
    [
        (b"", "no list of domains"),
        (b"<html>", "no list of domains"),
        (b"null", "no list of domains"),
        (b"{}", "missing required field `domains`"),
        (b'{"domains": null}', "no list of domains"),
        (b'{"error": "try later", "domains": {}}', "no list of domains"),
        (b'[{"id": "a", "name": "A"}', "no list of domains"),
        (b'[{"id": "a"}]', r"missing required field `name` - at `\$\[0\]`"),
        (b'[{"id": 1, "name": "A"}]', r"Expected `str`, got `int` - at `\$\[0\].id`"),
        (b'[{"id": "a", "name": "\xff"}]', "no list of domains"),
        (json.dumps([domain(), domain(name="B")]).encode(), "id 'a' is listed twice"),
        (json.dumps([domain(), domain(id="b")]).encode(), "name 'A' is listed twice"),
        (json.dumps([domain(id="")]).encode(), r"domains\[0\].id must have 1 to 64 characters, it has 0"),
        (json.dumps([domain(id="x" * 65)]).encode(), "it has 65"),
        (json.dumps([domain(name="x" * 201)]).encode(), r"domains\[0\].name must have 1 to 200"),
        (json.dumps([domain(tenant="x" * 201)]).encode(), r"domains\[0\].tenant must have 0 to 200"),
        (json.dumps([domain(name="a\0b")]).encode(), "NUL"),
        (json.dumps([domain(endpoints=["http://a/"] * 101)]).encode(), "has 101 endpoints, more than 100"),
        (json.dumps([domain(endpoints=["ftp://a/"])]).encode(), "'ftp://a/' is no http or https URL"),
        (json.dumps([domain(endpoints=["http://"])]).encode(), "is no http or https URL"),
        (json.dumps([domain(endpoints=["http://a:99999/"])]).encode(), "is no http or https URL"),
        (json.dumps([domain(endpoints=["http://a b/"])]).encode(), "is no http or https URL"),
        (json.dumps([domain(endpoints=["http://[::1/"])]).encode(), "is no http or https URL"),
        (json.dumps([domain(id="", name=f"n{n}") for n in range(9)]).encode(), "and [0-9]+ more"),
    ],
)
def test_what_is_no_list_of_domains_is_refused(document: bytes, message: str) -> None:
    """Whole: a list that is half right would disable what its other half should have named."""
    with pytest.raises(SourceRefusedError, match=message):
        parse(document, "https://s/")


def test_a_list_without_bound_is_refused() -> None:
    """One transaction holds it all."""
    domains = [UpstreamDomain(str(n), str(n)) for n in range(DOMAINS_MAX + 1)]

    with pytest.raises(SourceRefusedError, match="it lists 100001 domains, more than 100000"):
        parse(msgspec.json.encode(domains), "https://s/")


def test_a_source_is_known_by_its_address_alone() -> None:
    """A query may change with every call and may hold a token."""
    assert source_label("https://a.example/domains?page=1#x") == "https://a.example/domains"
    assert source_label("/etc/domains.json?") == "/etc/domains.json?"


@pytest.mark.parametrize("source", ["https://user:word@a.example/", "https://user@a.example/"])
def test_a_source_with_credentials_is_refused(source: str) -> None:
    """Arguments lie in the queue; and the message does not repeat them."""
    with pytest.raises(SourceRefusedError, match="source must not hold a user or password") as caught:
        source_label(source)
    assert "word" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize("query", ["token=hunter2 &x=1", "token=hunter2&q=\N{LATIN SMALL LETTER A WITH DIAERESIS}"])
def test_the_query_of_an_address_that_is_no_url_is_not_shown(query: str) -> None:
    """It may hold a token; and the message says what is wrong with it."""
    with pytest.raises(
        SourceRefusedError, match=r"^source http://a.example/d cannot be fetched: .* is no URL"
    ) as caught:
        source.load(f"http://a.example/d?{query}", token=None, ca_file=None, allow_empty=False)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("source", ["", "x" * 501])
def test_a_source_without_a_usable_name_is_refused(source: str) -> None:
    """It is stored with each domain."""
    with pytest.raises(SourceRefusedError, match="source must have 1 to 500 characters"):
        source_label(source)
