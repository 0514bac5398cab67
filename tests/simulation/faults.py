"""Which kinds of fault a simulated world has, and the network that has its share of them.

Each seed draws a random subset of the kinds ("swarm testing", Groce et al., ISSTA 2012):
worlds with few kinds reach states that worlds with all of them never see.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from supervisor.core.units import MILLISECOND_NS
from supervisor.testing.world import Fate, Network, S

NETWORK_KINDS = ("slow", "lost_request", "lost_reply", "repeated", "stall", "reset")
"""A name server that hangs is a partition: each call costs its bound."""

REPLICA_KINDS = (
    "pause",
    "crash",
    "crash_elector",
    "crash_scheduler",
    "series",
    "hang",
    "stop",
    "partition",
    "wall_step",
)
SERVER_KINDS = ("outage", "server_step", "emptied", "rolled_back")
LOSS_KINDS = ("orphaned", "rubbish")  # drawn by themselves, so that the worlds of older seeds stay what they were
CONTROL_KINDS = ("resign", "redefine", "pause_schedule")
RARE = {"orphaned": 0.05, "rubbish": 0.1, "emptied": 0.12, "rolled_back": 0.12, "server_step": 0.25, "series": 0.15}


@dataclass(frozen=True)
class Profile:
    """Which kinds of fault a world has, and how its machines differ."""

    kinds: frozenset[str]
    is_rate_skewed: bool

    @classmethod
    def draw(cls, rng: Random, focus: frozenset[str] = frozenset(), *, seed: int = 0) -> Profile:
        """Draw a profile with the kinds of ``focus`` in it, and no others if it says ``only``.

        Without a focus one in eight worlds is calm.
        """
        if "only" in focus:
            return cls(focus - {"only"}, is_rate_skewed=False)
        if rng.random() < 0.125 and not focus:
            return cls(frozenset(), is_rate_skewed=False)
        every = (*NETWORK_KINDS, *REPLICA_KINDS, *SERVER_KINDS, *CONTROL_KINDS)
        drawn = frozenset(kind for kind in every if rng.random() < RARE.get(kind, 0.4))
        own = Random(f"losses of {seed}")
        drawn |= {kind for kind in LOSS_KINDS if own.random() < RARE[kind]}
        return cls(drawn | focus, rng.random() < 0.5)

    @property
    def keeps_data(self) -> bool:
        """Whether Redis keeps what was written."""
        return not self.kinds & {"emptied", "rolled_back", "orphaned"}

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
                return int(rng.expovariate(1 / (400 * MILLISECOND_NS)))
            return rng.randrange(MILLISECOND_NS // 10, 3 * MILLISECOND_NS)

        return Fate(
            stall_ns=int(rng.expovariate(1 / (3 * S))) if happens("stall", 0.03) else 0,
            request_ns=way_ns(),
            reply_ns=way_ns(),
            is_request_lost=happens("lost_request", 0.05),
            is_reply_lost=happens("lost_reply", 0.08),
            repeated_after_ns=rng.randrange(0, 3 * S) if happens("repeated", 0.08) else None,
            reset_ns=rng.randrange(0, 4 * MILLISECOND_NS) if happens("reset", 0.05) else None,
        )
