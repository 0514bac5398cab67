"""Rights of every route: found by walking the router, and compared with the table in docs/http.md."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from supervisor.roles.web import debug
from supervisor.roles.web.access.auth import RequestGuard, needs, scope_of
from supervisor.roles.web.api import routes as api
from supervisor.roles.web.connection_table import address_of
from supervisor.roles.web.events.sink import EventOffice
from supervisor.roles.web.handlers import Pages, application, health_application
from supervisor.roles.web.responses import PEER
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.web import WebSettings
from supervisor.settings.web.tokens import Scope, Token, digest_of
from tests.kit.clock import FakeClock
from tests.kit.tables import table

ROOT = Path(__file__).parents[4]
HEALTH = {
    *("/livez", "/livez/{check}", "/readyz", "/readyz/{check}", "/healthz", "/healthz/{check}", "/check", "/version")
}
HOSTS = ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.0.2.7", "node.example")
Row = tuple[str, str, Scope | None]


def child_of(settings: dict[str, Any]) -> Any:
    """Return the context of a web child, with nothing behind it."""
    return SimpleNamespace(
        settings=Settings.model_validate({"cluster": "c1", "web": {"debug": True} | settings}),
        clock=None, mailbox=None, replica="r", name="web", generation=1,
    )  # fmt: skip


def router(**settings: Any) -> web.Application:
    """Return its application."""
    child = child_of(settings)
    nothing: Any = None
    pages = Pages(child, nothing)
    routes = [
        *api.routes(SimpleNamespace(keys=nothing, settings=child.settings), EventOffice(child, nothing).pages),
        *debug.routes(child, nothing),
    ]
    return application(pages, lambda _request: None, routes)


def rows() -> Iterator[Row]:
    """Yield method, path as the documents write it, and scope of every route; HEAD goes with GET."""
    for route in router().router.routes():
        assert route.resource is not None
        if route.method != "HEAD":
            path = re.sub(r"\{(\w+):[^}]+\}", r"{\1}", route.resource.canonical)
            yield route.method, path, scope_of(route.handler)


ROWS = sorted(rows(), key=str)


def asked(*, token: str | None, host: str = "localhost", target: str = "/", remote: str = "10.0.0.1") -> web.Request:
    """Return a request as the guard sees it."""
    headers = {"Host": host} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    request = make_mocked_request("GET", target, headers=headers)
    request[PEER] = address_of(remote)
    return request


def code_of(guard: RequestGuard, request: web.Request, scope: Scope | None) -> int:
    """Return the status that the guard answers with; 200 when it lets the request in."""
    try:
        guard.check(request, scope)
    except web.HTTPException as refusal:
        return refusal.status
    return 200


def test_only_health_and_the_version_are_open_to_everybody() -> None:
    """A new route that forgets its mark must not be one of them."""
    assert {path for _, path, scope in ROWS if scope is None} == HEALTH


def test_the_port_of_health_has_routes_of_health_alone() -> None:
    """It is without TLS, tokens and certificates, so nothing else may be there."""
    app = health_application(Pages(child_of({}), cast("Any", None)), lambda _request: None)
    assert {resource.canonical for resource in app.router.resources()} == HEALTH - {"/version"}
    assert all(scope_of(route.handler) is None for route in app.router.routes())


def test_a_handler_without_a_mark_asks_for_admin() -> None:
    """Forgetting is then noticed by whoever wanted to use it, and not by a stranger."""

    async def forgotten(_request: web.Request) -> web.Response:
        raise NotImplementedError

    assert scope_of(forgotten) is Scope.ADMIN
    assert scope_of(needs(Scope.READ)(forgotten)) is Scope.READ


def test_a_certificate_counts_as_long_as_the_authorities_that_checked_it() -> None:
    """A stream is judged again before each event: one of a client whose authority was taken away ends."""
    former, current = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    settings = WebSettings(reads=cast("Any", "open"), tls_client_ca_file="/ca.pem")
    link = {"peercert": {"subject": ()}, "sslcontext": former, "sockname": ("127.0.0.1", 1)}
    request = make_mocked_request("GET", "/", headers={"Host": "localhost"}, transport=Mock(get_extra_info=link.get))
    request[PEER] = "10.0.0.1"

    assert code_of(RequestGuard(settings, tls=lambda: former), request, Scope.READ) == 200
    assert code_of(RequestGuard(settings, tls=lambda: current), request, Scope.READ) == 403
    assert code_of(RequestGuard(settings), request, Scope.READ) == 403


def test_what_changes_something_asks_for_more_than_read() -> None:
    """Every method but GET, of every route."""
    assert all(scope is not None and scope > Scope.READ for method, _, scope in ROWS if method != "GET")


@pytest.mark.share(5)
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("reads", ["auto", "open", "token"])
@pytest.mark.parametrize("has_file", [True, False])
def test_every_scope_of_a_route_by_binding_and_setting(
    *, host: str, reads: str, has_file: bool, tmp_path: Path
) -> None:
    """The whole matrix: who is asked for a token, who is refused, and who is let in."""
    is_loopback = host in {"127.0.0.1", "::1", "localhost"}
    path = tmp_path / "tokens"
    path.write_text("")
    settings = WebSettings.model_validate(
        {"host": host, "reads": reads, "tokens_file": str(path) if has_file else None}
    )
    clock: Any = FakeClock(elapsed_ns=0, wall_ms=0)
    guard = RequestGuard(settings, clock)
    by_name = {scope.word: scope for scope in Scope}
    guard.use([Token(name, digest_of(name.upper()), scope) for name, scope in by_name.items()] if has_file else [])
    is_open = reads == "open" or (reads == "auto" and is_loopback and not has_file)
    asking = {who: asked(token=who and who.upper()) for who in (None, "stranger", *by_name)}
    for needed, who in product({scope for _, _, scope in ROWS}, asking):
        given = by_name.get(who or "") if has_file else None
        if needed is None or (needed is Scope.READ and is_open) or (given is not None and given >= needed):
            expected = 200
        else:
            expected = 401 if has_file and given is None else 403
        clock.advance(60)  # wrong tokens in a row are slowed down
        assert code_of(guard, asking[who], needed) == expected, (needed, who)


@table(
    ("field", "is_answered"),
    [
        ("localhost", True), ("LOCALHOST:8080", True), ("localhost.", True), ("127.0.0.1:1", True), ("[::1]:8080", True),
        ("[0:0:0:0:0:0:0:1]", True), ("[::ffff:127.0.0.1]", True), ("jobs.example", True), ("Jobs.Example.:443", True),
        ("10.1.2.3", True), ("attacker.example", False), ("localhost.attacker.example", False), ("2130706433", False),
        ("127.0.0.2", False), ("[::2]", False), ("", False), ("localhost, attacker.example", False), ("a@localhost", False),
        ("localhost:8080:1", False), ("jobs.example/x", False),
    ],
)  # fmt: skip
def test_requests_to_other_names_are_answered_with_health_alone(*, field: str, is_answered: bool) -> None:
    """A page of another site has its own name resolve to this address, and its requests carry that name."""
    guard = RequestGuard(WebSettings(host="10.1.2.3", reads=cast("Any", "open"), allowed_hosts=["jobs.example"]))

    assert code_of(guard, asked(token=None, host=field), Scope.READ) == (200 if is_answered else 421)
    assert code_of(guard, asked(token=None, host=field), None) == 200


@pytest.mark.parametrize(
    ("target", "is_answered"),
    [
        ("http://localhost/statusz", True), ("HTTPS://127.0.0.1:8080/statusz", True), ("http://jobs.example", True),
        ("http://attacker.example/statusz", False), ("HTTP://attacker.example:80", False), ("http://localhost@evil/", False),
    ],
)  # fmt: skip
def test_a_target_in_absolute_form_is_judged_by_its_host_too(*, target: str, is_answered: bool) -> None:
    """RFC 9112 has it count more than Host, so it must not name another host than the one that is checked."""
    guard = RequestGuard(WebSettings(reads=cast("Any", "open"), allowed_hosts=["jobs.example"]))
    request = asked(token=None, target=target)

    assert code_of(guard, request, Scope.READ) == (200 if is_answered else 421)
    assert guard.may_read(request) is is_answered
    assert not guard.may_read(asked(token=None, host="attacker.example", target="http://localhost/"))


def test_any_name_is_answered_where_that_is_written() -> None:
    """For those who check names before it."""
    guard = RequestGuard(WebSettings(allowed_hosts=["*"]))

    assert code_of(guard, asked(token=None, host="attacker.example"), Scope.READ) == 200


def test_the_document_lists_every_route_with_its_scope() -> None:
    """Readers decide by that table whom to give which token."""
    text = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    table = re.findall(r"(?m)^\| (GET|POST) \| `(/[^`]*)` \| (open|read|operate|admin) \|$", text)

    assert sorted(table) == sorted(
        (method, path, "open" if scope is None else scope.word) for method, path, scope in ROWS
    )
