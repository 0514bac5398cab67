"""When one page of a list says that there are more."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.jobs.identity.pages import PageError, Paging, next_address, paging_of
from tests.kit.tables import table

COMPLETE: list[dict[str, Any]] = [
    {},
    {"next": None, "has_more": False, "total_count": 2},
    {"next": "", "nextPageToken": "", "last": True},
    {"links": {"next": None, "self": "/domains"}, "meta": {"total": 2}},
    {"page": 1, "total_pages": 1, "more": "see the manual", "count": True},
    {"domains_by_plan": {"next": "gold", "total": 900}},
    {"paging": {"next": {"after": None}}, "_links": {"next": {"href": None}}, "next": False},
    {"response_metadata": {"next_cursor": ""}, "metadata": {"continue": ""}, "cursor": {"next": None, "prev": "a"}},
]


@pytest.mark.parametrize("document", COMPLETE)
def test_a_whole_list_is_taken_for_one(document: dict[str, Any]) -> None:
    """What an upstream says of other things is none of ours."""
    paging = paging_of(document, {})

    assert (paging.next, paging.more) == (None, None)
    assert paging.items <= 2
    assert paging.pages <= 1


@table(
    ("document", "headers", "expected"),
    [
        ({"next": "https://u.example/domains?page=2"}, {}, "https://u.example/domains?page=2"),
        ({"next_page_url": "/domains?page=2"}, {}, "/domains?page=2"),
        ({"_links": {"next": {"href": "?page=2"}}}, {}, "?page=2"),
        ({"@odata.nextLink": "/x"}, {}, "/x"),
        ({"nextRecordsUrl": "/x"}, {}, "/x"),
        ({"paging": {"next": "/x"}}, {}, "/x"),
        ({}, {"link": '</a>; rel="prev", </b>; rel="next"; title="2"'}, "/b"),
        ({}, {"link": "</b>;rel=next"}, "/b"),
        ({}, {"link": '</b>; title="next"; rel="last"'}, None),
    ],
)
def test_the_address_of_the_next_page_is_found(
    document: dict[str, Any], headers: dict[str, str], expected: str | None
) -> None:
    """In the document as upstreams spell it, or in the header of RFC 8288."""
    assert paging_of(document, headers).next == expected


@table(
    ("document", "headers", "expected"),
    [
        ({"next_page_token": "abc"}, {}, Paging(more="next_page_token is set")),
        ({"meta": {"next_cursor": "abc"}}, {}, Paging(more="meta.next_cursor is set")),
        ({"next": 2}, {}, Paging(more="next is set")),
        ({"next": True}, {}, Paging(more="next is true")),
        ({"response_metadata": {"next_cursor": "abc"}}, {}, Paging(more="response_metadata.next_cursor is set")),
        ({"metadata": {"continue": "abc"}}, {}, Paging(more="metadata.continue is set")),
        ({"continuationToken": "abc"}, {}, Paging(more="continuationToken is set")),
        ({"NextMarker": "abc"}, {}, Paging(more="NextMarker is set")),
        ({"cursor": {"next": "abc"}}, {}, Paging(more="cursor.next is set")),
        ({"paging": {"next": {"after": "abc"}}}, {}, Paging(more="paging.next is true")),
        ({"hasMore": True}, {}, Paging(more="hasMore is true")),
        ({"pageInfo": {"hasNextPage": True}}, {}, Paging(more="pageInfo.hasNextPage is true")),
        ({"last": False}, {}, Paging(more="last is false")),
        ({"total_count": 500}, {}, Paging(items=500)),
        ({"page": {"totalElements": 500, "totalPages": 5}}, {}, Paging(items=500, pages=5)),
        ({}, {"x-total-count": "500"}, Paging(items=500)),
        ({}, {"content-range": "items 0-24/319"}, Paging(items=319)),
        ({}, {"content-range": "items 0-24/*", "x-total-count": "many"}, Paging()),
    ],
)
def test_other_signs_of_more_are_told(document: dict[str, Any], headers: dict[str, str], expected: Paging) -> None:
    """There is no address to follow, but the list is known to be incomplete."""
    assert paging_of(document, headers) == expected


@pytest.mark.parametrize(
    ("following", "address"),
    [
        ("?page=2", "https://u.example:8443/domains?page=2"),
        ("/other", "https://u.example:8443/other"),
        ("https://u.example:8443/d", "https://u.example:8443/d"),
        ("https://u.example/d", None),
        ("http://u.example:8443/d", None),
        ("//elsewhere.example/d", None),
        ("https://[::1/d", None),
    ],
)
def test_the_next_page_is_the_same_servers(following: str, address: str | None) -> None:
    """A list that names another server must not choose whom the worker asks, nor drop TLS."""
    current = "https://u.example:8443/domains?page=1"

    if address is not None:
        assert next_address(current, following) == address
        return
    with pytest.raises(PageError):
        next_address(current, following)
