"""Source of ``domain_sync``: a JSON list of domains, from a file or over HTTP(S), validated as a whole.

Guarantees
    Nothing is handed on that is malformed, lists an id or a name twice, is larger than the
    limits, or (unless that is allowed) lists nothing: an upstream that fails must never read
    as one whose domains are all gone. A list in pages is read to its end or refused.
"""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec

from supervisor.core.json_values import read_json
from supervisor.trust import open_regular
from tenure.jobs.destinations import connect
from tenure.jobs.http import tls_context
from tenure.jobs.identity.models import ID_CHARS, NAME_CHARS, SOURCE_CHARS, TENANT_CHARS, URL_CHARS
from tenure.jobs.identity.pages import PAGES_MAX, PageError, Paging, next_address, origin, paging_of

SOURCE_BYTES_MAX = 32 * 1024 * 1024
DOMAINS_MAX = 100_000
ENDPOINTS_MAX = 100  # of one domain
SHOWN_MAX = 5
PARTIAL = 206
READ_TIMEOUT_S = 30.0
_NO_URL = "its address is no URL; a space or a letter beyond ASCII is written as %20 or its like"


class SourceRefusedError(ValueError):
    """The source cannot be read, or its content cannot be trusted to be a list of domains."""


class UpstreamDomain(msgspec.Struct, frozen=True):
    """One domain as the upstream lists it. Fields that it has beside these are none of ours."""

    id: str
    name: str
    tenant: str = ""
    endpoints: tuple[str, ...] | None = None  # None: the upstream says nothing about them


class _Document(msgspec.Struct):
    domains: list[UpstreamDomain]


@dataclass(frozen=True, slots=True)
class _Answer:
    data: bytes
    headers: Mapping[str, str]
    url: str | None  # None: a file


def load(
    source: str, *, token: str | None, ca_file: str | None, allow_empty: bool, ignore: Collection[str] = ()
) -> list[UpstreamDomain]:
    """Return the domains that ``source``, an http(s) URL or the path of a file, lists on all of its pages.

    Fields whose paths are in ``ignore`` say nothing of pages.

    Raises:
        SourceRefusedError: names the fault.
    """
    label = source_label(source)
    if _is_url(source):
        opener = _opener(ca_file)

        def read(address: str) -> _Answer:
            is_ours = address == source or origin(address) == origin(source)
            return _fetch(opener, address, label, token=token if is_ours else None)
    else:

        def read(address: str) -> _Answer:
            return _Answer(_read(Path(address)), {}, None)

    domains = _all_pages(source, label, read, ignore)
    _refuse_problems(domains, label)
    if not domains and not allow_empty:
        raise SourceRefusedError(
            f"source {label} lists no domain, which would disable all of them; if that is meant, set allow_empty"
        )
    return domains


def _all_pages(
    source: str, label: str, read: Callable[[str], _Answer], ignore: Collection[str]
) -> list[UpstreamDomain]:
    domains: list[UpstreamDomain] = []
    size = 0
    address: str | None = source
    asked: set[str] = set()
    while address is not None:
        if address in asked or len(asked) == PAGES_MAX:
            raise SourceRefusedError(
                f"source {label} has no last page: {len(asked)} were read, and there is a next one"
            )
        asked.add(address)
        answer = read(address)
        size += len(answer.data)
        if size > SOURCE_BYTES_MAX:
            raise SourceRefusedError(f"source {label} is larger than {SOURCE_BYTES_MAX} bytes; split it")
        listed, rest = _page(answer.data, label)
        domains += listed
        paging = paging_of(rest, answer.headers, ignore)
        address = _next(answer, paging, label, listed=len(domains), read=len(asked))
    return domains


def _next(answer: _Answer, paging: Paging, label: str, *, listed: int, read: int) -> str | None:
    """Return the address of the next page; refuse a last one that announces more."""
    if answer.url is not None and paging.next is not None:
        try:
            return next_address(answer.url, paging.next)
        except PageError as error:
            raise SourceRefusedError(f"source {label}: {error}; nothing was changed") from None
    why = paging.more
    if paging.next is not None:
        why = "it names a next page, and a file has none"
    elif paging.items > listed:
        why = f"it says that there are {paging.items} and lists {listed} ({paging.items_at})"
    elif paging.pages > read:
        why = f"it says that there are {paging.pages} pages, and {read} was read ({paging.pages_at})"
    if why is not None:
        raise SourceRefusedError(
            f"source {label} is not the whole list: {why}. Only the address of a next page is followed (next, or a "
            f"Link header); let the source list all domains at once, or name the next page; a field that says nothing "
            f"of pages is named in ignore"
        )
    return None


def source_label(source: str) -> str:
    """Return how ``source`` is called in messages and in the table; refuse one that holds a password."""
    parts = urlsplit(source) if _is_url(source) else None
    if parts is not None and (parts.username is not None or parts.password is not None):
        raise SourceRefusedError("source must not hold a user or password; name a token in source_token")
    label = source if parts is None else parts._replace(query="", fragment="").geturl()
    if not 0 < len(label) <= SOURCE_CHARS:
        raise SourceRefusedError(f"source must have 1 to {SOURCE_CHARS} characters, it has {len(label)}")
    return label


def _page(data: bytes, label: str) -> tuple[list[UpstreamDomain], dict[str, Any]]:
    """Return the domains of one document, and its fields beside them."""
    is_list = data.lstrip()[:1] == b"["
    try:
        if is_list:
            return read_json(data, list[UpstreamDomain]), {}
        domains = read_json(data, _Document).domains
        rest = read_json(data, dict[str, msgspec.Raw])
        return domains, {key: read_json(raw) for key, raw in rest.items() if key != "domains"}
    except msgspec.DecodeError as error:
        if not _is_url(label):
            raise _no_list(label) from None
        raise SourceRefusedError(f"source {label} is no list of domains: {error}") from None


def _refuse_problems(domains: Sequence[UpstreamDomain], label: str) -> None:
    problems = _problems(domains)
    if problems:
        more = f" and {len(problems) - SHOWN_MAX} more" if len(problems) > SHOWN_MAX else ""
        raise SourceRefusedError(f"source {label}: {'; '.join(problems[:SHOWN_MAX])}{more}")


def _problems(domains: Sequence[UpstreamDomain]) -> list[str]:
    if len(domains) > DOMAINS_MAX:
        return [f"it lists {len(domains)} domains, more than {DOMAINS_MAX}"]
    found = [problem for position, domain in enumerate(domains) for problem in _domain_problems(position, domain)]
    for field in ("id", "name"):
        seen: set[str] = set()
        for domain in domains:
            value = getattr(domain, field)
            if value in seen:
                found.append(f"{field} {value!r} is listed twice")
            seen.add(value)
    return found


def _domain_problems(position: int, domain: UpstreamDomain) -> list[str]:
    where = f"domains[{position}]"
    found = [
        f"{where}.{field} must have {least} to {most} characters, it has {len(value)}"
        for field, value, least, most in (
            ("id", domain.id, 1, ID_CHARS),
            ("name", domain.name, 1, NAME_CHARS),
            ("tenant", domain.tenant, 0, TENANT_CHARS),
        )
        if not least <= len(value) <= most
    ]
    if "\0" in domain.id + domain.name + domain.tenant:
        found.append(f"{where} contains a NUL character")
    endpoints = domain.endpoints or ()
    if len(endpoints) > ENDPOINTS_MAX:
        found.append(f"{where} has {len(endpoints)} endpoints, more than {ENDPOINTS_MAX}")
    found.extend(f"{where}.endpoints: {url!r} is no http or https URL" for url in endpoints if not _is_endpoint(url))
    return found


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            len(url) <= URL_CHARS
            and parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        return False


def _is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def _read(path: Path) -> bytes:
    try:
        with os.fdopen(open_regular(path, follows=True), "rb") as file:
            return file.read(SOURCE_BYTES_MAX + 1)
    except OSError:
        raise _no_list(str(path)) from None


def _no_list(path: str) -> SourceRefusedError:
    """Return the refusal of a file, one text whatever is wrong: it is shown to those who may not read the file."""
    return SourceRefusedError(f"source {path} cannot be used: name a readable file with a list of domains as JSON")


class _Connection(http.client.HTTPConnection):
    """A connection to an address that the configuration allows."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._create_connection = connect  # what both kinds of connection are opened with, before TLS


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    """The same, with TLS."""


class _Plain(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._tls = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req, context=self._tls)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http: a list that anybody on the way may change is no list."""

    def redirect_request(  # noqa: PLR0917 - urllib calls it so
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        fp.close()  # unread: urllib would read all of a body that nobody looks at, of whatever size
        if req.full_url.startswith("https://") and not newurl.startswith("https://"):
            raise urllib.error.URLError("it redirects from https to something else")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(opener: urllib.request.OpenerDirector, url: str, label: str, *, token: str | None) -> _Answer:
    wanted = {"Accept": "application/json", "User-Agent": "tenure"}
    request = urllib.request.Request(url, headers=wanted)  # noqa: S310 - the scheme was checked
    if token is not None:
        request.add_unredirected_header("Authorization", f"Bearer {token}")  # for this server, not where it points
    try:
        with opener.open(request, timeout=READ_TIMEOUT_S) as response:
            headers = response.headers  # of which one, Link for instance, may come in several lines
            told = {name.lower(): ", ".join(headers.get_all(name, ())) for name in headers}
            answer = _Answer(response.read(SOURCE_BYTES_MAX + 1), told, response.url)
            is_partial = response.status == PARTIAL
    except urllib.error.HTTPError as error:
        error.close()
        raise SourceRefusedError(f"source {label} answered {error.code}") from None
    except http.client.InvalidURL:  # whose text holds the query, which may hold a token
        raise SourceRefusedError(f"source {label} cannot be fetched: {_NO_URL}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise SourceRefusedError(f"source {label} cannot be fetched: {reason}") from None
    except ValueError:
        raise SourceRefusedError(f"source {label} cannot be fetched: {_NO_URL}") from None
    if is_partial:
        raise SourceRefusedError(f"source {label} answered {PARTIAL}: not the whole list")
    return answer


def _opener(ca_file: str | None) -> urllib.request.OpenerDirector:
    """Return an opener with nothing that could open a file: or ftp: URL."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        _Plain(),
        _Secure(tls_context(ca_file)),
        _Redirects(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener
