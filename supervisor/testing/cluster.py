"""A cluster of replicas in one thread, for users' tests: elections, fires and jobs under a clock the test drives.

Guarantees
    The replicas run the election, the scheduler and the scripts that production runs; only
    the server (fakeredis), the clock, the network and the processes are simulated.
    Nothing waits: ``advance("1h")`` takes as long as computing the events of that hour, a second or two.

Does not guarantee
    Anything about worker processes: ``run_pending`` runs jobs inline, where the test can
    see them, without time-outs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Self, cast

from supervisor.core.durations import parse_duration
from supervisor.core.units import SECOND_NS
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.producer.producer import Producer
from supervisor.store.producer.substitute import substituted
from supervisor.store.wire.fire import FireCode
from supervisor.testing import assertions
from supervisor.testing.definitions import definitions_of, timing_of
from supervisor.testing.leaderships import SimulatedLeadership
from supervisor.testing.replica import PATIENT, Replica
from supervisor.testing.runs import EnqueuedRun, Finished, InlineWorker, waiting_runs
from supervisor.testing.server import ImmediateStore, Server, driven_time
from supervisor.testing.world import ReplicaClock, S, World

OTHERS_S = 30.0
"""How long a thread waits for another one that executes runs: so that a job which waits for that thread ends."""

DEFAULT_START = "2026-01-01T00:00:00+00:00"
RESIGN_STEPS_MAX = 8  # of a twentieth of the lease: a renewal period and a moment
PAUSE_NS_MAX = 10**9 * S


class Fired(NamedTuple):
    """One run that a schedule enqueued."""

    schedule: str
    nominal: datetime
    """When it was due, in UTC."""


class Cluster:
    """Replicas ``r1`` … ``rN`` that elect together. Made by the fixture ``tenure_cluster``.

    A schedule is written as in the configuration::

        def test_a_deploy_loses_no_tick(tenure_cluster):
            cluster = tenure_cluster(replicas=3, schedules={"tick": {"job": "demo.tick", "every": "10s"}})
            cluster.advance("25s")
            cluster.kill(cluster.leader)
            cluster.advance("20s")
            assert [fired.nominal.second for fired in cluster.fired()] == [10, 20, 30, 40]
    """

    def __init__(
        self,
        *,
        replicas: int = 3,
        schedules: Mapping[str, Mapping[str, Any]] | None = None,
        jobs: Sequence[str] = (),
        lease: str = "5s",
        start: str | datetime = DEFAULT_START,
        seed: int = 0,
        profiles: Mapping[str, Mapping[str, Any]] | None = None,
        calendars: Mapping[str, Mapping[str, Any]] | None = None,
        inline: bool = False,
    ) -> None:
        """Boot the replicas.

        Args:
            replicas: how many.
            schedules: by id, as in the configuration.
            jobs: modules, as in the configuration, whose schedules declared by ``@schedule`` are due beside these.
            lease: how long a dead leader blocks the others. Each second costs a renewal: for days use ``"5m"``.
            start: when the test begins, with its time zone.
            seed: another course of small delays.
            profiles: by name, as in the configuration; hooks other than checks are not asked.
            calendars: by name, as in the configuration.
            inline: whether what the application enqueues is executed before ``enqueue`` returns.
        """
        begin = datetime.fromisoformat(start) if isinstance(start, str) else start
        assert begin.tzinfo is not None, "start needs a time zone"
        self._world = World(Server(Keys("test")), seed=seed, start_ms=round(begin.timestamp() * 1000))
        self._lease_s = parse_duration(lease)
        with ExitStack() as exits:  # a wrong argument leaves no clock behind
            exits.enter_context(driven_time(self._world.server_time_s))
            definitions = definitions_of(schedules or {}, profiles or {}, calendars or {}, jobs, until=exits)
            self._clock = ReplicaClock(self._world)
            self._replicas = {
                name: Replica(
                    self._world,
                    self._world.server.keys,
                    name,
                    timing=timing_of(self._lease_s),
                    definitions=definitions,
                    clock=ReplicaClock(self._world),
                    **PATIENT,
                )
                for name in (f"r{number}" for number in range(1, replicas + 1))
            }
            self._producer = self._new_producer(is_inline=inline)
            self._producer.simulate_leadership = partial(SimulatedLeadership, self._world, self._clock)
            exits.enter_context(substituted(self._producer))
            self._worker = InlineWorker(self._world.server, self._clock, self._producer)
            for replica in self._replicas.values():
                replica.start()
            self._exits = exits.pop_all()

    def _new_producer(self, *, is_inline: bool) -> Producer:
        """Return the producer of the application under test."""
        return Producer(
            RedisSettings(),
            cluster="test",
            clock=self._clock,
            on_enqueued=(lambda _template, _count: self._run_now()) if is_inline else None,
            open_store=lambda: self._world.server.store,
            open_async_store=lambda: cast("AsyncStore", ImmediateStore(self._world.server.store)),
            in_place_of_waiting=lambda left_s: self._run_now(OTHERS_S if left_s is None else left_s),
        )

    # Time.

    @property
    def now(self) -> datetime:
        """Current time of the cluster."""
        return datetime.fromtimestamp(self._world.start_ms / 1000, UTC) + timedelta(
            microseconds=self._world.now_ns // 1000
        )

    def advance(self, duration: str | float) -> None:
        """Let time pass: ``"5s"``, ``"1h30m"``, or a number of seconds."""
        seconds = parse_duration(duration) if isinstance(duration, str) else float(duration)
        assert seconds >= 0, "time does not go back"
        self._world.run_until(self._world.now_ns + round(seconds * SECOND_NS))

    # Replicas.

    @property
    def replicas(self) -> list[str]:
        """The names of all replicas, alive or not."""
        return list(self._replicas)

    @property
    def leader(self) -> str | None:
        """The replica that may act as the scheduler now."""
        return next((name for name, replica in self._replicas.items() if replica.is_leading), None)

    def kill(self, replica: str | None) -> None:
        """End a replica's whole process tree at once, as ``kill -9`` does."""
        self._named(replica).kill()

    def stop(self, replica: str | None) -> None:
        """Ask a replica to stop, as SIGTERM does: it hands over at once."""
        self._named(replica).stop()
        self.advance(0.1)

    def restart(self, replica: str | None) -> None:
        """Start a replica again; kill it first if it lives."""
        found = self._named(replica)
        if found.is_alive:
            found.kill()
        found.start()

    def pause(self, replica: str | None) -> None:
        """Stop all processes of a replica until ``resume``, as SIGSTOP or a suspended machine does."""
        self._named(replica).pause(PAUSE_NS_MAX)

    def resume(self, replica: str | None) -> None:
        """End ``pause``."""
        self._named(replica).unpause()

    def resign(self, *, to: str | None = None) -> None:
        """Ask the leader to hand over, as ``tenure leader resign`` does, and wait until it did.

        Args:
            to: who should lead next; None: whoever comes first.
        """
        before = self.leader
        assert before is not None, "there is no leader; advance the clock first"
        epoch = self._named(before).board.term().epoch
        call = Leases(self._world.server.keys).request_resign(
            epoch=epoch, to="" if to is None else self._named(to).name, by="test"
        )
        self._world.server.execute(call)
        self._world.executed()
        for _ in range(RESIGN_STEPS_MAX):  # the leader learns it with its next renewal
            if self.leader not in {before, None}:
                return
            self.advance(self._lease_s / 20)

    def kill_scheduler(self, replica: str | None) -> None:
        """End a replica's scheduler process, as ``kill -9`` does. Its parent starts another one within 0.1 s."""
        self._named(replica).replace_scheduler()

    def step_wall_clock(self, replica: str | None, seconds: float) -> None:
        """Set a replica's wall clock forward, or back with a negative number. Other clocks stay as they are."""
        stepped = self._named(replica)
        stepped.clock.wall_offset_ms += round(seconds * 1000)
        stepped.scheduler.wake()

    def partition(self, replica: str | None) -> None:
        """Cut a replica off from Redis until ``heal``: nothing gets through, nothing is refused."""
        self._named(replica).is_cut = True

    def heal(self, replica: str | None) -> None:
        """End ``partition``."""
        self._named(replica).is_cut = False
        self._world.executed()

    def stop_redis(self) -> None:
        """Let Redis refuse connections; its data stays."""
        self._world.is_server_up = False

    def start_redis(self) -> None:
        """End ``stop_redis``."""
        self._world.is_server_up = True
        self._world.executed()

    def empty_redis(self) -> None:
        """Lose everything that Redis holds, as a restart without persistence does."""
        self._world.server.empty()
        self._world.executed()

    # What must be true.

    def assert_single_leader(self) -> None:
        """Fail unless exactly one replica leads now, and never two did at the same time."""
        assertions.single_leader(self._world, self._replicas.values())

    def assert_fired_once(self, schedule: str, *at: datetime) -> None:
        """Fail unless ``schedule`` fired, no due time twice, and each due time in ``at`` is among them.

        Args:
            schedule: its id.
            at: due times, with their zone.
        """
        assertions.fired_once(self._world, schedule, at)

    def assert_no_gap(self, schedule: str, *, missed: int = 0) -> None:
        """Fail unless every due time of ``schedule`` until now was decided.

        Decided are fires, and due times that the overlap policy skipped or made wait. Due times while nobody could
        lead are made up for, or counted as missed, by the schedule's ``missed`` policy.

        Args:
            schedule: its id.
            missed: how many may have been counted as missed.
        """
        assertions.no_gap(self._world, self._world.server.definitions(), schedule, missed)

    # Schedules and runs.

    def fired(self, schedule: str | None = None) -> list[Fired]:
        """Return every run that schedules enqueued, in order."""
        return [
            Fired(decision.schedule, datetime.fromtimestamp(decision.nominal_ms / 1000, UTC))
            for decision in self._world.server.decisions
            if decision.code is FireCode.FIRED and schedule in {None, decision.schedule}
        ]

    def enqueue(self, job: Any, args: Mapping[str, Any] | None = None, **options: Any) -> str:
        """Enqueue a run as ``tenure.enqueue`` does; return its id."""
        return self._producer.enqueue(job, args, **options)

    def run_pending(self, limit: int = 1000) -> list[Finished]:
        """Run all ready runs, inline, and return how each ended.

        A failed run is due again after its delay: ``advance``, then call this again.
        """
        return self._worker.run_pending(limit, wait_s=OTHERS_S)

    @property
    def finished(self) -> list[Finished]:
        """All finished attempts of the test, in order."""
        return list(self._worker.finished)

    def enqueued(self, job: str | None = None) -> list[EnqueuedRun]:
        """Return the runs, all or of a job, that wait to be executed or are delayed, in the order of their ids."""
        return [run for run in waiting_runs(self._world.server) if job in {None, run.job}]

    def _run_now(self, wait_s: float = 0) -> None:
        """Execute what is ready, unless a job enqueued it: then the loop that executes the job comes to it."""
        if self._worker.executing == threading.get_ident():
            return
        execute = partial(self._worker.run_pending, wait_s=wait_s)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            execute()
            return
        thread = threading.Thread(target=execute)  # coroutine jobs have event loops of their own
        thread.start()
        thread.join()

    def history(self) -> str:
        """Return the actions of the replicas, one line each, for the message of a failed assertion."""
        return "\n".join(assertions.history(self._world))

    def close(self) -> None:
        """Give the clock back."""
        self._exits.close()

    def _named(self, replica: str | None) -> Replica:
        assert replica is not None, "there is no leader; advance the clock first"
        assert replica in self._replicas, f"no replica {replica!r}; there are {', '.join(self._replicas)}"
        return self._replicas[replica]


class ClusterFactory:
    """Makes one cluster for a test and ends it with the test."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None

    def __call__(self, **options: Any) -> Cluster:
        """Start a cluster and let it elect; the options are those of ``Cluster``."""
        assert self._cluster is None, "one cluster in a test: they share the clock of the simulated server"
        self._cluster = Cluster(**options)
        self._cluster.advance(0.1)
        return self._cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._cluster is not None:
            self._cluster.close()
