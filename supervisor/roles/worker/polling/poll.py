"""The conversation of one worker process with its queues: numbered turns.

A turn hands in acknowledgements and asks for runs, in one script. Its reply can be lost, so:

Guarantees
    A turn that was not answered is asked again as it was: same number, same acknowledgements,
    same wishes. Redis then repeats its answer and does nothing twice.
    An acknowledgement travels in turns until one of them is answered, and in none after that.

Sans I/O: the pools send the calls. Nothing here reads a clock or waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from supervisor.core.errors import EXIT_RESTART, TenureError
from supervisor.core.model import Kind
from supervisor.store.queues.runs import CHILDREN_BYTES_MAX, CHILDREN_MAX, Ack, Queues, TurnReply
from supervisor.store.scripts import Call

ACKS_MAX = 200
WANT_MAX = 200


class SessionLostError(TenureError):
    """Redis no longer knows this worker's session: its runs were given to others, so it must start afresh."""

    exit_code = EXIT_RESTART

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session} was condemned while its process lived; the process must start afresh")


class PollSession:
    """Acknowledgements to send, and the turn that is open, if one is."""

    def __init__(
        self, queues: Queues, *, session: str, kind: Kind, queue_names: Sequence[str], history: int, dead_cap: int
    ) -> None:
        self._queues = queues
        self._session = session
        self._kind = kind
        self._queue_names = tuple(queue_names)
        self._history = history
        self._dead_cap = dead_cap
        self._seq = 0
        self._waiting: deque[Ack] = deque()
        self._sent: list[Ack] = []
        self._open: Call[TurnReply] | None = None

    @property
    def has_work(self) -> bool:
        """True if Redis still has to hear of something, whatever the pool wants."""
        return self._open is not None or bool(self._waiting)

    @property
    def is_open(self) -> bool:
        """True if a turn was sent whose reply is not known."""
        return self._open is not None

    @property
    def waiting(self) -> int:
        """Number of acknowledgements that wait for the next turn."""
        return len(self._waiting)

    @property
    def unsettled(self) -> list[Ack]:
        """Acknowledgements that no answered turn has carried."""
        return [*self._sent, *self._waiting]

    def acknowledge(self, ack: Ack) -> None:
        """Put ``ack`` into the next turn that is not yet open."""
        self._waiting.append(ack)

    def call(
        self,
        *,
        want: int,
        want_suspect: bool = False,
        room: int = WANT_MAX,
        shares: Mapping[str, int] | None = None,
    ) -> Call[TurnReply]:
        """Return the turn to send now: the open one as it was, or else a new one.

        Args:
            want: how many runs to ask for.
            want_suspect: whether a suspect may come in place of all others.
            room: how many runs may come beyond those that this turn acknowledges.
            shares: the most that may come of a queue; of one that is not named: ``want``.
        """
        if self._open is None:
            self._seq += 1
            self._sent = self._next_acks()
            most = min(want, WANT_MAX, room + len(self._sent))
            self._open = self._queues.turn(
                session=self._session,
                seq=self._seq,
                kind=self._kind,
                queues=[(queue, min(most, shares.get(queue, most)) if shares else most) for queue in self._queue_names],
                want=most,
                want_suspect=want_suspect and most > 0,
                acks=tuple(self._sent),
                history=self._history,
                dead_cap=self._dead_cap,
            )
        return self._open

    def _next_acks(self) -> list[Ack]:
        """Take acknowledgements for one turn, oldest first: at least one; no more children than the script allows."""
        if len(self._waiting) <= ACKS_MAX and not any(ack.children or ack.left_behind for ack in self._waiting):
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
        taken = []
        children = size = 0
        while self._waiting and len(taken) < ACKS_MAX:
            children += len(self._waiting[0].children)
            size += self._waiting[0].children_bytes
            if taken and (children > CHILDREN_MAX or size > CHILDREN_BYTES_MAX):
                break
            taken.append(self._waiting.popleft())
        return taken

    def answered(self, reply: TurnReply) -> list[Ack]:
        """Close the open turn and return the acknowledgements that ``reply`` settled.

        Raises:
            SessionLostError: the session was condemned. Nothing was settled.
        """
        assert self._open is not None
        if reply.lost:
            raise SessionLostError(self._session)
        settled, self._sent, self._open = self._sent, [], None
        return settled
