"""What goes wrong in a simulated world, drawn from a seed.

Each seed draws a random subset of the kinds of fault ("swarm testing", Groce et al., ISSTA
2012): worlds with few kinds reach states that worlds with all of them never see.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from supervisor.core.lease import MS
from supervisor.testing.replica import Replica
from supervisor.testing.world import Fate, Network, S, World

NETWORK_KINDS = ("slow", "lost_request", "lost_reply", "repeated", "stall")
REPLICA_KINDS = ("pause", "crash", "crash_elector", "crash_scheduler", "stop", "partition", "wall_step")
SERVER_KINDS = ("outage", "server_step", "emptied")
RARE = {"emptied": 0.15, "server_step": 0.25}


@dataclass(frozen=True)
class Profile:
    """Which kinds of fault a world has, and how its machines differ."""

    kinds: frozenset[str]
    is_rate_skewed: bool

    @classmethod
    def draw(cls, rng: Random) -> Profile:
        """Draw a profile; one in eight worlds is calm."""
        if rng.random() < 0.125:
            return cls(frozenset(), is_rate_skewed=False)
        every = (*NETWORK_KINDS, *REPLICA_KINDS, *SERVER_KINDS)
        return cls(frozenset(k for k in every if rng.random() < RARE.get(k, 0.4)), rng.random() < 0.5)

    @property
    def keeps_data(self) -> bool:
        """Whether Redis keeps what was written."""
        return "emptied" not in self.kinds

    @property
    def has_steady_server(self) -> bool:
        """Whether Redis' clock goes as it should and its data stays."""
        return self.keeps_data and "server_step" not in self.kinds


class BadNetwork(Network):
    """Delays, loses, repeats and stalls, until it is calmed."""

    def __init__(self, rng: Random, profile: Profile) -> None:
        super().__init__(rng)
        self._kinds = profile.kinds
        self.is_calm = False

    def fate(self) -> Fate:
        """Draw the fate of one call."""
        rng, kinds = self.rng, frozenset[str]() if self.is_calm else self._kinds

        def happens(kind: str, chance: float) -> bool:
            return kind in kinds and rng.random() < chance

        def way_ns() -> int:
            if happens("slow", 0.1):
                return int(rng.expovariate(1 / (400 * MS)))
            return rng.randrange(MS // 10, 3 * MS)

        return Fate(
            stall_ns=int(rng.expovariate(1 / (3 * S))) if happens("stall", 0.03) else 0,
            request_ns=way_ns(),
            reply_ns=way_ns(),
            is_request_lost=happens("lost_request", 0.05),
            is_reply_lost=happens("lost_reply", 0.08),
            repeated_after_ns=rng.randrange(0, 3 * S) if happens("repeated", 0.08) else None,
        )


class Chaos:
    """Breaks replicas and the server at random times, and mends them."""

    def __init__(self, world: World, replicas: list[Replica], profile: Profile, *, until_ns: int) -> None:
        self._world = world
        self._replicas = replicas
        self._rng = world.rng
        self._until_ns = until_ns
        self._kinds = [k for k in (*REPLICA_KINDS, *SERVER_KINDS) if k in profile.kinds]
        if self._kinds:
            self._plan()

    def boot(self, replica: Replica, *, within_ns: int) -> None:
        """Let a replica boot for the first time, unless a crash made it boot sooner."""
        self._world.after(self._rng.randrange(0, within_ns), lambda: self._boot(replica))

    def _plan(self) -> None:
        delay_ns = int(self._rng.expovariate(1 / (4 * S)))
        if self._world.now_ns + delay_ns < self._until_ns:
            self._world.after(delay_ns, self._strike)

    def _strike(self) -> None:
        kind = self._rng.choice(self._kinds)
        leading = [replica for replica in self._replicas if replica.is_leading]
        # The leader is where faults hurt.
        victims = leading if leading and self._rng.random() < 0.6 else self._replicas
        getattr(self, f"_{kind}")(self._rng.choice(victims))
        self._plan()

    def _later(self, mean_ns: int, act: object) -> None:
        assert callable(act)
        self._world.after(int(self._rng.expovariate(1 / mean_ns)), act)

    def _pause(self, victim: Replica) -> None:
        for_ns = int(self._rng.expovariate(1 / (4 * S)))
        if self._rng.random() < 0.5:
            victim.pause(for_ns)
        else:
            actor = self._rng.choice([victim.elector, victim.scheduler])
            self._world.tell(actor.name, "paused", seconds=for_ns / 1e9)
            actor.pause(for_ns)

    def _crash(self, victim: Replica) -> None:
        if victim.is_alive:
            victim.kill()
        self._later(3 * S, lambda: self._boot(victim))

    def _boot(self, victim: Replica) -> None:
        if not victim.is_alive:
            self._world.tell(victim.name, "booted")
            victim.start()

    def _crash_elector(self, victim: Replica) -> None:
        if victim.elector.is_alive and victim.scheduler.is_alive:
            self._world.tell(victim.elector.name, "killed")
            victim.kill_elector()
            incarnation = victim.id
            self._later(S, lambda: self._revive(victim, incarnation, "elector"))

    def _crash_scheduler(self, victim: Replica) -> None:
        if victim.elector.is_alive and victim.scheduler.is_alive:
            self._world.tell(victim.scheduler.name, "killed")
            victim.kill_scheduler()
            incarnation = victim.id
            self._later(S, lambda: self._revive(victim, incarnation, "scheduler"))

    def _revive(self, victim: Replica, incarnation: str, what: str) -> None:
        if victim.id == incarnation and victim.is_alive and not getattr(victim, what).is_alive:
            self._world.tell(getattr(victim, what).name, "revived")
            getattr(victim, f"start_{what}")()

    def _stop(self, victim: Replica) -> None:
        if victim.is_alive:
            victim.stop()

            def end() -> None:
                victim.kill()
                self._later(S, lambda: self._boot(victim))

            self._later(2 * S, end)

    def _partition(self, victim: Replica) -> None:
        self._world.tell(victim.name, "cut_off")
        victim.is_cut = True

        def heal() -> None:
            victim.is_cut = False
            self._world.tell(victim.name, "healed")
            self._world.executed()

        self._later(4 * S, heal)

    def _wall_step(self, victim: Replica) -> None:
        victim.clock.wall_offset_ms = round(self._rng.choice([-1, 1]) * self._rng.expovariate(1 / 20_000))
        self._world.tell(victim.name, "wall_clock_stepped", to_ms=victim.clock.wall_offset_ms)

    def _outage(self, _victim: Replica) -> None:
        world = self._world
        world.tell("server", "down")
        world.is_server_up = False

        def back() -> None:
            world.is_server_up = True
            world.tell("server", "up")
            world.executed()

        self._later(3 * S, back)

    def _server_step(self, _victim: Replica) -> None:
        self._world.server_offset_ms += round(self._rng.choice([-1, 1]) * self._rng.expovariate(1 / 8000))
        self._world.tell("server", "clock_stepped", to_ms=self._world.server_offset_ms)

    def _emptied(self, _victim: Replica) -> None:
        self._world.tell("server", "emptied")
        self._world.server.empty()

    def end(self) -> None:
        """Mend everything: from here on the world is calm."""
        world = self._world
        world.tell("world", "calm")
        world.is_server_up = True
        world.server_offset_ms = 0
        for replica in self._replicas:
            replica.is_cut = False
            replica.clock.wall_offset_ms = self._rng.randrange(-100, 100)
            replica.elector.unpause()
            replica.scheduler.unpause()
            if not replica.elector.is_alive or not replica.scheduler.is_alive or replica.board.header.phase > 1:
                replica.kill()
                replica.start()
        world.executed()
