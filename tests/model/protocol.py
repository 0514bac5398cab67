"""The lease and fire protocol of a few replicas as a graph: every state, and every step that may come next.

The replicas decide with the program's own core: ``lease.step`` for the state, ``lease.granted``
for trust, ``lease.Observation`` for a follower's patience. A step may be delayed as long as
the bounds allow, so a pause of any process at any point is one of the paths; so is a request
that arrives late or twice, an answer that never comes, and a process that dies.

A scheduler reads the watermark in one step and sends its fire in the next: what it sends may
be as old as the bounds allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from supervisor.core.election.lease import ElectorEvent
from tests.model.record import (
    DURATION,
    NOBODY,
    Answer,
    Campaign,
    Fire,
    Promote,
    Record,
    Redis,
    Release,
    Renew,
    Request,
    View,
)
from tests.model.world import (
    CAMPAIGNING,
    CONFIRMED,
    FOLLOWER,
    HOLDING,
    LEADER,
    NOMINALS,
    PROMOTING,
    Accepted,
    Asked,
    ModelState,
    Replica,
    Term,
    aged,
    failed,
    forget,
    moved,
    observe,
    put,
    replaced,
    stirred,
    trusted_until,
    underway,
)


class Bounds(NamedTuple):
    """How far the exploration goes."""

    replicas: int = 2
    ticks: int = 4
    faults: int = 2  # a request that arrives late, twice or never, a lost answer, a death, a resignation: one each


class Protocol:
    """The steps of the replicas, the network and time. A mutation overrides one method."""

    def __init__(self, bounds: Bounds, redis: Redis | None = None) -> None:
        self.bounds = bounds
        self.redis = redis or Redis()

    def start(self) -> ModelState:
        """Return the first state: replicas that never saw the lease, and an empty Redis."""
        return ModelState(0, Record(), (Replica(),) * self.bounds.replicas, frozenset(), self.bounds.faults)

    def steps(self, world: ModelState) -> Iterator[tuple[str, ModelState]]:
        """Yield every step that may come next, with its name."""
        if world.now < self.bounds.ticks:
            yield "tick", self._tick(world)
        for index, replica in enumerate(world.replicas):
            if index and not world.replicas[index - 1].nonces:
                break  # they differ by name only, so let them begin in order
            yield from self._agent(world, index, replica)
            yield from self._scheduler(world, index, replica)
            yield from self._deaths(world, index, replica)
        for request in world.late:
            world_after, _ = self._arrive(world._replace(late=world.late - {request}), request)
            yield f"{request} arrives late", world_after

    def has_time(self, world: ModelState) -> bool:
        """Whether a lease can end and another be granted before the bound on time."""
        return world.now + DURATION + 1 <= self.bounds.ticks

    # Time, and the network.

    def _tick(self, world: ModelState) -> ModelState:
        """Let time pass. What can no longer differ is made equal, so that equal states are seen as one."""
        now, record = world.now + 1, world.record
        if record.until <= now:
            record = record._replace(until=0)
        return world._replace(now=now, record=record, replicas=tuple(aged(replica, now) for replica in world.replicas))

    def _send(self, name: str, world: ModelState, request: Request) -> Iterator[tuple[str, ModelState, Answer | None]]:
        """A request that nobody has to wait for: it arrives now, or later, perhaps twice."""
        there, answer = self._arrive(world, request)
        yield f"{name} {request}", there, answer
        if world.faults:
            yield f"{name} {request}, underway", underway(world, request), None
            yield f"{name} {request}, and once more later", underway(there, request), answer

    def _arrive(self, world: ModelState, request: Request) -> tuple[ModelState, Answer]:
        record, answer = self.redis.run(world.record, request, world.now)
        if isinstance(request, Fire) and answer.code == "FIRED":
            world = world._replace(fires=(*world.fires, Accepted(request.nominal, request.epoch, request.nonce)))
        return stirred(world._replace(record=record), world.record), answer

    # The agent.

    def _agent(self, world: ModelState, index: int, me: Replica) -> Iterator[tuple[str, ModelState]]:
        if not me.state:
            return
        if me.asked is not None:
            yield from self._waiting(world, index, me, me.asked)
        elif me.state in HOLDING:
            yield from self._holder(world, index, me)
        else:
            yield from self._follower(world, index, me)

    def _waiting(self, world: ModelState, index: int, me: Replica, asked: Asked) -> Iterator[tuple[str, ModelState]]:
        """A confirmation is underway to its reader, for as long as it likes."""
        name = f"r{index + 1}"
        yield f"{name} hears {asked.answer.code}", self._answered(world, index, me, asked.request, asked.answer)
        if world.faults:
            yield f"{name} misses the answer", self._unanswered(failed(world), index, me)

    def _ask(self, world: ModelState, index: int, request: Request) -> Iterator[tuple[str, ModelState]]:
        """Ask for a term. A slow question differs from a slow answer only in that it grants less trust."""
        name = f"r{index + 1}"
        for step_name, there, answer in self._send(name, world, request):
            if answer is None:
                yield f"{step_name}, times out", self._unanswered(there, index, there.replicas[index])
            elif answer.code in CONFIRMED:
                yield step_name, put(there, index, asked=Asked(request, answer))
            else:
                yield step_name, self._answered(there, index, there.replicas[index], request, answer)

    def _follower(self, world: ModelState, index: int, me: Replica) -> Iterator[tuple[str, ModelState]]:
        name = f"r{index + 1}"
        if me.state == CAMPAIGNING or not (me.is_new or me.is_vacant or me.seen):
            question = View(index + 1, world.now)
            _, answer = self._arrive(world, question)
            yield f"{name} looks", self._answered(world, index, me, question, answer)
        elif me.is_new:
            yield from self._campaign(world, index, me, "cold")
        elif me.is_vacant:
            yield from self._campaign(world, index, me, "free")
        elif me.seen:
            if not self.is_patient(me.seen[2], world.now):
                yield from self._campaign(world, index, me, "expired")
            elif self.is_over(world.record, world.now):
                yield from self._campaign(world, index, me, "cold")  # more often than one that just began asks so
            elif world.record.holder == NOBODY:
                yield f"{name} hears the release", put(world, index, is_vacant=True)

    def is_patient(self, dead_at: int, now: int) -> bool:
        """Whether a silent holder may be alive."""
        return now < dead_at

    def is_over(self, record: Record, now: int) -> bool:
        """Whether the record is past its end, which a replica that just began believes when it also stands still."""
        return record.holder != NOBODY and record.until <= now

    def _campaign(self, world: ModelState, index: int, me: Replica, mode: str) -> Iterator[tuple[str, ModelState]]:
        nonce, nonces = (me.next_nonce, me.nonces) if me.next_nonce else (self.new_nonce(index, me), me.nonces + 1)
        seen = me.seen or (0, 0, 0)
        request = Campaign(index + 1, world.now, nonce, self.floor(me), mode, seen[0], seen[1])
        state = moved(me.state, ElectorEvent.CAMPAIGN)
        yield from self._ask(put(world, index, state=state, next_nonce=nonce, nonces=nonces), index, request)

    def new_nonce(self, index: int, me: Replica) -> int:
        """Draw a nonce that nobody had."""
        return 10 * (index + 1) + me.nonces

    def floor(self, me: Replica) -> int:
        """The highest epoch it ever saw."""
        return me.floor

    def _holder(self, world: ModelState, index: int, me: Replica) -> Iterator[tuple[str, ModelState]]:
        name = f"r{index + 1}"
        if me.state == LEADER and world.now >= me.term.until:
            yield f"{name} lapses", put(world, index, state=moved(me.state, ElectorEvent.TRUST_EXPIRED))
        if me.renewed_at < world.now:
            if me.is_outlived or me.next_nonce:
                yield from self._promote(world, index, me)
            else:
                request = Renew(index + 1, world.now, *me.held)
                yield from self._ask(put(world, index, renewed_at=world.now), index, request)
        if world.faults and me.state != PROMOTING:
            yield from self._resign(failed(world), index, me)

    def _resign(self, world: ModelState, index: int, me: Replica) -> Iterator[tuple[str, ModelState]]:
        """Drop the term from the board, then tell Redis; an unanswered release is given up to expiry."""
        assert moved(moved(me.state, ElectorEvent.RESIGN), ElectorEvent.RELEASED) == FOLLOWER
        world = put(forget(world, index), index, state=FOLLOWER, term=Term(), is_outlived=False)
        for name, after, _ in self._send(f"r{index + 1} resigns:", world, Release(index + 1, world.now, *me.held)):
            yield name, after

    def _promote(self, world: ModelState, index: int, me: Replica) -> Iterator[tuple[str, ModelState]]:
        """Ask for a later epoch of its own term, which is not trusted meanwhile: either may stand."""
        nonce, nonces = (me.next_nonce, me.nonces) if me.next_nonce else (self.new_nonce(index, me), me.nonces + 1)
        request = Promote(index + 1, world.now, *me.held, nonce)
        state, term = moved(me.state, ElectorEvent.PROMOTE), Term(*me.held)
        world = put(world, index, state=state, term=term, next_nonce=nonce, nonces=nonces, renewed_at=world.now)
        yield from self._ask(world, index, request)

    def _answered(self, world: ModelState, index: int, me: Replica, request: Request, answer: Answer) -> ModelState:
        code = answer.code
        world = put(world, index, asked=None, floor=max(me.floor, answer.epoch))
        if code in {"GRANTED", "RENEWED"} or (code == "SAME" and isinstance(request, Promote)):
            return self._confirm(world, index, me, request, answer)
        if code == "SAME" or (code == "VIEW" and me.next_nonce and answer.nonce == me.next_nonce):
            term = Term(answer.epoch, answer.nonce, 0)
            return put(world, index, state=moved(me.state, ElectorEvent.ADOPTED), term=term, next_nonce=0)
        if me.state in HOLDING:
            world = put(world, index, term=Term(), is_outlived=False, next_nonce=0)
        if me.state != FOLLOWER:
            world = put(world, index, state=moved(me.state, ElectorEvent.REFUSED))
        return observe(world, index, answer)

    def _confirm(self, world: ModelState, index: int, me: Replica, request: Request, answer: Answer) -> ModelState:
        until = self.trusted_until(answer.epoch, request.asked_at, world.now)
        state = moved(me.state, ElectorEvent.GRANTED)
        term = Term(answer.epoch, answer.nonce, until if until > world.now else 0)
        is_outlived = me.is_outlived and me.term.epoch == term.epoch
        world = put(world, index, state=state, term=term, is_outlived=is_outlived, renewed_at=world.now)
        return put(world, index, next_nonce=0)

    def _unanswered(self, world: ModelState, index: int, me: Replica) -> ModelState:
        """Nothing seen before an error proves silence."""
        world = put(world, index, asked=None)
        return world if me.state in HOLDING else forget(world, index)

    def trusted_until(self, epoch: int, asked_at: int, now: int) -> int:
        """Until when an answer heard now lets its reader act."""
        del now
        return trusted_until(epoch, asked_at)

    # The scheduler.

    def _scheduler(self, world: ModelState, index: int, me: Replica) -> Iterator[tuple[str, ModelState]]:
        """Fire what is due. It does the same whether it hears of a fire or not: it looks at the watermark again."""
        mark = world.record.mark
        if not self.may_fire(world, me) or mark >= NOMINALS:
            return
        for name, after, answer in self._send(f"r{index + 1}", world, Fire(index + 1, 0, *me.held, mark, mark + 1)):
            refused = me.term.epoch if answer is not None and answer.code == "FENCED" else me.refused
            yield name, put(after, index, refused=refused)

    def may_fire(self, world: ModelState, me: Replica) -> bool:
        """Whether the scheduler trusts the term on its board."""
        return me.has_scheduler and world.now < me.term.until and me.term.epoch != me.refused

    # Deaths.

    def _deaths(self, world: ModelState, index: int, me: Replica) -> Iterator[tuple[str, ModelState]]:
        name = f"r{index + 1}"
        if not me.state:
            yield f"{name} agent is back", self._revive(world, index, me)
        if not me.has_scheduler:
            yield f"{name} scheduler is back", put(world, index, has_scheduler=True)
        if not world.faults or (not me.state or not me.has_scheduler):
            return
        dying = failed(world)
        yield f"{name} agent dies", put(dying, index, state="", asked=None)
        yield f"{name} scheduler dies", put(dying, index, has_scheduler=False, is_outlived=me.term.epoch > 0)
        fresh = Replica(nonces=me.nonces)
        yield f"{name} dies and boots", dying._replace(replicas=replaced(dying.replicas, index, fresh))

    def _revive(self, world: ModelState, index: int, me: Replica) -> ModelState:
        """A new agent on the board as it is: a term on it is renewed before anything else."""
        world = put(world, index, state=FOLLOWER, is_new=True, is_vacant=False, seen=None, floor=me.term.epoch)
        if not me.term.epoch:
            return world
        next_nonce = 0 if me.next_nonce == me.term.nonce else me.next_nonce  # answered, and the answer published
        state = moved(FOLLOWER, ElectorEvent.RESUMED)
        return put(world, index, state=state, is_new=False, renewed_at=-1, next_nonce=next_nonce)
