"""What goes wrong in a simulated world, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from supervisor.core.effects import Call
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.schedules.triggers import trigger_of
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import Leases
from supervisor.store.schedules.control import Control
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.testing.replica import Replica
from supervisor.testing.world import S, World
from tests.simulation.faults import CONTROL_KINDS, LOSS_KINDS, REPLICA_KINDS, SERVER_KINDS, Profile

RUBBISH = (b"", b"rubbish", b"-1", b"1e300", b"nan", b"9" * 400)
JOBS = ("sim.one", "sim.other")
CHANGING = tuple(
    ScheduleDef(
        id="changing",
        template=Template(job=job, kind=Kind.SYNC),
        every_ms=every_ms,
        phase_ms=phase_ms,
        overlap="allow",
    )
    for every_ms, phase_ms in ((3000, 0), (4000, 1000), (5000, 500))
    for job in JOBS
)
"""What the dynamic schedule may be: a change of its timing moves the watermark, a change of its job does not."""


class Chaos:
    """Breaks replicas and the server at random times, and mends them."""

    def __init__(
        self,
        world: World,
        replicas: list[Replica],
        profile: Profile,
        *,
        until_ns: int,
        on_data_loss: Callable[[], None],
    ) -> None:
        self._world = world
        self._replicas = replicas
        self._rng = world.rng
        self._until_ns = until_ns
        self._on_data_loss = on_data_loss
        self._kinds = [k for k in (*REPLICA_KINDS, *SERVER_KINDS, *CONTROL_KINDS, *LOSS_KINDS) if k in profile.kinds]
        self._changing: ScheduleDef | None = None  # the dynamic schedule as it is
        self._leases = Leases(world.server.keys)
        self._definitions = Definitions(world.server.keys)
        self._control = Control(world.server.keys)
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

    def _later(self, mean_ns: int, act: Callable[[], None]) -> None:
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
            incarnation = victim.id

            def end() -> None:
                if victim.id == incarnation:  # the end of chaos may have killed it, and booted it anew
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
        self._on_data_loss()

    def _orphaned(self, _victim: Replica) -> None:
        """A leader and the data go together, as with an unpersisted server on its host; a former leader may follow."""
        leading = [replica for replica in self._replicas if replica.is_leading]
        if leading:
            self._crash(leading[0])
            self._emptied(leading[0])

    def _rubbish(self, _victim: Replica) -> None:
        """Somebody writes into the lease record."""
        field, value = self._rng.choice(["epoch", "nonce", "seq", "until", "duration"]), self._rng.choice(RUBBISH)
        self._world.tell("person", "writes_rubbish", field=field, value=value[:20])
        self._world.server.store.raw.hset(self._world.server.keys.lease, field, value)

    def _series(self, victim: Replica) -> None:
        """The scheduler dies whenever it comes back, until another replica must lead."""
        incarnation, left = victim.id, self._rng.choice([2, 3, 4])

        def die(left: int) -> None:
            if victim.id != incarnation or not victim.elector.is_alive or not left:
                return
            if victim.scheduler.is_alive:
                self._world.tell(victim.scheduler.name, "killed")
                victim.replace_scheduler()
            self._later(S // 2, lambda: die(left - 1))

        die(left)

    def _hang(self, victim: Replica) -> None:
        if victim.scheduler.is_alive:
            victim.hang_scheduler(int(self._rng.expovariate(1 / (4 * S))))

    def _rolled_back(self, _victim: Replica) -> None:
        """An asynchronous fail-over: what was written in the last moments is gone."""
        snapshot = self._world.server.snapshot()

        def restore() -> None:
            self._world.tell("server", "rolled_back")
            self._world.server.restore(snapshot)
            self._on_data_loss()
            self._world.executed()

        self._later(S, restore)

    def _resign(self, victim: Replica) -> None:
        """A person asks the holder to hand over; perhaps long after that one's term ended."""
        terms = self._world.server.granted
        if not terms:
            return
        epoch = terms[-1] if self._rng.random() < 0.7 else self._rng.choice(terms)
        self._ask_to_resign(epoch, victim.name if self._rng.random() < 0.5 else "")

    def hand_over(self) -> None:
        """Ask the leader of the calm stretch to hand over, if another one may lead."""
        able = [r for r in self._replicas if r.board.header.ineligible_until_ns <= r.clock.elapsed_ns()]
        if len(able) > 1:
            self._ask_to_resign(self._world.server.granted[-1], "")

    def _ask_to_resign(self, epoch: int, heir: str) -> None:
        self._world.tell("person", "asks_to_resign", epoch=epoch, to=heir or "any")
        self._command(self._leases.request_resign(epoch=epoch, to=heir, by="person"))

    def _redefine(self, _victim: Replica) -> None:
        """A person changes the one dynamic schedule."""
        definition = self._rng.choice(CHANGING)
        if self._changing is not None and self._rng.random() < 0.6:
            same = self._changing  # the same timing leaves the watermark: then the revision alone tells them apart
            job = next(job for job in JOBS if job != same.template.job)
            definition = replace(same, template=replace(same.template, job=job))

        def redefine() -> None:
            if self._command(
                self._definitions.upsert([Change(definition=definition)], wall_ms=self._world.server_ms())
            ):
                self._world.tell("person", "redefines", every_ms=definition.every_ms, job=definition.template.job)
                self._changing = definition

        self._when_due(redefine)

    def _pause_schedule(self, _victim: Replica) -> None:
        """A person pauses the dynamic schedule, for a while or until it is resumed."""
        name = CHANGING[0].id
        if self._rng.random() < 0.4:
            call: Call[Any] = self._control.resume([name])
        else:
            for_ms = self._rng.choice([None, self._rng.randrange(1000, 10_000)])
            call = self._control.pause([name], reason="sim", by="person", for_ms=for_ms)

        def control() -> None:
            if self._command(call):
                self._world.tell("person", call.script, schedule=name)

        self._when_due(control)

    def _when_due(self, act: Callable[[], None]) -> None:
        """Act while a fire of the dynamic schedule is underway: that is when it hurts. Sometimes at once."""
        delay_ns = 0
        if self._changing is not None and self._rng.random() < 0.8:
            now_ms = self._world.server_ms()
            due_ms = trigger_of(self._changing).next_ms(now_ms) or now_ms
            delay_ns = (due_ms - now_ms) * MILLISECOND_NS + self._rng.randrange(4 * MILLISECOND_NS)
        self._world.after(delay_ns, act)

    def _command(self, call: Call[Any]) -> bool:
        """Let a person's command arrive, if the server is up."""
        if self._world.is_server_up:
            self._world.server.execute(call)
            self._world.executed()
        return self._world.is_server_up

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
                self._boot(replica)
        world.executed()
