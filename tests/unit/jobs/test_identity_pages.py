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
    {"page": 1, "per_page": 100, "page_size": 100, "limit": 100, "offset": 0, "max_results": 500, "itemsPerPage": 50},
    {"page": {"size": 20, "number": 0, "totalElements": 2, "totalPages": 1}, "result_info": {"total_count": 2}},
    {"size": 20, "number": 0, "numberOfElements": 2, "first": True, "last": True, "total": {"value": 2}},
    {"limit": 100, "size": 2, "start": 0, "isLastPage": True, "num_pages": 1, "page_number": 1, "count": "2"},
    {"pageInfo": {"hasNextPage": False, "startCursor": "a", "endCursor": "b"}},
    {"has_more": False, "cursor": "b"},
    {"complete": True, "scroll_id": "b"},
    {"remaining": 0, "bookmark": "b", "truncated": "false"},
    {"nextSyncToken": "s", "@odata.deltaLink": "/d?delta=s", "next_update": "2026-03-01", "updated_at": "2026-02-28"},
    {"links": [{"rel": "self", "href": "/d"}, {"rel": "prev", "href": "/c"}, {"rel": "next", "href": None}]},
    {"rate_limit": {"limit": 5000, "remaining": 4999}, "took": 250, "total_time_ms": 250, "version": 7, "discount": 9},
]
MORE: list[dict[str, Any]] = [
    {"cursor": "abc"},
    {"next_offset": 100},
    {"offset": "itrX"},
    {"next_page_number": 2},
    {"nextStart": 100},
    {"page_token": "x"},
    {"continuation": "x"},
    {"scroll_id": "x"},
    {"bookmark": "x"},
    {"last_evaluated_key": {"id": "x"}},
    {"remaining": 50},
    {"complete": False},
    {"total_entries": 250},
    {"total_records": 250},
    {"totalSize": 250},
    {"total_size": 250},
    {"total_objects": 250},
    {"total_hits": 250},
    {"total_domains": 250},
    {"num_pages": 3},
    {"page": 1, "per_page": 100, "total_entries": 250},
    {"result_info": {"page": 1, "total_pages": 3, "total_count": 250}},
    {"info": {"total": 250}},
    {"paginator": {"has_more": True}},
    {"_paging": {"total": 250}},
    {"response": {"next_cursor": "x"}},
    {"page_info": {"end_cursor": "x", "has_next_page": True}},
    {"next_cursor": "x"},
    {"total_count": 250},
    {"cursor": {"next": "x"}},
    {"total": {"value": 250}},
    {"next": {"offset": 100}},
    {"links": [{"rel": "next", "href": "/d?page=2"}]},
    {"_links": [{"rel": "next", "href": "/d?page=2"}]},
    {"pagination": {"next": None, "total": "250"}},
    {"@odata.count": 250},
    {"@odata.nextLink": "https://h/x"},
    {"domains_total": 250},
    {"limit": 100, "offset": 0, "size": 250},
    {"next_page_uri": "/d?page=2"},
    {"pagination": {"next_uri": "/d?page=2"}},
    {"size": 250},
    {"data": {"page": {"after": "x"}}},
    {"endOfRecords": False},
    {"done": "false"},
    {"incomplete_results": True},
    {"NEXT_TOKEN": "x"},
    {"has_more": "true"},
    {"cursor": {"id": 7}},
]


@pytest.mark.parametrize("document", COMPLETE)
def test_a_whole_list_is_taken_for_one(document: dict[str, Any]) -> None:
    """What an upstream says of other things is none of ours."""
    paging = paging_of(document, {})

    assert (paging.next, paging.more) == (None, None)
    assert paging.items <= 2
    assert paging.pages <= 1


@table("document", MORE)
def test_a_list_that_goes_on_is_not_taken_for_the_whole(document: dict[str, Any]) -> None:
    """By the form of a field, in whatever words, mapping or list of links; ``ignore`` takes its word away."""
    paging = paging_of(document, {})

    assert paging.next or paging.more or paging.items == 250 or paging.pages == 3
    assert paging_of(document, {}, [*document]) == Paging()


@table(
    ("ignore", "expected"),
    [
        ([], Paging(more="meta.cursor is set", items=900)),
        (["meta.cursor"], Paging(items=900)),
        (["meta.total_users", "cursor"], Paging(more="meta.cursor is set", items=500)),
        (["meta"], Paging(items=500)),
        (["meta", "x-total"], Paging()),
    ],
)
def test_fields_are_ignored_by_their_path(ignore: list[str], expected: Paging) -> None:
    """As a refusal names them, and headers by their names."""
    document = {"meta": {"cursor": "abc", "total_users": 900}}

    assert paging_of(document, {"x-total": "500"}, ignore) == expected


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
        ({}, {"total-count": "500", "content-length": "900", "x-cache-hits": "7"}, Paging(items=500)),
        ({}, {"x-total": "500, 500", "x-total-pages": "5"}, Paging(items=500, pages=5)),
        ({}, {"x-next-page": "2"}, Paging(more="x-next-page is set")),
        ({}, {"x-next-page": "", "x-nextjs-cache": "HIT", "x-ratelimit-remaining": "9", "retry-after": "x"}, Paging()),
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
