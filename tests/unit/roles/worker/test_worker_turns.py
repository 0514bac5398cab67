"""The numbered turns of one worker process."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.effects import Call
from supervisor.core.errors import EXIT_RESTART
from supervisor.core.model import PAYLOAD_BYTES_MAX, Kind, Outcome
from supervisor.roles.worker.polling.poll import ACKS_MAX, KEPT_MAX, PollSession, SessionLostError
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.wire.envelope import Packed
from supervisor.store.wire.poll import CHILDREN_MAX, PAYLOADS_BYTES_MAX, Ack, Child, TurnReply


class Recorded(Queues):
    """Builds calls, and remembers from what: how the script takes them is not looked at here."""

    def __init__(self) -> None:
        super().__init__(Keys("test"))
        self.asked: list[tuple[Call[TurnReply], dict[str, Any]]] = []

    def turn(self, **arguments: Any) -> Call[TurnReply]:
        call = super().turn(**arguments)
        self.asked.append((call, arguments))
        return call


RECORDED = Recorded()


def turns() -> PollSession:
    """Return the turns of a session that has had none."""
    return PollSession(RECORDED, session="s", kind=Kind.SYNC, queue_names=("a", "b"), history=10, dead_cap=10)


def ack(run_id: str, *, children: int = 0, size: int = 10) -> Ack:
    """Return how a run ended, and what it spawned."""
    spawned = tuple(Child(Packed(f"{run_id}/{n}", "a", b"x" * size), 0, "j") for n in range(children))
    return Ack(run_id=run_id, queue="a", attempt=1, outcome=Outcome.OK, children=spawned)


def reply(*refused: str, lost: bool = False) -> TurnReply:
    """Return an answer that brings nothing; ``refused``: runs of the queue ``a`` whose end is to be told again."""
    of_a = frozenset(("a", run_id) for run_id in refused)
    return TurnReply(lost=lost, runs=[], stale=[], refused=of_a, next_due_ms=None, now_ms=0, broken=[])


def asked(call: Any) -> dict[str, Any]:
    """Return what a call was built from."""
    return next(arguments for made, arguments in RECORDED.asked if made is call)


def sent(call: Any) -> tuple[int, list[str]]:
    """Return the number of a call and the runs that it acknowledges."""
    arguments = asked(call)
    return arguments["seq"], [item.run_id for item in arguments["acks"]]


def test_a_turn_without_an_answer_is_asked_again_as_it_was() -> None:
    """Redis answers it from memory, so a changed one would be answered wrongly."""
    subject = turns()
    subject.acknowledge(ack("r1"))
    first = subject.call(want=3)
    subject.acknowledge(ack("r2"))

    again = subject.call(want=1, want_suspect=True)

    assert again == first
    assert sent(again) == (1, ["r1"])


def test_what_ended_meanwhile_goes_into_the_next_turn() -> None:
    """Never into the open one, and never lost."""
    subject = turns()
    subject.acknowledge(ack("r1"))
    subject.call(want=0)
    subject.acknowledge(ack("r2"))

    assert [item.run_id for item in subject.answered(reply())] == ["r1"]
    assert sent(subject.call(want=0)) == (2, ["r2"])


def test_what_was_refused_is_settled_by_nothing_and_sent_again_when_it_is_time() -> None:
    """Its neighbours are settled; it is no work until then, and none of it goes into a turn that is open."""
    subject = turns()
    for name in ("r1", "r2", "r3"):
        subject.acknowledge(ack(name))
    subject.call(want=0)
    assert [item.run_id for item in subject.answered(reply("r1", "r3"))] == ["r2"]
    assert (subject.has_work, len(subject.refused_acks)) == (False, 2)
    assert sent(subject.call(want=1)) == (2, [])
    subject.send_refused()
    assert (subject.answered(reply()), len(subject.refused_acks)) == ([], 2)

    subject.acknowledge(ack("r4"))
    subject.send_refused()
    assert sent(subject.call(want=0)) == (3, ["r1", "r3", "r4"])
    assert [item.run_id for item in subject.answered(reply())] == ["r1", "r3", "r4"]
    assert (subject.has_work, len(subject.refused_acks)) == (False, 0)


def test_of_a_queue_with_so_many_refused_ends_nothing_more_is_fetched() -> None:
    """Each keeps a place in the process, so that runs of the other queues would find none."""
    subject = turns()
    names = [f"r{number}" for number in range(KEPT_MAX)]
    for name in names:
        subject.acknowledge(ack(name))
    subject.call(want=0)
    subject.answered(reply(*names[1:]))
    assert asked(subject.call(want=5))["queues"] == [("a", 5), ("b", 5)]
    subject.answered(reply())
    subject.acknowledge(ack("r9"))
    subject.call(want=0)
    subject.answered(reply("r9"))
    for answer in (reply(), reply(*names, "r9"), reply()):
        assert asked(subject.call(want=5, shares={"b": 3}))["queues"] == [("a", 0), ("b", 3)]
        subject.answered(answer)
        subject.send_refused()

    subject.call(want=0)
    subject.answered(reply())
    assert asked(subject.call(want=5))["queues"] == [("a", 5), ("b", 5)]


def test_a_lost_session_settles_nothing_and_asks_for_a_restart() -> None:
    """Its runs belong to others; the process starts afresh under a session of its own."""
    subject = turns()
    subject.acknowledge(ack("r1"))
    subject.call(want=0)

    with pytest.raises(SessionLostError) as caught:
        subject.answered(reply(lost=True))

    assert caught.value.exit_code == EXIT_RESTART
    assert [item.run_id for item in subject.unsettled] == ["r1"]


def test_a_turn_asks_for_no_more_than_there_is_room_for() -> None:
    """What it acknowledges leaves the in-flight table when it is answered, and not before."""
    subject = turns()
    for number in range(3):
        subject.acknowledge(ack(f"r{number}"))

    arguments = asked(subject.call(want=50, room=4))

    assert (arguments["want"], arguments["queues"]) == (7, [("a", 7), ("b", 7)])


def test_a_queue_gets_its_share_at_most() -> None:
    """Others get what is wanted, and a share above that changes nothing."""
    arguments = asked(turns().call(want=5, shares={"a": 2}))
    assert (arguments["want"], arguments["queues"]) == (5, [("a", 2), ("b", 5)])
    assert asked(turns().call(want=5, shares={"a": 9, "b": 0}))["queues"] == [("a", 5), ("b", 0)]


def test_a_turn_carries_a_bounded_number_of_acknowledgements() -> None:
    """The script is bounded; the rest follows in the next turn."""
    subject = turns()
    for number in range(ACKS_MAX + 1):
        subject.acknowledge(ack(f"r{number}"))

    assert len(sent(subject.call(want=0))[1]) == ACKS_MAX
    subject.answered(reply())
    assert subject.has_work
    assert sent(subject.call(want=0)) == (2, [f"r{ACKS_MAX}"])


def test_a_turn_carries_a_bounded_number_of_children() -> None:
    """Several planners may end at once; each one's children travel whole, and the script stays short."""
    subject = turns()
    for name, children in {"r1": 600, "r2": 400, "r3": 1, "r4": CHILDREN_MAX, "r5": 0}.items():
        subject.acknowledge(ack(name, children=children))

    assert sent(subject.call(want=0)) == (1, ["r1", "r2"])
    subject.answered(reply())
    assert sent(subject.call(want=0)) == (2, ["r3"])
    subject.answered(reply())
    assert sent(subject.call(want=0)) == (3, ["r4", "r5"])


def test_a_turn_carries_a_bounded_weight_of_children() -> None:
    """A thousand children of 64 KiB would hold Redis up for everybody."""
    subject = turns()
    for name in ("r1", "r2", "r3"):
        subject.acknowledge(ack(name, children=40, size=PAYLOADS_BYTES_MAX // 80))

    assert sent(subject.call(want=0)) == (1, ["r1", "r2"])


def test_a_turn_carries_a_bounded_weight_of_results() -> None:
    """200 of 64 KiB took longer over a slow link than a caller waits, and so did the same turn each time it came again."""
    subject = turns()
    for number in range(ACKS_MAX):
        subject.acknowledge(msgspec.structs.replace(ack(f"r{number}"), result=b"x" * PAYLOAD_BYTES_MAX))

    most = PAYLOADS_BYTES_MAX // PAYLOAD_BYTES_MAX
    assert sent(subject.call(want=0)) == (1, [f"r{number}" for number in range(most)])


@given(st.lists(st.sampled_from(["end", "ask", "answer"]), max_size=60))
def test_every_acknowledgement_travels_until_one_turn_is_answered_and_not_after(events: list[str]) -> None:
    """The law of the protocol, over any interleaving of ends, asks and answers."""
    subject = turns()
    settled: list[str] = []
    ended = 0
    asked: dict[int, list[str]] = {}
    for event in events:
        if event == "end":
            subject.acknowledge(ack(f"r{ended}"))
            ended += 1
        elif event == "ask":
            number, runs = sent(subject.call(want=1))
            assert asked.setdefault(number, runs) == runs
            assert not set(runs) & set(settled)
        elif subject.is_open:
            settled += [item.run_id for item in subject.answered(reply())]
    waiting = [item.run_id for item in subject.unsettled]

    assert settled + waiting == [f"r{number}" for number in range(ended)]
