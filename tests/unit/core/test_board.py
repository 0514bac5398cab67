"""The scoreboard: words where they belong, a term that is never torn, tables that survive a killed writer."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.election.lease import NO_TERM, Term
from supervisor.core.supervision.scoreboard import (
    HEADER_WORDS,
    INFLIGHT_WORDS,
    ROW_WORDS,
    Board,
    Header,
    InflightTable,
    Row,
    _Word,
    board_words,
    execution_hash,
)
from supervisor.core.supervision.states import ChildState, RunState, SlotState
from tests.kit.tables import table

OLD = Term(epoch=7, nonce="0123456789abcdef" * 2, trusted_until_ns=1_000)
NEW = Term(epoch=8, nonce="fedcba9876543210" * 2, trusted_until_ns=2_000)


def make_board(slots: int = 3, inflight: int = 4) -> Board:
    words = memoryview(bytearray(8 * board_words(slots=slots, inflight=inflight))).cast("Q")
    return Board(words, slots=slots, inflight=inflight)


class KilledError(Exception):
    """The writer died between two stores."""


class Dying:
    """Words that let their writer live for so many stores."""

    def __init__(self, words: memoryview, stores: int) -> None:
        self.words = words
        self.left = stores

    def __getitem__(self, index: int) -> int:
        return int(self.words[index])

    def __setitem__(self, index: int, value: int) -> None:
        if self.left == 0:
            raise KilledError
        self.left -= 1
        self.words[index] = value


class Meddling:
    """Words whose reader is interrupted by a whole write after so many loads."""

    def __init__(self, board: Board, words: memoryview, after: int) -> None:
        self.board = board
        self.words = words
        self.left = after

    def __getitem__(self, index: int) -> int:
        self.left -= 1
        if self.left == 0:
            writer = make_writer(self.board, self.words)
            writer.publish_term(NEW)
        return int(self.words[index])


def make_writer(board: Board, words: memoryview) -> Board:
    writer = object.__new__(Board)
    writer.header = Header(words)
    return writer


@pytest.mark.parametrize("block", [Row, Header])
def test_no_two_words_of_a_block_share_a_place(block: type) -> None:
    """One writer per word holds only while the words are different ones."""
    places = sorted(word.index for word in vars(block).values() if isinstance(word, _Word))
    assert all(before < after for before, after in pairwise(places))
    assert places[-1] < (ROW_WORDS if block is Row else HEADER_WORDS)


def test_slots_do_not_reach_into_one_another() -> None:
    """Every word of every block is a different word of the board."""
    board = make_board(slots=3, inflight=2)
    blocks = [board.header.words, *(row.words for row in board.rows), *(table.words for table in board.inflight)]
    for number, words in enumerate(blocks, start=1):
        for index in range(len(words)):
            words[index] = number
    assert all(set(words) == {number} for number, words in enumerate(blocks, start=1))
    assert sum(len(words) for words in blocks) == board_words(slots=3, inflight=2)


@table("stores", range(8))
def test_an_agent_killed_in_the_middle_of_a_write_leaves_no_torn_term(stores: int) -> None:
    """Epoch of one term with the nonce of another would fence nobody: it is the old one, the new one, or none."""
    board = make_board()
    board.publish_term(OLD)
    words = board.header.words
    dying = make_writer(board, words)
    dying.header.words = Dying(words, stores)  # type: ignore[assignment]
    try:
        dying.publish_term(NEW)
    except KilledError:
        assert board.term() in {OLD, NO_TERM}
    else:
        assert board.term() == NEW
    board.publish_term(NEW)  # by the agent's replacement
    assert board.term() == NEW
    assert board.header.term_sequence % 2 == 0


@pytest.mark.parametrize("stale", ["epoch", "nonce_high", "nonce_low", "trusted_until_ns", "term_check"])
def test_a_store_that_is_seen_late_is_no_term(stale: str) -> None:
    """On arm64 another processor may see the even counter before one of the words that were stored ahead of it."""
    board = make_board()
    board.publish_term(OLD)
    before = getattr(board.header, stale)
    board.publish_term(NEW)
    setattr(board.header, stale, before)
    assert board.term() == NO_TERM


def test_a_replacement_does_not_complete_what_the_dead_agent_began() -> None:
    """A reader that began before the crash must notice the second write, so the counter moves past both."""
    board = make_board()
    board.publish_term(OLD)
    before = board.header.term_sequence
    dying = make_writer(board, board.header.words)
    dying.header.words = Dying(board.header.words, 2)  # type: ignore[assignment]
    with pytest.raises(KilledError):
        dying.publish_term(NEW)
    board.publish_term(NEW)
    assert board.header.term_sequence >= before + 4


@pytest.mark.parametrize("loads", range(1, 8))
def test_a_reader_that_is_overtaken_by_a_write_reads_again(loads: int) -> None:
    """The two halves of a term are only worth something together."""
    board = make_board()
    board.publish_term(OLD)
    reader = make_writer(board, board.header.words)
    reader.header.words = Meddling(board, board.header.words, loads)  # type: ignore[assignment]
    assert reader.term() in {OLD, NEW}


@given(st.integers(0, 2**63), st.integers(0, 2**128 - 1), st.integers(0, 2**63))
def test_a_term_comes_back_as_it_was_written(epoch: int, nonce: int, until_ns: int) -> None:
    """A nonce has 128 bits, and leading zeros count."""
    board, term = make_board(), Term(epoch, f"{nonce:032x}", until_ns)
    board.publish_term(term)
    assert board.term() == term


def test_a_fresh_board_holds_no_term_and_no_nonce() -> None:
    """Zeroed memory means nobody leads."""
    board = make_board()
    assert board.term() == NO_TERM
    assert not board.term().is_trusted(0)
    assert board.next_nonce is None


@given(st.integers(1, 2**128 - 1))
def test_the_next_nonce_comes_back_as_it_was_written(nonce: int) -> None:
    """A restarted agent campaigns with it, so that the term its predecessor won is not orphaned."""
    board = make_board()
    board.next_nonce = f"{nonce:032x}"
    assert board.next_nonce == f"{nonce:032x}"
    board.next_nonce = None
    assert board.next_nonce is None


def test_an_entry_that_was_being_written_reads_as_free_or_whole() -> None:
    """Blame goes by this table, so a half-written entry may not name the wrong run."""
    for stores in range(5):
        table = make_board().inflight[0]
        table.put(0, execution=77, attempt=3, state=RunState.STARTED, deadline_ns=5)
        dying = object.__new__(InflightTable)
        dying.words, dying.size = Dying(table.words, stores), table.size  # type: ignore[assignment]
        with contextlib.suppress(KilledError):
            dying.put(0, execution=99, attempt=1, state=RunState.FETCHED, deadline_ns=9)
        found = [(entry.execution, entry.attempt, entry.state, entry.deadline_ns) for entry in table.entries()]
        whole = [(77, 3, RunState.STARTED, 5)], [(99, 1, RunState.FETCHED, 9)], []
        assert found in whole


def test_clearing_a_table_frees_every_entry() -> None:
    """A new generation must not be blamed for what an old one held."""
    table = make_board().inflight[1]
    for index in range(table.size):
        table.put(index, execution=index + 1, attempt=1, state=RunState.DONE)
    assert len(list(table.entries())) == table.size
    table.clear_all()
    assert list(table.entries()) == []


def test_an_entry_outside_its_table_is_refused() -> None:
    """It would be somebody else's."""
    table = make_board().inflight[0]
    with pytest.raises(AssertionError):
        table.put(table.size, execution=1, attempt=1, state=RunState.FETCHED)
    assert table.size == len(table.words) // INFLIGHT_WORDS


def test_clearing_a_row_leaves_what_the_parent_and_the_agent_wrote() -> None:
    """The next generation starts from nothing; the slot's own history goes on."""
    row = make_board().rows[0]
    for index in range(ROW_WORDS):
        row.words[index] = 9
    row.clear_child_words()
    assert (row.state, row.restarts, row.reclaimed_generation) == (9, 9, 9)
    assert (row.child_generation, row.beat_ns, row.deadline_ns, row.request_number) == (0, 0, 0, 0)
    assert row.child_state == ChildState.BOOTING


@pytest.mark.parametrize("run_id", ["", "nightly@0", "0" * 500])
def test_the_hash_of_an_execution_is_never_zero(run_id: str) -> None:
    """Zero is what an empty word looks like."""
    assert 0 < execution_hash(("q", run_id), 7) < 2**64


def test_executions_that_differ_in_queue_id_or_time_have_different_hashes() -> None:
    """A request to end one must hit no other, and blame must name the right one."""
    executions = [((queue, run_id), at) for queue in ("q", "p") for run_id in ("a", "b") for at in (1, 2)]
    assert len({execution_hash(*execution) for execution in executions}) == len(executions)


def test_the_states_with_a_process_are_those_a_child_can_be_alive_in() -> None:
    """The agent gives runs back by this; a state too many and it never would."""
    alive = {state for state in SlotState if state.has_process}
    assert alive == {SlotState.STARTING, SlotState.RUNNING, SlotState.STOPPING, SlotState.KILLING}
