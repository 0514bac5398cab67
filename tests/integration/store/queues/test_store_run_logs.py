"""Output of runs in Redis: kept with the end of an attempt or while it goes on, bounded, and never in the way of an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.model import Outcome
from supervisor.store.queues.run_records import AttemptLog, LogItem, RunLogs
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import on_both

S = "r.1/worker-io-0/1"
WEEK_MS = 7 * 86_400_000


def item(run_id: str, text: str = "said", *, number: int = 1, born: int = 7, **fields: Any) -> LogItem:
    """Return output of an execution."""
    kept = AttemptLog(number, number, "tests.noop", "default", S, 1, 2, head=text)
    return LogItem(run_id, born, number, msgspec.json.encode(kept) if text else b"", **fields)


def kept(world: StoreCalls, run_id: str) -> list[str]:
    """Return what is kept of a run."""
    return [log.head for log in world.run(RunLogs(world.keys).read(run_id))]


def end(world: StoreCalls, *items: LogItem, outcome: Outcome = Outcome.RETRY, **ack: Any) -> None:
    """Execute the runs that these are of, each ending with its output."""
    for each in items:
        world.enqueue(envelope(each.run_id))
    world.fetch(S)
    for each in items:
        assert world.ack(S, each.run_id, outcome, log=each.packed, **ack).stale == []


def counted(world: StoreCalls) -> tuple[int, int]:
    """Return how many bytes of output are counted, and how many there are."""
    there = 0
    for key in world.raw.scan_iter(match=f"{world.keys.prefix}log:*"):
        there += sum(len(body) for name, body in world.raw.hgetall(key).items() if name != b"#born")
    return int(world.raw.hget(f"{world.keys.prefix}logs:bytes", "") or 0), there


def test_output_comes_with_the_end_of_its_attempt_and_expires(world: StoreCalls) -> None:
    """In the same turn, also beside a result and what else an attempt leaves."""
    world.open(S)
    end(world, item("a", "failed\n"))
    end(
        world, item("b", "fine\n"), outcome=Outcome.OK, result=b"1", result_ttl_ms=60_000, left_behind=b'{"keep":60000}'
    )

    assert (kept(world, "a"), kept(world, "b"), kept(world, "nobody")) == (["failed\n"], ["fine\n"], [])
    assert world.raw.get(world.keys.result("b")) == b"1"
    for name in ("log:a", "log:b", "logs", "logs:bytes"):
        assert 0 < world.raw.pttl(world.keys.prefix + name) <= WEEK_MS
    assert counted(world)[0] == counted(world)[1] > 0


def test_each_execution_has_its_own_and_the_oldest_make_room(world: StoreCalls) -> None:
    """A run that is tried for ever keeps five."""
    world.open(S)
    for number in range(1, 8):
        end(world, item("a", f"attempt {number}", number=number), attempt=number, retry_delay_ms=0)
    assert kept(world, "a") == [f"attempt {number}" for number in range(3, 8)]
    assert counted(world)[0] == counted(world)[1]


def test_a_later_run_of_the_id_does_not_show_the_output_of_the_former(world: StoreCalls) -> None:
    """The id came again; its third attempt was another run's."""
    world.open(S)
    end(world, item("a", "former", number=3), outcome=Outcome.CANCELLED)
    end(world, item("a", "", born=8), outcome=Outcome.OK)
    assert kept(world, "a") == ["former"], "a run that keeps none of its own removes none"
    end(world, item("a", "later", born=8), outcome=Outcome.DEAD)
    assert kept(world, "a") == ["later"]
    assert counted(world)[0] == counted(world)[1]


@on_both("run_log_write")
def test_output_of_a_run_that_goes_on_is_its_executors_alone(world: StoreCalls) -> None:
    """What a worker sends late, of a run that ended or that somebody else executes, is left out."""
    calls = RunLogs(world.keys)
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    (a, b) = world.turn(S, want=2).runs

    def write(run: Any, text: str, session: str = S) -> int:
        fence = f"{session}|{run.attempt}|{run.fetched_ms}"
        return int(world.run(calls.write([item(run.envelope.id, text, queue="default", fence=fence)])))

    assert [write(a, "so far"), write(b, "x", "r.2/worker-io-0/1"), write(a, "farther")] == [1, 0, 1]
    assert (kept(world, "a"), kept(world, "b")) == (["farther"], [])
    world.ack(S, "a", Outcome.OK, log=item("a", "").packed)
    assert write(a, "too late") == 0
    assert kept(world, "a") == []
    assert world.raw.keys(f"{world.keys.prefix}log*") == [f"{world.keys.prefix}logs:bytes".encode()]
    assert counted(world) == (0, 0)


def test_all_output_together_is_bounded(world: StoreCalls) -> None:
    """The oldest runs lose theirs, and what is counted is what is there."""
    world.open(S)
    text = "x" * 1_000_000
    for number in range(40):
        end(world, item(f"r{number}", text), outcome=Outcome.DEAD)
    assert [number for number in range(40) if kept(world, f"r{number}")] == list(range(7, 40))
    assert counted(world)[0] == counted(world)[1] <= 32 << 20
    for number in range(39):
        world.raw.delete(world.keys.run_log(f"r{number}"))  # they expired
    world.raw.zadd(f"{world.keys.prefix}logs", {f"r{number}": 1 for number in range(39)})
    end(world, item("last"))
    assert counted(world)[0] == counted(world)[1]


def test_output_is_kept_although_the_list_of_what_was_kept_is_gone(world: StoreCalls) -> None:
    """Somebody deleted it, or a server that may evict did: what it listed can make no room, and is counted no more."""
    world.open(S)
    end(world, item("a"))
    world.raw.hset(f"{world.keys.prefix}logs:bytes", "", 40_000_000)
    world.raw.delete(f"{world.keys.prefix}logs")
    end(world, item("b"), item("c"))

    assert (kept(world, "b"), kept(world, "c")) == (["said"], ["said"])


def test_a_full_memory_refuses_the_output_and_not_the_end(world: StoreCalls) -> None:
    """Nor does a key of somebody else; nothing of either is written half."""
    world.open(S)
    if world.server.is_real:  # fakeredis has no memory limit
        world.enqueue(envelope("full"), envelope("running"))
        runs = world.turn(S, want=2).runs
        running = next(run for run in runs if run.envelope.id == "running")
        fence = f"{S}|1|{running.fetched_ms}"
        world.raw.config_set("maxmemory", 1)
        try:
            assert world.ack(S, "full", Outcome.OK, log=item("full").packed).stale == []
            with pytest.raises(StoreUnavailableError, match="memory"):
                world.run(RunLogs(world.keys).write([item("running", queue="default", fence=fence)]))
        finally:
            world.raw.config_set("maxmemory", 0)
        assert (kept(world, "full"), kept(world, "running"), counted(world)) == ([], [], (0, 0))
        assert world.run(world.queues.show("full")).state == "finished"
    world.raw.set(world.keys.run_log("foreign"), "a string")
    end(world, item("foreign"), outcome=Outcome.DEAD)
    assert world.run(world.queues.show("foreign")).state == "dead"


def test_a_queue_whose_table_is_a_foreign_key_keeps_no_output_of_others_back(world: StoreCalls) -> None:
    """A worker process sends that of all its runs together."""
    world.open(S)
    world.enqueue(envelope("a"))
    (run,) = world.turn(S, want=1).runs
    world.raw.set(world.keys.queue("broken").run, "a string")
    fence = f"{S}|1|{run.fetched_ms}"
    items = [item("b", queue="broken", fence=fence), item("a", queue="default", fence=fence)]

    assert world.run(RunLogs(world.keys).write(items)) == 1
    assert kept(world, "a") == ["said"]


@pytest.mark.parametrize("marks", ["l", " y", " l x", " xl"])
def test_an_acknowledgement_with_unknown_marks_is_refused(world: StoreCalls, marks: str) -> None:
    """Before anything is written."""
    world.open(S)
    world.enqueue(envelope("a"))
    (run,) = world.turn(S, want=1).runs
    call = world.queues.turn(session=S, seq=2, kind=run.envelope.template.kind, queues=[], want=0, want_suspect=False)
    line, where = f"a|ok|1|{S}|1|2|j|", f"default {run.fetched_ms} - 0 0 - 0{marks}"
    args = (*call.args[:-1], 1, line, where, "", b"1 1 {}", b"1 1 {}")
    with pytest.raises(StoreRefusedError, match="BADARG"):
        world.run(replace(call, args=args))
    assert world.run(world.queues.show("a")).state == "running"


@pytest.mark.parametrize("number", ["9" * 5000, "\N{ARABIC-INDIC DIGIT THREE}", "-1"])
def test_a_number_of_an_execution_that_nobody_writes_hides_no_output(world: StoreCalls, number: str) -> None:
    """It is left out, as what cannot be read under a number of ours."""
    world.open(S)
    end(world, item("a", "failed\n"))
    known = world.raw.hget(world.keys.run_log("a"), "1")
    world.raw.hset(world.keys.run_log("a"), number, known)

    assert kept(world, "a") == ["failed\n"]
