"""One seeded run: a cluster, a stretch of chaos, a calm stretch, a judgement."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from supervisor.core.errors import TenureError
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.context import ElectionTiming
from supervisor.store.keys import Keys
from supervisor.testing.replica import Replica
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import ReplicaClock, S, Told, World
from tests.kit.pace import limit_pace
from tests.simulation.chaos import CHANGING, Chaos
from tests.simulation.checker import problems
from tests.simulation.faults import BadNetwork, Profile
from tests.simulation.repeats import repeats
from tests.simulation.witness import Witness
from tests.simulation.worker import Worker

CHAOS_NS = 30 * S
CALM_NS = 24 * S
HAND_OVER_NS = 14 * S  # into the calm stretch
HISTORY_LINES_MAX = 400
QUIET = {"election_answer", "candidates", "plan", "twins"}

_TEMPLATE = Template(job="sim.job", kind=Kind.SYNC)
DEFINITIONS = (
    ScheduleDef(id="fast", template=_TEMPLATE, every_ms=2300, overlap="allow"),
    ScheduleDef(id="every", template=_TEMPLATE, every_ms=4100, phase_ms=300, overlap="allow", missed="all"),
    ScheduleDef(id="first", template=_TEMPLATE, every_ms=6700, overlap="allow", missed="earliest"),
    ScheduleDef(id="punctual", template=_TEMPLATE, every_ms=5300, overlap="allow", missed="skip"),
    ScheduleDef(id="spread", template=_TEMPLATE, every_ms=8000, overlap="allow", jitter_ms=2000),
    ScheduleDef(id="minutely", template=_TEMPLATE, cron="* * * * *", overlap="allow"),
    ScheduleDef(id="skipping", template=_TEMPLATE, every_ms=5000, overlap="skip"),
    ScheduleDef(id="waiting", template=_TEMPLATE, every_ms=4700, overlap="buffer_one"),
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
        head.append(f"  replay: python -m tests.simulation --seed {self.seed}")
        if len(lines) > HISTORY_LINES_MAX:
            head.append(f"  … {len(lines) - HISTORY_LINES_MAX} earlier lines")
        return "\n".join([*head, *lines[-HISTORY_LINES_MAX:]])


def run(seed: int, *, focus: frozenset[str] = frozenset()) -> Outcome:
    """Run the world of ``seed`` and judge it; the kinds of fault in ``focus`` are part of it whatever the seed says."""
    rng = Random(seed)
    profile = Profile.draw(rng, focus, seed=seed)
    duration_ns = rng.choice([2, 3, 5]) * S
    timing = ElectionTiming(
        duration_ns=duration_ns,
        period_ns=duration_ns // 5,
        timeout_ns=duration_ns // 7,
        margin_ns=max(100 * MILLISECOND_NS, duration_ns // 10),
    )
    network = BadNetwork(rng, profile)
    world = World(Server(Keys("sim")), seed=seed, network=network)
    limit_pace(world)
    with driven_time(world.server_time_s):
        replicas = [
            Replica(
                world,
                world.server.keys,
                f"r{index}",
                timing=timing,
                definitions=DEFINITIONS,
                clock=_clock(world, rng, profile),
            )
            for index in range(rng.choice([2, 3, 4]))
        ]
        for replica in replicas:
            replica.version, replica.priority = rng.choice(["1.0", "1.1"]), rng.choice([0, 0, 5])
        witness, worker = Witness(world, changing=CHANGING[0].id), Worker(world)
        try:
            _live(world, replicas, profile, network, witness)
            found = [*witness.problems, *problems(world, replicas, profile, DEFINITIONS, worker)]
        except (TenureError, ArithmeticError, AssertionError, LookupError, ValueError) as error:
            found = [f"a process ended by {error!r}"]
        if not profile.kinds & {"server_step", "rubbish"}:
            found += [] if profile.keeps_data else repeats(world, witness.flagged, witness.sent_ns)
    return Outcome(seed, profile, found, world.history, len(world.server.decisions), world.server.calls)


def _live(world: World, replicas: list[Replica], profile: Profile, network: BadNetwork, witness: Witness) -> None:
    chaos = Chaos(world, replicas, profile, until_ns=CHAOS_NS, on_data_loss=witness.forgive)
    for replica in replicas:
        chaos.boot(replica, within_ns=S)
    world.run_until(CHAOS_NS)
    network.is_calm = True
    chaos.end()
    world.run_until(CHAOS_NS + HAND_OVER_NS)
    chaos.hand_over()
    world.run_until(CHAOS_NS + CALM_NS)


def _clock(world: World, rng: Random, profile: Profile) -> ReplicaClock:
    rate = 1 + rng.uniform(-0.01, 0.01) if profile.is_rate_skewed else 1.0
    return ReplicaClock(
        world, boot_offset_ns=rng.randrange(0, 10**15), rate=rate, wall_offset_ms=rng.randrange(-100, 100)
    )
