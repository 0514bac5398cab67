"""Ends of attempts: another one or none, the result to keep, the record of an exception; runs that are not executed.

Decisions about runs that are not executed
    Arguments that do not fit end the run at once: the same arguments fit no better next time.
    A run whose job is unknown here may be one that the next deploy brings, or the last one took
    away: it goes back uncharged for five seconds, and is dead once this process has refused it for
    ten minutes by its own clock, up to 10,000 of them at a time. The producer's clock, and how long a run was delayed,
    play no part.
    So is one whose profile is unknown here: nobody may guess the answers of its hooks.
    A run that a hook refuses ends rejected, or is given back uncharged for as long as the hook asks.
    A run that is too late for its first start ends as expired: judged by Redis' time when it was
    fetched, never again once an attempt has begun.
"""

from __future__ import annotations

import os
import traceback
from typing import Any

import msgspec
import structlog

from supervisor.clock import Clock
from supervisor.core.errors import ArgumentsError, OptionError, UnknownJobError
from supervisor.core.jobs.hooks import UnknownProfileError, Veto
from supervisor.core.jobs.registry import JobSpec
from supervisor.core.json_values import json_of
from supervisor.core.model import PAYLOAD_BYTES_MAX, Kind, Outcome, RunKey
from supervisor.core.model_types import plain_model
from supervisor.core.retry import AGAIN_MAX, Again, GiveUp
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.context import Interrupted, SoftTimeout
from supervisor.roles.worker.attempt.run_memory import RefusedRuns, waiting_key
from supervisor.roles.worker.run_reporting import RunReporter, identity
from supervisor.store.wire.poll import Ack, BrokenRun, FetchedRun
from supervisor.telemetry import event_catalogue, metrics
from supervisor.telemetry.log_lines.render import end_of_traceback
from supervisor.telemetry.masking import mask_text, text_of

MESSAGE_BYTES_MAX = 1024
TRACEBACK_BYTES_MAX = 4096 - 1024 - 512  # with the message and the names, one error stays under 4 KiB
NOTE_CHARS_MAX = 200
UNKNOWN_DELAY_MS = STILL_HERE_DELAY_MS = 5_000
UNKNOWN_GRACE_NS = 600 * SECOND_NS
log = structlog.get_logger("tenure.worker")
_WORKER = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - code names its file by text


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Failure of an attempt, as the run's record keeps it."""

    type: str
    message: str
    worker: str
    traceback: str = ""

    @property
    def note(self) -> str:
        """One line for the history."""
        line = " ".join(f"{self.type}: {self.message}".split())
        return line if len(line) <= NOTE_CHARS_MAX else line[: NOTE_CHARS_MAX - 1] + "…"

    def as_error(self) -> dict[str, Any]:
        """Return it as the queue stores it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def is_clean_exit(error: BaseException) -> bool:
    """Return whether ``error`` is ``sys.exit()`` or ``sys.exit(0)``, which mean that a job is done."""
    try:
        if not isinstance(error, SystemExit) or isinstance(error, SoftTimeout | Interrupted):
            return False
        return error.code is None or bool(error.code == 0)
    except Exception:  # noqa: BLE001 - a code may be anything: of an array nobody can say whether it is 0
        return False


def describe(error: BaseException, *, worker: str) -> Failure:
    """Return the record of ``error``: its text without credentials, its frames without those outside of the job.

    Args:
        error: the exception of the job, where it is caught.
        worker: the session that ran it.
    """
    trace = error.__traceback__
    is_ours = True
    while is_ours and trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        is_ours = trace.tb_frame.f_code.co_filename.startswith(_WORKER)
    # TracebackException survives a __str__ that raises; str(error) would not.
    rendered = traceback.TracebackException(type(error), error, trace, compact=True)
    name = type(error).__name__
    message = "".join(rendered.format_exception_only()).strip()
    for prefix in (f"{type(error).__module__}.{type(error).__qualname__}", type(error).__qualname__):
        message = message.removeprefix(f"{prefix}: ") if message != prefix else ""
    return Failure(
        type=name,
        message=_message(message),
        worker=worker,
        traceback=_tail(
            end_of_traceback(rendered, chars=TRACEBACK_BYTES_MAX, piece_chars=MESSAGE_BYTES_MAX), TRACEBACK_BYTES_MAX
        ),
    )


def _message(text: str) -> str:
    """Return the beginning of ``text``, without credentials."""
    raw = mask_text(text, MESSAGE_BYTES_MAX).encode("utf-8", "replace")  # a lone surrogate is no JSON
    if len(raw) <= MESSAGE_BYTES_MAX:
        return raw.decode()
    return raw[: MESSAGE_BYTES_MAX - 3].decode("utf-8", "ignore") + "…"


def _tail(text: str, limit: int) -> str:
    """Return the end of ``text``: the innermost frames and the message are most useful."""
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= limit else "…" + raw[3 - limit :].decode("utf-8", "ignore")


def is_final(fetched: FetchedRun, spec: JobSpec, error: BaseException) -> bool:
    """Return whether no further attempt follows one that ended with ``error``, however many are left.

    At most once means that what a run did before it failed is not done again either. Else the error itself may say
    that another attempt would meet it again, or the job's ``Retry``.
    """
    if fetched.envelope.template.at_most_once or getattr(error, "ends_run", False) is True:
        return True
    return spec.rules is not None and not spec.rules.tries_again(error)


def granted(fetched: FetchedRun, error: BaseException) -> BaseException:
    """Return ``error``, or the end of a run that may not run again as it asks by it.

    The delay is read anew: a subclass may set it itself, or leave ``__init__`` of ``Again`` out.
    """
    if not isinstance(error, Again):
        return error
    delay: Any = getattr(error, "delay_s", None)
    try:
        error = Again(delay, str(error)).with_traceback(error.__traceback__)
    except OptionError as fault:
        return fault.with_traceback(error.__traceback__)
    if fetched.envelope.template.at_most_once:
        why = "it runs at most once; raise it in jobs with delivery at_least_once"
    elif fetched.interrupts >= AGAIN_MAX:
        why = f"it was interrupted or asked to run again {fetched.interrupts} times already"
    else:
        return error
    return GiveUp(f"{error}, but {why}").with_traceback(error.__traceback__)


def encoded_result(fetched: FetchedRun, value: Any) -> bytes:
    """Return the result of a job as JSON; a note with the reason in place of one that cannot be kept."""
    try:
        encoded = json_of(value, encode_other=plain_model)
        if len(encoded) <= PAYLOAD_BYTES_MAX:
            return encoded
        reason = f"{len(encoded)} bytes, the limit is {PAYLOAD_BYTES_MAX}"
    except ValueError as error:
        reason = text_of(error)
    except BaseException as error:  # noqa: BLE001 - a model's own serializer may raise anything
        reason = f"{type(error).__name__}: {text_of(error)}"
    reason = _message(reason)
    log.warning("run_result_dropped", **identity(fetched), reason=reason)
    return msgspec.json.encode({"tenure_result_dropped": reason})


class Refusals:
    """Turns runs that are not executed into acknowledgements, for one worker process."""

    def __init__(self, *, worker: str, clock: Clock, ends: RunReporter) -> None:
        self._worker = worker
        self._clock = clock
        self._ends = ends
        self.unknown_runs = RefusedRuns()
        """Those whose job or profile was unknown."""
        self._other_kind = RefusedRuns()

    def give_back(self, fetched: FetchedRun, *, delay_ms: int = 0, kind: Kind | None = None) -> Ack:
        """Return the acknowledgement of a run that was not started: it waits again, nothing charged."""
        return self._ack(fetched, Outcome.GIVEBACK, retry_delay_ms=delay_ms, kind=kind)

    def put_off(self, fetched: FetchedRun) -> Ack:
        """Return the acknowledgement of a run of which an earlier execution is still here."""
        log.warning("run_still_here", **identity(fetched))
        return self.give_back(fetched, delay_ms=STILL_HERE_DELAY_MS)

    def other_kind(self, fetched: FetchedRun, kind: Kind) -> Ack:
        """Return the acknowledgement of a run of the other kind; one that comes again is put off for five seconds.

        It comes again where workers of another version put its kind right the other way round. Of very many, some are
        put off at once.
        """
        key = fetched.queue, fetched.envelope.id
        noted = self._other_kind.note(key, self._clock.elapsed_ns(), kept_ns=2 * UNKNOWN_GRACE_NS)
        delay_ms = 0 if noted is not None and noted[1] == 1 else UNKNOWN_DELAY_MS
        again_s = delay_ms / 1000
        log.warning(
            "run_of_other_kind", run=key[1], job=fetched.envelope.template.job, kind=kind.value, again_s=again_s
        )
        return self.give_back(fetched, delay_ms=delay_ms, kind=kind)

    def bury(self, broken: BrokenRun) -> Ack:
        """Return the acknowledgement of a run that cannot be read: no version that reads it is likely to come."""
        log.error("run_unreadable", run=broken.run_id, queue=broken.queue, reason=broken.reason)
        metrics.RUNS_FINISHED.labels(broken.queue, metrics.UNKNOWN_JOB, Outcome.DEAD.value).inc()
        failure = Failure(type="UnreadableRun", message=_message(broken.reason), worker=self._worker)
        now_ms = self._clock.wall_ms()
        return Ack(
            run_id=broken.run_id,
            queue=broken.queue,
            attempt=broken.attempt,
            fetched_ms=broken.fetched_ms,
            outcome=Outcome.DEAD,
            error=failure.as_error(),
            started_ms=now_ms,
            ended_ms=now_ms,
            history_note=failure.note,
        )

    @staticmethod
    def is_too_late(fetched: FetchedRun) -> bool:
        """Return whether it must not be started any more; an attempt that began in time may be repeated later."""
        limit_ms = fetched.envelope.not_after_ms
        if limit_ms is None or fetched.fetched_ms <= limit_ms:
            return False
        return fetched.attempt == 1 and fetched.crashes + fetched.interrupts == 0

    def expire(self, fetched: FetchedRun, *, label: str) -> Ack:
        """Return the acknowledgement of a run that is too late to be started."""
        envelope = fetched.envelope
        late_s = (fetched.fetched_ms - (envelope.not_after_ms or 0)) / 1000
        self._ends.refused("run_expired", fetched, Outcome.EXPIRED, self._clock.elapsed_ns(), late_s=late_s)
        metrics.RUNS_FINISHED.labels(fetched.queue, label, Outcome.EXPIRED.value).inc()
        note = f"not started within its start deadline, {late_s:g} s too late"
        return self._ack(fetched, Outcome.EXPIRED, history_note=note, job=envelope.template.job)

    def vetoed(self, fetched: FetchedRun, veto: Veto, *, started_ms: int) -> Ack:
        """Return the acknowledgement of a run that a hook kept from being executed: put off, or ended."""
        envelope = fetched.envelope
        job = envelope.template.job
        is_over = veto.delay_s is None
        event, outcome = ("fire_rejected", Outcome.REJECTED) if is_over else ("run_deferred", Outcome.GIVEBACK)
        fields = {"hook": veto.hook, "point": veto.point, "reason": veto.reason}
        if veto.delay_s is not None:
            fields["again_s"] = f"{veto.delay_s:g}"
        self._ends.refused(event, fetched, outcome, self._clock.elapsed_ns(), **fields)
        event_catalogue.record(event, {"of": envelope.schedule or job, "job": job, **fields})
        metrics.RUNS_FINISHED.labels(fetched.queue, job, outcome.value).inc()
        if veto.delay_s is not None:
            return self.give_back(fetched, delay_ms=max(1, round(1000 * veto.delay_s)))
        note = f"{veto.point} {veto.hook}: {veto.reason}"
        return self._ack(fetched, outcome, started_ms=started_ms, history_note=note, job=job)

    def unknown(self, fetched: FetchedRun, error: UnknownJobError | UnknownProfileError) -> Ack:
        """Return the acknowledgement of a run whose job no module here registered, or whose profile is not there."""
        key = _waiting_key(fetched)
        now_ns = self._clock.elapsed_ns()
        since_ns, _ = self.unknown_runs.note(key, now_ns, kept_ns=2 * UNKNOWN_GRACE_NS) or (now_ns, 1)
        is_dead = now_ns - since_ns >= UNKNOWN_GRACE_NS
        outcome = Outcome.DEAD if is_dead else Outcome.GIVEBACK
        what = "profile_unknown" if isinstance(error, UnknownProfileError) else "job_unknown"
        self._ends.refused(what, fetched, outcome, now_ns, refused_s=(now_ns - since_ns) // 10**9, reason=str(error))
        metrics.RUNS_FINISHED.labels(fetched.queue, metrics.UNKNOWN_JOB, outcome.value).inc()
        if not is_dead:
            return self.give_back(fetched, delay_ms=UNKNOWN_DELAY_MS)
        self.unknown_runs.pop(key, None)
        return self._dead(fetched, error)

    def known(self, fetched: FetchedRun) -> None:
        """Note that the job and the profile of a run are there."""
        self.unknown_runs.pop(_waiting_key(fetched), None)

    def arguments(self, fetched: FetchedRun, error: ArgumentsError) -> Ack:
        """Return the acknowledgement of a run whose arguments do not fit its job."""
        self._ends.refused("run_dead", fetched, Outcome.DEAD, self._clock.elapsed_ns(), error=str(error))
        template = fetched.envelope.template
        metrics.RUNS_FINISHED.labels(fetched.queue, template.job, Outcome.DEAD.value).inc()
        return self._dead(fetched, error)

    def _dead(self, fetched: FetchedRun, error: Exception) -> Ack:
        failure = Failure(type=type(error).__name__, message=_message(str(error)), worker=self._worker)
        job, note = fetched.envelope.template.job, failure.note
        return self._ack(fetched, Outcome.DEAD, error=failure.as_error(), history_note=note, job=job)

    def _ack(self, fetched: FetchedRun, outcome: Outcome, *, started_ms: int | None = None, **fields: Any) -> Ack:
        """Return an acknowledgement whose other ``fields`` are given by name; without a start it ended at once."""
        now_ms = self._clock.wall_ms()
        return Ack(
            run_id=fetched.envelope.id,
            queue=fetched.queue,
            attempt=fetched.attempt,
            fetched_ms=fetched.fetched_ms,
            outcome=outcome,
            schedule=fetched.envelope.schedule,
            started_ms=now_ms if started_ms is None else started_ms,
            ended_ms=max(started_ms or 0, now_ms),
            **fields,
        )


def _waiting_key(fetched: FetchedRun) -> RunKey:
    fence = fetched.attempt + fetched.crashes + fetched.interrupts
    return waiting_key(fetched.queue, fetched.envelope.id, born=fetched.envelope.enqueued_ms, fence=fence)
