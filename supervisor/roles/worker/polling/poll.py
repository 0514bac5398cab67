"""The conversation of one worker process with its queues: numbered turns.

A turn hands in acknowledgements and asks for runs, in one script. Its reply can be lost, so:

Guarantees
    A turn that was not answered is asked again as it was: same number, same acknowledgements,
    same wishes. Redis then repeats its answer and does nothing twice.
    An acknowledgement travels in turns until one of them is answered, and in none after that, unless it was refused.

Sans I/O: the pools send the calls. Nothing here reads a clock or waits.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial

from supervisor.clock import Clock
from supervisor.core.effects import Call
from supervisor.core.errors import EXIT_RESTART, StoreRefusedError, TenureError
from supervisor.core.model import Kind
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS
from supervisor.roles.child import ChildContext
from supervisor.store.queues.sessions import check_session
from supervisor.store.wire.poll import CHILDREN_MAX, PAYLOADS_BYTES_MAX, Ack, TurnCalls, TurnReply

ACKS_MAX = 200
WANT_MAX = 200
_OLD_TURN = "OLDSEQ "  # as the script says it


class SessionLostError(TenureError):
    """Redis no longer knows this worker's session: its runs were given to others, so it must start afresh."""

    exit_code = EXIT_RESTART

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session} was condemned while its process lived; the process must start afresh")


class PollSession:
    """Acknowledgements to send, and the turn that is open, if one is."""

    def __init__(
        self, queues: TurnCalls, *, session: str, kind: Kind, queue_names: Sequence[str], history: int, dead_cap: int
    ) -> None:
        self._session = check_session(session)
        self._turn = partial(queues.turn, session=session, kind=kind, history=history, dead_cap=dead_cap)
        self._queue_names = tuple(queue_names)
        self._seq = 0
        self._waiting: deque[Ack] = deque()
        self._sent: list[Ack] = []
        self._open: Call[TurnReply] | None = None
        self.refused_acks = RefusedAcks()

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

    def send_refused(self) -> None:
        """Put the refused acknowledgements into the next turn, unless one is open."""
        if self._open is None:
            self._waiting.extendleft(reversed(self.refused_acks.take()))

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
            shares = {**(shares or {}), **dict.fromkeys(self.refused_acks.closed, 0)}
            self._open = self._turn(
                seq=self._seq,
                queues=[(queue, min(most, shares.get(queue, most)) if shares else most) for queue in self._queue_names],
                want=most,
                want_suspect=want_suspect and most > 0,
                acks=tuple(self._sent),
            )
        return self._open

    def _next_acks(self) -> list[Ack]:
        """Take acknowledgements for one turn, oldest first: at least one; bounded in children and in bytes."""
        if len(self._waiting) <= ACKS_MAX and not any(
            ack.result or ack.children or ack.left_behind or ack.log for ack in self._waiting
        ):
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
        taken = []
        children = size = 0
        while self._waiting and len(taken) < ACKS_MAX:
            children += len(self._waiting[0].children)
            size += self._waiting[0].payload_bytes
            if taken and (children > CHILDREN_MAX or size > PAYLOADS_BYTES_MAX):
                break
            taken.append(self._waiting.popleft())
        return taken

    def refused(self, error: TenureError) -> None:
        """Take in that Redis refused the open turn.

        Raises:
            SessionLostError: Redis knows a later turn of this session. Nobody but this process makes any, so the record
                is not of it, and every turn from now on would be refused.
        """
        if isinstance(error, StoreRefusedError) and _OLD_TURN in str(error):
            raise SessionLostError(self._session) from error

    def answered(self, reply: TurnReply) -> list[Ack]:
        """Close the open turn and return the acknowledgements that ``reply`` settled.

        Raises:
            SessionLostError: the session was condemned. Nothing was settled.
        """
        assert self._open is not None
        if reply.lost:
            raise SessionLostError(self._session)
        settled, self._sent, self._open = self._sent, [], None
        return self.refused_acks.sift(settled, reply)


KEPT_MAX = 4
SEND_AGAIN_NS = 2 * SECOND_NS


class RefusedAcks:
    """Acknowledgements that Redis refused, until they are sent again.

    Guarantees
        None is lost, and none is sent before it is time. The others of its turn have no part in it. Of a queue with
        ``KEPT_MAX`` of them nothing more is fetched: each has a place in this process, which runs of other queues need.

    Does not guarantee
        That they get through while this process lives: with its session its agent gives back their runs.
    """

    def __init__(self) -> None:
        self._kept: list[Ack] = []
        self._due_ns = 0
        self.closed: frozenset[str] = frozenset()  # queues from which nothing more is fetched

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._kept)

    def sift(self, acks: list[Ack], reply: TurnReply) -> list[Ack]:
        """Return those of ``acks`` that ``reply`` settled, and keep the others."""
        if not (reply.refused or self.closed):
            return acks
        self._kept += [ack for ack in acks if (ack.queue, ack.run_id) in reply.refused]
        counts = Counter(ack.queue for ack in self._kept)
        self.closed = frozenset(queue for queue, count in counts.items() if count >= KEPT_MAX)
        return [ack for ack in acks if (ack.queue, ack.run_id) not in reply.refused]

    def take(self) -> Sequence[Ack]:
        """Return all, the oldest first; the next answer says which remain."""
        taken, self._kept = self._kept, []
        return taken

    def is_due(self, now_ns: int) -> bool:
        """Return whether it is time to send them again."""
        return bool(self._kept) and now_ns >= self._due_ns

    def answered(self, reply: TurnReply, now_ns: int) -> None:
        """Note when a turn was answered."""
        if reply.refused:
            self._due_ns = now_ns + SEND_AGAIN_NS


LOOK_EVERY_S = 5.0
QUIET_S = 10.0  # long jobs must not leave a process half empty for the sake of one run


class Part(IntEnum):
    """Part of a process in the quarantine of suspects, from its row on the board."""

    NONE = 0
    MAKES_ROOM = 1
    HAS_ONE = 2


class SuspectLane:
    """Handling of suspects by one worker process.

    Guarantees
        One process of a pool at a time has a suspect, and the others go on with ready runs: also while that one is
        started again, because the suspect ended it. A process that is alone in its pool asks for ready runs in between.
        A suspect does not starve. An idle process takes it at once. Where a coroutine process is busy all the time, one
        of the pool makes room: it lets nothing begin for ``QUIET_S``. Whenever that was too short, it lets as many runs
        begin as it has slots, and tries for twice as long; never longer than one waits, or than until the last hard
        deadline of its runs, when it is idle for certain. So at most as many other runs begin in it before as it has
        slots, and as many again for each time that ``QUIET_S`` doubles until the longest hard timeout of its runs.
    """

    def __init__(self, child: ChildContext, clock: Clock, uniform: Callable[[], float], *, slots: int) -> None:
        self._row = child.row
        pool = child.name.rpartition("-")[0]
        rows = zip(child.slot_names, child.board.rows, strict=False)
        self._others = [row for name, row in rows if name.rpartition("-")[0] == pool and name != child.name]
        self._clock = clock
        self._uniform = uniform
        self._slots = slots
        # Its predecessor ended with one: what is ready may have waited since.
        self._owes_others = self._row.suspect == Part.HAS_ONE
        self._tries = 0  # to make room, in vain
        self._begun = 0  # runs, since the last of them
        self._quiet_until_ns = 0
        self._row.suspect = Part.NONE
        self.look_later()

    @property
    def may_ask(self) -> bool:
        """True if this process, if it is idle, may ask for a suspect."""
        others = [row for row in self._others if row.desired]
        if any(row.suspect == Part.HAS_ONE for row in others):
            return False
        return not self._owes_others or any(row.state == SlotState.RUNNING for row in others)

    @property
    def is_quiet(self) -> bool:
        """True if nothing may begin unless the process is idle."""
        return self._quiet_until_ns > 0 and self._clock.elapsed_ns() < self._quiet_until_ns

    @property
    def quiet_s(self) -> float:
        """Time for which that still lasts."""
        return max(0.0, (self._quiet_until_ns - self._clock.elapsed_ns()) / SECOND_NS)

    @property
    def must_look(self) -> bool:
        """True if it is time to look for a waiting suspect, and while room is made for one whether it still waits."""
        is_time = self.look_s == 0
        return is_time or (not self.is_quiet and self._tries > 0 and self._begun >= self._slots)

    @property
    def look_s(self) -> float:
        """Time until the next look."""
        return max(0.0, (self._look_at_ns - self._clock.elapsed_ns()) / SECOND_NS)

    def begun(self, count: int) -> None:
        """Note that a process that was not idle took so many runs."""
        self._begun += count

    def asked(self, *, for_suspect: bool, has_one: bool) -> None:
        """Note that an idle process asked for runs: for a suspect in their place or not, and whether it got one."""
        self._tries = self._begun = self._quiet_until_ns = 0
        self._row.suspect = Part.HAS_ONE if has_one else Part.NONE
        self._owes_others = has_one or (self._owes_others and for_suspect)
        self.look_later()

    def looked(self, waiting: int, *, idle_by_ns: int) -> None:
        """Note how many suspects wait, and when all that is executed here will be over; make room, if somebody must."""
        self.look_later()
        if not waiting:
            self._tries = self._quiet_until_ns = 0
            self._row.suspect = Part.NONE
        elif not self.is_quiet and not any(row.desired and row.suspect for row in self._others):
            quiet_ns = round(QUIET_S * SECOND_NS) << self._tries
            self._quiet_until_ns = min(self._clock.elapsed_ns() + quiet_ns, max(idle_by_ns, 1))
            self._row.suspect = Part.MAKES_ROOM
            self._tries += 1
            self._begun = 0

    def look_later(self) -> None:
        """Look again after some seconds; drawn, so that not all processes look at once. A try is followed by a look."""
        due_ns = self._clock.elapsed_ns() + round(LOOK_EVERY_S * (0.5 + self._uniform()) * SECOND_NS)
        self._look_at_ns: int = min(due_ns, self._quiet_until_ns) if self.is_quiet else due_ns


FAST_S = 0.005  # a job that takes longer is worth a journey of its own
AHEAD_S = 0.010  # how much work, by what the last runs took, may lie here
STREAK_MIN = 8  # so many fast runs, one after the other, before more than one is fetched at a time
KNOWN_MIN = 3  # so many runs of a job before it counts as known
JOBS_MAX = 1000
_WEIGHT = 0.2  # of the newest run


class Pace:
    """Durations of the last runs, all together and by job: so many are taken as end within a journey to Redis.

    Runs that wait behind another are lost to the other processes of the pool. That is worth it while a journey to
    Redis takes longer than the jobs do, and at no other time. Time enters as an argument.
    """

    def __init__(self, prefetch: int) -> None:
        """Build it; ``prefetch``: the most runs that may be here."""
        assert prefetch >= 1
        self._prefetch = prefetch
        self._mean_s = FAST_S
        self._streak = 0
        self._jobs: OrderedDict[str, tuple[int, float]] = OrderedDict()  # job: runs, mean of the last

    @property
    def want(self) -> int:
        """Number of runs that may be here."""
        if self._streak < STREAK_MIN or self._prefetch == 1:
            return 1
        return max(1, min(self._prefetch, int(AHEAD_S / max(self._mean_s, 1e-6))))

    def is_fast(self, job: str) -> bool:
        """Return whether ``job`` is known to be over at once."""
        runs, mean_s = self._jobs.get(job, (0, 0.0))
        return runs >= KNOWN_MIN and mean_s < FAST_S

    def ended(self, job: str, seconds: float) -> None:
        """Note that a run of ``job`` took so long."""
        self._streak = self._streak + 1 if seconds < FAST_S else 0
        self._mean_s += _WEIGHT * (seconds - self._mean_s)
        runs, mean_s = self._jobs.get(job, (0, seconds))
        self._jobs[job] = runs + 1, mean_s + _WEIGHT * (seconds - mean_s)
        if len(self._jobs) > JOBS_MAX:
            self._jobs.popitem(last=False)
