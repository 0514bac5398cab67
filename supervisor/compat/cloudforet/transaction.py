"""One stage as a unit that can be taken back: metadata, and its rollback on failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import structlog

log = structlog.get_logger("tenure.cloudforet")
ROLLBACKS_MAX = 10_000


class Transaction:
    """Metadata of one stage, and its rollbacks."""

    def __init__(self, meta: Mapping[str, Any] | None = None) -> None:
        self.meta: dict[str, Any] = dict(meta or {})
        self._rollbacks: list[Callable[[], Any]] = []

    def __repr__(self) -> str:
        """Show names only: the metadata holds the token."""
        return f"<Transaction {', '.join(sorted(self.meta))}>"

    def set_meta(self, key: str, value: Any) -> None:
        """Note something for the rest of the stage."""
        self.meta[key] = value

    def get_meta(self, key: str, default: Any = None) -> Any:
        """Return the noted value."""
        return self.meta.get(key, default)

    def add_rollback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Have ``function`` called if the stage fails; the last given is called first, each once.

        Raises:
            RuntimeError: there are too many.
        """
        if len(self._rollbacks) >= ROLLBACKS_MAX:
            raise RuntimeError(f"over {ROLLBACKS_MAX} rollbacks in one stage; do the work in smaller ones")
        self._rollbacks.append(partial(function, *args, **kwargs))

    def execute_rollback(self) -> None:
        """Take back the effects of the stage. A rollback that fails is logged by name, and stops none of the others."""
        while self._rollbacks:
            function = self._rollbacks.pop()
            try:
                function()
            except Exception as error:  # noqa: BLE001 - one failed rollback must not skip the others
                what = getattr(function, "func", function)
                log.error(  # noqa: TRY400 - a stack could show what the error says
                    "rollback_failed", function=getattr(what, "__qualname__", "?"), error=type(error).__name__
                )


_stage: ContextVar[Transaction | None] = ContextVar("tenure_cloudforet_stage", default=None)


def current() -> Transaction:
    """Return the transaction of the stage that is executed; outside of one a fresh one."""
    return _stage.get() or Transaction()


@contextmanager
def entered(transaction: Transaction) -> Iterator[Transaction]:
    """Make ``transaction`` that of the code inside, and take back its effects if that fails."""
    before = _stage.set(transaction)
    try:
        yield transaction
    except BaseException:  # a timeout too, and when the process must go
        transaction.execute_rollback()
        raise
    finally:
        _stage.reset(before)
