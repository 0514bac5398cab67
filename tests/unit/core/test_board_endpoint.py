"""Where Redis is, on the board: never torn, one word to look at, and whole again after a writer that died."""

from __future__ import annotations

import pytest

from supervisor.core.supervision.scoreboard import ENDPOINT_BYTES_MAX, NO_ENDPOINT, Board, Header, board_words

FIRST, SECOND = "10.0.0.1:6379", "redis-node-1.redis.prod.svc.cluster.local:26380"


def make_board() -> Board:
    words = memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q")
    return Board(words, slots=1, inflight=1)


class KilledError(Exception):
    """The writer died between two stores."""


class Dying:
    """Words that let their writer live for so many stores."""

    def __init__(self, words: memoryview, stores: int) -> None:
        self.words = words
        self.left = stores

    def __getitem__(self, index: int | slice) -> int | memoryview:
        if isinstance(index, slice):
            self._live()  # the address is stored through a slice
        return self.words[index]

    def __setitem__(self, index: int, value: int) -> None:
        self._live()
        self.words[index] = value

    def _live(self) -> None:
        if self.left == 0:
            raise KilledError
        self.left -= 1


def make_writer(words: memoryview | Dying) -> Board:
    writer = object.__new__(Board)
    writer.header = Header(words)  # type: ignore[arg-type]
    return writer


def test_a_new_board_knows_of_no_endpoint() -> None:
    """Children wait for the agent then."""
    assert make_board().endpoint() == NO_ENDPOINT


def test_another_address_is_another_generation_and_the_same_is_not() -> None:
    """Children drop their connections for the first, and must not for the second."""
    board = make_board()
    board.publish_endpoint(FIRST)
    first = board.endpoint()
    assert (first.address, first.generation) == (FIRST, board.endpoint_generation)
    board.publish_endpoint(FIRST)
    assert board.endpoint() == first
    board.publish_endpoint(SECOND)
    assert board.endpoint().address == SECOND
    assert board.endpoint_generation > first.generation
    board.publish_endpoint(FIRST)
    assert board.endpoint().address == FIRST


def test_the_longest_name_that_dns_allows_fits() -> None:
    """Nothing is cut off: a shorter name could be another host."""
    board = make_board()
    longest = f"{'h' * 253}:65535"
    board.publish_endpoint(longest)
    assert board.endpoint().address == longest
    assert len(longest) <= ENDPOINT_BYTES_MAX


@pytest.mark.parametrize("stores", range(6))
def test_a_writer_that_died_leaves_no_torn_address(stores: int) -> None:
    """The agent's replacement writes it again, under a generation that nobody has seen."""
    board = make_board()
    board.publish_endpoint(FIRST)
    before = board.endpoint()
    dying = make_writer(board.header.words)
    dying.header.words = Dying(board.header.words, stores + 1)  # type: ignore[assignment]
    try:
        dying.publish_endpoint(SECOND)
    except KilledError:
        assert board.endpoint() in {before, NO_ENDPOINT}
    else:
        assert board.endpoint().address == SECOND
    board.publish_endpoint(SECOND)
    assert board.endpoint().address == SECOND
    assert board.endpoint_generation > before.generation


def test_the_endpoint_and_the_term_do_not_share_a_word() -> None:
    """Both are written by the agent, at different moments."""
    board = make_board()
    board.publish_endpoint(f"{'h' * 253}:65535")
    term = board.term()
    board.publish_endpoint(FIRST)
    assert board.term() == term


def test_a_store_that_is_seen_late_is_no_address() -> None:
    """On arm64 another processor may see the even counter before the address: half of it would be another host."""
    board = make_board()
    board.publish_endpoint("redis-a.example:6379")
    address = Header.endpoint_check.index + 1
    before = board.header.words[address]
    board.publish_endpoint("valkey-b.example:6379")
    board.header.words[address] = before
    assert board.endpoint() == NO_ENDPOINT
