"""How many round trips the agent of a replica makes while nothing happens, counted on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bench.clusters import CLOCK, DEFAULT, PRESENCE, Bench, bench, replica_of
from bench.table import Samples, Tick
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

WINDOW_S = 20.0
STANDBY, WITH_PRESENCE = "idle-standby", "idle-presence"
AGENT_LEADER, AGENT_STANDBY = "idle-agent-leader", "idle-agent-standby"
ELECTION = ("elector", "presence")  # connections, by the last word of their names
AGENT = (*ELECTION, "agent")  # its main thread beats for workers and watches the sessions of others


def round_trips(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Return the election's requests per second of a leader; as parts those of a standby, with presence, and all."""
    without = _rates(directory / "off", DEFAULT, rounds, tick)
    with_presence = _rates(directory / "on", DEFAULT + PRESENCE, rounds, lambda: None)
    busier = [max(pair) for pair in zip(with_presence.leader, with_presence.standby, strict=True)]
    parts = {
        STANDBY: without.standby,
        WITH_PRESENCE: busier,
        AGENT_LEADER: without.agent_leader,
        AGENT_STANDBY: without.agent_standby,
    }
    return Samples(without.leader, f"windows of {WINDOW_S:g} s, counted on the wire; replicas without workers", parts)


@dataclass(slots=True)
class Rates:
    """Requests per second, one sample for each window."""

    leader: list[float] = field(default_factory=list)
    standby: list[float] = field(default_factory=list)
    agent_leader: list[float] = field(default_factory=list)
    agent_standby: list[float] = field(default_factory=list)


def _rates(directory: Path, election: str, rounds: int, tick: Tick) -> Rates:
    found = Rates()
    with bench(directory, election=election, workers="{}", is_counted=True) as cluster:
        leader, standby = cluster.roles()
        for _ in range(rounds):
            lead, stand = _window(cluster, [leader, standby])
            found.leader.append(_sum(lead, ELECTION))
            found.standby.append(_sum(stand, ELECTION))
            found.agent_leader.append(_sum(lead, AGENT))
            found.agent_standby.append(_sum(stand, AGENT))
            tick()
        assert cluster.leader() is leader, "the lease changed hands, so nothing was idle"
    return found


def _sum(rates: dict[str, float], names: tuple[str, ...]) -> float:
    return sum(rates.get(name, 0.0) for name in names)


def _window(cluster: Bench, trees: list[Tree]) -> list[dict[str, float]]:
    """Return how many requests a second each connection of each tree sent."""
    counts = [cluster.proxies[replica_of(tree)].counts for tree in trees]
    before, begun_ns = [each.copy() for each in counts], CLOCK.elapsed_ns()
    wait_until(lambda: CLOCK.elapsed_ns() - begun_ns > WINDOW_S * 1e9, what="the window to pass")
    seconds = (CLOCK.elapsed_ns() - begun_ns) / 1e9
    return [
        {name: sent / seconds for name, sent in (now - then).items()} for now, then in zip(counts, before, strict=True)
    ]
