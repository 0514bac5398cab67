"""The agent: this replica's voice in Redis.

Two threads, two connections. The elector has its own, so that nothing here delays a
renewal; the main thread beats for the worker processes, reclaims runs of dead ones, and
listens to signals.

Guarantees
    It beats for its parent whatever Redis does: no call here waits longer than a second.
    When the tree drains, the lease is given back at once, and sessions are beaten until
    the agent is asked to end, so that running jobs keep their runs. From then on one deadline holds for
    all that is left to do, before that of its parent; what does not fit is left to another replica.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

from supervisor.core.effects import Call
from supervisor.core.errors import EXIT_FAILED, EXIT_OK, StoreUnavailableError
from supervisor.core.jobs.registry import registry
from supervisor.core.model import ScheduleDef
from supervisor.core.supervision.shutdown import ShutdownStage, Stop
from supervisor.core.supervision.states import ChildState
from supervisor.core.units import MILLISECOND_NS, NEVER_NS, SECOND_NS
from supervisor.roles.agent.commands import CommandDuty
from supervisor.roles.agent.declared_schedules import DeclaredSchedulesTask
from supervisor.roles.agent.election.context import ElectionContext, ElectionTiming, Presence, TreeView
from supervisor.roles.agent.election.elector_thread import ElectorThread, PresenceThread, Watchdog, elector_rng
from supervisor.roles.agent.maintenance import Duties, Ingest, PeriodicTask, Retention
from supervisor.roles.agent.reporting import AgentReport
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.agent.sessions.reaper import Reaper
from supervisor.roles.agent.sessions.tasks import SessionTasks, Unwanted, exclusive_slots
from supervisor.roles.child import ChildContext, ConfigFollower, Wakeup
from supervisor.settings.schedules.complete import schedules_digest
from supervisor.store.client.preflight import note_cluster
from supervisor.store.client.sync_client import Store
from supervisor.store.election.commands import Commands
from supervisor.store.election.leases import CandidateInfo, Leases
from supervisor.store.keys import Keys
from supervisor.store.queues.bridges import Bridges
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.definitions import Definitions
from supervisor.version import __version__

BEAT_NS = 400 * MILLISECOND_NS
CALL_TIMEOUT_S = 1.0  # below the limit after which the parent calls the agent hung
RELEASE_JOIN_NS = 2500 * MILLISECOND_NS  # three tries of a release, each bounded by the renew timeout
ABANDON_JOIN_NS = 100 * MILLISECOND_NS
JOIN_SLICE_S = 0.02
END_SHARE = 0.8  # of what the parent allows for the end; the rest is for a machine without a processor to spare

T = TypeVar("T")


class Agent:
    """The main thread of the agent."""

    def __init__(self, child: ChildContext, definitions: Sequence[ScheduleDef]) -> None:
        self._child = child
        self._clock = child.clock
        self._digest = schedules_digest(definitions) if definitions else ""
        self._report = AgentReport(child.clock)
        self._following = ConfigFollower(child)
        self._ingest: Ingest | None = None  # where lists are configured
        self._declared: DeclaredSchedulesTask | None = None  # where this replica may lead
        keys = Keys(child.settings.cluster)
        self._tree = TreeView(child.board, child.board.rows[child.slot_names.index("scheduler")], child.clock)
        self._watchdog = Watchdog()
        presence = self._presence(keys)
        self._elector = ElectorThread(
            self._election(keys, presence),
            presence=presence,
            store=self._connect("elector", child.settings.election.renew_timeout_s, publish=self._found_redis),
            keys=keys,
        )
        self._store = self._connect("agent", CALL_TIMEOUT_S, follow=child.board)
        self._wakeup = Wakeup(child.clock)
        sessions = Sessions(keys)
        queues = child.settings.queues
        workers = LocalWorkers(child.board, child.slot_names, child.replica, wake_parent=child.wake_parent)
        tasks = SessionTasks(
            run=self._run_call,
            clock=child.clock,
            workers=workers,
            sessions=sessions,
            reaper=self._reaper(keys),
            registry=registry,
            length_max=queues.length_max or 0,
            note_cluster=lambda: note_cluster(self._store, child.settings.cluster, child.clock.wall_ms()),
            beat_period_ns=int(queues.beat_period_s * SECOND_NS),
            session_lease_ns=int(queues.session_lease_s * SECOND_NS),
            predecessor=child.predecessor,
            report=self._report,
        )
        self._duties = Duties(tasks, self._tasks(keys, workers))

    def run(self) -> int:
        """Do all of it until asked to end."""
        wakeup = self._wakeup
        try:
            self._elector.start()
            if number := self._child.config_epoch:
                self._follow(number)  # its jobs: those that are imported here are of the start
            self._duties.publish_first()
            self._child.announce(ChildState.READY)
            while not wakeup.is_draining:
                self._beat()
                if self._has_elector_ended() or self._is_elector_stuck():
                    return EXIT_FAILED
                self._duties.notice_loss(self._child.board.header.doubtful_until_ms)
                retry_ns = 0 if self._duties.perform() else self._clock.elapsed_ns() + BEAT_NS
                self._wait(wakeup, max(self._duties.next_ns(), retry_ns))
            return self._end()
        finally:
            wakeup.close()
            self._store.close()

    def _wait(self, wakeup: Wakeup, until_ns: int) -> None:
        if wakeup.wait(min(until_ns, self._clock.elapsed_ns() + BEAT_NS)):
            self._elector.wake()  # the phase of the tree may have changed

    def _has_elector_ended(self) -> bool:
        """Return whether the elector ended although nobody asked it to: then the agent must be started afresh."""
        if self._elector.is_alive() or self._tree.is_stopping():
            return False
        self._report("elector_crashed", exc_info=self._elector.failure)
        return True

    def _is_elector_stuck(self) -> bool:
        """Return whether the elector's loop does not turn: a fresh agent resumes its term."""
        due_ns, now_ns = self._child.board.header.elector_due_ns, self._clock.elapsed_ns()
        if not self._watchdog.is_stuck(due_ns=due_ns, now_ns=now_ns):
            return False
        self._report("elector_stuck", late_s=round((now_ns - due_ns) / SECOND_NS, 1))
        return True

    def _end(self) -> int:
        """Release the lease if it is still held, and give back runs of workers that are gone."""
        self._child.announce(ChildState.DRAINING)
        self._tree.is_ending = True
        self._elector.wake()
        join_ns = ABANDON_JOIN_NS if self._wakeup.is_abandoning else RELEASE_JOIN_NS
        until_ns = min(self._clock.elapsed_ns() + join_ns, self._until_ns())
        # A standby holds nothing; it may be blocked on events, and is left behind.
        while self._elector.is_holding and self._elector.is_alive() and self._clock.elapsed_ns() < until_ns:
            self._beat()
            self._elector.join(JOIN_SLICE_S)
        self._beat()
        is_done = self._duties.perform()
        self._report.flush(is_last=True)
        self._report("agent_ended", abandoned=self._wakeup.is_abandoning, unreclaimed=not is_done)
        return EXIT_OK

    def _until_ns(self) -> int:
        """Return by when every call must be over: once the agent is asked to end, before its parent kills it."""
        wakeup = self._wakeup
        if not wakeup.is_draining:
            return NEVER_NS
        allowed = Stop(
            grace_ns=int(self._following.settings.supervision.grace_s * SECOND_NS),
            stage=ShutdownStage.FORCED_AGENT if wakeup.is_abandoning else ShutdownStage.STOPPING_AGENT,
            asked_ns=self._child.board.header.stop_started_ns or wakeup.asked_ns,
            entered_ns=wakeup.asked_ns,
        )
        return wakeup.asked_ns + int(END_SHARE * (allowed.deadline_ns - wakeup.asked_ns))

    def _run_call(self, call: Call[T]) -> T:
        self._beat()
        self._duties.beat_between()
        left_s = (self._until_ns() - self._clock.elapsed_ns()) / SECOND_NS
        if left_s <= 0:
            raise StoreUnavailableError(f"{call.script}: the agent ends, and has no time left for it")
        answer = self._store.run(call, timeout_s=min(CALL_TIMEOUT_S, left_s))
        self._child.row.redis_ok_ns = self._clock.elapsed_ns()
        return answer

    def _beat(self) -> None:
        row = self._child.row
        row.progress += 1
        row.redis_ok_ns = max(row.redis_ok_ns, self._elector.answered_ns)
        row.beat_ns = self._clock.elapsed_ns()
        self._report.flush()
        if number := self._following.poll():
            self._follow(number)

    def _follow(self, number: int) -> None:
        """Pass on configuration ``number``: the schedules this replica brings, and the jobs there are."""
        if brief := self._following.brief(number):
            self._elector.bring(brief.schedules_digest)
            if self._declared is not None:
                self._declared.bring(brief.schedules_digest)
            self._duties.publish(brief.cards)
            self._report.jobs = brief.cards
            if self._ingest is not None:
                self._ingest.follow(brief.cards)

    def _found_redis(self, address: str) -> None:
        """Publish the address of Redis, from the search of the elector; empty while sentinels replace the master."""
        board = self._child.board
        if address == board.endpoint().address:
            return
        board.publish_endpoint(address)
        if not address:
            self._report("redis_failing_over")
            return
        self._report("redis_found", address=address)
        self._tree.term_changed()  # the scheduler may be waiting before it tries again

    def _connect(self, name: str, timeout_s: float, **route: Any) -> Store:
        child = self._child
        return Store.connect(
            child.redis_url,
            settings=child.settings.redis,
            name=f"{child.settings.cluster}:{name}",
            timeout_s=timeout_s,
            clock=child.clock,
            **route,
        )

    def _presence(self, keys: Keys) -> PresenceThread | None:
        """Return the presence, which shows that this replica lives, if configured."""
        child = self._child
        if not child.settings.has_presence:
            return None
        store = self._connect("presence", CALL_TIMEOUT_S, follow=child.board)
        return PresenceThread(store, keys, child.clock)

    def _reaper(self, keys: Keys) -> Reaper:
        """Return the reaper, which gives runs of dead workers back."""
        limits = self._child.settings.queues
        return Reaper(
            run=self._run_call,
            sessions=Sessions(keys),
            queues=Queues(keys),
            dead_cap=limits.dead,
            history=limits.history,
            report=self._report,
        )

    def _tasks(self, keys: Keys, workers: LocalWorkers) -> list[PeriodicTask]:
        """Return the tasks beside those for sessions: requests to end runs, commands, and what is configured."""
        child, settings, queues = self._child, self._child.settings, Queues(keys)
        cancellations = Unwanted(
            call=self._run_call,
            queues=queues,
            workers=workers,
            row=child.row,
            wake_parent=child.wake_parent,
            exclusive=exclusive_slots(child),
            report=self._report,
            history=settings.queues.history,
        )
        commands = CommandDuty(
            call=self._run_call,
            commands=Commands(keys),
            child=child,
            report=self._report,
            signer=settings.commands.signer(settings.cluster),
        )
        tasks: list[PeriodicTask] = [cancellations, commands]
        if settings.election.participate:
            self._declared = DeclaredSchedulesTask(
                run=self._run_call, definitions=Definitions(keys), digest=self._digest, report=self._report
            )
            tasks.append(self._declared)
        if channels := settings.cloudforet.ingested():
            self._ingest = Ingest(
                call=self._run_call,
                bridges=Bridges(keys),
                channels=channels,
                registry=registry,
                clock=self._clock,
                report=self._report,
            )
            tasks.append(self._ingest)
        retention = Retention.of(run=self._run_call, queues=queues, limits=settings.queues)
        return tasks if retention is None else [*tasks, retention]

    def _started_ms(self) -> int:
        """Return when the tree started, by the wall clock: an agent that was replaced makes it no younger."""
        started_ns = self._child.board.header.started_ns
        age_ns = self._clock.elapsed_ns() - started_ns if started_ns else 0
        return self._clock.wall_ms() - age_ns // MILLISECOND_NS

    def _election(self, keys: Keys, presence: PresenceThread | None) -> ElectionContext:
        child = self._child
        election = child.settings.election
        return ElectionContext(
            leases=Leases(keys, has_presence=child.settings.has_presence),
            presence=presence or Presence(),
            on_data_loss=election.on_data_loss,
            board=child.board,
            clock=child.clock,
            me=CandidateInfo(
                replica=child.replica,
                host=os.uname().nodename,
                pid=child.parent_pid,
                version=__version__,
                started_ms=self._started_ms(),
                priority=election.priority,
                participates=election.participate,
                schedules_digest=self._digest,
            ),
            timing=ElectionTiming.of(election),
            around=self._tree,
            report=self._report,
            rng=elector_rng(),
            new_nonce=new_nonce,
            signer=child.settings.commands.signer(child.settings.cluster),
        )


def new_nonce() -> str:
    """Return 32 hex digits that nobody else draws."""
    return secrets.token_hex(16)


def main(child: ChildContext, definitions: Sequence[ScheduleDef] = ()) -> int:
    """Run the agent of ``child`` until its parent ends it; return the exit code.

    ``definitions`` are the schedules of its configuration: candidates name the set they
    bring, so that during a rolling update an old replica does not undo a newer one's.
    """
    return Agent(child, definitions).run()
