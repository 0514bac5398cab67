"""Ends of attempts: another one or none, the result to keep, and the record of an exception within its cap."""

from __future__ import annotations

import os
import traceback
from typing import Any

import msgspec
import structlog

from supervisor.core.errors import OptionError
from supervisor.core.jobs.registry import JobSpec
from supervisor.core.json_values import json_of
from supervisor.core.model import PAYLOAD_BYTES_MAX
from supervisor.core.model_types import plain_model
from supervisor.core.retry import AGAIN_MAX, Again, GiveUp
from supervisor.roles.worker.run_reporting import identity
from supervisor.store.queues.runs import FetchedRun
from supervisor.telemetry.log_lines.render import end_of_traceback
from supervisor.telemetry.masking import mask_text

MESSAGE_BYTES_MAX = 1024
TRACEBACK_BYTES_MAX = 4096 - 1024 - 512  # with the message and the names, one error stays under 4 KiB
NOTE_CHARS_MAX = 200
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
    return isinstance(error, SystemExit) and (
        error.code is None or error.code == 0
    )  # a code may be anything, a list too


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
        message=_head(mask_text(message, MESSAGE_BYTES_MAX), MESSAGE_BYTES_MAX),
        worker=worker,
        traceback=_tail(
            end_of_traceback(rendered, chars=TRACEBACK_BYTES_MAX, piece_chars=MESSAGE_BYTES_MAX), TRACEBACK_BYTES_MAX
        ),
    )


def _head(text: str, limit: int) -> str:
    raw = text.encode("utf-8", "replace")  # a lone surrogate is no JSON
    return raw.decode() if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "…"


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
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - a model's own serializer may raise anything
        reason = f"{type(error).__name__}: {error}"
    log.warning("run_result_dropped", **identity(fetched), reason=reason)
    return msgspec.json.encode({"tenure_result_dropped": reason})
