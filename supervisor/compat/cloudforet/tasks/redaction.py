"""Redaction of task messages and of code of a service: references in place of the token, and texts without secrets.

Guarantees
    A task that is made here carries a reference in place of the configured token; it is resolved on the
    worker that executes it, and nowhere else. One that holds the token in another way is refused.
    A text that went through ``Hidden`` holds none of the secrets of the task that it was made for: the configured
    token, values under secret names, here and in ``cloudforet.config``, and the metadata but for the few keys that
    identify the requester.
    No error that leaves guarded code shows a secret, in its text or in that of an error behind it. Not even one
    that is no ``Exception``: ``sys.exit(text)`` is an error like any other. Demands of a worker on a job (its soft
    timeout, that its process must go) pass untouched.

Does not guarantee
    Anything of a secret of fewer than four characters, or of one in another encoding.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.schema import TEXT_CHARS_MAX, TaskError
from supervisor.core.errors import TenureError
from supervisor.roles.worker.attempt.context import Context, Interrupted, SoftTimeout
from supervisor.telemetry import masking
from supervisor.telemetry.masking import MASK, is_secret_name

REFERENCE = {"tenure_reference": "cloudforet.token"}
SECRET_CHARS_MIN = 4
METADATA_CHARS_MIN = 8  # of what may be a secret and may be a word: masking `info` would spoil every line
SECRETS_MAX = 30_000  # more than a payload can hold, so that none is left out
VALUES_MAX = 200_000  # of one task; ends what contains itself
DEPTH_MAX = 32
_HARMLESS = frozenset(
    {"x_domain_id", "x_workspace_id", "domain_id", "traceparent", "peer", "service", "resource", "verb"}
    | {"disable_info_log", "transaction_id", "trace_id"}
)


class TokenMissingError(TenureError):
    """A task refers to the token, and this replica has none."""

    def __init__(self) -> None:
        super().__init__("the task refers to the system token, and this replica has none: set cloudforet.token")


def with_references(task: Any) -> Any:
    """Return ``task`` with a reference in place of the configured token.

    Raises:
        TaskError: it holds the token as a key or within a longer text, which nobody would put back.
    """
    token = runtime.token()
    if token is None:
        return task
    whole = _replace(task, token, dict(REFERENCE))
    forms = _usable([token]) if len(token) >= METADATA_CHARS_MIN else ()  # a short one may be any word
    place = next(_places_of(forms, whole), None)
    if place is not None:
        remedy = "let a value be the token and nothing else, or have the stage add what belongs around it"
        raise TaskError(f"the task message is rejected: {place} holds cloudforet.token; {remedy}")
    return whole


def _places_of(forms: tuple[str, ...], value: Any, path: str = "") -> Iterator[str]:
    """Yield the places in ``value`` that hold one of ``forms``, by keys that hold none."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if any(form in str(key) for form in forms):
                yield f"a key of {path or 'the message'}"
            else:
                yield from _places_of(forms, item, f"{path}{'.' if path else ''}{str(key)[:TEXT_CHARS_MAX]}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places_of(forms, item, f"{path}[{index}]")
    elif any(form in str(value) for form in forms):
        yield path


def resolved(task: Any) -> Any:
    """Return ``task`` with the configured token in place of references to it.

    Raises:
        TokenMissingError: there is a reference, and no token.
    """
    token = runtime.token()
    whole = _replace(task, REFERENCE, token)
    if token is None and whole != task:
        raise TokenMissingError
    return whole


def masked(task: Any, depth: int = 0) -> Any:
    """Return ``task`` masked for display: metadata without values, nothing under a secret name."""
    if isinstance(task, Mapping | list) and depth >= DEPTH_MAX:
        return MASK
    if isinstance(task, Mapping):
        return {
            str(key): MASK if _is_hidden(str(key), value) else masked(value, depth + 1) for key, value in task.items()
        }
    return [masked(item, depth + 1) for item in task] if isinstance(task, list) else task


def _is_hidden(key: str, value: Any) -> bool:
    return key == "metadata" or (is_secret_name(key) and value not in (None, ""))


@dataclass(frozen=True, slots=True)
class Hidden:
    """Secrets that no text may show."""

    values: tuple[str, ...] = ()

    @classmethod
    def of_settings(cls) -> Hidden:
        """Return those that the configuration holds."""
        return cls(_usable([*filter(None, [runtime.token()]), *_secrets(runtime.settings().config)]))

    @classmethod
    def of_task(cls, task: Any) -> Hidden:
        """Return those of one task message, and those of the configuration."""
        return cls(_usable([*cls.of_settings().values, *_secrets(task)]))

    def scrub(self, text: str) -> str:
        """Return ``text`` without them."""
        for value in self.values:
            if value in text:
                text = text.replace(value, MASK)
        return text

    def scrubbed(self, value: Any, depth: int = 0) -> Any:
        """Return a JSON value whose texts are without them, and without values under secret names."""
        if isinstance(value, str):
            return self.scrub(value)
        if depth >= DEPTH_MAX:
            return MASK
        if isinstance(value, Mapping):
            return {
                self.scrub(str(key)): MASK if _is_hidden(str(key), item) else self.scrubbed(item, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.scrubbed(item, depth + 1) for item in value]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return MASK if is_number and str(value) in self.values else value


def _usable(values: Iterable[str]) -> tuple[str, ...]:
    """Return the longest first, each also in its JSON and ``repr`` form."""
    found = {value for value in values if len(value) >= SECRET_CHARS_MIN}
    found |= {json.dumps(value)[1:-1] for value in found} | {repr(value)[1:-1] for value in found}
    return tuple(sorted(found, key=lambda value: (-len(value), value))[:SECRETS_MAX])


def _secrets(task: Any) -> Iterator[str]:
    """Yield the secrets of ``task``, however deep: without recursion, which ends before a message does."""
    left: list[tuple[Any, int]] = [(task, 0)]
    for _ in range(VALUES_MAX):
        if not left:
            return
        value, least = left.pop()
        if isinstance(value, Mapping):
            left += [(item, _least(str(key), least)) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            left += [(item, least) for item in value]
        elif (
            least and isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) >= least
        ):
            yield str(value)


def _least(name: str, around: int) -> int:
    """Return from how many characters on texts under ``name`` are secrets; 0: they are none."""
    if is_secret_name(name) or around == SECRET_CHARS_MIN:
        return SECRET_CHARS_MIN
    if name == "metadata":
        return METADATA_CHARS_MIN
    return 0 if name in _HARMLESS else around


def _replace(value: Any, old: Any, new: Any) -> Any:
    if value == old:
        return new
    if isinstance(value, Mapping):
        return {key: _replace(item, old, new) for key, item in value.items()}
    return [_replace(item, old, new) for item in value] if isinstance(value, list) else value


CONTROL = (SoftTimeout, Interrupted, asyncio.CancelledError, KeyboardInterrupt)


class ScrubbedError(TenureError):
    """Replaces an error that shows a secret."""


@contextmanager
def guarded(context: Context, hidden: Hidden) -> Iterator[None]:
    """Run the code inside as part of ``context``; its lines of the log and its errors are without secrets."""
    with runtime.running(context), masking.hiding(hidden.values):
        try:
            yield
        except CONTROL as error:
            if shows(error, hidden):
                masking.drop_causes(error)
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
