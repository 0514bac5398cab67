"""http.request: which requests are made, which are refused, and where a redirect may lead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from supervisor.core.jobs.registry import registry
from tenure import Context
from tenure.jobs.http import Ask, RequestFailedError, RequestRefusedError, request
from tenure.jobs.identity.source import SourceRefusedError, load
from tests.kit.tables import table

CTX = Context(run_id="a-run", job="http.request")


def ask(url: str = "https://api.example/v1?key=1", **fields: Any) -> Ask:
    """Return a request with secrets aboard."""
    return Ask(
        **{
            "method": "POST",
            "url": URL(url),
            "headers": {"Content-Type": "application/json", "X-Api-Key": "k"},
            "secrets": {"Authorization": "Bearer s"},
            "body": b"{}",
            **fields,
        }
    )


def test_the_job_is_registered_for_async_pools() -> None:
    """Schedules name it http.request, with a status or a list of them."""
    spec = registry.get("http.request")

    assert spec.kind == "async"
    assert spec.check({"url": "http://a", "expected_status": [200, 404]})["expected_status"] == [200, 404]
    assert spec.check({"url": "http://a", "expected_status": 204})["expected_status"] == 204


def test_a_redirect_within_the_origin_carries_everything() -> None:
    """308 repeats the request as it is."""
    moved = ask().redirected(308, "/v2")

    assert str(moved.url) == "https://api.example/v2"
    assert (moved.method, moved.body, moved.headers, moved.secrets) == ("POST", b"{}", ask().headers, ask().secrets)


@pytest.mark.parametrize("place", ["https://other.example/", "https://api.example:8443/", "//other.example/x"])
def test_a_redirect_elsewhere_carries_no_secret(place: str) -> None:
    """Nor any header that might be one; a port of its own is a server of its own."""
    moved = ask().redirected(307, place)

    assert moved.headers == {"Content-Type": "application/json"}
    assert moved.secrets == {}
    assert moved.body == b"{}"


@table(
    ("method", "status", "becomes"),
    [
        ("POST", 301, "GET"), ("POST", 302, "GET"), ("POST", 303, "GET"), ("POST", 307, "POST"), ("POST", 308, "POST"),
        ("PUT", 301, "PUT"), ("PUT", 302, "PUT"), ("PUT", 303, "GET"), ("HEAD", 303, "HEAD"), ("GET", 302, "GET"),
    ],
)  # fmt: skip
def test_the_method_after_a_redirect_is_that_of_the_standard(method: str, status: int, becomes: str) -> None:
    """RFC 9110, 15.4; what became a GET has no body, and so no type of one."""
    moved = ask(method=method).redirected(status, "/x")

    assert moved.method == becomes
    if becomes == "GET" != method:
        assert moved.body is None
        assert "Content-Type" not in moved.headers


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://api.example/", "from https to http"),
        ("file:///etc/passwd", "no http or https URL"),
        ("https://user:word@api.example/", "no http or https URL"),
        ("https://api.example:99999/", "no http or https URL"),
    ],
)
def test_where_a_redirect_must_not_lead(location: str, message: str) -> None:
    """And the message shows neither path and query that were asked with nor those that were answered."""
    with pytest.raises(RequestFailedError, match=message) as caught:
        ask().redirected(302, location)

    assert "key=1" not in str(caught.value)
    assert "POST https://api.example/… " in str(caught.value)


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("https://hooks.example/services/T0/B0/s3cret", "POST https://hooks.example/…"),
        ("https://hooks.example:8443/?key=s3cret#s3cret", "POST https://hooks.example:8443/…"),
        ("https://hooks.example/", "POST https://hooks.example"),
    ],
)
def test_a_request_is_named_by_its_origin_alone(url: str, label: str) -> None:
    """The path of a chat webhook is its password, and tokens with ``read`` see errors."""
    assert ask(url).label == label


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "ftp://a/"}, "must start with http:// or https://"),
        ({"url": "file:///etc/passwd"}, "must start with http:// or https://"),
        ({"url": "a/b"}, "must start with http:// or https://"),
        ({"url": "http://"}, "url cannot be requested"),
        ({"url": "http://a:99999/"}, "url cannot be requested"),
        ({"url": "http://user:word@a/"}, "must not hold a user or password"),
        ({"url": "http://a/", "method": "BREW"}, "method must be one of DELETE GET"),
        ({"url": "http://a/", "body": "x", "json": 1}, "body or json, not both"),
        ({"url": "http://a/", "timeout": 0}, "timeout must be above 0"),
        ({"url": "http://a/", "timeout": 4000}, "at most 3600 seconds, got 4000"),
        ({"url": "http://a/", "timeout": float("nan")}, "timeout must be above 0"),
        ({"url": "http://a/", "expected_status": []}, "expected_status must be"),
        ({"url": "http://a/", "expected_status": 99}, "expected_status must be"),
        ({"url": "http://a/", "headers": {"a b": "x"}}, "'a b' cannot be the name of a header"),
        ({"url": "http://a/", "headers": {"a": "x\r\nb: y"}}, "header a holds a line break"),
        ({"url": "http://a/", "headers": {"A": "x", "a": "y"}}, "the same header twice"),
        (
            {"url": "https://a/", "ca_file": "/no/such/file"},
            "ca_file '/no/such/file' cannot be used: name a readable file of authorities in PEM",
        ),
    ],
)
async def test_what_cannot_be_a_request_is_refused(arguments: dict[str, Any], message: str) -> None:
    """With the argument's name and the value seen, before anything is sent."""
    with pytest.raises(RequestRefusedError, match=message):
        await request(CTX, **arguments)


@pytest.mark.parametrize("kind", ["pipe", "device"])
async def test_a_pipe_or_device_in_place_of_authorities_is_refused(kind: str, tmp_path: Path) -> None:
    """The event loop, and every other run in it, would wait for its other end."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / "pipe"
    if kind == "pipe":
        os.mkfifo(path)

    with pytest.raises(RequestRefusedError, match="cannot be used: name a readable file of authorities in PEM"):
        await request(CTX, url="https://api.example/", ca_file=str(path))


def test_a_file_that_is_no_list_of_domains_is_refused_with_one_text(tmp_path: Path) -> None:
    """Whether a file is there, may be read, or what it looks like, is nobody's business who may only enqueue.

    Of a pipe the worker would wait for the other end, up to the timeout of the run.
    """
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("root:x:0:0")
    (tmp_path / "other").write_text('{"domains": [{"id": 7, "password": "hunter2"}]}')
    for path in (*(str(tmp_path / name) for name in ("absent", "pipe", "text", "other", ".")), "/dev/zero"):
        with pytest.raises(SourceRefusedError) as caught:
            load(path, token=None, ca_file=None, allow_empty=True)
        assert str(caught.value) == f"source {path} cannot be used: name a readable file with a list of domains as JSON"
