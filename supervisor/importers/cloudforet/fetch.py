"""One entry of ``IMPORT`` or ``REMOTE_URL``: where it points, and the bytes that are there.

Guarantees
    A fetch ends: in time, which is one for all of it (http_fetch.py), in size, in redirects.
    With ``sha256`` nothing else than that very text is used. One that was cut off is refused where its server said how
    long it is, sent it in chunks, or over TLS.
    Only files and http(s) are read; plain http only with ``sha256``, also where https redirects to it.
    Text from the network can name no file and no variable of this machine.

Does not guarantee
    Consul: its values change under the program and it would have to be asked by every replica (docs/adr/0028).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from supervisor.clock import SystemClock
from supervisor.core.durations import parse_duration
from supervisor.core.units import SECOND_NS
from supervisor.importers.cloudforet.report import ImportReport
from supervisor.settings.base import Path as TreePath
from supervisor.settings.document import Node
from supervisor.settings.masking import mask_url

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

TIMEOUT_S = 5.0
TIMEOUT_S_MAX = 60.0
BYTES_MAX = 8 * 1024 * 1024
_CHUNK = 64 * 1024
_SERVER_ERROR = 500
_LATER = (408, 425, 429)  # a time-out, too early, too many
_KEYS = ("url", "optional", "sha256", "timeout")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PINNED = "use https://, or write {url: …, sha256: …} with the digest of its text"
_CONSUL = (
    "consul is not read",
    "write the value into a file and import that: consul kv get KEY > FILE, or a template of consul-template",
)


class LastingError(OSError):
    """An answer that will be the same the next time; any other error over the network may pass by itself."""


class ChangedError(LastingError):
    """Another text than the one that ``sha256`` demands."""


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """Target of an entry: a URL or a file."""

    node: Node
    path: TreePath
    url: str  # http(s), or empty
    file: Path | None
    is_optional: bool = False
    sha256: str = ""
    timeout_s: float = TIMEOUT_S

    @property
    def is_local(self) -> bool:
        """True if its text is chosen on this machine: a file, or text of a digest in a file."""
        return self.file is not None or bool(self.sha256)

    @property
    def name(self) -> str:
        """Name in messages: without a password."""
        return mask_url(self.url) if self.url else str(self.file)


def target_of(node: Node, path: TreePath, base: Path, report: ImportReport) -> FetchTarget | None:
    """Parse an entry: a text, or a mapping with url and perhaps optional, sha256, timeout."""
    entry = node if isinstance(node.value, dict) else Node({"url": node}, node.origin)
    unknown = [key for key in entry.value if key not in _KEYS]
    for key in unknown:
        report.problem(entry.value[key], (*path, key), "is not known here", f"known: {', '.join(_KEYS)}")
    url = entry.child("url")
    if url is None or not isinstance(url.value, str) or not url.value or not url.value.isprintable():
        report.wrong(url or node, path, "must be a path or URL", "write file:///… or a path")
        return None
    options = _options(entry, path, report)
    scheme = _SCHEME.match(url.value)
    name = scheme[1].lower() if scheme else ""
    if name == "http" and not options[1]:
        report.problem(url, path, "is plain http: anybody on the way can change it, and it decides what runs", _PINNED)
        return None
    if name in {"http", "https"}:
        return FetchTarget(node, path, url.value, None, *options)
    if name in {"", "file"}:
        return FetchTarget(node, path, "", base / _file(url.value), *options)
    if name == "consul":
        report.problem(url, path, *_CONSUL)
    else:
        report.problem(url, path, f"cannot be read over {name}://", "use file://, a path, http:// or https://")
    return None


def _file(text: str) -> str:
    parts = urlsplit(text) if text.startswith("file:") else None
    return text if parts is None else unquote(f"{parts.netloc}{parts.path}")


def _options(entry: Node, path: TreePath, report: ImportReport) -> tuple[bool, str, float]:
    optional, sha256, timeout = (entry.child(key) for key in _KEYS[1:])
    if optional is not None and not isinstance(optional.value, bool):
        report.wrong(optional, (*path, "optional"), "must be true or false")
    if sha256 is not None and not (isinstance(sha256.value, str) and _SHA256.match(sha256.value)):
        report.problem(sha256, (*path, "sha256"), "must be 64 hexadecimal digits", "take them from sha256sum FILE")
    seconds = TIMEOUT_S
    if timeout is not None:
        try:
            seconds = parse_duration(timeout.value)
        except ValueError as error:
            report.problem(timeout, (*path, "timeout"), str(error), "e.g. 5s")
        if not 0 < seconds <= TIMEOUT_S_MAX:
            report.problem(timeout, (*path, "timeout"), "must be above 0 and at most 60s", "e.g. 5s")
            seconds = TIMEOUT_S
    return bool(optional and optional.value is True), str(sha256.value).lower() if sha256 else "", seconds


def is_absent(target: FetchTarget) -> bool:
    """Return whether a file is not there; a URL is known only once it is fetched."""
    try:
        return target.file is not None and not target.file.exists()
    except OSError:  # a name too long, a directory that nobody may look into: reading it says which
        return False


def fetch(target: FetchTarget) -> bytes:
    """Return the content of a URL or file.

    Raises:
        OSError: it cannot be read; the message has the reason, and holds no credentials.
    """
    raw = _read_url(target) if target.url else _read(target)
    if len(raw) > BYTES_MAX:
        raise LastingError(f"is larger than {BYTES_MAX // (1024 * 1024)} MiB")
    if target.sha256 and hashlib.sha256(raw).hexdigest() != target.sha256:
        raise ChangedError(f"has another sha256 than the {target.sha256[:12]}… that is demanded")
    return raw


def _read(target: FetchTarget) -> bytes:
    assert target.file is not None
    with target.file.open("rb") as file:
        return file.read(BYTES_MAX + 1)


def _opener(left_s: Callable[[], float], *, is_pinned: bool) -> OpenerDirector:
    """Return an opener that speaks HTTP and nothing else, through redirects too; plain only for a pinned text."""
    from urllib import request  # noqa: PLC0415 - as below

    from supervisor.importers.cloudforet.http_fetch import PlainHandler, Redirects, SecureHandler  # noqa: PLC0415

    opener = request.OpenerDirector()
    kinds = [request.ProxyHandler, request.UnknownHandler, request.HTTPDefaultErrorHandler]
    kinds += [Redirects, request.HTTPErrorProcessor]
    for handler in (*(kind() for kind in kinds), SecureHandler(left_s), *([PlainHandler(left_s)] if is_pinned else [])):
        opener.add_handler(handler)
    return opener


def _read_url(target: FetchTarget) -> bytes:
    import http.client  # noqa: PLC0415 - only for whoever imports over the network: they take longer than all of this
    import ssl  # noqa: PLC0415
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    clock = SystemClock()
    end_ns = clock.elapsed_ns() + round(target.timeout_s * SECOND_NS)

    def left_s() -> float:
        left_ns = end_ns - clock.elapsed_ns()
        if left_ns <= 0:
            raise TimeoutError("timed out")
        return left_ns / SECOND_NS

    found = bytearray()
    try:
        request = urllib.request.Request(target.url, headers={"User-Agent": "tenure"})  # noqa: S310 - http(s) only
        with _opener(left_s, is_pinned=bool(target.sha256)).open(request, timeout=target.timeout_s) as response:
            while (chunk := response.read1(_CHUNK)) and len(found) <= BYTES_MAX:
                found += chunk
            if not chunk and response.length:  # of the bytes announced: its beginning may be a document, too
                raise OSError("was cut off before its end")
            if not found:
                raise OSError(f"answered {response.status} without a text")
    except urllib.error.HTTPError as error:
        is_passing = error.code >= _SERVER_ERROR or error.code in _LATER
        raise (OSError if is_passing else LastingError)(f"answered {error.code}") from None
    except urllib.error.URLError as error:
        plain = "; plain http needs sha256" if "url type: http" in str(error.reason) else ""
        is_lasting = "url type" in str(error.reason)
        raise (LastingError if is_lasting else OSError)(f"cannot be reached: {error.reason}{plain}") from None
    except ssl.SSLError as error:
        # early patch versions of Python 3.11 tell an unexpected end by the reason alone
        if not isinstance(error, ssl.SSLEOFError) and error.reason != "UNEXPECTED_EOF_WHILE_READING":
            raise
        raise OSError("was cut off before its end") from None
    except TimeoutError:
        raise OSError(f"did not answer within {target.timeout_s:g}s") from None
    except (ValueError, http.client.HTTPException) as error:
        is_lasting = isinstance(error, ValueError | http.client.InvalidURL)
        raise (LastingError if is_lasting else OSError)("is not a URL, or did not answer in HTTP") from None
    return bytes(found)
