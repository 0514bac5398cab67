"""Shared parts of the synchronous and the asynchronous client: options, and classification of errors.

Nothing here does I/O.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Sequence
from typing import Any, TypeVar

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

from supervisor.core.errors import (
    FencedError,
    NotReplicatedError,
    StoreRefusedError,
    StoreUnavailableError,
    TenureError,
)
from supervisor.settings.sections.redis_url import RedisUrl, RedisUrlError, Topology, parse_redis_url
from supervisor.store.client.redis_options import Passwords, RedisOptions
from supervisor.store.scripts import Call, script
from supervisor.store.wire.codec import foreign_number

T = TypeVar("T")

BLOCK_MARGIN_S = 0.25
"""How much longer than the block a blocking read waits: a server that is alive has answered by then."""

KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""Seconds and probes: a peer that vanished without a word is noticed after 11 s at most, also while nothing is sent."""

DURABLE = frozenset({"lease_campaign", "lease_promote", "lease_renew", "fire", "enqueue"})
"""Scripts whose effect must have reached a replica before it counts, with ``redis.durability: replica``.

The renewal is among them because a grant that was not confirmed is found again by reading, and confirmed by renewing.
"""

NO_RIGHT = "the ACL user lacks a right; see docs/redis-acl.md"
_UNAVAILABLE = {
    "LOADING": "it is loading its data",
    "READONLY": "it is a read-only replica",
    "MASTERDOWN": "its master is down",
    "CLUSTERDOWN": "the cluster is down, or does not cover every slot; see CLUSTER INFO",
    "TRYAGAIN": "the slot is migrating",
    "NOREPLICAS": "it has too few replicas to accept writes (min-replicas-to-write)",
    "MISCONF": "it cannot save to disk; make room, its log says where",
    "BUSY": "a script is blocking it; SCRIPT KILL ends one that has not written",
    "OOM": "it is out of memory; raise maxmemory (embedded server: redis.memory_mib_max), or remove what is not needed",
    "UNBLOCKED": "it has become a replica",
}
_REFUSED = {
    "NOAUTH": "it wants a password; set redis.password",
    "WRONGPASS": "wrong user name or password; check redis.username and redis.password",
    "NOPERM": NO_RIGHT,
    "DENIED": "protected mode refuses this host; give the server a password, and a bind address of its own",
    "WRONGTYPE": "a key of this cluster holds another type; another program may use the same prefix",
}
_UNQUOTED = {"DENIED"}  # the server explains itself in a page of text
_ELSEWHERE = {"READONLY", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED"}
# Redis 6.2 wraps the code of a failing command: "ERR Error running script …: -OOM command …".
_CODE = re.compile(rf"(?:^|[\s-])({'|'.join([*_UNAVAILABLE, *_REFUSED])})\b")


def options(url: str, settings: RedisOptions, *, client_name: str, timeout_s: float) -> dict[str, Any]:
    """Return the connection's keyword arguments, its class under ``connection_class``.

    No retry: redis-py's default sends a command again when its reply was lost. Protocol 2 and no
    library info: the handshake is AUTH and CLIENT SETNAME only, so that a small ACL is enough.

    Raises:
        StoreRefusedError: the URL cannot be read. The message does not quote it: it may hold a password.
    """
    found = _parsed(url)
    if settings.username is not None:
        found["username"] = settings.username
    if settings.password is not None:
        found["password"] = settings.password.get_secret_value()
    found["passwords"] = Passwords(settings.password)
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
    if kind is UnixDomainSocketConnection:
        found["is_embedded"] = settings.url.get_secret_value() == "embedded"
    else:
        found |= {"socket_connect_timeout": min(timeout_s, settings.connect_timeout_s), **_kept_alive(timeout_s)}
    if kind is SSLConnection:
        found |= _tls(settings)
    if kind is None:
        del found["connection_class"]
    return found


_IN_A_URL = {"host", "port", "path", "db", "username", "password", "connection_class"}


def _parsed(url: str) -> dict[str, Any]:
    """Parse the URL, for any topology; where there are several hosts, the first represents all."""
    try:
        if url.partition("://")[0].lower().partition("+")[2]:
            return _first(parse_redis_url(url))
        found = dict(parse_url(url))  # type: ignore[no-untyped-call]
        if found.keys() - _IN_A_URL:
            raise RedisUrlError("has an option after its path", "everything but ?db=N is a setting under redis:")
    except ValueError as error:
        why = f" ({error})" if isinstance(error, RedisUrlError) else ""  # what other errors quote may be a password
        raise StoreRefusedError(
            f"redis.url cannot be read{why}: write redis://host:port/db, rediss://host:port/db, "
            "unix:///path/to/socket, redis+sentinel://host:port,host:port/master/db or "
            "redis+cluster://host:port,host:port, and percent-encode special characters in the password"
        ) from None
    return found


def _first(url: RedisUrl) -> dict[str, Any]:
    host, port = url.nodes[0]
    found: dict[str, Any] = {"host": host, "port": port, "db": url.db}
    found |= {"username": url.username} if url.username else {}
    found |= {"password": url.password} if url.password else {}
    return found | ({"connection_class": SSLConnection} if url.is_tls else {})


def topology(url: str) -> Topology:
    """Return how the server behind ``url``, which ``options`` could read, is found."""
    kind = url.partition("://")[0].lower().partition("+")[2]
    return Topology(kind) if kind else Topology.STANDALONE


def _kept_alive(timeout_s: float) -> dict[str, Any]:
    """Return the options that notice a silent peer: sent data must be acknowledged within the time-out."""
    found = {getattr(socket, name): value for name, value in KEEPALIVE.items() if hasattr(socket, name)}
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        found[socket.TCP_USER_TIMEOUT] = max(1, round(timeout_s * 1000))
    return {"socket_keepalive": True, "socket_keepalive_options": found}


def _tls(settings: RedisOptions) -> dict[str, Any]:
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


def translate(error: Exception, *, where: str, operation: str, is_routed: bool = False) -> TenureError:
    """Return the caller's error for ``error``, raised by redis-py for ``operation``.

    ``is_routed``: the client looks for the master again after an error, so a server that serves these
    keys no longer is a matter of time.
    """
    seen = str(error)
    # The asynchronous client of redis-py may tell a refused password as a mere ConnectionError.
    if isinstance(error, AuthenticationError | AuthorizationError) or "username-password" in seen:
        return _refused(where, operation, _REFUSED["WRONGPASS"] if "NOAUTH" not in _code(error) else _REFUSED["NOAUTH"])
    if isinstance(error, NoPermissionError):
        return _refused(where, operation, f"{_REFUSED['NOPERM']} ({seen})")
    if isinstance(error, MovedError | AskError):
        return _moved(error, where, operation, is_routed=is_routed)
    if "non local key" in seen:
        return _unavailable(where, operation, "the slot of these keys is being moved")
    code = _code(error)
    if code in _UNAVAILABLE:
        return _unavailable(where, operation, _UNAVAILABLE[code])
    if code in _REFUSED:
        why = _REFUSED[code] if code in _UNQUOTED else f"{_REFUSED[code]} ({seen})"
        return _refused(where, operation, why, concerns_client=code != "WRONGTYPE")
    if isinstance(error, ResponseError):
        return _refused(where, operation, seen, concerns_client=False)
    if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in seen:
        return _refused(where, operation, "its TLS certificate is not trusted; check redis.tls_ca_file")
    if "max number of clients" in seen:
        return _unavailable(where, operation, "it has no room for another connection; raise maxclients")
    if isinstance(error, redis.exceptions.TimeoutError | TimeoutError):
        return _unavailable(where, operation, "no answer in time")
    if isinstance(error, RedisError | OSError):
        return _unavailable(where, operation, seen or type(error).__name__)
    raise error


def _moved(error: MovedError | AskError, where: str, operation: str, *, is_routed: bool) -> TenureError:
    if not is_routed:
        why = "it is a node of a cluster, which serves some keys only; set redis.url to redis+cluster://host:port,…"
        return _refused(where, operation, why)
    if isinstance(error, AskError):
        # The keys lie on two nodes for now. A script that saw half of them would decide wrongly, so none runs.
        return _unavailable(where, operation, "the slot of these keys is being moved to another node")
    return _unavailable(where, operation, f"another node serves these keys now ({error})")


def wait_ms(settings: RedisOptions) -> int:
    """Return for how long a durable call waits for a replica; 0: it does not."""
    return round(settings.durability_timeout_s * 1000) if settings.durability == "replica" else 0


def durably(parts: Sequence[Any], bound_ms: int) -> list[Sequence[Any]]:
    """Return the commands that run a script and wait until a replica has its effect.

    WAIT covers the writes of its own connection (Valkey 9.1; Redis 7.0: all earlier writes). A call
    that is made again on a new connection finds its effect there and writes nothing, so something is written for it.
    """
    key = str(parts[3])  # EVALSHA, digest, number of keys, first key
    mark = ("SET", f"{key.partition('}')[0]}}}:copied", 1, "PX", 60_000)
    return [parts, mark, ("WAIT", 1, bound_ms)]


def answered(replies: Sequence[Any]) -> list[Any]:
    """Return the replies.

    Raises:
        Exception: the first of them that is an error.
    """
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return list(replies)


def replicated(replies: Sequence[Any], *, where: str, operation: str, bound_ms: int) -> Any:
    """Return the reply to a call; if more replies came, the last is that to WAIT.

    Raises:
        NotReplicatedError: no replica has it. The call had its effect, and may be made again.
    """
    for count in replies[2:]:
        if count < 1:
            raise NotReplicatedError(where=where, operation=operation, bound_ms=bound_ms)
    return replies[0]


def parsed(call: Call[T], reply: Any, *, where: str) -> T:
    """Parse the reply to ``call``.

    Raises:
        StoreRefusedError: it cannot be read. A caller goes on as after any refusal: a process that ended over it
            would meet the same reply again, and its runs would be charged for that.
    """
    try:
        return call.parse(reply)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        why = f"its reply cannot be read ({type(error).__name__}); another program or a hand wrote what it is made of"
        raise _refused(where, call.script, why) from error


def fenced(error: Exception, call: Call[Any]) -> FencedError | None:
    """Return the refusal by the current term, if ``error`` is one."""
    words = str(error).split(" ")
    if words[0] != "FENCED" or not isinstance(error, ResponseError):
        return None
    epoch = script(call.script).argument(call, "epoch")
    return FencedError(
        operation=call.script,
        epoch=int(epoch or 0),
        current_epoch=foreign_number(words[1] if len(words) > 1 else "") or 0,
    )


def is_stale_master(error: Exception) -> bool:
    """Return whether the server refused writes of these keys, as a replaced master does."""
    return isinstance(error, MovedError | AskError) or _code(error) in _ELSEWHERE


def _code(error: Exception) -> str:
    status = getattr(error, "status_code", None)  # redis-py cuts the code off the message it knows
    if status in _UNAVAILABLE or status in _REFUSED:
        return str(status)
    found = _CODE.search(str(error)) if isinstance(error, ResponseError) else None
    return found[1] if found else ""


def _unavailable(where: str, operation: str, why: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"Redis at {where} is not available for {operation}: {why}")


def _refused(where: str, operation: str, why: str, *, concerns_client: bool = True) -> StoreRefusedError:
    return StoreRefusedError(f"Redis at {where} refused {operation}: {why}", concerns_client=concerns_client)


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
