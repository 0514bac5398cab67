"""Parser of ``redis.url``, shared by the checks at start and the client.

Three topologies: one server (``redis://``, ``rediss://``, ``unix://``), Sentinel
(``redis+sentinel://host:26379,host:26379/master/db``) and Cluster
(``redis+cluster://host:6379,host:6379``). Pure: nothing is looked up.

Guarantees
    Faults are reported without quoting the URL: half of a password often ends up in place
    of the port.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import parse_qsl, unquote, urlsplit

SENTINEL_PORT = 26379
REDIS_PORT = 6379
NODES_MAX = 16
EMBEDDED_SOCKET = "redis.sock"
"""Socket of the embedded server in its data directory."""

_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,253}\Z")
_WITH_PORT = re.compile(r"(\A[^:]*|\]):[^:]*\Z")
_MASTER = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
_PERCENT = "percent-encode special characters of the password"


class Topology(Enum):
    """Discovery of the server that takes writes."""

    STANDALONE = "standalone"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_SCHEMES = {
    "redis": (Topology.STANDALONE, False),
    "rediss": (Topology.STANDALONE, True),
    "unix": (Topology.STANDALONE, False),
    "redis+sentinel": (Topology.SENTINEL, False),
    "rediss+sentinel": (Topology.SENTINEL, True),
    "redis+cluster": (Topology.CLUSTER, False),
    "rediss+cluster": (Topology.CLUSTER, True),
}


class RedisUrlError(ValueError):
    """A URL that cannot be used: the fault, and the remedy."""

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(f"{fault}; {remedy}")
        self.fault = fault
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A URL that was read."""

    topology: Topology
    is_tls: bool
    nodes: tuple[tuple[str, int], ...] = ()  # sentinels, or some of the cluster's nodes; empty when standalone
    master: str = ""  # the name that the sentinels know; empty unless Sentinel
    db: int = 0
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        """Show where it leads, and no credential."""
        return f"<RedisUrl {self.topology.value} {self.where}>"

    @property
    def where(self) -> str:
        """Target of the URL, for people."""
        listed = ",".join(join_address(*node) for node in self.nodes)
        if self.topology is Topology.SENTINEL:
            return f"master {self.master} of the sentinels {listed}"
        return f"the cluster of {listed}" if self.topology is Topology.CLUSTER else "one server"


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``.

    Raises:
        ValueError: it is none.
    """
    host, _, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_port = re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 1 << 16
    if not _HOST.match(host) or is_bracketed != (":" in host) or not is_port:
        raise ValueError("not an address of the form host:port")
    return host, int(port)


def parse_redis_url(url: str) -> RedisUrl:
    """Read ``url``.

    Raises:
        RedisUrlError: it cannot be used.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in _SCHEMES or "://" not in url:
        raise RedisUrlError(
            "must be embedded, or start with redis://, rediss:// or unix://, or with redis+sentinel:// or "
            "redis+cluster:// (rediss+… with TLS)",
            "e.g. redis://redis.example:6379/0",
        )
    if "#" in url:
        raise RedisUrlError("holds a #", f"{_PERCENT}: %23 for #")
    topology, is_tls = _SCHEMES[scheme]
    if topology is Topology.STANDALONE:
        _check_standalone(url)
        return RedisUrl(topology, is_tls)
    return _several(url, topology, is_tls=is_tls)


def _check_standalone(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RedisUrlError("is not a URL", f"{_PERCENT}, e.g. %2F for /") from None
    if parts.scheme == "unix":
        if parts.path in {"", "/"}:
            raise RedisUrlError("names no socket", "e.g. unix:///run/redis/redis.sock")
    elif parts.hostname and "," in parts.hostname:
        raise RedisUrlError(
            "names several servers", "use redis+sentinel://a:26379,b:26379/master or redis+cluster://a:6379,b:6379"
        )
    elif not parts.hostname or not _HOST.match(parts.hostname) or port == 0:
        raise RedisUrlError("names no host", f"e.g. redis://redis.example:6379/0; {_PERCENT}")
    elif not re.fullmatch(r"(/[0-9]{0,5})?", parts.path):
        raise RedisUrlError("must end in /N, the number of a database", "e.g. redis://redis.example:6379/0")
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name != "db" or not value.isdecimal():
            raise RedisUrlError("takes nothing but ?db=N after its path", "everything else is a setting under redis:")


def _several(url: str, topology: Topology, *, is_tls: bool) -> RedisUrl:
    """Read a URL with several hosts, which ``urlsplit`` would take for one with an odd port."""
    rest = url.partition("://")[2]
    if "?" in rest:
        raise RedisUrlError("takes nothing after its path", "everything else is a setting under redis:")
    who, _, rest = rest.rpartition("@")
    listed, _, path = rest.partition("/")
    if "/" in who:
        raise RedisUrlError("is not a URL", f"{_PERCENT}, e.g. %2F for /")
    user, _, password = who.partition(":")
    master, db = _sentinel_path(path) if topology is Topology.SENTINEL else ("", _cluster_path(path))
    return RedisUrl(
        topology=topology,
        is_tls=is_tls,
        nodes=_nodes(listed, topology),
        master=master,
        db=db,
        username=unquote(user) or None,
        password=unquote(password) or None,
    )


def _nodes(listed: str, topology: Topology) -> tuple[tuple[str, int], ...]:
    port = SENTINEL_PORT if topology is Topology.SENTINEL else REDIS_PORT
    kind = "sentinel" if topology is Topology.SENTINEL else "cluster"
    example = f"e.g. redis+{kind}://a:{port},b:{port},c:{port}{'/mymaster' if kind == 'sentinel' else ''}"
    found = []
    for entry in listed.split(","):
        try:
            found.append(split_address(entry if _WITH_PORT.search(entry) else f"{entry}:{port}"))
        except ValueError:
            raise RedisUrlError("must list host:port, separated by commas", f"{example}; {_PERCENT}") from None
    if len(set(found)) != len(found):
        raise RedisUrlError("lists a host twice", "remove one")
    if len(found) > NODES_MAX:
        raise RedisUrlError(f"lists {len(found)} hosts", f"at most {NODES_MAX}; three are enough")
    return tuple(found)


def _sentinel_path(path: str) -> tuple[str, int]:
    master, _, db = path.partition("/")
    if not _MASTER.match(master):
        raise RedisUrlError(
            "does not name the master that the sentinels watch",
            "e.g. redis+sentinel://a:26379,b:26379/mymaster/0; the name is that of `sentinel monitor NAME …`",
        )
    if not re.fullmatch(r"[0-9]{0,5}", db):
        raise RedisUrlError("must end in /master/N, N the number of a database", "e.g. …/mymaster/0")
    return master, int(db or 0)


def _cluster_path(path: str) -> int:
    if path not in {"", "0"}:
        raise RedisUrlError("names a database, and a cluster has none but 0", "end it after the last host:port")
    return 0
