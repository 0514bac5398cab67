"""Presence under stalls, cut connections and restarts of Redis, in virtual time: the real elector and the real Lua.

No process ever dies here. So each term that was taken because its holder seemed gone was taken wrongly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import fakeredis

from bench.table import Samples, Tick
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.context import ElectionContext, ElectionTiming
from supervisor.roles.agent.election.elector import Elector
from supervisor.roles.agent.election.elector_thread import RETRY_S, SLICE_S
from supervisor.settings.sections.models import ElectionSettings
from supervisor.store.election.leases import CandidateInfo, Leases
from supervisor.store.keys import Keys
from supervisor.testing.replica import Replica
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import Fate, Network, ReplicaClock, World

S = 1000 * MILLISECOND_NS
STALL_S_MAX = 2.9  # of a process: below the trust of a lease of 5 s, whose renewals come every second
OUTAGE_S_MAX = 2.0
SLOW_S_MAX = 1.5
SLOW_NS_MAX = 700 * MILLISECOND_NS  # below renew_timeout, so that a slow server is slow and not away
PAUSE_S = (0.5, 4.0)  # between two disturbances
CHUNK_S = 100  # one step of the progress bar
EVENTS_MAX = 1000
NAMES = ("a", "b", "c")


KINDS = ("stall", "cut", "restart", "slow")


class UnevenNetwork(Network):
    """A network, or a server behind it, that is slow for a while."""

    slow = False

    def fate(self) -> Fate:
        """Return what happens to the next call."""
        if not self.slow:
            return super().fate()
        return Fate(0, self.rng.randrange(SLOW_NS_MAX // 2), self.rng.randrange(SLOW_NS_MAX // 2))


class Subscription:
    """The connection by which a replica shows that it lives, with the delays of the thread that holds it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._wanted = self._shown = 0
        self._link: Any = None

    def show(self, epoch: int) -> None:
        """Show it for ``epoch``; the thread notices within its slice."""
        self._wanted = epoch
        self._later(SLICE_S)

    def is_shown(self, epoch: int) -> bool:
        """Whether it is."""
        return epoch > 0 and self._shown == epoch

    def refresh(self) -> None:
        """Subscribe anew."""
        self._shown = 0
        self._later(RETRY_S)

    def cut(self) -> None:
        """The server's end of it closes at once; its process learns that when it runs."""
        if self._link is not None:
            self._close()
            self._later(0.001)

    def _close(self) -> None:
        self._link.unsubscribe()  # fakeredis counts a closed connection until it is collected as garbage
        self._link.close()
        self._link = None

    def _later(self, seconds_max: float) -> None:
        world = self._place.world
        world.after(int(world.rng.uniform(0, seconds_max) * 1e9), self._act)

    def _act(self) -> None:
        place = self._place
        if (left_ns := place.stalled_until_ns - place.world.now_ns) > 0:
            place.world.after(left_ns, self._act)  # its process stands still
            return
        if self._link is not None and self._shown == self._wanted:
            return
        self._shown = 0
        if self._link is not None:
            self._close()
        if self._wanted == 0:
            return
        if not place.world.is_server_up:
            place.world.after(int(RETRY_S * 1e9), self._act)
            return
        fate = place.world.network.fate()
        place.world.after(fate.request_ns + fate.reply_ns, lambda epoch=self._wanted: self._subscribe(epoch))

    def _subscribe(self, epoch: int) -> None:
        if not self._place.world.is_server_up or epoch != self._wanted or self._link is not None:
            self._later(RETRY_S)
            return
        server = self._place.world.server
        self._link = fakeredis.FakeRedis(server=server.store.server).pubsub()
        self._link.subscribe(f"{server.keys.alive}{epoch}")
        self._shown = epoch


class Place(Replica):
    """A replica that shows that it lives."""

    stalled_until_ns = 0

    def start_elector(self) -> None:
        """Start the elector with a subscription beside it."""
        self.subscription = Subscription(self)
        standing = ElectionContext(
            leases=Leases(self._keys, has_presence=True),
            board=self.board,
            clock=self.clock,
            me=CandidateInfo(replica=self.id, host=self.name, started_ms=self.clock.wall_ms()),
            timing=self._timing,
            around=Around(),
            report=self._reporter(self.elector.name),
            rng=self._rng,
            new_nonce=lambda: f"{self._rng.getrandbits(128):032x}",
            presence=self.subscription,
        )
        self.elector.start(Elector(standing).run())

    def stall(self, for_ns: int) -> None:
        """Let every process of it stand still."""
        self.stalled_until_ns = max(self.stalled_until_ns, self.world.now_ns + for_ns)
        self.pause(for_ns)


class Around:
    """A tree that always schedules and never stops."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: name == "can_schedule"


class Unrest:
    """Draws what happens next."""

    def __init__(self, world: World, places: list[Place], kinds: Sequence[str]) -> None:
        self.world, self.places, self._kinds = world, places, kinds
        self.done: Counter[str] = Counter()
        self.is_over = False
        self._rng = Random(world.seed + 1)
        self._next()

    def _next(self) -> None:
        self.world.after(int(self._rng.uniform(*PAUSE_S) * 1e9), self._strike)

    def _strike(self) -> None:
        kind = self._rng.choice(self._kinds)
        self.done[kind] += 1
        getattr(self, f"_{kind}")(self._rng.choice(self.places))
        if not self.is_over:
            self._next()

    def _stall(self, place: Place) -> None:
        place.stall(int(self._rng.uniform(0.05, STALL_S_MAX) * 1e9))

    def _cut(self, place: Place) -> None:
        place.subscription.cut()

    def _restart(self, _place: Place) -> None:
        self.world.is_server_up = False
        for place in self.places:
            place.subscription.cut()
        self.world.after(int(self._rng.uniform(0.05, OUTAGE_S_MAX) * 1e9), self._start)

    def _start(self) -> None:
        self.world.is_server_up = True
        self.world.executed()

    def _slow(self, _place: Place) -> None:
        network = self.world.network
        assert isinstance(network, UnevenNetwork)
        network.slow = True
        self.world.after(int(self._rng.uniform(0.1, SLOW_S_MAX) * 1e9), lambda: setattr(network, "slow", False))


def wrong_takeovers(seconds: int, seed: int, kinds: Sequence[str], tick: Tick) -> Samples:
    """Return one sample for each hundred simulated seconds: how many terms were taken from a holder that lived."""
    keys = Keys("presence")
    world = World(Server(keys), seed=seed, network=UnevenNetwork(Random(seed)))
    timing = ElectionTiming.of(ElectionSettings(presence=True))
    found: list[float] = []
    with driven_time(world.server_time_s):
        places = [
            Place(world, keys, name, timing=timing, definitions=(), clock=ReplicaClock(world))
            for name in ("a", "b", "c")
        ]
        for place in places:
            place.start()
        world.run_until(5 * S)
        unrest, taken, others = Unrest(world, places, kinds), 0, 0
        for _ in range(seconds // CHUNK_S):
            world.run_until(world.now_ns + CHUNK_S * S)
            reasons = _reasons(world)
            found.append(reasons["presence"] - taken)
            taken, others = reasons["presence"], sum(reasons.values()) - reasons["presence"]
            tick()
        unrest.is_over = True
        _find_a_real_death(world, places)
    suspected = sum(told.event == "leader_suspected" for told in world.history)
    done = ", ".join(f"{count} {kind}" for kind, count in sorted(unrest.done.items()))
    return Samples(
        found, f"{seconds} s simulated, seed {seed}: {done}; {others} terms for other reasons, {suspected} suspicions"
    )


def _find_a_real_death(world: World, places: list[Place]) -> None:
    """Kill the leader, and fail unless presence finds it: who never finds anything is never wrong."""
    world.run_until(world.now_ns + 20 * S)
    before = _reasons(world)["presence"]
    leader = next(place for place in places if place.is_leading)
    leader.kill()
    leader.subscription.cut()
    leader.stalled_until_ns = 1 << 62
    world.run_until(world.now_ns + 2 * S)
    assert _reasons(world)["presence"] == before + 1, "presence did not find a leader that was killed"


def _reasons(world: World) -> Counter[str]:
    events = world.server.store.run(Leases(world.server.keys).history(EVENTS_MAX))
    return Counter(each.reason for each in events if each.kind == "acquired")
