"""Operations: one function for each thing a person can ask, whichever door it comes through.

Guarantees
    An operation does no I/O: it is a generator that yields calls of the store and is sent their replies. It ends
    with a typed result, or raises a TenureError whose ``exit_code`` and ``http_status`` the doors pass on.
    The command drives it with a blocking client that repeats calls, the HTTP API with an asynchronous one.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from supervisor.store.scripts import Call

T = TypeVar("T")
Operation: TypeAlias = Generator[Call[Any], Any, T]
