"""Error redaction for code of a service: every error that leaves it is without secrets.

Guarantees
    No error that leaves guarded code shows a secret, in its text or in that of an error behind it. Not even one
    that is no ``Exception``: ``sys.exit(text)`` is an error like any other.
    Demands of a worker on a job (its soft timeout, that its process must go) pass untouched.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.redaction import Hidden
from supervisor.core.errors import TenureError
from supervisor.roles.worker.attempt.context import Context, Interrupted, SoftTimeout
from supervisor.telemetry import masking

CONTROL = (SoftTimeout, Interrupted, asyncio.CancelledError, KeyboardInterrupt)


class ScrubbedError(TenureError):
    """Replaces an error that shows a secret."""


@contextmanager
def guarded(context: Context, hidden: Hidden) -> Iterator[None]:
    """Run the code inside as part of ``context``; its lines of the log and its errors are without secrets."""
    with runtime.running(context), masking.hiding(hidden.values):
        try:
            yield
        except CONTROL:
            raise
        except BaseException as error:
            if not shows(error, hidden):
                raise
            raise without_secrets(error, hidden) from None


def shows(error: BaseException, hidden: Hidden) -> bool:
    """Return whether a record of ``error``, and of its causes, would show a secret."""
    text = "".join(traceback.TracebackException.from_exception(error, compact=True).format())
    return hidden.scrub(text) != text


def without_secrets(error: BaseException, hidden: Hidden) -> ScrubbedError:
    """Return ``error`` in a form without secrets. Its stack is kept, which shows lines of code and no values."""
    name = type(error).__name__
    try:
        text = hidden.scrub(str(error))
    except Exception:  # noqa: BLE001 - an error that cannot be printed is one all the same
        text = "it cannot be printed"
    told = ScrubbedError(text if text.startswith(name) else f"{name}: {text}")
    told.ends_run = getattr(error, "ends_run", False) is True
    return told.with_traceback(error.__traceback__)
