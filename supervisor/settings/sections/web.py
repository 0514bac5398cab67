"""The settings of the doors to a tree: the HTTP endpoint and other services of the web child, and agent commands."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from supervisor.core.signing import KEY_CHARS_MIN, Signer
from supervisor.settings.base import Section, Violation

HostName = Annotated[str, Field(pattern=r"^(\*|\[?[0-9A-Fa-f:.]+\]?|[A-Za-z0-9._-]+)$", max_length=255)]
"""A name or an address without a port, or ``*``."""


UserName = Annotated[str, Field(min_length=1, max_length=200)]
SOCKET_SCHEME = "unix:"
SOCKET_PATH_BYTES_MAX = 107
"""Longest path of a unix socket, see unix(7)."""


class Reads(StrEnum):
    """Clients that may read pages other than health."""

    AUTO = "auto"
    OPEN = "open"
    TOKEN = "token"  # noqa: S105 - a word, no token


class WebSettings(Section):
    """The HTTP endpoint: health, metrics, status, events, the API."""

    host: str = "127.0.0.1"
    """Address to bind. ``0.0.0.0`` in a container. ``unix:/path``: a unix socket in place of address and port, for
    this user and root, and for ``socket_users``."""

    port: int = Field(default=8080, ge=0, le=65535)
    """Port to bind; 0 lets the kernel choose; the log has the number."""

    socket_users: list[UserName] = Field(default=[], max_length=64)
    """Users by name or number who may connect to ``host: unix:/path`` beside this user and root, as a reverse proxy.
    The kernel identifies the user who connects. Empty: the socket has mode 0600."""

    tokens_file: str | None = Field(default=None, min_length=1)
    """Who may do what: a line for each token, ``NAME sha256:DIGEST read,operate,admin``. Unset: nobody changes
    anything through HTTP, and beyond loopback only health is served. Read anew when it changes."""

    reads: Reads = Reads.AUTO
    """``token``: all but health and /version asks for a token with ``read``; ``open``: no read does; ``auto``: open
    where the address is loopback and there is no tokens_file."""

    allowed_hosts: list[HostName] = Field(default=[], max_length=64)
    """Names that requests may be addressed to (``Host``), beside localhost and the address itself; ``*``: any.
    Others get 421, health excepted."""

    tls_cert_file: str | None = Field(default=None, min_length=1)
    """Serve HTTPS with this certificate, in PEM with its chain. Read again when the file changes. Unset: HTTP."""

    tls_key_file: str | None = Field(default=None, min_length=1)
    """Key of the certificate, in PEM."""

    tls_client_ca_file: str | None = Field(default=None, min_length=1)
    """Ask clients of HTTPS for a certificate of these authorities, in PEM, beside a token: whoever has none gets health
    and /version alone. Read again when the file changes. Unset: certificates of clients are not asked for."""

    health_port: int | None = Field(default=None, ge=0, le=65535)
    """Serve /livez, /readyz, /healthz and /check, and nothing else, on this port of the same address too: without
    TLS, and with connections of its own. For probes where strangers reach ``port``. Unset: off."""

    grpc_port: int | None = Field(default=None, ge=0, le=65535)
    """Serve grpc.health.v1.Health on this port of the same address; needs the extra ``grpc``. Unset: off."""

    debug: bool = False
    """Serve /debug/stacks, for tokens with ``admin``: where threads and tasks are just now."""

    @property
    def socket_path(self) -> Path | None:
        """Path of the unix socket; None where an address is bound."""
        return Path(self.host.removeprefix(SOCKET_SCHEME)) if self.host.startswith(SOCKET_SCHEME) else None


class CommandSettings(Section):
    """Agent commands: `tenure stop`, `reload`, `worker …`, `leader resign`. See docs/redis-acl.md."""

    key: SecretStr | None = Field(default=None)
    """Key of operators, 32 characters at least: commands are signed with it, and agents refuse others. Use
    ${file:/run/secrets/commands}. Must be equal on all replicas. Unset: whoever may write to Redis may command."""

    def signer(self, cluster: str) -> Signer | None:
        """Return the signer and verifier of ``cluster``; None without a key."""
        return None if self.key is None else Signer(cluster, self.key.get_secret_value())


def faults_of_commands(commands: CommandSettings) -> Iterator[Violation]:
    """Yield the faults that make a key easy to guess."""
    if commands.key is not None and len(commands.key.get_secret_value()) < KEY_CHARS_MIN:
        message = f"has fewer than {KEY_CHARS_MIN} characters"
        yield Violation((("commands", "key"),), message, "make one by `openssl rand -hex 32`")
