"""A run counts the runs below it: each once, by its last end, and what follows starts once."""

from __future__ import annotations

import json
from typing import Any

from supervisor.core.model import Envelope, Kind, Outcome, Release, Template
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.run_records import Tallies, Tally
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.poll import Ack, Child
from tests.kit.builders import StoreCalls, envelope

S, Z = "r.1/w-0/1", "r.1/w-1/1"


def child(parent: str, key: str, **template: Any) -> Child:
    """Return a child as a worker sends it: its parent's id stands in its header."""
    made = Template(**{"job": "tests.noop", "kind": Kind.ASYNC} | template)
    run = Envelope(id=f"{parent}/{key}", template=made, parent=parent, cause="child")
    return Child(pack(run, above=len(parent)), 0, made.job)


def follow(run_id: str, when: str = "complete", **template: Any) -> str:
    """Return a run that starts when all others have ended, as a worker sends it."""
    made = Template(**{"job": "tests.noop", "kind": Kind.ASYNC} | template)
    packed = pack(Envelope(id=run_id, template=made, parent=run_id.rpartition("/")[0], cause="then"))
    return f"{when} 0 {packed.queue} {run_id} {packed.data.decode()}"


def end(run_id: str, outcome: Outcome = Outcome.OK, *children: Child, attempt: int = 1, **left: Any) -> Ack:
    """Return the acknowledgement of a run of the queue ``default``."""
    behind = json.dumps({"keep": 60_000, **left}).encode() if left else None
    return Ack(
        run_id=run_id,
        queue="default",
        attempt=attempt,
        outcome=outcome,
        children=children,
        left_behind=behind,
        retry_delay_ms=60_000 if outcome is Outcome.RETRY else 0,
    )


def tally(world: StoreCalls, run_id: str = "p") -> Tally:
    """Return what is counted below a run."""
    found = world.run(Tallies(world.keys).read(run_id))
    assert found is not None
    return found


def sums(world: StoreCalls, run_id: str = "p") -> tuple[int, int, dict[str, int]]:
    """Return how many there are, how many are left, and how the others ended."""
    found = tally(world, run_id)
    return found.total, found.left, found.outcomes


def begin(world: StoreCalls, *children: Child, **left: Any) -> None:
    """Let the run ``p`` have ended, with children, and a worker have them."""
    world.open(S)
    world.enqueue(envelope("p"))
    world.fetch(S)
    world.turn(S, acks=[end("p", Outcome.OK, *children, **left)])


def test_each_end_of_a_child_is_counted_as_what_it_was(world: StoreCalls) -> None:
    """Whoever looks at a fan-out asks how many are left, and how many failed."""
    begin(world, *(child("p", key) for key in "abcdef"))
    assert sums(world) == (6, 6, {})
    assert len(world.fetch(S, want=5)) == 5
    world.turn(
        S,
        acks=[
            end("p/a"),
            end("p/b", Outcome.DEAD, attempt=1),
            end("p/c", Outcome.CANCELLED),
            end("p/d", Outcome.EXPIRED),
            end("p/e", Outcome.RETRY),
        ],
    )
    assert sums(world) == (6, 2, {"ok": 1, "dead": 1, "cancelled": 1, "expired": 1})
    control = QueueControl(world.keys)
    world.run(control.cancel([("default", "p/f")]))
    assert sums(world) == (6, 1, {"ok": 1, "dead": 1, "cancelled": 2, "expired": 1})
    assert world.raw.pttl(world.keys.tally("p")) > 86_400_000
    world.make_due("p/e")
    assert world.fetch(S) == ["p/e"]
    world.turn(S, acks=[end("p/e", attempt=2)])
    assert sums(world) == (6, 0, {"ok": 2, "dead": 1, "cancelled": 2, "expired": 1})
    assert 0 < world.raw.pttl(world.keys.tally("p")) <= 86_400_000
    assert world.fsck() == []


def test_a_child_counts_once_however_often_it_is_delivered(world: StoreCalls) -> None:
    """Its worker dies, a zombie reports, a turn is sent twice: there was one end."""
    begin(world, child("p", "a"))
    assert world.fetch(S) == ["p/a"]
    assert world.run(world.sessions.condemn(S, None))
    world.run(world.queues.release_runs(session=S, items=[("default", "p/a", Release.INTERRUPTED)]))
    assert sums(world) == (1, 1, {})
    world.open(Z)
    assert world.fetch(Z) == ["p/a"]
    world.open("r.1/w-2/1")
    assert world.turn("r.1/w-2/1", acks=[end("p/a", counts={"made": 5})]).stale == ["p/a"]
    world.twice(world.turn_call(Z, acks=[end("p/a", counts={"made": 1})]))
    assert sums(world) == (1, 0, {"ok": 1})
    assert tally(world).counts == {"made": 1}


def test_what_an_attempt_counted_that_failed_does_not_count(world: StoreCalls) -> None:
    """The next attempt counts the same things again; errors of a run that was given up are told."""
    begin(world, child("p", "a"), child("p", "b"))
    world.fetch(S)
    world.turn(S, acks=[end("p/a", Outcome.RETRY, counts={"made": 7}), end("p/b", counts={"made": 1, "kept": 2})])
    world.make_due("p/a")
    world.fetch(S)
    ack = end("p/a", Outcome.DEAD, attempt=2, counts={"made": 7}, errors=[["quota", "no room"]])
    world.turn(S, acks=[ack])
    found = tally(world)
    assert (found.counts, found.errors) == ({"made": 1, "kept": 2}, 1)
    assert found.first_errors == [{"run": "p/a", "code": "quota", "message": "no room"}]


def test_a_dead_child_that_is_requeued_is_taken_back(world: StoreCalls) -> None:
    """Dead is failed, until somebody gives it another life; then it is left, and ends once more."""
    begin(world, child("p", "a"), child("p", "b"), then=[follow("p/ok", "success")])
    world.fetch(S)
    world.turn(S, acks=[end("p/a"), end("p/b", Outcome.DEAD)])
    assert sums(world) == (2, 0, {"ok": 1, "dead": 1})
    assert world.state("p/ok") == "unknown"
    world.run(QueueControl(world.keys).requeue("default", ["p/b"]))
    assert sums(world) == (2, 1, {"ok": 1})
    assert world.raw.pttl(world.keys.tally("p")) > 86_400_000
    assert world.fetch(S) == ["p/b"]
    world.turn(S, acks=[end("p/b")])
    assert sums(world) == (2, 0, {"ok": 2})
    assert world.state("p/ok") == "queued"


def test_a_tree_is_summed_up_to_its_root_and_each_branch_by_itself(world: StoreCalls) -> None:
    """A planner of planners: the root is complete when the last leaf of the last branch is."""
    begin(world, child("p", "x"), child("p", "y"), then=[follow("p/done")])
    world.fetch(S)
    world.turn(S, acks=[end("p/x", Outcome.OK, child("p/x", "0"), child("p/x", "1"), counts={"pages": 2}), end("p/y")])
    assert sums(world) == (4, 2, {"ok": 2})
    assert sums(world, "p/x") == (2, 2, {})
    assert world.fetch(S) == ["p/x/0", "p/x/1"]
    world.turn(S, acks=[end("p/x/0", counts={"made": 3})])
    assert (sums(world), sums(world, "p/x")) == ((4, 1, {"ok": 3}), (2, 1, {"ok": 1}))
    assert world.state("p/done") == "unknown"
    world.turn(S, acks=[end("p/x/1", counts={"made": 4})])
    assert (tally(world).counts, tally(world, "p/x").counts) == ({"made": 7, "pages": 2}, {"made": 7, "pages": 2})
    assert (sums(world), world.state("p/done")) == ((4, 0, {"ok": 4}), "queued")
    assert world.fsck() == []


def test_what_follows_a_branch_belongs_to_the_tree_above_it(world: StoreCalls) -> None:
    """A collector's clean-up is part of the collection: the root waits for it."""
    begin(world, child("p", "x"), then=[follow("p/then")])
    world.fetch(S)
    world.turn(S, acks=[end("p/x", Outcome.OK, child("p/x", "0"), then=[follow("p/x/then", unique="k")])])
    world.fetch(S)
    world.turn(S, acks=[end("p/x/0")])
    assert sums(world) == (3, 1, {"ok": 2})
    assert world.fetch(S) == ["p/x/then"]
    world.turn(S, acks=[end("p/x/then")])
    assert sums(world) == (3, 0, {"ok": 3})
    assert world.fetch(S) == ["p/then"]
    world.turn(S, acks=[end("p/then")])
    assert sums(world) == (3, 0, {"ok": 3})


def test_a_run_without_children_is_followed_at_once_and_only_if_it_finished(world: StoreCalls) -> None:
    """One job after another is the smallest chain."""
    world.open(S)
    world.enqueue(envelope("p"))
    world.fetch(S)
    world.turn(S, acks=[end("p", Outcome.RETRY, then=[follow("p/then")])])
    assert world.state("p/then") == "unknown"
    world.make_due("p")
    world.fetch(S)
    world.twice(world.turn_call(S, acks=[end("p", attempt=2, then=[follow("p/then")], counts={"seen": 0})]))
    assert world.fetch(S) == ["p/then"]
    assert (sums(world), tally(world).waiting) == ((0, 0, {}), [])


def test_a_child_refused_for_its_unique_key_is_counted_as_that(world: StoreCalls) -> None:
    """It ended before it began, and holds nothing up."""
    world.enqueue(envelope("other", unique="k"))
    begin(world, child("p", "a", unique="k"), child("p", "b"), then=[follow("p/s", "success")])
    assert sums(world) == (2, 1, {"duplicate": 1})
    world.fetch(S)
    world.turn(S, acks=[end("p/b")])
    assert world.state("p/s") == "queued"


def test_what_a_former_life_of_an_id_left_is_counted_where_it_keeps_a_run_from_coming_to_be(world: StoreCalls) -> None:
    """Its dead child has the id of a child of this one, and of what follows: neither starts, and the sums say so."""
    begin(world, child("p", "0"), child("p", "1"), then=[follow("p/then")])
    assert world.fetch(S) == ["p/0", "p/1"]
    world.turn(S, want=0, acks=[end("p/0"), end("p/1", Outcome.DEAD)])
    assert world.fetch(S) == ["p/then"]
    world.turn(S, want=0, acks=[end("p/then", Outcome.DEAD)])

    world.enqueue(envelope("p"))
    world.fetch(S)
    world.turn(S, want=0, acks=[end("p", Outcome.OK, child("p", "0"), child("p", "1"), then=[follow("p/then")])])
    assert world.fetch(S) == ["p/0"]
    world.turn(S, want=0, acks=[end("p/0")])
    assert sums(world) == (2, 0, {"ok": 1, "duplicate": 1})
    assert tally(world).waiting == world.fetch(S) == []


def test_what_follows_a_branch_and_cannot_start_is_counted_above_it(world: StoreCalls) -> None:
    """A run of its id is there already, of a former life of the branch; the tree above is complete without it."""
    former = Envelope(id="p/0/then", template=envelope("p").template, parent="p/0")
    world.enqueue(former, delays_ms=[60_000])
    begin(world, child("p", "0"))
    assert world.fetch(S) == ["p/0"]
    world.turn(S, want=0, acks=[end("p/0", then=[follow("p/0/then")])])
    assert sums(world) == (2, 0, {"ok": 1, "duplicate": 1})


def test_only_the_first_hundred_errors_and_fifty_names_are_kept(world: StoreCalls) -> None:
    """A tally has a size, whatever ten thousand children say."""
    begin(world, *(child("p", str(n)) for n in range(8)))
    world.fetch(S)
    world.turn(
        S,
        acks=[
            end(
                f"p/{n}",
                counts={f"n{n}_{k}": 1 for k in range(10)},
                errors=[[f"e{k}", "no"] for k in range(20)],
                errors_more=3,
            )
            for n in range(8)
        ],
    )
    found = tally(world)
    assert (found.errors, len(found.first_errors)) == (8 * 23, 100)
    assert (len(found.counts), sum(found.counts.values())) == (51, 80)


def test_a_foreign_key_in_the_place_of_a_tally_does_not_stop_a_run(world: StoreCalls) -> None:
    """Counting must never be the reason why work does not end."""
    world.raw.lpush(world.keys.tally("p"), "foreign")
    begin(world, child("p", "a"))
    assert world.fetch(S) == ["p/a"]
    world.turn(S, acks=[end("p/a")])
    assert world.state("p/a") == "finished"
    assert world.fsck() == []


def test_nothing_stays_when_the_tally_is_forgotten(world: StoreCalls) -> None:
    """What expires takes all with it; an end that comes later counts nowhere and fails nothing."""
    begin(world, child("p", "a"), child("p", "b"), then=[follow("p/then")])
    world.fetch(S)
    world.turn(S, acks=[end("p/a")])
    world.raw.delete(world.keys.tally("p"))
    world.turn(S, acks=[end("p/b", counts={"made": 1})])
    names = {key.decode().removeprefix(world.keys.prefix) for key in world.raw.keys("*")}
    assert not {name for name in names if name.startswith("tally:") or name.endswith(":limits")}


def test_what_waits_for_success_is_kept_as_long_as_the_dead_can_be_requeued(world: StoreCalls) -> None:
    """Somebody mends the cause after a long weekend, and the clean-up is still owed."""
    begin(world, child("p", "a"), then=[follow("p/then", "success")])
    world.fetch(S)
    world.turn(S, acks=[end("p/a", Outcome.DEAD)])
    assert sums(world) == (1, 0, {"dead": 1})
    assert world.raw.pttl(world.keys.tally("p")) > 80 * 86_400_000
    world.run(QueueControl(world.keys).requeue("default", ["p/a"]))
    world.fetch(S)
    world.turn(S, acks=[end("p/a")])
    assert world.fetch(S) == ["p/then"]
    assert 0 < world.raw.pttl(world.keys.tally("p")) <= 60_000


def test_a_sum_that_no_server_can_hold_does_not_keep_the_end_back(world: StoreCalls) -> None:
    """What is counted may be bytes; the clean-up starts whatever they come to."""
    begin(world, child("p", "a"), child("p", "b"), then=[follow("p/then")])
    world.raw.hset(world.keys.tally("p"), "c:bytes", 2**63 - 1)
    world.fetch(S)
    world.turn(S, acks=[end(f"p/{key}", counts={"bytes": 10**15, "made": 1}) for key in "ab"])
    assert sums(world) == (2, 0, {"ok": 2})
    assert tally(world).counts == {"bytes": 2**63 - 1, "made": 2}
    assert world.fetch(S) == ["p/then"]


def test_what_follows_and_is_refused_takes_no_history_away(world: StoreCalls) -> None:
    """A queue may be told to remember more than it does by itself."""
    world.enqueue(envelope("other", unique="k"))
    begin(world, child("p", "a"), then=[follow("p/then", unique="k")])
    world.raw.rpush(world.keys.queue("default").hist, *(["x|ok|1||1|1|tests.noop|"] * 10_200))
    assert world.fetch(S, history=20_000) == ["p/a"]
    world.turn(S, acks=[end("p/a")], history=20_000)
    assert world.state("p/then") == "finished"
    assert world.raw.llen(world.keys.queue("default").hist) > 10_200


def test_a_count_of_what_follows_that_nobody_wrote_holds_nobody_up(world: StoreCalls) -> None:
    """A script that has written cannot be ended: the whole cluster would wait for it, and the turn comes again."""
    begin(world, child("p", "a"), then=[follow("p/then"), follow("p/more")])
    world.raw.hset(world.keys.tally("p"), "thens", 10**14)
    world.fetch(S)
    world.turn(S, acks=[end("p/a")])
    assert world.fetch(S) == ["p/then", "p/more"]
