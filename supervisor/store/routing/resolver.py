"""Finds the server that takes writes, and informs a client when it is another one.

Guarantees
    Each server found was asked before it is used: its role behind Sentinel, in a cluster whether it
    serves the keys. A search ends within its bound, whatever number of hosts is silent.
    One process of a tree searches, the agent. The others follow the address it publishes, so that no fire
    and no acknowledgement goes to a deposed master while renewals go to the new one.

Does not guarantee
    That the master is still master when the call arrives. It then answers READONLY or MOVED, and
    the next call searches again. A master that was cut off together with a client goes on serving
    it until the partition heals; ``redis.durability: replica`` and min-replicas-to-write narrow that.

Callers pace themselves after an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from redis.connection import Connection
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    MovedError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from supervisor.clock import Clock, SystemClock
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.supervision.scoreboard import RedisEndpoint
from supervisor.core.units import SECOND_NS
from supervisor.settings.sections.redis_url import RedisUrl, Topology, join_address
from supervisor.store.client import threads
from supervisor.store.routing.sentinel_watch import SentinelWatch
from supervisor.store.routing.topology import (
    Claim,
    DiscoveryFailure,
    is_failing_over,
    is_master,
    moved_to,
    promoted_claim,
    rank,
    sentinel_claim,
    summary,
)

ASK_S = 0.4
"""Longest wait for one host. A search that has less takes half of what it has, and leaves half for the verification."""

GRACE_S = 0.03
"""How long the others may take once one has answered."""

CHECK_PERIOD_S = 5.0
CHECK_S = 0.1
"""How often sentinels are asked although all is well, and how long that may delay a call. A master that was cut off
together with its client answers it for ever, and what it accepts is lost when the partition heals."""

HOLD_NS = 3_000_000_000
"""How long a fail-over under way may keep everybody from the old master; a promotion takes a tenth of a second."""

HEAR_S = 0.02
"""Between two looks at a fail-over that was told of."""

NO_ANSWER = "no answer in time"
PAUSE_S = 0.1
"""Between two looks of the agent within one search."""

HOPS_MAX = 5
LEARNED_MAX = 16


_Ask = Callable[[Any, str], Claim | DiscoveryFailure]


class Resolver:
    """Searches by itself: for the elector of the agent, commands, and programs that enqueue."""

    is_search = True

    def __init__(
        self,
        url: RedisUrl,
        connection: Callable[[str, float, bool], Connection],
        *,
        key: str,
        publish: Callable[[str], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Take the collaborators; does no I/O.

        Args:
            url: which sentinels or nodes to ask.
            connection: makes an unconnected connection to (address, with this time-out, a sentinel or not).
            key: any key of this cluster, by which its slot is found.
            publish: receives the address before anything is sent to it.
            clock: for the bounds.
        """
        self._url = url
        self._connection = connection
        self._key = key
        self._publish = publish
        self._clock = clock or SystemClock()
        self._known = [join_address(*node) for node in url.nodes]
        self._endpoint = RedisEndpoint("", 0)
        self._is_lost, self._is_closed = True, False
        self._check_at_ns = self._held_until_ns = 0
        self._former = ""  # the address that everybody is held back from
        self._lock = threading.RLock()  # what sentinels say by themselves is heard on threads of its own
        self._hearing = threading.Lock()
        self._watch: SentinelWatch | None = None

    def generation(self) -> int:
        """Return the number of the finding; 0 when ``find`` has something to ask first."""
        return 0 if self._is_lost or self._is_check_due() else self._endpoint.generation

    def lost(self) -> None:
        """Search again before the next call."""
        self._is_lost = True

    def close(self) -> None:
        """Listen to no sentinel any more, until ``find`` is called again."""
        self._is_lost = self._is_closed = True
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def find(self, bound_s: float) -> RedisEndpoint:
        """Search, within ``bound_s`` seconds; see ``Route``."""
        if self._clock.elapsed_ns() < self._held_until_ns:
            raise StoreUnavailableError(f"no master at {self._url.where} for now: its sentinels replace it")
        if self._watch is None and self._publish is not None and self._url.topology is Topology.SENTINEL:
            self._is_closed = False
            self._watch = SentinelWatch(self._known, self._url.master, self._connection, self.heard)
        with self._lock:
            return self._find(bound_s)

    def heard(self) -> bool:
        """Follow a fail-over that a sentinel reports, until it is done; for the threads of the watch.

        From the choice of the new master to its promotion nothing is sent to the old one: it would be lost. Return
        False if that took too long, and whoever is master now is to serve.
        """
        if not self._hearing.acquire(blocking=False):
            return True
        until_ns = self._clock.elapsed_ns() + HOLD_NS
        try:
            while not self._is_settled():
                if self._is_closed or self._clock.elapsed_ns() >= max(until_ns, self._held_until_ns):
                    return False
                threading.Event().wait(HEAR_S)
            return True
        finally:
            self._hearing.release()

    def _is_settled(self) -> bool:
        """Go where the sentinels point, or hold everybody back while that is no master yet."""
        with self._lock:
            claims, failures = self._ask_all(CHECK_S)
            coming = [claim for claim in claims if claim.is_coming]
            is_silent = any(failure.reason == NO_ANSWER for failure in failures)
            for address in rank(coming or claims)[:1]:
                # While one is silent the old master proves nothing: that one may be the only one that knows so far.
                is_told = not is_silent or address != (self._endpoint.address or self._former)
                until_ns = self._clock.elapsed_ns() + int(CHECK_S * SECOND_NS)
                if is_told and not self._is_closed and self._verify(address, until_ns, CHECK_S, []):
                    self._settle(address)
                    return True
            if coming and not self._held_until_ns:
                self._held_until_ns = self._clock.elapsed_ns() + HOLD_NS
                self._former = self._endpoint.address
                self._endpoint = RedisEndpoint("", self._endpoint.generation + 1)
                self._is_lost = True
                if self._publish is not None:
                    self._publish("")
            return not coming and not is_silent

    def _find(self, bound_s: float) -> RedisEndpoint:
        if not self._is_lost:
            if self._is_check_due():
                self._check(min(CHECK_S, bound_s / 4))
            return self._endpoint
        until_ns = self._clock.elapsed_ns() + int(bound_s * SECOND_NS)
        if self._publish is None:
            return self._search(until_ns, ASK_S, bound_s)
        # A whole tree waits for the agent: it looks again and again, each time with more patience for a silent
        # master, so that it neither misses the promotion of another nor gives up one that is only far away.
        patience_s = bound_s / 8
        while True:
            try:
                return self._search(until_ns, min(patience_s, ASK_S), bound_s)
            except StoreUnavailableError:
                if (until_ns - self._clock.elapsed_ns()) / SECOND_NS < 2 * PAUSE_S:
                    raise
                threading.Event().wait(PAUSE_S)
                patience_s *= 2

    def _search(self, until_ns: int, patience_s: float, bound_s: float) -> RedisEndpoint:
        left_s = max(0.0, (until_ns - self._clock.elapsed_ns()) / SECOND_NS)
        claims, failures = self._ask_all(min(ASK_S, bound_s / 2, left_s))
        verdicts: list[DiscoveryFailure] = []  # of those that were named
        for address in rank(claims):
            found = self._verify(address, until_ns, patience_s, verdicts)
            if found is not None:
                return self._settle(found)
        raise self._not_found(verdicts if claims else failures)

    def _is_check_due(self) -> bool:
        # A cluster's master notices by itself that it is cut off, and refuses.
        return self._url.topology is Topology.SENTINEL and self._clock.elapsed_ns() >= self._check_at_ns

    def _check(self, bound_s: float) -> None:
        """Go over to another master, if the newest configuration names one that confirms it; else stay."""
        self._check_at_ns = self._clock.elapsed_ns() + int(CHECK_PERIOD_S * SECOND_NS)
        until_ns = self._clock.elapsed_ns() + int(bound_s * SECOND_NS)
        claims, _ = self._ask_all(bound_s / 2)
        for address in rank(claims)[:1]:
            if address != self._endpoint.address and self._verify(address, until_ns, bound_s, []):
                self._settle(address)

    def _settle(self, address: str) -> RedisEndpoint:
        if address != self._endpoint.address:
            self._endpoint = RedisEndpoint(address, self._endpoint.generation + 1)
        if self._url.topology is Topology.CLUSTER:
            # All hosts of the URL may be gone one day, and the cluster well.
            learned = [address, *(known for known in self._known if known != address)]
            seeds = [join_address(*node) for node in self._url.nodes]
            self._known = [*seeds, *(known for known in learned if known not in seeds)][:LEARNED_MAX]
        if self._publish is not None:
            self._publish(address)
        self._is_lost = False
        self._held_until_ns = 0
        self._check_at_ns = self._clock.elapsed_ns() + int(CHECK_PERIOD_S * SECOND_NS)
        return self._endpoint

    def _not_found(self, failures: Sequence[DiscoveryFailure]) -> Exception:
        said = summary(failures)
        if any(failure.is_refusal for failure in failures):
            return StoreRefusedError(f"no master at {self._url.where} ({said}); correct redis.url or its credentials")
        return StoreUnavailableError(f"no master at {self._url.where} for now ({said})")

    def _ask_all(self, bound_s: float) -> tuple[list[Claim], list[DiscoveryFailure]]:
        """Ask every host at once; return when all have answered, or soon after the first that named a master."""
        is_sentinel = self._url.topology is Topology.SENTINEL
        return self._gather(self._ask_sentinel if is_sentinel else self._ask_node, self._known, bound_s, is_sentinel)

    def _gather(
        self,
        ask: _Ask,
        addresses: Sequence[str],
        bound_s: float,
        is_sentinel: bool,  # noqa: FBT001 - private
    ) -> tuple[list[Claim], list[DiscoveryFailure]]:
        # On threads, so that neither a look-up of a name nor several slow replies in a row outlast the bound.
        answers: SimpleQueue[tuple[str, Claim | DiscoveryFailure]] = SimpleQueue()
        for address in addresses:

            def work(address: str = address) -> None:
                answers.put((address, self._attempt(ask, address, bound_s, is_sentinel=is_sentinel)))

            try:
                threads.start(work, "resolver")
            except OSError as error:
                answers.put((address, DiscoveryFailure(address, str(error))))
        silent = set(addresses)
        claims: list[Claim] = []
        failures: list[DiscoveryFailure] = []
        until_ns = self._clock.elapsed_ns() + int(bound_s * SECOND_NS)
        while silent:
            try:
                address, answer = answers.get(timeout=max(0.0, (until_ns - self._clock.elapsed_ns()) / SECOND_NS))
            except Empty:
                break
            silent.discard(address)
            if isinstance(answer, DiscoveryFailure):
                failures.append(answer)
                continue
            claims.append(answer)
            until_ns = min(until_ns, self._clock.elapsed_ns() + int(GRACE_S * SECOND_NS))
        return claims, [*failures, *(DiscoveryFailure(address, NO_ANSWER) for address in sorted(silent))]

    def _attempt(self, ask: _Ask, address: str, bound_s: float, *, is_sentinel: bool) -> Claim | DiscoveryFailure:
        link: Any = self._connection(address, max(0.001, bound_s), is_sentinel)
        try:
            link.connect_within(max(0.001, bound_s), link.socket_connect_timeout or bound_s)
            return ask(link, address)
        except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
            names = "redis.sentinel_username and redis.sentinel_password" if is_sentinel else "redis.password"
            return DiscoveryFailure(address, f"{error} Check {names}", is_refusal=True)
        except (RedisError, OSError, ValueError) as error:
            return DiscoveryFailure(address, _reason(error), is_refusal="unknown command" in str(error))
        finally:
            link.disconnect()

    def _ask_sentinel(self, link: Any, address: str) -> Claim | DiscoveryFailure:
        named = _tell(link, "GET-MASTER-ADDR-BY-NAME", self._url.master)
        if named is None:
            return DiscoveryFailure(address, f"it watches no master called {self._url.master}", is_refusal=True)
        facts = _tell(link, "MASTER", self._url.master)
        promoted = None
        if is_failing_over(facts):
            promoted = promoted_claim(facts, _tell(link, "REPLICAS", self._url.master))
        return promoted or sentinel_claim(named, facts) or DiscoveryFailure(address, "its answer is not an address")

    def _ask_node(self, link: Any, address: str) -> Claim | DiscoveryFailure:
        link.send_command("EXISTS", self._key)
        try:
            link.read_response()
        except MovedError as error:
            owner = moved_to(f"MOVED {error}", address)
            return Claim(owner) if owner else DiscoveryFailure(address, "it names no owner of the slot")
        return Claim(address)

    def _ask_role(self, link: Any, address: str) -> Claim | DiscoveryFailure:
        try:
            link.send_command("ROLE")
            role = link.read_response()
        except NoPermissionError:
            return Claim(address)  # then the first write tells
        return Claim(address) if is_master(role) else DiscoveryFailure(address, "it says that it is a replica")

    def _verify(self, address: str, until_ns: int, patience_s: float, failures: list[DiscoveryFailure]) -> str | None:
        """Ask ``address`` itself; in a cluster go where it points. Return who serves, or None."""
        is_sentinel = self._url.topology is Topology.SENTINEL
        for _ in range(HOPS_MAX):
            left_s = max(0.0, (until_ns - self._clock.elapsed_ns()) / SECOND_NS)
            ask = self._ask_role if is_sentinel else self._ask_node
            claims, refusals = self._gather(ask, (address,), min(left_s, patience_s), False)  # noqa: FBT003 - private
            failures += refusals
            if not claims or claims[0].address == address:
                return address if claims else None
            address = claims[0].address
        failures.append(DiscoveryFailure(address, "the nodes point to each other"))
        return None


def _tell(link: Any, question: str, master: str) -> Any:
    link.send_command("SENTINEL", question, master)
    return link.read_response()


def _reason(error: Exception) -> str:
    if isinstance(error, ResponseError):
        return "it is no sentinel" if "unknown command" in str(error) else str(error)
    return NO_ANSWER if "imed out" in str(error) or "imeout" in str(error) else str(error) or "no answer"
