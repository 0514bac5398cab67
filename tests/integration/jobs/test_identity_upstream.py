"""identity.domain_sync from an upstream over HTTP and HTTPS."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from tenure import Context
from tenure.jobs.identity import domain_sync
from tenure.jobs.identity.models import domains
from tenure.jobs.identity.source import SourceRefusedError

TLS = Path(__file__).resolve().parents[2] / "data" / "tls"


class Upstream(ThreadingHTTPServer):
    """An upstream that answers with ``document`` and remembers what it was asked with."""

    daemon_threads = True
    document = b"[]"
    status = 200
    location: str | None = None
    pages: Mapping[str, tuple[bytes, dict[str, str]]] = {}  # by path: document and headers, in place of the above

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.authorizations: list[str | None] = []


class Answer(BaseHTTPRequestHandler):
    """One answer."""

    server: Upstream

    def do_GET(self) -> None:
        self.server.authorizations.append(self.headers["Authorization"])
        document, headers = self.server.pages.get(self.path, (self.server.document, {}))
        self.send_response(self.server.status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.server.location is not None:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(document)))
        self.end_headers()
        self.wfile.write(document)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def upstream() -> Iterator[Callable[..., tuple[Upstream, str]]]:
    """Start upstreams; each call returns a server and its URL."""
    servers: list[Upstream] = []

    def start(*, tls: bool = False) -> tuple[Upstream, str]:
        server = Upstream()
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return server, f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}/domains?page=1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.share(2)
def test_a_source_is_read_over_http_with_a_token(
    ctx: Context, database: str, engine: Engine, upstream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is named by reference, and goes to the server asked and no other."""
    monkeypatch.setenv("UPSTREAM_TOKEN", "secret")
    elsewhere, elsewhere_url = upstream()
    elsewhere.document = b'[{"id": "a", "name": "A"}]'
    server, url = upstream()
    server.status, server.location = 302, elsewhere_url

    result = domain_sync(ctx, database=database, source=url, source_token="env:UPSTREAM_TOKEN")

    assert result["created"] == 1
    assert server.authorizations == ["Bearer secret"]
    assert elsewhere.authorizations == [None]
    with engine.connect() as connection:
        assert connection.scalars(select(domains.c.source)).all() == [url.partition("?")[0]]


def test_of_an_answer_that_redirects_nothing_else_is_read(ctx: Context, database: str, upstream: Any) -> None:
    """Its body has no bound, and nobody would look at it."""
    server, url = upstream()
    there, there_url = upstream()
    there.document = page("a")[0]
    server.status, server.location = 302, there_url
    server.pages = {"/domains?page=1": (b"half", {"Content-Length": "1000000000"})}

    assert domain_sync(ctx, database=database, source=url)["created"] == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, None), "answered 500"),
        ((404, None), "answered 404"),
        ((302, "file:///etc/passwd"), "answered 302"),
        ((302, "ftp://127.0.0.1/x"), "cannot be fetched: unknown url type: ftp"),
    ],
)
def test_an_upstream_that_fails_is_refused(
    ctx: Context, tmp_path: Path, upstream: Any, answer: tuple[int, str | None], message: str
) -> None:
    """Before any database is opened; and a redirect opens no file."""
    server, url = upstream()
    server.document, (server.status, server.location) = b'[{"id": "a", "name": "A"}]', answer

    with pytest.raises(SourceRefusedError, match=message):
        domain_sync(ctx, database=f"sqlite:///{tmp_path}/no/identity.db", source=url)
    assert not (tmp_path / "no").exists()


def test_an_upstream_that_is_not_there_is_refused(ctx: Context, tmp_path: Path) -> None:
    """With the system's reason; so is a file, without one."""
    with pytest.raises(SourceRefusedError, match=r"cannot be fetched: .*refused"):
        domain_sync(ctx, source="http://127.0.0.1:1/")
    with pytest.raises(SourceRefusedError, match="cannot be used: name a readable file"):
        domain_sync(ctx, source=f"{tmp_path}/none.json")


def test_an_upstreams_certificate_is_verified(ctx: Context, database: str, upstream: Any) -> None:
    """Whoever can change the list can disable every tenant."""
    server, url = upstream(tls=True)
    server.document = b'[{"id": "a", "name": "A"}]'

    with pytest.raises(SourceRefusedError, match="certificate verify failed"):
        domain_sync(ctx, database=database, source=url)
    assert domain_sync(ctx, database=database, source=url, ca_file=str(TLS / "ca.pem"))["created"] == 1

    server.status, server.location = 302, "http://127.0.0.1:1/"
    with pytest.raises(SourceRefusedError, match="from https to something else"):
        domain_sync(ctx, database=database, source=url, ca_file=str(TLS / "ca.pem"))


def page(*names: str, headers: dict[str, str] | None = None, **told: Any) -> tuple[bytes, dict[str, str]]:
    """Return one page that lists these domains, and what it tells of the others."""
    document = {"domains": [{"id": name, "name": name.upper()} for name in names], **told}
    return json.dumps(document).encode(), headers or {}


@pytest.mark.share(2)
def test_a_list_in_pages_is_read_to_its_end(
    ctx: Context, database: str, engine: Engine, upstream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the address in the document, then by that in one of two headers; each page is asked for with the token."""
    monkeypatch.setenv("UPSTREAM_TOKEN", "secret")
    server, url = upstream()
    server.pages = {
        "/domains?page=1": page("a", "b", next=url.replace("page=1", "page=2"), total_count=5),
        "/domains?page=2": page("c", "d", headers={"Link": '</domains?page=3>; rel="next"', "link": "</>; rel=last"}),
        "/domains?page=3": page("e", next=None),
    }

    assert domain_sync(ctx, database=database, source=url, source_token="env:UPSTREAM_TOKEN")["created"] == 5

    assert server.authorizations == ["Bearer secret"] * 3
    with engine.connect() as connection:
        assert sorted(connection.scalars(select(domains.c.id))) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ({"1": page("a", next_cursor="x")}, "is not the whole list: next_cursor is set"),
        ({"1": page("a", has_more=True)}, "has_more is true"),
        ({"1": page("a", total_count=500)}, "there are 500 and lists 1"),
        ({"1": page("a", total_count="500")}, "there are 500 and lists 1"),
        ({"1": page("a", headers={"X-Total-Count": "500", "x-total-count": "500"})}, "there are 500 and lists 1"),
        ({"1": page("a", total_pages=5)}, "there are 5 pages, and 1 was read"),
        ({"1": page("a", result_info={"total_count": 500})}, r"lists 1 \(result_info.total_count\).*named in ignore"),
        ({"1": page("a", next="?page=1")}, "has no last page: 1 were read"),
        ({"1": page("a", next="http://127.0.0.1:1/")}, "at another server"),
        ({"1": page("a", next="?page=2"), "2": page("a")}, "id 'a' is listed twice"),
        ({"1": page("a", next="?page=2"), "2": page("b", total_count=3)}, "there are 3 and lists 2"),
        ({"1": page("a", next="?page=2"), "2": (b"<html>", {})}, "no list of domains"),
        ({"1": (b"[" * 100_000, {})}, "no list of domains"),
        ({"1": (b'{"domains": [], "x": ' + b"[" * 100_000, {})}, "no list of domains"),
    ],
)
def test_a_list_that_is_not_whole_is_refused(
    ctx: Context, tmp_path: Path, upstream: Any, pages: dict[str, tuple[bytes, dict[str, str]]], message: str
) -> None:
    """Taken for the whole, it would disable everybody who is listed behind it. No database is opened."""
    server, url = upstream()
    server.pages = {f"/domains?page={number}": answer for number, answer in pages.items()}

    with pytest.raises(SourceRefusedError, match=message):
        domain_sync(ctx, database=f"sqlite:///{tmp_path}/no/identity.db", source=url)
    assert not (tmp_path / "no").exists()


def test_a_field_that_says_nothing_of_pages_is_named(ctx: Context, tmp_path: Path, upstream: Any) -> None:
    """Its name is like that of one that does; that is all a name tells."""
    server, url = upstream()
    server.document = page("a", stats={"total_users": 500})[0]
    database = f"sqlite:///{tmp_path}/identity.db"

    with pytest.raises(SourceRefusedError, match=r"there are 500 and lists 1 \(stats.total_users\)"):
        domain_sync(ctx, database=database, source=url)
    assert domain_sync(ctx, database=database, source=url, ignore=["stats.total_users"])["created"] == 1


def test_a_file_has_no_next_page(ctx: Context, tmp_path: Path) -> None:
    """What was saved from an answer may be its first page only."""
    source = tmp_path / "saved.json"
    source.write_bytes(page("a", next="/domains?page=2")[0])

    with pytest.raises(SourceRefusedError, match="it names a next page, and a file has none"):
        domain_sync(ctx, source=str(source))


def test_an_answer_in_part_is_refused(ctx: Context, upstream: Any) -> None:
    """Status 206 says so, whatever it lists."""
    server, url = upstream()
    server.status, server.document = 206, page("a")[0]

    with pytest.raises(SourceRefusedError, match="answered 206"):
        domain_sync(ctx, source=url)
