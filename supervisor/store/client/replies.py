"""Replies of a server, for both clients: reading one within a deadline, and the meaning of errors.

Guarantees
    A whole reply of the synchronous client has one deadline: redis-py bounds each piece of one, so that a server
    behind a slow link, or a hostile one, could hold a caller for ever by sending a byte before each time-out.
    A client that follows the agent gives up, in a handshake or a call, as soon as the agent has found another
    master: one on a host that was lost never answers.
"""

from __future__ import annotations

import re
import select
import ssl
from collections.abc import Sequence
from typing import Any, TypeVar

import redis.exceptions
from redis.connection import DefaultParser
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    MovedError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.utils import SENTINEL

from supervisor.clock import SystemClock
from supervisor.core.effects import Call
from supervisor.core.errors import (
    FencedError,
    NotReplicatedError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
    TenureError,
)
from supervisor.core.units import SECOND_NS
from supervisor.store.routing.route import LOOK_S, MOVED_ON, Route
from supervisor.store.scripts import script
from supervisor.store.wire.codec import foreign_number

T = TypeVar("T")

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
_READ_S_MIN = 1e-6  # 0 would mean: do not block, which is another error
_CLOCK = SystemClock()


class BoundedParser(DefaultParser):  # type: ignore[misc, valid-type]
    """hiredis, with one deadline for each reply."""

    route: Route | None = None
    _until_ns: int | None = None
    _limit_ns: int | None = None
    _generation = 0

    def bound_by(self, left_s: float | None) -> None:
        """Let all replies from now on arrive within ``left_s`` seconds, whatever each may take; None: no more."""
        self._limit_ns = None if left_s is None else _CLOCK.elapsed_ns() + int(left_s * SECOND_NS)

    def read_response(
        self,
        disable_decoding: bool = False,  # noqa: FBT001, FBT002 - as in redis-py
        push_request: bool = False,  # noqa: FBT001, FBT002 - as in redis-py
        timeout: Any = SENTINEL,
    ) -> Any:
        """Return the next reply, or raise when ``timeout`` seconds are over; default: the connection's."""
        bound_s = self._socket_timeout if timeout is SENTINEL else timeout
        self._until_ns = self._limit_ns
        if bound_s is not None:
            own_ns = _CLOCK.elapsed_ns() + int(bound_s * SECOND_NS)
            self._until_ns = own_ns if self._limit_ns is None else min(own_ns, self._limit_ns)
        self._generation = self.route.generation() if self.route else 0
        return super().read_response(disable_decoding, push_request, timeout=bound_s)

    def read_from_socket(
        self,
        timeout: Any = SENTINEL,
        raise_on_timeout: bool = True,  # noqa: FBT001, FBT002 - as in redis-py
    ) -> Any:
        """Read one piece, within the rest of the reply's time."""
        if raise_on_timeout and self._until_ns is not None:
            if self.route is not None:
                self._watch(self.route)
            timeout = self._left_s()
        return super().read_from_socket(timeout, raise_on_timeout)

    def _watch(self, route: Route) -> None:
        """Wait until there is something to read or the time is over; raise when the endpoint is another one."""
        sock = self._sock
        if sock is None or (hasattr(sock, "pending") and sock.pending()):
            return
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        while (left_s := self._left_s()) > _READ_S_MIN and not poller.poll(min(LOOK_S, left_s) * 1000):
            if route.generation() != self._generation:
                raise RedisConnectionError(MOVED_ON)

    def _left_s(self) -> float:
        assert self._until_ns is not None
        return max(_READ_S_MIN, (self._until_ns - _CLOCK.elapsed_ns()) / SECOND_NS)


def parser_class(route: Route | None) -> type[BoundedParser]:
    """Return the parser for the connections of a client with this route."""
    if route is None or route.is_search:
        return BoundedParser
    return type("FollowingParser", (BoundedParser,), {"route": route})


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
        kind = StoreFullError if code == "OOM" else StoreUnavailableError
        return _unavailable(where, operation, _UNAVAILABLE[code], kind)
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
    if not isinstance(error, MovedError):  # which is an AskError to redis-py
        # The keys lie on two nodes for now. A script that saw half of them would decide wrongly, so none runs.
        return _unavailable(where, operation, "the slot of these keys is being moved to another node")
    return _unavailable(where, operation, f"another node serves these keys now ({error})")


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
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
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


def is_stale_master(error: BaseException | None) -> bool:
    """Return whether the server refused writes of these keys, as a replaced master does."""
    return isinstance(error, MovedError | AskError) or _code(error) in _ELSEWHERE


def _code(error: BaseException | None) -> str:
    status = getattr(error, "status_code", None)  # redis-py cuts the code off the message it knows
    if status in _UNAVAILABLE or status in _REFUSED:
        return str(status)
    found = _CODE.search(str(error)) if isinstance(error, ResponseError) else None
    return found[1] if found else ""


def _unavailable(
    where: str, operation: str, why: str, kind: type[StoreUnavailableError] = StoreUnavailableError
) -> StoreUnavailableError:
    return kind(f"Redis at {where} is not available for {operation}: {why}")


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
