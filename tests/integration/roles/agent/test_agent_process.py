"""The agent as a process on a real server: election, resignation, resumption, reclaiming."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.core.supervision.scoreboard import execution_hash
from supervisor.core.supervision.states import RunState, SlotState
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import Leases, LeaseView
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from tests.integration.roles.role_processes import SLOTS, Replica
from tests.kit.servers import wait_until

pytestmark = pytest.mark.server
Make = Callable[..., Replica]
PATIENT = {"lease_duration_s": 60.0, "renew_period_s": 0.4, "renew_timeout_s": 10.0}  # no pause ends a term
WORKER = SLOTS.index("worker-io-0")
SESSION = "r1/worker-io-0/1"


def lease(store: Store, keys: Keys) -> LeaseView:
    return store.run(Leases(keys).view())


def enqueue_and_take(store: Store, keys: Keys, session: str, *run_ids: str) -> list[int]:
    """Put runs into the queue and let ``session`` fetch them; return what stands for each on the board."""
    envelopes = [Envelope(id=run_id, template=Template(job="test.job", kind=Kind.ASYNC)) for run_id in run_ids]
    queues = Queues(keys)
    store.run(queues.enqueue(nonce=session, envelopes=envelopes))
    assert store.run(Sessions(keys).open(session, {}))
    call = queues.turn(session=session, seq=1, kind=Kind.ASYNC, queues=["default"], want=10, want_suspect=False)
    runs = store.run(call).runs
    assert [run.envelope.id for run in runs] == list(run_ids)
    return [execution_hash((run.queue, run.envelope.id), run.fetched_ms) for run in runs]


def ready(store: Store, keys: Keys) -> int:
    counts = store.run(Queues(keys).counts("default"))
    return counts.ready_total if isinstance(counts.ready_total, int) else counts.ready_total()


def with_worker(made: Replica) -> Replica:
    """Pretend that generation 1 of the worker slot runs."""
    row = made.board.rows[WORKER]
    row.generation = row.child_generation = 1
    row.state = SlotState.RUNNING
    return made


def test_it_leads_and_publishes_the_term(replica: Make, store: Store, keys: Keys) -> None:
    """What stands in Redis stands on the board, and is trusted."""
    one = replica("r1", election=PATIENT)
    one.start("agent")
    wait_until(lambda: one.board.header.is_leading, what="r1 to lead")

    view, term = lease(store, keys), one.board.term()
    assert (view.holder, view.epoch, view.nonce) == ("r1", term.epoch, term.nonce)


def test_a_draining_leader_hands_over_and_goes_on_beating(replica: Make, store: Store, keys: Keys) -> None:
    """The other leads at once; the agent stays for the sessions until it is told to end."""
    one, two = replica("r1", election=PATIENT), replica("r2", election=PATIENT)
    one.start("agent")
    wait_until(lambda: one.board.header.is_leading, what="r1 to lead")
    two.start("agent")
    wait_until(lambda: "standby" in two.log, what="r2 to stand by")
    one.drain()
    wait_until(lambda: two.board.header.is_leading, what="r2 to lead")

    assert one.board.term().epoch == 0
    assert lease(store, keys).transitions == 2
    assert one.processes["agent"].poll() is None
    one.signal("agent", signal.SIGTERM)
    assert one.reap("agent") == 0


def end_leader(one: Replica, number: signal.Signals) -> None:
    """Let ``one`` lead, and end it by a signal."""
    one.start("agent")
    wait_until(lambda: one.board.header.is_leading, what="r1 to lead")
    one.signal("agent", number)
    assert one.reap("agent") == 0


def test_an_agent_told_to_end_releases_the_lease(replica: Make, store: Store, keys: Keys) -> None:
    """Others lead at once."""
    end_leader(replica("r1", election=PATIENT), signal.SIGTERM)
    assert lease(store, keys).holder == ""


def test_an_agent_told_to_end_at_once_releases_the_lease_if_a_tenth_of_a_second_suffices(
    replica: Make, store: Store, keys: Keys
) -> None:
    """Its limit, so that a second signal ends the tree in half a second; a busy machine may need longer for a call."""
    one = replica("r1")
    for _ in range(20):
        end_leader(one, signal.SIGQUIT)
        if lease(store, keys).holder == "":
            return
    raise AssertionError("it never released the lease")


def test_a_standby_ends_although_it_waits_for_events(replica: Make) -> None:
    """It holds nothing, so nobody waits for its blocked read."""
    one, two = replica("r1"), replica("r2", election={"lease_duration_s": 60.0, "renew_period_s": 5.0})
    one.start("agent")
    wait_until(lambda: one.board.header.is_leading, what="r1 to lead")
    two.start("agent")
    wait_until(lambda: "standby" in two.log, what="r2 to stand by")
    two.signal("agent", signal.SIGTERM)

    assert two.processes["agent"].wait(30) == 0


def test_a_killed_agent_is_replaced_within_its_term(replica: Make, store: Store, keys: Keys) -> None:
    """The replacement finds the term on the board and renews it: no transition."""
    one = replica("r1", election=PATIENT)
    one.start("agent")
    wait_until(lambda: one.board.header.is_leading, what="r1 to lead")
    before = lease(store, keys)
    one.kill("agent")
    one.start("agent")
    wait_until(lambda: lease(store, keys).seq > before.seq + 1, what="the term to be renewed")

    after = lease(store, keys)
    assert (after.epoch, after.transitions) == (before.epoch, before.transitions)
    assert one.board.term().epoch == before.epoch


def test_runs_of_a_dead_worker_go_back_with_fair_blame(replica: Make, store: Store, keys: Keys) -> None:
    """One had begun and is charged, and runs alone next; the other had not and is ready."""
    one = with_worker(replica("r1"))
    begun, waiting = enqueue_and_take(store, keys, SESSION, "begun", "waiting")
    one.board.inflight[WORKER].put(0, execution=begun, attempt=1, state=RunState.STARTED)
    one.board.inflight[WORKER].put(1, execution=waiting, attempt=1, state=RunState.WAITING)
    one.start("agent")
    row = one.board.rows[WORKER]
    row.state, row.ended_generation = SlotState.BACKOFF, 1
    one.signal("agent", signal.SIGURG)
    wait_until(lambda: row.reclaimed_generation == 1, what="the dead worker's runs to be given back")

    counts = store.run(Queues(keys).counts("default"))
    assert (ready(store, keys), counts.running, counts.suspects[Kind.ASYNC]) == (1, 0, 1)
    assert store.run(Queues(keys).show("begun")).crashes == 1
    assert store.run(Sessions(keys).dying()) == []


def test_sessions_of_living_workers_are_beaten(replica: Make, store: Store, keys: Keys) -> None:
    """Their counters grow, so no other replica reaps them."""
    one = with_worker(replica("r1", queues={"beat_period_s": 0.2, "session_lease_s": 60.0}))
    store.run(Sessions(keys).open(SESSION, {}))
    one.start("agent")

    wait_until(lambda: store.run(Sessions(keys).list())[SESSION] >= 5, what="five beats")


def test_sessions_of_a_vanished_replica_are_reaped(replica: Make, store: Store, keys: Keys) -> None:
    """Nobody beats for them any more; their runs go to the head of the queue, uncharged."""
    enqueue_and_take(store, keys, "gone/worker-io-0/1", "a", "b")
    one = replica("r1", queues={"beat_period_s": 0.2, "session_lease_s": 1.0})
    one.start("agent")
    wait_until(lambda: ready(store, keys) == 2, what="the runs to be given back")

    run = store.run(Queues(keys).show("a"))
    assert (run.crashes, run.attempts, run.interrupts) == (0, 0, 1)


def test_runs_that_belong_to_nobody_are_swept_up(replica: Make, store: Store, keys: Keys) -> None:
    """A session that is neither open nor dying holds them: no other rule would find them."""
    enqueue_and_take(store, keys, "ghost/worker-io-0/1", "a")
    store.run(Sessions(keys).close("ghost/worker-io-0/1"))
    one = replica("r1")
    one.start("agent")

    wait_until(lambda: ready(store, keys) == 1, what="the orphan to be given back")


def test_a_half_done_reclaim_is_finished(replica: Make, store: Store, keys: Keys) -> None:
    """An agent died between shutting the session off and giving its runs back."""
    enqueue_and_take(store, keys, SESSION, "a")
    assert store.run(Sessions(keys).condemn(SESSION, None))
    one = replica("r1")
    one.start("agent")
    wait_until(lambda: ready(store, keys) == 1, what="the run to be given back")

    wait_until(lambda: store.run(Sessions(keys).dying()) == [], what="the session to be forgotten")
