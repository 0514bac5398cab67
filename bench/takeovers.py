"""How long nobody fires after something died: from the blow to the first accepted fire, in Redis' log."""

from __future__ import annotations

from pathlib import Path

import psutil

from bench.clusters import CLOCK, DEFAULT, FAST, PRESENCE, Bench, bench, suspend
from bench.table import Samples, Tick
from supervisor.core.errors import TenureError
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

OUTAGE_S = 1.5
CHANGED = "redis-changed"
AGAIN = "scheduler-again"
ARMED_NS = 8_000_000_000  # a hint counts only after a whole lease without an interruption, from the first look on


def _first_fire_ms(cluster: Bench, *, after_ms: int, above_epoch: int = 0) -> int:
    found: int = wait_until(
        lambda: cluster.first_fire_ms(after_ms=after_ms, above_epoch=above_epoch), what="the first fire"
    )
    return found


def supervisor_killed(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Kill -9 of the leading parent, its children with it; the machine lives, so its connections end."""
    found: list[float] = []
    with bench(directory, election=DEFAULT + PRESENCE) as cluster:
        for _ in range(rounds):
            leader, _standby = cluster.roles()
            armed_ns = CLOCK.elapsed_ns() + ARMED_NS
            wait_until(lambda until=armed_ns: CLOCK.elapsed_ns() > until, what="the standby to watch for a lease")
            epoch, struck_ms = cluster.view().epoch, CLOCK.wall_ms()
            leader.kill()
            found.append(_first_fire_ms(cluster, after_ms=struck_ms, above_epoch=epoch) - struck_ms)
            cluster.replace(leader)
            tick()
    return Samples(found, "default lease 5 s, presence_poll 500 ms; kill -9 to the other's first accepted fire")


def scheduler_killed(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Kill -9 of the scheduler of the leader: whoever fires next, from its own side or another.

    A second death within a minute counts apart, since the parent waits before it starts the third process. A
    third one would be a crash loop, and is another matter, so each tree serves for two.
    """
    found: list[float] = []
    again: list[float] = []
    with bench(directory, election=DEFAULT) as cluster:
        for _ in range(rounds):
            leader, _standby = cluster.roles()
            found.append(_until_next_fire_ms(cluster, leader))
            wait_until(lambda tree=leader: _schedulers(tree) >= 2, what="the new scheduler")
            again.append(_until_next_fire_ms(cluster, leader))
            cluster.stop(leader)
            tick()
    return Samples(found, "kill -9 to the next accepted fire, of either replica", {AGAIN: again})


def _until_next_fire_ms(cluster: Bench, leader: Tree) -> int:
    scheduler = psutil.Process(leader.slot_pid("scheduler"))
    struck_ms = CLOCK.wall_ms()
    scheduler.kill()
    scheduler.wait(30)
    gone_ms = max(struck_ms, CLOCK.wall_ms())  # what it had sent may still be accepted until here
    return _first_fire_ms(cluster, after_ms=gone_ms) - struck_ms


def _schedulers(tree: Tree) -> int:
    """Return how many processes of the scheduler have been ready."""
    return sum(each["slot"] == "scheduler" for each in tree.events("child_ready"))


def host_lost(directory: Path, rounds: int, tick: Tick, *, election: str) -> Samples:
    """Every process of the leader stands still, and so does every connection: no FIN, no answer."""
    found: list[float] = []
    with bench(directory, election=election) as cluster:
        for _ in range(rounds):
            leader, _standby = cluster.roles()
            losses = len(leader.events("leader_lost"))
            epoch, struck_ms = cluster.view().epoch, CLOCK.wall_ms()
            suspend(leader, is_pause=True)
            found.append(_first_fire_ms(cluster, after_ms=struck_ms, above_epoch=epoch) - struck_ms)
            suspend(leader, is_pause=False)
            wait_until(lambda tree=leader, before=losses: len(tree.events("leader_lost")) > before, what="its return")
            tick()
    return Samples(found, f"election {election}}}; all processes stopped to the other's first accepted fire")


def host_lost_default(directory: Path, rounds: int, tick: Tick) -> Samples:
    """With the default durations."""
    return host_lost(directory, rounds, tick, election=DEFAULT)


def host_lost_fast(directory: Path, rounds: int, tick: Tick) -> Samples:
    """With the fast ones that the documentation names."""
    return host_lost(directory, rounds, tick, election=FAST)


def redis_back(directory: Path, rounds: int, tick: Tick) -> Samples:
    """An outage with data kept: from the first answer to the first accepted fire; the term must be the same."""
    found: list[float] = []
    changed: list[float] = []
    with bench(directory, election=DEFAULT) as cluster:
        for _ in range(rounds):
            before = cluster.view()
            cluster.server.kill()
            begun_ns = CLOCK.elapsed_ns()
            wait_until(lambda since=begun_ns: CLOCK.elapsed_ns() - since > OUTAGE_S * 1e9, what="the outage to last")
            cluster.server.start()
            wait_until(lambda: _answers(cluster), what="the server to answer")
            back_ms = CLOCK.wall_ms()
            found.append(_first_fire_ms(cluster, after_ms=back_ms - 1) - back_ms)
            after = cluster.view()
            changed.append(float((after.epoch, after.transitions) != (before.epoch, before.transitions)))
            tick()
    note = f"outages of {OUTAGE_S:g} s; first answer to first accepted fire"
    return Samples(found, note, {CHANGED: changed})


def _answers(cluster: Bench) -> bool:
    try:
        cluster.store.ping()
    except TenureError:
        return False
    return True
