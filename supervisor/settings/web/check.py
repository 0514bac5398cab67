"""Check of the web settings against this machine, before anything is started and by each reload."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import combinations
from urllib.parse import urlsplit

from supervisor.core.errors import Problem
from supervisor.settings.loader import Loaded
from supervisor.settings.rules.cross_rules import READABLE, is_readable_on_the_way, secret_fault
from supervisor.settings.sections.web import SOCKET_PATH_BYTES_MAX, SOCKET_SCHEME
from supervisor.settings.web.tokens import TokenFileError, read_tokens
from supervisor.trust import open_regular, uid_of
from supervisor.version import install_extra


def web_problems(loaded: Loaded) -> Iterator[Problem]:
    """Yield the problems of the web settings. Reads the named files; no secret of them is in a problem."""
    web = loaded.settings.web
    if web.tokens_file is not None:
        try:
            read_tokens(web.tokens_file)
        except TokenFileError as error:
            for each in error.problems:
                yield loaded.problem(("web", "tokens_file"), f"{each.where}: {each.message}", each.remedy)
    yield from _tls(loaded)
    yield from _socket(loaded)
    if web.grpc_port is not None and (find_spec("grpc") is None or find_spec("grpc_health") is None):
        message = "asks for gRPC, which is not installed"
        yield loaded.problem(("web", "grpc_port"), message, install_extra("grpc"))
    ports = {"port": web.port, "health_port": web.health_port, "grpc_port": web.grpc_port}
    for (name, port), (earlier, taken) in combinations(reversed(ports.items()), 2):
        if port and port == taken:
            message = f"{port} is web.{earlier} too"
            yield loaded.problem(("web", name), message, "choose another one")
    yield from _webhook(loaded)


def _socket(loaded: Loaded) -> Iterator[Problem]:
    """Yield the problems of a unix socket in the place of an address."""
    web = loaded.settings.web
    for user in web.socket_users:
        try:
            uid_of(user)
        except LookupError:
            message = f"{user!r} is no user of this machine"
            yield loaded.problem(("web", "socket_users"), message, "give names or numbers")
    if web.socket_path is None:
        if web.socket_users:
            message, remedy = "are for a unix socket", "set web.host to unix:/path, or remove them"
            yield loaded.problem(("web", "socket_users"), message, remedy)
        return
    path = web.host.removeprefix(SOCKET_SCHEME)
    size = len(os.fsencode(path))
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        message = f"{web.host!r} names no absolute path of a socket"
        yield loaded.problem(
            ("web", "host"), message, "write unix:/run/tenure/http.sock, with a directory of this user's"
        )
    elif size > SOCKET_PATH_BYTES_MAX:
        message = f"names a path of {size} bytes, and the kernel takes {SOCKET_PATH_BYTES_MAX}"
        yield loaded.problem(("web", "host"), message, "choose a shorter one, such as unix:/run/tenure/http.sock")
    for name in ("health_port", "grpc_port"):
        if getattr(web, name) is not None:
            message = "needs an address, and web.host is a unix socket"
            remedy = "remove it, and probe through the socket, or set web.host to an address"
            yield loaded.problem(("web", name), message, remedy)


def _tls(loaded: Loaded) -> Iterator[Problem]:
    web = loaded.settings.web
    if (web.tls_cert_file is None) != (web.tls_key_file is None):
        given = "tls_cert_file" if web.tls_key_file is None else "tls_key_file"
        yield loaded.problem(("web", given), "stands alone", "give tls_cert_file and tls_key_file")
    elif web.tls_cert_file is None and web.tls_client_ca_file is not None:
        yield loaded.problem(("web", "tls_client_ca_file"), "is for HTTPS", "give tls_cert_file and tls_key_file")
    elif web.tls_cert_file is not None and web.tls_key_file is not None:
        try:
            tls_context(web.tls_cert_file, web.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            message = f"cannot be used with its key: {error.strerror or type(error).__name__}"
            remedy = "give a certificate with its chain and its key, both in PEM, the key without a passphrase"
            yield loaded.problem(("web", "tls_cert_file"), message, remedy)
            return
        try:
            tls_context(web.tls_cert_file, web.tls_key_file, web.tls_client_ca_file)
        except (OSError, ssl.SSLError) as error:
            message = f"holds no authority: {error.strerror or type(error).__name__}"
            yield loaded.problem(("web", "tls_client_ca_file"), message, "give certificates of authorities, in PEM")


def tls_context(cert_file: str, key_file: str, client_ca_file: str | None = None) -> ssl.SSLContext:
    """Return the TLS context of this certificate. A passphrase is not asked for: nobody could type it.

    With authorities for clients a certificate of a client is checked if there is one; probes have none.

    Raises:
        OSError: a file cannot be read, or is of the wrong form (SSLError).
    """
    for file in (cert_file, key_file, client_ca_file):
        if file is not None:
            os.close(open_regular(file, follows=True))  # ssl would wait for what comes out of a FIFO
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert_file, key_file, password="")
    if client_ca_file is not None:
        context.load_verify_locations(client_ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _webhook(loaded: Loaded) -> Iterator[Problem]:
    events = loaded.settings.events
    if wrong := secret_fault(events.webhook_secret):
        yield loaded.problem(("events", "webhook_secret"), *wrong)
    url = events.webhook_url
    if url is None:
        return
    try:
        parts = urlsplit(url.get_secret_value())
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_usable = False
    if not is_usable:
        yield loaded.problem(
            ("events", "webhook_url"), "is no address of HTTP", "write http:// or https://, and a host"
        )
    elif events.webhook_token is not None and is_readable_on_the_way(url.get_secret_value()):
        yield loaded.problem(("events", "webhook_token"), *READABLE)
