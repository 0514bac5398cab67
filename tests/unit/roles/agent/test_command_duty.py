"""Commands of people, carried from Redis to the parent and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from supervisor.core.effects import Call
from supervisor.core.signing import FRESH_MS, Signer
from supervisor.core.supervision.child_requests import RequestAnswer as ParentAnswer
from supervisor.core.supervision.scoreboard import EVERY_SLOT, Board, board_words
from supervisor.core.supervision.states import SlotState, Verb
from supervisor.core.units import SECOND_NS
from supervisor.roles.agent.commands import PARENT_NS, PENDING_PERIOD_NS, PERIOD_NS, RELOAD_NS, CommandDuty
from supervisor.store.election.commands import Answer, Command, Commands, Word
from supervisor.store.keys import Keys
from tests.kit.clock import START_MS, FakeClock

KEY = "k" * 32
NAMES = ("agent", "scheduler", "web", "worker-io-0", "worker-io-1")


class CommandedReplica:
    """A board, a parent that answers when told, and a Redis that holds commands."""

    def __init__(self, signer: Signer | None = None, generation: int = 1) -> None:
        size = board_words(slots=len(NAMES), inflight=1)
        self.board = Board(memoryview(bytearray(8 * size)).cast("Q"), slots=len(NAMES), inflight=1)
        self.row = self.board.rows[0]
        self.row.generation = generation
        worker = self.board.rows[3]
        worker.state, worker.generation, worker.desired, worker.busy = SlotState.RUNNING, 4, 1, 2
        self.waiting: dict[str, bytes] = {}
        self.answers: dict[str, Answer] = {}
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.wakes = 0
        self.question_s = 0.0  # how long Redis takes for the commands
        self.clock = FakeClock()
        child: Any = SimpleNamespace(
            replica="r.1", board=self.board, slot_names=NAMES, row=self.row, clock=self.clock, wake_parent=self._wake
        )
        self.duty = CommandDuty(
            call=self._run,
            commands=Commands(Keys("c1")),
            child=child,
            report=lambda event, **fields: self.told.append((event, fields)),
            signer=signer,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def _run(self, call: Call[Any]) -> Any:
        if call.script == "command_take":
            self.clock.advance(self.question_s)
            return list(self.waiting.items())
        assert call.script == "command_answer"
        _, command_id, _, answer = call.args
        assert isinstance(answer, bytes)
        self.waiting.pop(str(command_id), None)
        self.answers[str(command_id)] = msgspec.json.decode(answer, type=Answer)
        return None

    def send(self, command_id: str, **fields: Any) -> None:
        """Leave a command."""
        self.waiting[command_id] = msgspec.json.encode(Command(**fields))

    def look(self, seconds: float = 1.0) -> None:
        """Let the duty have its turn."""
        self.clock.advance(seconds)
        self.duty.run(self.clock.now_ns)

    def parent_answers(self, result: ParentAnswer = ParentAnswer.ACCEPTED) -> None:
        """Let the parent see the request."""
        self.row.request_result = result
        self.row.handled_number = self.row.request_number

    @property
    def request(self) -> tuple[int, int, int, int]:
        """What stands in the request words."""
        row = self.row
        return row.request_verb, row.request_slot, row.request_generation, row.request_number


@pytest.fixture
def world() -> CommandedReplica:
    """Return one replica."""
    return CommandedReplica()


def test_a_command_becomes_a_request_and_its_answer_comes_back(world: CommandedReplica) -> None:
    """The parent alone acts; the person learns what it said."""
    world.send("c1", word=Word.RECYCLE, slot="worker-io-0", by="me")
    world.look()
    assert world.request == (Verb.RECYCLE, 3, 4, 1)
    assert (world.wakes, world.answers, world.duty.period_ns) == (1, {}, PENDING_PERIOD_NS)

    world.parent_answers()
    world.look(0.02)
    assert world.answers == {"c1": Answer(is_done=True)}
    assert world.duty.period_ns == PERIOD_NS
    assert world.told == [("command_taken", {"word": "recycle", "slot": "worker-io-0", "by": "me", "refused": ""})]


def test_a_session_names_one_process_and_no_other(world: CommandedReplica) -> None:
    """Sent again by the next agent it finds that process gone, and replaces no second one."""
    world.send("c1", word=Word.RECYCLE, slot="worker-io-0", generation=3)
    world.look()
    assert world.request[2] == 3

    world.parent_answers(ParentAnswer.GENERATION_GONE)
    world.look(0.02)
    assert not world.answers["c1"].is_done
    assert "that process is gone" in world.answers["c1"].reason


@pytest.mark.parametrize("generation", [-1, 5, 2**63, 2**64, 10**40])
def test_a_process_that_never_was_is_gone(world: CommandedReplica, generation: int) -> None:
    """Who writes commands chooses the number; none that does not fit the board reaches it."""
    world.send("c1", word=Word.RECYCLE, slot="worker-io-0", generation=generation)
    world.look()

    assert "that process is gone" in world.answers["c1"].reason
    assert world.row.request_number == 0


@pytest.mark.parametrize("slot", ["worker-io-7", "web", "agent"])
def test_only_workers_can_be_named(world: CommandedReplica, slot: str) -> None:
    """The web process and the agent are the parent's alone."""
    world.send("c1", word=Word.QUIET, slot=slot)
    world.look()

    assert world.answers["c1"].reason.startswith(f"there is no worker {slot}")
    assert world.row.request_number == 0


def test_all_workers_at_once(world: CommandedReplica) -> None:
    """Quiet before maintenance."""
    world.send("c1", word=Word.QUIET)
    world.look()

    assert world.request == (Verb.QUIET, EVERY_SLOT, 0, 1)


def test_one_command_at_a_time(world: CommandedReplica) -> None:
    """There is one set of request words, and each answer belongs to one request."""
    world.send("c1", word=Word.QUIET)
    world.send("c2", word=Word.RESUME)
    world.look()
    world.look(0.02)
    assert world.request[0] == Verb.QUIET

    world.parent_answers()
    world.look(0.02)
    world.look()
    assert world.request[0] == Verb.RESUME


def test_a_request_of_somebody_else_is_not_overwritten(world: CommandedReplica) -> None:
    """The agent also asks for kills, by the same words."""
    world.row.request_number = 5
    world.send("c1", word=Word.QUIET)
    world.look()

    assert world.row.request_number == 5
    assert "try again" in world.answers["c1"].reason


def test_a_parent_that_says_nothing_is_not_waited_for_for_ever(world: CommandedReplica) -> None:
    """Else no later command would be taken."""
    world.send("c1", word=Word.QUIET)
    world.look()
    world.look(PARENT_NS / SECOND_NS + 1)

    assert "no answer in time" in world.answers["c1"].reason
    assert world.duty.period_ns == PERIOD_NS


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_reload_is_answered_once_it_ended(world: CommandedReplica, *, is_refused: bool) -> None:
    """That the parent took it says nothing yet."""
    world.send("c1", word=Word.RELOAD)
    world.question_s = 3
    world.look()
    asked_ns = world.clock.elapsed_ns()
    world.parent_answers()
    world.look(5)
    assert world.answers == {}

    header = world.board.header
    header.is_reload_refused, header.reload_began_ns = int(not is_refused), asked_ns - 1
    header.reload_number += 1
    world.look(0.02)
    assert world.answers == {}, "one that began before read the files as they were"

    header.is_reload_refused, header.reload_began_ns = int(is_refused), asked_ns
    world.look(0.02)
    assert world.answers["c1"].is_done is not is_refused


def test_a_reload_that_never_ends_is_said_so(world: CommandedReplica) -> None:
    """The log of the replica knows more."""
    world.send("c1", word=Word.RELOAD)
    world.look()
    world.parent_answers()
    world.look(RELOAD_NS / SECOND_NS + 1)

    assert "the log of that replica" in world.answers["c1"].reason


def test_a_stop_is_answered_before_it_begins(world: CommandedReplica) -> None:
    """Nobody may be left to answer afterwards."""
    world.send("c1", word=Word.STOP)
    world.look()

    assert world.answers == {"c1": Answer(is_done=True)}
    assert world.request[0] == Verb.STOP
    assert world.wakes == 1


def test_a_report_shows_the_rows_that_mean_something(world: CommandedReplica) -> None:
    """A pool has more rows than processes."""
    world.board.rows[4].is_quiet = 1
    world.send("c1", word=Word.REPORT)
    world.look()

    workers = world.answers["c1"].workers
    assert [(each.slot, each.state, each.busy, each.generation) for each in workers] == [
        ("worker-io-0", "running", 2, 4),
        ("worker-io-1", "quiet", 0, 0),
    ]
    assert world.row.request_number == 0


def test_a_command_of_a_newer_version_is_refused_not_repeated(world: CommandedReplica) -> None:
    """During a rolling update, the command line may be newer than this replica."""
    world.waiting["c1"] = b'{"word": "juggle"}'
    world.look()

    assert "does not know" in world.answers["c1"].reason


def test_a_command_is_told_with_no_more_words_than_a_line_shows() -> None:
    """Whoever writes to Redis knows no limit, and each word is masked before it is logged."""
    world = CommandedReplica()
    world.waiting["c"] = msgspec.json.encode({"word": "stacks", "slot": "x" * 9000, "by": "a." * 6000})
    world.duty.run(0)

    ((_, fields),) = world.told
    assert max(len(str(value)) for value in fields.values()) < 300
    assert not world.answers["c"].is_done


def signed(command_id: str, *, key: str = KEY, replica: str = "r.1", at_ms: int = START_MS, **fields: Any) -> bytes:
    """Return a command as an operator with ``key`` sends it."""
    signer = Signer("c1", key)
    return msgspec.json.encode(Command(**fields).signed(signer, replica, command_id, at_ms))


def test_with_a_key_only_signed_commands_are_carried() -> None:
    """Who may write to Redis, and has no key, stops no replica; reports change nothing, and need none."""
    world = CommandedReplica(signer=Signer("c1", KEY))
    good = msgspec.json.decode(signed("other", word=Word.STOP))
    for command_id, body in {
        "unsigned": msgspec.json.encode(Command(word=Word.STOP)),
        "key": signed("key", key="x" * 32, word=Word.STOP),
        "replica": signed("replica", replica="r.2", word=Word.STOP),
        "old": signed("old", at_ms=START_MS - FRESH_MS - 60_000, word=Word.STOP),
        "id": msgspec.json.encode(good),
        "word": msgspec.json.encode({**msgspec.json.decode(signed("word", word=Word.QUIET)), "word": "stop"}),
        "slot": msgspec.json.encode({**msgspec.json.decode(signed("slot", word=Word.QUIET)), "slot": "worker-io-0"}),
    }.items():
        world.waiting = {command_id: body}
        world.look()
        assert not world.answers[command_id].is_done, command_id
    assert world.row.request_number == 0

    world.send("report", word=Word.REPORT)
    world.look()
    assert world.answers["report"].is_done
    world.waiting = {"good": signed("good", word=Word.STOP)}
    world.look()
    assert world.answers["good"].is_done
    assert world.row.request_verb == Verb.STOP


def test_a_signed_command_is_obeyed_once() -> None:
    """Somebody who reads Redis and may write to it sends it again: it is of no use."""
    world = CommandedReplica(signer=Signer("c1", KEY))
    body = signed("c", word=Word.QUIET)
    world.waiting = {"c": body}
    world.look()
    world.parent_answers()
    world.look()
    assert world.answers["c"].is_done
    number = world.row.request_number

    world.waiting = {"c": body}
    world.look()

    assert world.row.request_number == number
    assert "before" in world.answers["c"].reason


def test_an_agent_that_replaces_another_refuses_what_was_signed_before_it() -> None:
    """Whoever writes to Redis and can end the agent would else have a command obeyed once for each of its successors."""
    world = CommandedReplica(signer=Signer("c1", KEY), generation=2)
    world.waiting = {"c": signed("c", at_ms=world.clock.wall_ms() - 1, word=Word.QUIET)}
    world.look()
    assert "before this agent" in world.answers["c"].reason
    assert world.row.request_number == 0

    world.waiting = {"d": signed("d", word=Word.QUIET)}
    world.look()
    assert world.row.request_number == 1


def test_without_a_key_a_signature_is_no_matter() -> None:
    """In a rolling update some replicas have the key already."""
    world = CommandedReplica()
    world.waiting = {"c": signed("c", word=Word.STOP)}
    world.look()

    assert world.answers["c"].is_done
