"""Tables of one rule as one test: it goes through all rows, and tells of each that fails by its values.

An item of pytest costs 2 ms, most rows a hundredth of it. A row takes no fixture: what is made for a test is made once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def table(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test once for each row, with the arguments of ``pytest.mark.parametrize``, and fail once with all errors."""
    given = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    kept = [_values(row, len(given)) for row in rows]
    assert kept, "a table without rows shows nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def whole(**outer: Any) -> None:
            errors: list[BaseException] = []
            for row in kept:
                arguments = dict(zip(given, row, strict=True))
                try:
                    test(**arguments, **outer)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - every row is judged
                    error.add_note(f"row: {', '.join(f'{name}={value!r}' for name, value in arguments.items())}")
                    errors.append(error)
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(kept)} rows fail", errors)

        signature = inspect.signature(test)
        rest = [each for name, each in signature.parameters.items() if name not in given]
        assert len(rest) + len(given) == len(signature.parameters), (
            f"{test.__name__} takes other arguments than {given}"
        )
        whole.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]  # what pytest asks for
        return whole

    return decorate


def _values(row: Any, count: int) -> Sequence[Any]:
    if isinstance(row, type(pytest.param())):
        assert not row.marks, "a row has no marks of its own"
        return row.values
    return row if count > 1 else (row,)
