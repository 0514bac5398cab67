"""What the synchronous and the asynchronous client share: options, and what errors mean.

Nothing here does I/O.
"""

from __future__ import annotations

import re
import ssl
from typing import Any

import redis.exceptions
from redis.backoff import NoBackoff
from redis.connection import SSLConnection, UnixDomainSocketConnection, parse_url
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    MovedError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from supervisor.core.errors import FencedError, StoreRefusedError, StoreUnavailableError, TenureError
from supervisor.settings.models import RedisSettings
from supervisor.store.scripts import Call, script

BLOCK_MARGIN_S = 0.25
"""How much longer than the block a blocking read waits: a server that is alive has answered by then."""

_UNAVAILABLE = {
    "LOADING": "it is loading its data",
    "READONLY": "it is a read-only replica",
    "MASTERDOWN": "its master is down",
    "CLUSTERDOWN": "the cluster is down",
    "TRYAGAIN": "the slot is migrating",
    "NOREPLICAS": "it has too few replicas to accept writes",
    "MISCONF": "it cannot save to disk",
    "BUSY": "a script is blocking it",
    "OOM": "it is out of memory",
}
_REFUSED = {
    "NOAUTH": "it wants a password; set redis.password",
    "WRONGPASS": "wrong user name or password; check redis.username and redis.password",
    "NOPERM": "the ACL user lacks a right; see docs/redis-acl.md",
    "DENIED": "protected mode refuses this host",
    "WRONGTYPE": "a key of this cluster holds another type; another program may use the same prefix",
}
# Redis 6.2 wraps the code of a failing command: "ERR Error running script …: -OOM command …".
_CODE = re.compile(rf"(?:^|[\s-])({'|'.join([*_UNAVAILABLE, *_REFUSED])})\b")


def options(url: str, settings: RedisSettings, *, client_name: str, timeout_s: float) -> dict[str, Any]:
    """Return the connection's keyword arguments, its class under ``connection_class``.

    No retry: redis-py's default sends a command again when its reply was lost. Protocol 2 and no
    library info: the handshake is AUTH and CLIENT SETNAME only, so that a small ACL is enough.

    Raises:
        StoreRefusedError: the URL cannot be read. The message does not quote it: it may hold a password.
    """
    try:
        found: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
    except ValueError:
        raise StoreRefusedError(
            "redis.url cannot be read: write redis://host:port/db, rediss://host:port/db or unix:///path/to/socket, "
            "and percent-encode special characters in the password"
        ) from None
    if settings.username is not None:
        found["username"] = settings.username
    if settings.password is not None:
        found["password"] = settings.password.get_secret_value()
    found |= {
        "client_name": client_name,
        "socket_timeout": timeout_s,
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "driver_info": None,
        "health_check_interval": 0,
    }
    kind = found.setdefault("connection_class", None)
    if kind is not UnixDomainSocketConnection:
        found |= {"socket_connect_timeout": min(timeout_s, settings.connect_timeout_s), "socket_keepalive": True}
    if kind is SSLConnection:
        found |= _tls(settings)
    if kind is None:
        del found["connection_class"]
    return found


def _tls(settings: RedisSettings) -> dict[str, Any]:
    files = {
        "ssl_ca_certs": settings.tls_ca_file,
        "ssl_certfile": settings.tls_cert_file,
        "ssl_keyfile": settings.tls_key_file,
    }
    return {"ssl_cert_reqs": "required", "ssl_check_hostname": True} | {k: v for k, v in files.items() if v}


def address(kwargs: dict[str, Any]) -> str:
    """Return where a client connects to, for people; never a credential."""
    return (
        str(kwargs["path"]) if kwargs.get("path") else f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
    )


def translate(error: Exception, *, where: str, operation: str) -> TenureError:
    """Return what ``error``, raised by redis-py for ``operation``, means to a caller."""
    seen = str(error)
    if isinstance(error, AuthenticationError | AuthorizationError):
        return _refused(where, operation, _REFUSED["WRONGPASS"] if "NOAUTH" not in _code(error) else _REFUSED["NOAUTH"])
    if isinstance(error, NoPermissionError):
        return _refused(where, operation, f"{_REFUSED['NOPERM']} ({seen})")
    if isinstance(error, MovedError | AskError):
        return _refused(where, operation, f"it is a cluster node that does not serve these keys ({seen})")
    code = _code(error)
    if code in _UNAVAILABLE:
        return _unavailable(where, operation, _UNAVAILABLE[code])
    if code in _REFUSED:
        return _refused(where, operation, f"{_REFUSED[code]} ({seen})")
    if isinstance(error, ResponseError):
        return _refused(where, operation, seen)
    if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in seen:
        return _refused(where, operation, "its TLS certificate is not trusted; check redis.tls_ca_file")
    if isinstance(error, redis.exceptions.TimeoutError | TimeoutError):
        return _unavailable(where, operation, "no answer in time")
    if isinstance(error, RedisError | OSError):
        return _unavailable(where, operation, seen or type(error).__name__)
    raise error


def fenced(error: ResponseError, call: Call[Any]) -> FencedError | None:
    """Return the refusal by the current term, if that is what ``error`` is."""
    words = str(error).split(" ")
    if words[0] != "FENCED":
        return None
    epoch = script(call.script).argument(call, "epoch")
    return FencedError(operation=call.script, epoch=int(epoch or 0), current_epoch=int(words[1]))


def is_stale_master(error: Exception) -> bool:
    """Return whether the server said that it takes no writes, as a master does that was replaced."""
    return _code(error) in {"READONLY", "MASTERDOWN"}


def _code(error: Exception) -> str:
    status = getattr(error, "status_code", None)  # redis-py cuts the code off the message it knows
    if status in _UNAVAILABLE or status in _REFUSED:
        return str(status)
    found = _CODE.search(str(error)) if isinstance(error, ResponseError) else None
    return found[1] if found else ""


def _unavailable(where: str, operation: str, why: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"Redis at {where} is not available for {operation}: {why}")


def _refused(where: str, operation: str, why: str) -> StoreRefusedError:
    return StoreRefusedError(f"Redis at {where} refused {operation}: {why}")


def entries(reply: Any) -> list[tuple[str, dict[str, str]]]:
    """Return the entries in an XREAD reply of one stream."""
    if not reply:
        return []
    listed = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]  # protocol 3 or 2
    found = []
    for entry_id, flat in listed:
        fields = [item.decode("utf-8", "replace") for item in flat or []]
        found.append((entry_id.decode(), dict(zip(fields[::2], fields[1::2], strict=True))))
    return found
