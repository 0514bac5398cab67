"""One seeded run: a cluster, a stretch of chaos, a calm stretch, a judgement."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from supervisor.core.lease import MS
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.agent.elector import Elector
from supervisor.roles.agent.standing import Timing
from supervisor.roles.scheduler.planner import Scheduler
from supervisor.store.keys import Keys
from supervisor.testing.replica import Replica
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import ReplicaClock, S, Told, World
from tests.simulation.chaos import BadNetwork, Chaos, Profile
from tests.simulation.checker import problems

CHAOS_NS = 30 * S
CALM_NS = 22 * S
HISTORY_LINES_MAX = 400
QUIET = {"election_answer", "candidates"}

_TEMPLATE = Template(job="sim.job", kind=Kind.SYNC)
DEFINITIONS = (
    ScheduleDef(id="fast", template=_TEMPLATE, every_ms=1700, overlap="allow"),
    ScheduleDef(id="slow", template=_TEMPLATE, every_ms=9000, phase_ms=500, overlap="allow"),
    ScheduleDef(id="minutely", template=_TEMPLATE, cron="* * * * *", overlap="allow"),
    ScheduleDef(id="skipping", template=_TEMPLATE, every_ms=5000, overlap="skip"),
)


@dataclass(frozen=True)
class Outcome:
    """What a seed showed."""

    seed: int
    profile: Profile
    problems: list[str]
    history: list[Told]
    fired: int
    calls: int

    def __str__(self) -> str:
        """Render for whoever must find out why."""
        lines = [str(told) for told in self.history if told.event not in QUIET]
        head = [f"seed {self.seed}: {', '.join(sorted(self.profile.kinds)) or 'calm'}"]
        head += [f"  BROKEN: {problem}" for problem in self.problems[:20]]
        if len(lines) > HISTORY_LINES_MAX:
            head.append(f"  … {len(lines) - HISTORY_LINES_MAX} earlier lines")
        return "\n".join([*head, *lines[-HISTORY_LINES_MAX:]])


def run(seed: int, *, elector_class: type[Elector] = Elector, scheduler_class: type[Scheduler] = Scheduler) -> Outcome:
    """Run the world of ``seed`` and judge it."""
    rng = Random(seed)
    profile = Profile.draw(rng)
    duration_ns = rng.choice([2, 3, 5]) * S
    timing = Timing(
        duration_ns=duration_ns,
        period_ns=duration_ns // 5,
        timeout_ns=duration_ns // 7,
        margin_ns=max(100 * MS, duration_ns // 10),
    )
    network = BadNetwork(rng, profile)
    world = World(Server(Keys("sim")), seed=seed, network=network)
    with driven_time(world.server_time_s):
        replicas = [
            Replica(
                world,
                world.server.keys,
                f"r{index}",
                timing=timing,
                definitions=DEFINITIONS,
                clock=_clock(world, rng, profile),
                elector_class=elector_class,
                scheduler_class=scheduler_class,
            )
            for index in range(rng.choice([2, 3, 4]))
        ]
        _live(world, replicas, profile, network)
        found = problems(world, replicas, profile, DEFINITIONS)
    return Outcome(seed, profile, found, world.history, len(world.server.decisions), world.server.calls)


def _live(world: World, replicas: list[Replica], profile: Profile, network: BadNetwork) -> None:
    chaos = Chaos(world, replicas, profile, until_ns=CHAOS_NS)
    for replica in replicas:
        chaos.boot(replica, within_ns=S)
    world.run_until(CHAOS_NS)
    network.is_calm = True
    chaos.end()
    world.run_until(CHAOS_NS + CALM_NS)


def _clock(world: World, rng: Random, profile: Profile) -> ReplicaClock:
    rate = 1 + rng.uniform(-0.01, 0.01) if profile.is_rate_skewed else 1.0
    return ReplicaClock(
        world, boot_offset_ns=rng.randrange(0, 10**15), rate=rate, wall_offset_ms=rng.randrange(-100, 100)
    )
