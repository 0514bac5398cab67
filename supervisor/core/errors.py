"""Errors a person may meet, each with its subject, place, observation and remedy.

``exit_code`` is the exit code of the command when the error reaches its top (docs/cli.md).
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_WORD_BEGIN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

SHOWN_CHARS_MAX = 120
"""How much an error shows of a value."""

EXIT_OK = 0
EXIT_FAILED = 1  # forced stop or runtime failure
EXIT_USAGE = 2
EXIT_NO = 3  # asked, and the answer is no: unhealthy, no leader
EXIT_CANNOT_BIND = 69
EXIT_CRASH_LOOP = 70
EXIT_CANNOT_CREATE = 73
EXIT_RESTART = 75  # to be started again: nobody's failure, or one that passes by itself
EXIT_CONFIG = 78


class TenureError(Exception):
    """Base of every error that Tenure raises on purpose.

    ``code`` is a stable name for programs, made of the class's own; ``http_status`` the status of the API's answer.
    """

    exit_code = EXIT_FAILED
    http_status = 500
    is_retryable = False
    """Whether the same call may succeed a moment later, with nothing changed by anybody."""

    ends_run = False
    """Whether every further attempt of a run that ends with it would meet it again: then there is none."""

    code = "tenure"

    def __init_subclass__(cls) -> None:
        """Name the class for programs: ``UnknownJobError`` is ``unknown_job``."""
        super().__init_subclass__()
        if "code" not in vars(cls):
            cls.code = _WORD_BEGIN.sub("_", cls.__name__.removesuffix("Error")).lower()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the configuration: where, the value seen, the remedy."""

    where: str  # "file.yaml:12", "TENURE_REDIS__URL", "--port"
    path: str  # "election.lease_duration"
    message: str  # says the value seen
    remedy: str = ""
    is_passing: bool = False  # what the configuration needs is away, and may be back a moment later

    def __str__(self) -> str:
        """Render on one line: place, path, message, remedy."""
        place = f"{self.where}: {self.path}" if self.path else self.where
        return f"{place}: {self.message}{f'; {self.remedy}' if self.remedy else ''}"


class Fault(NamedTuple):
    """One thing wrong with a part of the configuration, before its place is known: path in it, message, remedy."""

    path: tuple[str | int, ...]
    message: str
    remedy: str = ""


class ConfigError(TenureError):
    """The configuration cannot be used. Carries every problem found, not the first."""

    exit_code = EXIT_CONFIG

    def __init__(self, problems: Sequence[Problem]) -> None:
        assert problems
        self.problems = tuple(problems)
        if self.is_passing:
            self.exit_code = EXIT_RESTART
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @property
    def is_passing(self) -> bool:
        """True if a part of it did not answer: other problems may be but the lack of that."""
        return any(problem.is_passing for problem in self.problems)


class OptionError(TenureError, ValueError):
    """An argument of a call or a decorator of Tenure that nothing can be done with; names it, its value, the remedy."""

    http_status = 400


_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother, _BRIEF.maxlong = 2, SHOWN_CHARS_MAX, SHOWN_CHARS_MAX, 40


def shown(value: object) -> str:
    """Return ``value`` as an error shows it: cut short, whatever it is, and however deep or large."""
    try:
        text = _BRIEF.repr(value)
    except Exception as error:  # noqa: BLE001 - any code may stand in __repr__, and a number may have too many digits
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


class CannotBindError(TenureError):
    """The HTTP address is taken or not ours."""

    exit_code = EXIT_CANNOT_BIND


class CannotCreateError(TenureError):
    """A directory or file that the tree needs cannot be made or written."""

    exit_code = EXIT_CANNOT_CREATE


class UnknownJobError(TenureError):
    """A name that no imported module registered as a job."""

    http_status = 404


class ArgumentsError(TenureError):
    """The arguments do not fit the job's signature."""

    http_status = 400


class PayloadTooLargeError(TenureError):
    """An envelope or result exceeds its cap."""

    http_status = 413

    @classmethod
    def check(cls, subject: str, body: bytes, most: int, remedy: str) -> None:
        """Raise it if ``body``, which ``subject`` has, is longer than ``most`` bytes."""
        if len(body) > most:
            raise cls(f"{subject} has {len(body)} bytes, the limit is {most}; {remedy}")


class JobFailedError(TenureError):
    """A run ended without success: its job failed for good, its process died, or it was refused.

    Attributes:
        run_id: the run.
        type: class of the job's exception, or the reason in one word: crashed, lost, expired, rejected.
        message: text of the exception, without credentials; may be empty.
        attempt: number of the last attempt, from 1; 0: it never began.
    """

    def __init__(self, run_id: str, *, type: str, message: str, attempt: int) -> None:  # noqa: A002 - the field's word
        said = f": {message}" if message else ""
        super().__init__(f"run {run_id} failed at attempt {attempt}: {type}{said}")
        self.run_id = run_id
        self.type = type
        self.message = message
        self.attempt = attempt


class RunCancelledError(TenureError):
    """A run was ended on request before it was done: cancelled, purged, or replaced by a newer one."""

    http_status = 409

    def __init__(self, run_id: str, outcome: str) -> None:
        super().__init__(f"run {run_id} was {outcome}")
        self.run_id = run_id
        self.outcome = outcome


class ResultGoneError(TenureError):
    """A run's result is not there: it expired, was never kept, or the run is not known here."""

    http_status = 404

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"the result of run {run_id} is gone: {reason}")
        self.run_id = run_id


class ResultTypeError(TenureError):
    """A result that does not fit the return annotation of its job; another version of the job may have written it."""


class RunTimeoutError(TenureError, TimeoutError):
    """A run had not ended when the wait for it was over; it goes on.

    Attributes:
        run_id: the run.
        state: its last known state, in one word; empty if Redis never told.
    """

    exit_code = EXIT_NO
    http_status = 409
    is_retryable = True

    def __init__(self, run_id: str, *, state: str, waited_s: float, fault: str = "") -> None:
        away = f"; Redis did not answer at last: {fault}" if fault else ""
        shown = state or "in an unknown state"
        super().__init__(f"run {run_id} has not ended after {waited_s:g} s, it is {shown}{away}")
        self.run_id = run_id
        self.state = state


class QueueFullError(TenureError):
    """As many runs wait in a queue as ``queues.length_max`` allows; this one was not enqueued."""

    http_status = 503
    is_retryable = True

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"as many runs wait in queue {queue} as queues.length_max allows: try again later, start more workers for "
            f"it, or raise the setting"
        )
        self.queue = queue


class RunIdTakenError(TenureError):
    """The chosen id is that of a schedule's or another job's run, or has other arguments; nothing is enqueued."""

    http_status = 409

    def __init__(self, run_id: str, queue: str, *, schedule: str = "") -> None:
        message = (
            f"run id {run_id} is taken in queue {queue}: a run of another job, or with other arguments, has it, or had "
            f"it within the last hour; choose another run_id, or repeat the call with the same job and arguments"
        )
        if schedule:
            message = (
                f"run id {run_id} is taken by schedule {schedule}, which gives its own runs such ids; "
                f"choose another run_id ({schedule}:…, for instance), or use tenure schedule trigger {schedule}"
            )
        super().__init__(message)
        self.run_id = run_id
        self.queue = queue


class StoreUnavailableError(TenureError):
    """Redis did not answer: down, refusing, too slow, loading or read-only. Worth a retry."""

    http_status = 503
    is_retryable = True


class StoreFullError(StoreUnavailableError):
    """Redis has no memory for this write. It answers, and whatever takes none goes on."""


class NotReplicatedError(StoreUnavailableError):
    """Redis did it, but no replica has it yet, and ``redis.durability: replica`` asks for one. Make the call again."""

    def __init__(self, *, where: str, operation: str, bound_ms: int) -> None:
        super().__init__(
            f"Redis at {where} did {operation}, but no replica had it within {bound_ms} ms; "
            f"look at the replicas (INFO replication), or set redis.durability: none"
        )


class StoreRefusedError(TenureError):
    """Redis answered no: wrong password, missing ACL right, eviction, too old. A retry will not help.

    Attributes:
        concerns_client: whether it would refuse this client any call (credentials, rights, certificate). Else it
            refused the subject of this call, such as a key of another type, and may answer calls about other things.
    """

    exit_code = EXIT_CONFIG
    http_status = 502

    def __init__(self, message: str, *, concerns_client: bool = False) -> None:
        super().__init__(message)
        self.concerns_client = concerns_client


class FencedError(TenureError):
    """A write carried a term that is not the one in Redis; another term was granted since."""

    http_status = 409

    def __init__(self, *, operation: str, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"{operation} refused: epoch {epoch} is not the current term ({current_epoch}); "
            f"another replica may lead now, so this one must re-read the term"
        )
        self.operation = operation
        self.epoch = epoch
        self.current_epoch = current_epoch
