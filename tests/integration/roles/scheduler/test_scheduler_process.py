"""The scheduler as a process beside a real agent: it fires under the term, idles without, and drains."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from itertools import pairwise

import pytest

from supervisor.clock import SystemClock
from supervisor.core.election.lease import NO_TERM, Term
from supervisor.core.units import SECOND_NS
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import LogEntry, Schedules
from supervisor.store.wire.fire import FireCode
from tests.integration.roles.role_processes import SLOTS, Replica
from tests.kit.servers import wait_until

pytestmark = pytest.mark.server
Make = Callable[..., Replica]
TICK = {"tick": 200}
ROW = SLOTS.index("scheduler")


def fires(store: Store, keys: Keys) -> list[LogEntry]:
    return list(reversed(store.run(Schedules(keys).log(1000))))


def start(made: Replica) -> Replica:
    made.start("scheduler")
    made.start("agent")
    return made


def account(entries: list[LogEntry], every_ms: int) -> None:
    """Assert that every due time was decided exactly once: fired, or counted as missed."""
    for early, late in pairwise(entries):
        assert late.nominal_ms - early.nominal_ms == every_ms * (late.missed + 1)


def test_it_fires_what_is_due_while_it_leads(replica: Make, store: Store, keys: Keys) -> None:
    """Every due time once, under the epoch of the board."""
    one = start(replica("r1", schedules=TICK))
    wait_until(lambda: len(fires(store, keys)) >= 5, what="five fires")

    entries = fires(store, keys)
    assert {entry.epoch for entry in entries} == {one.board.term().epoch}
    assert {entry.code for entry in entries} == {FireCode.FIRED}
    account(entries, 200)


def test_a_hand_over_loses_and_repeats_nothing(replica: Make, store: Store, keys: Keys) -> None:
    """Fires of both terms, in order, without a gap."""
    one, two = start(replica("r1", schedules=TICK)), replica("r2", schedules=TICK)
    wait_until(lambda: len(fires(store, keys)) >= 3, what="fires of the first")
    start(two)
    wait_until(lambda: "standby" in two.log, what="r2 to stand by")
    one.drain()
    assert one.reap("scheduler") == 0
    wait_until(lambda: len({entry.epoch for entry in fires(store, keys)}) == 2, what="fires of the second")

    entries = fires(store, keys)
    account(entries, 200)
    assert [entry.epoch for entry in entries] == sorted(entry.epoch for entry in entries)


def test_a_killed_scheduler_is_followed_by_its_replacement(replica: Make, store: Store, keys: Keys) -> None:
    """Under a later epoch of the same holder: the agent lives, and what the dead one sent last is refused."""
    one = start(replica("r1", schedules=TICK))
    wait_until(lambda: len(fires(store, keys)) >= 3, what="fires of the first process")
    one.kill("scheduler")
    before = len(fires(store, keys))
    one.start("scheduler")
    wait_until(lambda: len(fires(store, keys)) >= before + 3, what="fires of the second process")

    entries = fires(store, keys)
    assert [entry.epoch for entry in entries] == sorted(entry.epoch for entry in entries)
    account(entries, 200)


def test_a_stopped_leader_does_no_harm_when_it_goes_on(replica: Make, store: Store, keys: Keys) -> None:
    """SIGSTOP for longer than the lease: the other leads, and what the first sends afterwards is refused."""
    one, two = start(replica("r1", schedules=TICK)), start(replica("r2", schedules=TICK))
    wait_until(lambda: one.board.header.is_leading or two.board.header.is_leading, what="a leader")
    first, second = (one, two) if one.board.header.is_leading else (two, one)
    wait_until(lambda: len(fires(store, keys)) >= 3, what="fires of the first")
    for role in ("agent", "scheduler"):
        first.signal(role, signal.SIGSTOP)
    wait_until(lambda: second.board.header.is_leading, what="the other to lead")
    wait_until(lambda: fires(store, keys)[-1].epoch == second.board.term().epoch, what="fires of the second")
    for role in ("scheduler", "agent"):
        first.signal(role, signal.SIGCONT)
    wait_until(lambda: "standby" in first.log, what="the first to stand by")

    entries = fires(store, keys)
    account(entries, 200)
    assert [entry.epoch for entry in entries] == sorted(entry.epoch for entry in entries)


def test_an_idle_scheduler_beats(replica: Make) -> None:
    """Without a term and without Redis' help: the parent must not call it hung."""
    one = replica("r1")
    one.start("scheduler")
    row = one.board.rows[ROW]
    before = row.progress
    wait_until(lambda: row.progress >= before + 3, what="three beats")

    one.signal("scheduler", signal.SIGTERM)
    assert one.reap("scheduler") == 0


def test_a_leader_that_gets_no_answer_shows_since_when(replica: Make) -> None:
    """Its agent may be answered all the while; who stands by waits for nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = replica("r1", url=f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        one.start("scheduler")
        row = one.board.rows[ROW]
        one.board.publish_term(Term(8, "a" * 32, SystemClock().elapsed_ns() + 3600 * SECOND_NS))
        wait_until(lambda: row.asking_ns > 0, what="a question")
        asked_ns, before = row.asking_ns, row.progress
        wait_until(lambda: row.progress >= before + 4, what="it to ask again")
        assert row.asking_ns == asked_ns
        one.board.publish_term(NO_TERM)

        wait_until(lambda: row.asking_ns == 0, what="it to stand by")
