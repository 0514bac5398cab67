"""The layout of the scoreboard: 8-byte words that the processes of one tree share.

One writer per word and no locks: a child that is killed between two stores can stop nobody. Readers tolerate any
interleaving; the words of a term are read under a sequence counter. Blame after a death goes by the in-flight table.

The parent decides by its own knowledge (pid, generation); it only mirrors that here. A child's entry is a report, never
a command. Here is layout only; the shared memory is made in ``supervisor.process.spawn``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import overload
from zlib import crc32

from supervisor.core.election.lease import NO_TERM, Term
from supervisor.core.supervision.states import RunState, SlotState, Verb

MAGIC = 0x54454E5552450001  # "TENURE", layout 1
HEADER_WORDS = 80
ROW_WORDS = 43
INFLIGHT_WORDS = 3
_KEPT_WORDS = 38  # what stands from here on outlives a fork
EVERY_SLOT = (1 << 32) - 1  # in place of a slot, in a request: all workers
_SEQLOCK_TRIES = 1000
_WORD_MAX = (1 << 64) - 1
_STATES = {state.value: state for state in RunState}
_ENDPOINT_WORDS = slice(42, HEADER_WORDS)
ENDPOINT_BYTES_MAX = 8 * (HEADER_WORDS - 42)  # room for the longest name that DNS allows and a port: 253 + 6


class _Word:
    """One word of a block, by its position, as an attribute."""

    def __init__(self, index: int) -> None:
        self.index = index

    @overload
    def __get__(self, block: None, owner: type) -> _Word: ...
    @overload
    def __get__(self, block: _Block, owner: type) -> int: ...
    def __get__(self, block: _Block | None, owner: type) -> int | _Word:
        return self if block is None else block.words[self.index]

    def __set__(self, block: _Block, value: int) -> None:
        block.words[self.index] = value


class _Block:
    """A run of words inside the board."""

    def __init__(self, words: memoryview) -> None:
        self.words = words


class Row(_Block):
    """One slot. Times are CLOCK_BOOTTIME in nanoseconds; 0 means never or none."""

    # written by the parent
    state = _Word(0)
    pid = _Word(1)
    generation = _Word(2)
    started_ns = _Word(3)
    ready_ns = _Word(4)
    last_exit = _Word(5)  # 256 + signal, or the exit code
    restarts = _Word(6)
    cause = _Word(7)  # of the last kill: core.restart.Cause
    desired = _Word(8)  # 1 up, 0 down
    crashes = _Word(11)  # how often it failed within a minute, counted back from its last failure
    is_quiet = _Word(38)  # 1: a person wants no process here for now
    oom_generation = _Word(39)  # the newest process of this slot that the kernel killed for memory
    ended_generation = _Word(42)  # the newest generation whose process is gone; written after what tells of its end
    # written by the agent
    reclaimed_generation = _Word(10)  # newest generation whose runs it has given back
    unwanted_hash = _Word(25)  # of a run of this worker that must give way (execution_hash)
    unwanted_reason = _Word(27)  # UnwantedReason
    unwanted_number = _Word(26)  # written after both; a new number is a new request
    # written by the child
    child_generation = _Word(12)  # which generation wrote the words below
    child_state = _Word(13)
    beat_ns = _Word(14)
    loop_lag_us = _Word(15)
    busy = _Word(16)
    deadline_ns = _Word(17)  # earliest hard deadline of its runs
    progress = _Word(18)  # grows with each turn, tick or batch
    done = _Word(19)  # runs finished
    redis_ok_ns = _Word(20)  # last time Redis answered it
    asking_ns = _Word(37)  # since when it waits for Redis; 0: it does not, or was answered
    turn_ms = _Word(31)  # Redis' time of its last turn that was answered; 0: none was
    ill_resources = _Word(30)  # of jobs: how many did not answer when they were last asked
    rss_kib = _Word(28)  # resident memory, as last looked at
    suspect = _Word(40)  # roles.worker.suspects.Part; the next process of the slot reads what its predecessor had
    severed_generation = _Word(41)  # the newest process that left because of Redis, and through no fault of its runs
    request_verb = _Word(21)
    request_slot = _Word(22)
    request_generation = _Word(23)
    request_number = _Word(24)  # written last; a new number is a new request
    request_result = _Word(29)  # written by the parent, before the next: core.requests.Answer to it
    handled_number = _Word(9)  # written by the parent: last request seen

    def clear_child_words(self) -> None:
        """Zero the entries of a previous generation. Only between its reaping and the next fork."""
        for index in range(12, _KEPT_WORDS):
            self.words[index] = 0

    def request(self, verb: Verb, slot: int, generation: int) -> bool:
        """Ask the parent, which is to be woken; False if it has not seen the request before this one yet."""
        if self.request_number != self.handled_number:
            return False
        self.request_verb, self.request_slot, self.request_generation = verb, slot, generation
        self.request_number += 1
        return True

    @property
    def is_used(self) -> bool:
        """True if the row means anything to people: a pool has more rows than processes, for replacements."""
        return bool(self.desired or self.is_quiet or self.state != SlotState.STOPPED)


class Header(_Block):
    """Words of the whole tree."""

    magic = _Word(0)
    slots = _Word(1)
    inflight = _Word(2)
    phase = _Word(3)  # parent
    parent_beat_ns = _Word(4)  # parent
    parent_pid = _Word(5)  # parent
    stop_started_ns = _Word(6)  # parent
    started_ns = _Word(7)  # parent
    config_epoch = _Word(8)  # parent: which configuration is in effect; 0: the one that it started with
    log_reopens = _Word(9)  # parent: another number means that the log file is opened anew
    reload_number = _Word(10)  # parent: of reloads that ended, whatever their end
    is_reload_refused = _Word(11)  # parent: how the last of them ended; 1: nothing changed, because it cannot be used
    reload_began_ns = _Word(40)  # parent, last of these: what was asked for later is answered by a later one
    reloaded_ms = _Word(12)  # parent: wall clock when it ended; 0: there was none
    worker_epoch = _Word(13)  # parent: the configuration of workers that are started now, perhaps on trial
    vain_epoch = _Word(14)  # scheduler: the term under which it asks Redis in vain: another replica is to lead
    restored_epoch = _Word(38)  # scheduler: the latest ``data_loss_epoch`` after which watermarks are back in Redis
    # what the agent alone writes: of other terms and of lost data, then the term
    foreign_epoch = _Word(15)  # the latest term of another replica that this one saw
    answered_ms = _Word(37)  # Redis' time of the last answer about the lease
    sighted_ms = _Word(34)  # Redis' time until which the leader is known to have worked before its data were lost
    lost_until_ms = _Word(35)  # Redis' time until which the lost data may have been served
    held_until_ms = _Word(36)  # Redis' time until which this replica held the lost lease; 0: it did not
    term_sequence = _Word(16)
    epoch = _Word(17)
    nonce_high = _Word(18)
    nonce_low = _Word(19)
    trusted_until_ns = _Word(20)
    next_nonce_high = _Word(21)
    next_nonce_low = _Word(22)
    is_leading = _Word(23)
    scheduler_generation = _Word(24)  # the term was issued to this process of the slot; a later one gets another term
    acquired_ns = _Word(25)  # when this epoch was granted to us
    data_loss_epoch = _Word(26)  # first term after Redis lost its data, as this replica saw it; 0: never; 1: none yet
    doubtful_until_ms = _Word(27)  # wall clock: what was due until then may have fired before Redis went back in time
    is_held = _Word(28)  # 1: the lease is ours, and nothing may fire until a person clears the hold
    ineligible_until_ns = _Word(29)  # this replica does not contend until then: its scheduler keeps dying
    elector_due_ns = _Word(30)  # the elector's loop must turn by then
    _clock_skew_ms = _Word(31)  # as 64 bits of two's complement
    # where Redis is, written by the agent's elector alone, before it sends anything there
    endpoint_sequence = _Word(32)  # odd while the words after it change
    endpoint_bytes = _Word(33)
    # of each record with its sequence: some processors show stores of others in another order than they were made
    term_check = _Word(39)
    endpoint_check = _Word(41)  # then the address, eight bytes to a word

    @property
    def clock_skew_ms(self) -> int:
        """Lead of this machine's wall clock over Redis', as last measured; written by the agent."""
        word = self._clock_skew_ms
        return word - (1 << 64) if word >> 63 else word

    @clock_skew_ms.setter
    def clock_skew_ms(self, skew_ms: int) -> None:
        self._clock_skew_ms = skew_ms & (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Inflight:
    """One entry of a worker's in-flight table."""

    execution: int  # execution_hash
    attempt: int
    state: RunState
    deadline_ns: int


class InflightTable:
    """Runs held by one worker, so that blame is fair after it died. Written by that worker alone."""

    def __init__(self, words: memoryview) -> None:
        self.words = words
        self.size = len(words) // INFLIGHT_WORDS

    def put(self, index: int, *, execution: int, attempt: int, state: RunState, deadline_ns: int = 0) -> None:
        """Write entry ``index``; the state goes in last, so that a half-written entry reads as free."""
        assert 0 <= index < self.size
        at = index * INFLIGHT_WORDS
        self.words[at + 1] = 0
        self.words[at] = execution
        self.words[at + 2] = deadline_ns
        self.words[at + 1] = attempt << 8 | state

    def mark(self, index: int, *, attempt: int, state: RunState, deadline_ns: int = 0) -> None:
        """Move entry ``index`` on to ``state``; whose run it is stays."""
        at = index * INFLIGHT_WORDS
        self.words[at + 2] = deadline_ns
        self.words[at + 1] = attempt << 8 | state

    def clear(self, index: int) -> None:
        """Free entry ``index``."""
        self.words[index * INFLIGHT_WORDS + 1] = 0

    def clear_all(self) -> None:
        """Free every entry: a new generation starts."""
        for index in range(self.size):
            self.clear(index)

    @property
    def is_empty(self) -> bool:
        """True if the worker holds nothing."""
        return not any(self.words[index * INFLIGHT_WORDS + 1] & 0xFF for index in range(self.size))

    def entries(self) -> Iterator[Inflight]:
        """Yield every entry that is not free. An unknown state, left by a broken process, counts as started."""
        for index in range(self.size):
            at = index * INFLIGHT_WORDS
            word = self.words[at + 1]
            if word & 0xFF:
                state = _STATES.get(word & 0xFF, RunState.STARTED)
                yield Inflight(self.words[at], word >> 8, state, self.words[at + 2])


def execution_hash(run: tuple[str, str], fetched_ms: int) -> int:
    """Return a 64-bit hash of one execution on the board, by its run and when that was fetched; never 0."""
    return int.from_bytes(blake2b(f"{run[0]} {run[1]} {fetched_ms}".encode(), digest_size=8).digest(), "big") | 1


@dataclass(frozen=True, slots=True)
class RedisEndpoint:
    """The Redis that takes writes. Another generation means: drop your connections, it is another one."""

    address: str  # host:port; empty: not known
    generation: int  # 0: never published


def _check(*words: int) -> int:
    """Return a word that is another one, but for one chance in 2^60, when any of ``words`` is."""
    return hash(words) & _WORD_MAX  # of numbers: the same in every process


NO_ENDPOINT = RedisEndpoint(address="", generation=0)


class Board:
    """The whole scoreboard over a memoryview of unsigned 64-bit words."""

    def __init__(self, words: memoryview, *, slots: int, inflight: int) -> None:
        assert len(words) >= board_words(slots=slots, inflight=inflight)
        self.slots = slots
        self.header = Header(words[:HEADER_WORDS])
        rows = words[HEADER_WORDS : HEADER_WORDS + slots * ROW_WORDS]
        self.rows = [Row(rows[i * ROW_WORDS : (i + 1) * ROW_WORDS]) for i in range(slots)]
        size = inflight * INFLIGHT_WORDS
        base = HEADER_WORDS + slots * ROW_WORDS
        self.inflight = [InflightTable(words[base + i * size : base + (i + 1) * size]) for i in range(slots)]

    def term(self) -> Term:
        """Return the term, never torn.

        An agent killed between two stores leaves the counter odd: there is no term until its replacement writes one.
        """
        header = self.header
        for _ in range(_SEQLOCK_TRIES):
            before = header.term_sequence
            if before == 0:
                break
            words = header.epoch, header.nonce_high, header.nonce_low, header.trusted_until_ns
            is_whole = header.term_check == _check(before, *words)
            if before % 2 == 0 and header.term_sequence == before and is_whole:
                epoch, high, low, trusted_until_ns = words
                return Term(epoch, f"{high << 64 | low:032x}", trusted_until_ns)
        return NO_TERM

    def publish_term(self, term: Term) -> None:
        """Write the term. Only the agent, from one thread."""
        header = self.header
        header.term_sequence = (header.term_sequence | 1) + (header.term_sequence & 1) * 2
        high, low = divmod(int(term.nonce, 16), 1 << 64)
        header.epoch = term.epoch
        header.nonce_high, header.nonce_low = high, low
        header.trusted_until_ns = term.trusted_until_ns
        header.term_check = _check(header.term_sequence + 1, term.epoch, high, low, term.trusted_until_ns)
        header.term_sequence += 1

    @property
    def endpoint_generation(self) -> int:
        """The generation of the endpoint: one word, so that every call can look."""
        return self.header.endpoint_sequence

    def endpoint(self) -> RedisEndpoint:
        """Return where Redis is, never torn; ``NO_ENDPOINT`` while it is not known or being written."""
        header = self.header
        for _ in range(_SEQLOCK_TRIES):
            before, size = header.endpoint_sequence, header.endpoint_bytes
            if before == 0:
                break
            raw = header.words[_ENDPOINT_WORDS].tobytes()[: min(size, ENDPOINT_BYTES_MAX)]
            is_whole = header.endpoint_check == _check(before, crc32(raw))
            if before % 2 == 0 and header.endpoint_sequence == before and is_whole:
                return RedisEndpoint(raw.decode("utf-8", "replace"), before)
        return NO_ENDPOINT

    def publish_endpoint(self, address: str) -> None:
        """Publish ``address`` as that of Redis, or, where it is empty, that nobody knows it for now.

        Only the agent's search, one thread at a time; nothing changes if it is there already.
        """
        raw = address.encode()
        assert len(raw) <= ENDPOINT_BYTES_MAX
        if self.endpoint().address == address:
            return
        header = self.header
        # An agent that died in here left it odd; the next even number is then two further on.
        header.endpoint_sequence = (header.endpoint_sequence | 1) + (header.endpoint_sequence & 1) * 2
        header.endpoint_bytes = len(raw)
        header.words[_ENDPOINT_WORDS].cast("B")[: len(raw)] = raw
        header.endpoint_check = _check(header.endpoint_sequence + 1, crc32(raw))
        header.endpoint_sequence += 1

    @property
    def next_nonce(self) -> str | None:
        """The nonce that the agent is about to campaign with, or None."""
        nonce = self.header.next_nonce_high << 64 | self.header.next_nonce_low
        return f"{nonce:032x}" if nonce else None

    @next_nonce.setter
    def next_nonce(self, nonce: str | None) -> None:
        value = int(nonce, 16) if nonce else 0
        self.header.next_nonce_low = value & (1 << 64) - 1
        self.header.next_nonce_high = value >> 64


def board_words(*, slots: int, inflight: int) -> int:
    """Return how many words a board for so many slots and in-flight entries takes."""
    return HEADER_WORDS + slots * ROW_WORDS + slots * inflight * INFLIGHT_WORDS
