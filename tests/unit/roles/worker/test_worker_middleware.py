"""What is refused as middleware."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor import Context, Middleware


def _yields(self: Any, context: Context, call: Any) -> Any:
    yield call()


async def _yields_async(self: Any, context: Context, call: Any) -> Any:
    yield await call()


async def _is_coroutine(self: Any, context: Context, call: Any) -> Any:
    return call()


@pytest.mark.parametrize(
    ("method", "function"), [("around", _yields), ("around", _is_coroutine), ("around_async", _yields_async)]
)
def test_middleware_that_would_never_call_the_job_is_refused(method: str, function: Any) -> None:
    """Written like a context manager it returns a generator: every run would be recorded as ok, and none executed."""
    with pytest.raises(ValueError, match=rf"middleware .*:Wrong: {method} "):
        type("Wrong", (Middleware,), {method: function})().install()
