"""The leader's part in backfills: enqueues them chunk by chunk, behind everything that is on time.

Guarantees
    One question to Redis for each call of ``work``. A step enqueues at most 100 runs and
    advances the cursor in one script of the current term, so a crash between any two steps
    loses nothing and doubles nothing: the next leader goes on at the cursor.
    At most ``rate_per_s`` runs a second.

Does not guarantee
    An order between several backfills: they take turns.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from supervisor.clock import Clock
from supervisor.core.effects import Call, Reporter, Steps
from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError, TenureError
from supervisor.core.model import ScheduleDef, Template, scheduled_run_id
from supervisor.core.schedules.backfill import Chunk, next_chunk
from supervisor.core.schedules.manual_runs import BACKFILL, extra_run, forced_run_id
from supervisor.core.schedules.triggers import trigger_of
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.scheduler.fenced_client import ask_once
from supervisor.store.keys import Keys
from supervisor.store.schedules import backfills as calls
from supervisor.store.schedules.backfills import STEP_MAX, Backfill, BackfillState, StepCode, Stepped, known_of
from supervisor.store.schedules.reads import Inspection, Views

LOOK_NS = 5000 * MILLISECOND_NS
"""How often it looks for requests unasked: the message about one may be lost."""

HELD_NS = 1000 * MILLISECOND_NS
"""How long to wait for a run that holds one up, or for Redis."""

REFUSED_NS = 60_000 * MILLISECOND_NS
"""How long a backfill that Redis refuses is left alone."""


class _Made(NamedTuple):
    """A step, ready to be asked for."""

    call: Call[Stepped]
    template: Template | None  # of its runs
    unknown: int


class Backfills:
    """Serves the requests of a cluster under one term after the other."""

    def __init__(
        self, keys: Keys, *, clock: Clock, report: Reporter, rate_per_s: int = 1000, look_ns: int = LOOK_NS
    ) -> None:
        self._calls = calls.BackfillCalls(keys)
        self._views = Views(keys)
        self._clock = clock
        self._report = report
        self._rate_per_s = rate_per_s
        self._unasked_ns = look_ns
        self._active: deque[Backfill] = deque()
        self._refused_until_ns: dict[str, int] = {}  # backfills that Redis refuses
        self._seen: Inspection | None = None  # of the schedule of the first one
        self._backfilled: frozenset[int] | None = None  # what earlier ones enqueued of its next chunk, if it is forced
        self._step_max = STEP_MAX  # halved by a question without an answer, doubled by one with
        self._nonce = ""
        self._is_asked = True
        self._look_ns = 0
        self._free_ns = 0

    def wake(self) -> None:
        """Look for requests with the next call: somebody made or cancelled one."""
        self._is_asked = True

    @property
    def wake_ns(self) -> int:
        """Time at which ``work`` has something to do unasked."""
        due_ns = self._free_ns if self._active or self._is_asked else self._look_ns
        return max(due_ns, self._free_ns)

    def work(self, term: Term) -> Steps[bool]:
        """Ask Redis one question; True when there is more to do at once.

        Raises:
            FencedError: ``term`` is not the current one.
        """
        if term.nonce != self._nonce:
            self._nonce, self._is_asked, self._free_ns = term.nonce, True, 0
        now_ns = self._clock.elapsed_ns()
        if now_ns < self._free_ns:
            return False
        is_look = self._is_asked or now_ns >= self._look_ns
        try:
            if is_look:
                yield from self._look(now_ns)
            elif self._active and self._seen is None:
                answer = yield from ask_once(self._views.inspect([self._active[0].schedule]))
                self._seen, self._backfilled = answer[0], None
            elif self._active and self._active[0].is_forced and self._backfilled is None:
                self._backfilled = yield from self._remembered(self._active[0])
            elif self._active:
                yield from self._step(term, self._active[0])
        except (StoreUnavailableError, StoreRefusedError) as error:
            self._report("backfill_unanswered", error=str(error))
            self._seen = None
            if isinstance(error, StoreRefusedError) and not (error.concerns_client or is_look):
                self._refused_until_ns[self._active.popleft().id] = now_ns + REFUSED_NS  # the others take their turns
            else:
                self._step_max = max(1, self._step_max // 2)
                self._hold(HELD_NS)
        return bool(self._active) and self._clock.elapsed_ns() >= self._free_ns

    def _look(self, now_ns: int) -> Steps[None]:
        found: list[Backfill] = yield from ask_once(self._calls.all())
        active = [each for each in found if each.state is BackfillState.ACTIVE]
        refused = self._refused_until_ns
        self._refused_until_ns = {each.id: refused[each.id] for each in active if refused.get(each.id, 0) > now_ns}
        self._active = deque(each for each in active if each.id not in self._refused_until_ns)
        self._is_asked, self._look_ns, self._seen = False, now_ns + self._unasked_ns, None

    def _remembered(self, backfill: Backfill) -> Steps[frozenset[int]]:
        """Return the runs of the next chunk that earlier backfills enqueued: a forced one gives them other ids."""
        assert self._seen is not None
        if self._seen.record is None:
            return frozenset()
        try:
            nominals = self._chunk(backfill, self._seen.record.definition(), self._seen).run
        except (TenureError, ValueError, msgspec.DecodeError):
            return frozenset()  # the step says why
        ran: list[bool] = yield from ask_once(
            self._calls.ran([scheduled_run_id(backfill.schedule, at) for at in nominals])
        )
        return frozenset(at for at, has_run in zip(nominals, ran, strict=True) if has_run)

    def _step(self, term: Term, backfill: Backfill) -> Steps[None]:
        seen, self._seen = self._seen, None
        assert seen is not None
        if seen.is_pause_over and seen.record is not None and not seen.record.invalid:
            self._active.rotate(-1)
            self._hold(HELD_NS)  # what was due before the pause is decided first, at the pace of a catch-up
            return
        made = self._failing(term, backfill) if seen.record is None else self._running(term, backfill, seen)
        stepped: Stepped = yield from ask_once(made.call)
        self._step_max = min(STEP_MAX, 2 * self._step_max)
        count = stepped.backfill.enqueued - backfill.enqueued if stepped.backfill else 0
        if count and made.template is not None:
            self._report("backfilled", queue=made.template.queue, job=made.template.job, count=count)
        self._hold(count * SECOND_NS // self._rate_per_s)
        if stepped.code is StepCode.BLOCKED and not count:
            self._hold(HELD_NS)
        self._note(backfill, stepped, unknown=made.unknown)

    def _running(self, term: Term, backfill: Backfill, seen: Inspection) -> _Made:
        assert seen.record is not None
        if backfill.request.revision not in {0, seen.record.revision}:
            return self._failing(term, backfill, why="its schedule was changed, and a limited token asked: ask again")
        try:
            definition = seen.record.definition()
            chunk = self._chunk(backfill, definition, seen)
            envelopes = [self._envelope(definition, backfill, chunk, nominal) for nominal in chunk.run]
        except (TenureError, ValueError, msgspec.DecodeError) as error:
            return self._failing(term, backfill, why=f"its schedule cannot be used: {error}")
        is_over = chunk.is_last or backfill.enqueued >= backfill.limit
        call = self._calls.step(
            backfill,
            term=term,
            cursor_ms=chunk.cursor_ms,
            revision=seen.record.revision,
            envelopes=envelopes,
            skipped=chunk.skipped,
            max_running=definition.max_running,
            state=BackfillState.DONE if is_over else BackfillState.ACTIVE,
        )
        return _Made(call, definition.template, chunk.unknown)

    def _failing(self, term: Term, backfill: Backfill, why: str = "its schedule is gone") -> _Made:
        call = self._calls.step(
            backfill,
            term=term,
            cursor_ms=backfill.cursor_ms,
            revision=0,
            envelopes=[],
            skipped=0,
            max_running=1,
            state=BackfillState.FAILED,
            note=why,
        )
        return _Made(call, None, 0)

    def _chunk(self, backfill: Backfill, definition: ScheduleDef, seen: Inspection) -> Chunk:
        # A tenth of a second's worth at a time, so that whatever becomes due meanwhile waits no longer than that.
        limit = min(self._step_max, max(1, self._rate_per_s // 10), backfill.limit - backfill.enqueued)
        return next_chunk(
            trigger_of(definition),
            replace(known_of(seen), backfilled=self._backfilled or frozenset()),
            after_ms=backfill.cursor_ms,
            until_ms=backfill.request.until_ms,
            limit=max(limit, 0),
            is_forced=backfill.is_forced,
        )

    def _envelope(self, definition: ScheduleDef, backfill: Backfill, chunk: Chunk, nominal_ms: int) -> Any:
        run_id = scheduled_run_id(definition.id, nominal_ms)
        if nominal_ms in chunk.again:
            run_id = forced_run_id(definition.id, nominal_ms, backfill.number)
        wall_ms = self._clock.wall_ms()
        return extra_run(definition, run_id=run_id, nominal_ms=nominal_ms, cause=BACKFILL, wall_ms=wall_ms)

    def _note(self, before: Backfill, stepped: Stepped, *, unknown: int) -> None:
        """Keep the answer; the next one takes its turn."""
        now = stepped.backfill
        self._active.popleft()
        if now is None or now.state is not BackfillState.ACTIVE:
            self._report(
                "backfill_ended",
                backfill=before.id,
                schedule=before.schedule,
                state=now.state.value if now else "gone",
                enqueued=now.enqueued if now else before.enqueued,
                skipped=now.skipped if now else before.skipped,
                note=now.note if now else "",
            )
            return
        if unknown:
            self._report("backfill_left_out", backfill=before.id, schedule=before.schedule, unknown=unknown)
        self._active.append(now)

    def _hold(self, for_ns: int) -> None:
        self._free_ns = max(self._free_ns, self._clock.elapsed_ns() + for_ns)
