"""``cached``: the result of a function, kept for a time, and computed once however many ask.

Guarantees
    Of the callers that ask for one key at once, one computes: in this process, and with scope ``redis`` in the whole
    cluster. Whoever computes and dies holds the others up for ``wait`` at most; then they compute themselves.
    Errors are never kept: those who waited in this process get the same one, the next caller computes again.
    A value deleted while it was being computed is not kept, however long that takes.
    Whoever gets a value gets one of its own.

Does not guarantee
    That a value is kept: memory that is full, an outage of Redis, a value over 64 KiB, more than 100,000 of a function
    or one that took an hour longer than ``wait`` means that it is computed.
    That one computes, where computing takes longer than ``wait``.

Values are JSON: a return value has the form that JSON gives it, as the annotation of the function reads it.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from supervisor.core.durations import seconds_of
from supervisor.core.effects import drive, drive_async
from supervisor.store.cache.cached_function import Kept, Result
from supervisor.store.scripts import Call

TTL_S_MAX = 30 * 86_400
WAIT_S_MAX = 600
CALL_S = 2.0  # how long a plain function waits for one answer of Redis
TRIES_MAX = 3  # to join somebody who computes, and is cut off

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Cached(Protocol[P, R_co]):
    """A function whose results are kept. Of a coroutine function the methods are to be awaited."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Return the kept value, or compute it."""
        ...

    def delete(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Forget the value kept for these arguments; return how many values went."""
        ...

    def delete_pattern(self, pattern: str) -> Any:
        """Forget every key that ``pattern`` matches, with ``*``, ``?`` and ``[…]``; return how many went."""
        ...


class _Flight:
    """One computation that others of this process wait for."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.result: Result | None = None
        self.error: Exception | None = None


class _PlainFunction:
    """A cached plain function."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._flights: dict[str, _Flight] = {}
        self._lock = threading.Lock()

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the kept value, or compute it."""
        kept = self._kept
        key = kept.key_of(args, kwargs)
        for _ in range(TRIES_MAX):
            with self._lock:
                flight, is_first = self._flights.get(key), key not in self._flights
                if flight is None:
                    flight = self._flights[key] = _Flight()
            if is_first:
                self._lead(key, flight, lambda: kept.function(*args, **kwargs))
            elif not flight.is_over.wait(kept.wait_s):
                break
            if flight.error is not None:
                raise flight.error
            if flight.result is not None:
                return kept.decode(flight.result.data) if flight.result.data is not None else flight.result.value
        return kept.function(*args, **kwargs)

    def _lead(self, key: str, flight: _Flight, compute: Callable[[], Any]) -> None:
        try:
            producer, calls = self._kept.redis()
            flight.result = drive(self._kept.steps(key, calls), self._perform(producer, compute), errors=BaseException)
        except Exception as error:  # noqa: BLE001 - it is the callers', every one of them
            flight.error = error
        finally:
            with self._lock:
                if self._flights.get(key) is flight:
                    del self._flights[key]
            flight.is_over.set()

    @staticmethod
    def _perform(producer: Any, compute: Any = None) -> Callable[[Any], Any]:
        def perform(step: Any) -> Any:
            if isinstance(step, Call):
                return producer.run(step, timeout_s=CALL_S)
            return threading.Event().wait(step) if isinstance(step, float) else compute()

        return perform

    def delete(self, *args: Any, **kwargs: Any) -> int:
        """Forget the value kept for these arguments; who calls from now on does not wait for what is being computed."""
        key = self._kept.key_to_delete(args, kwargs)
        with self._lock:
            self._flights.pop(key, None)
        producer, calls = self._kept.redis()
        return drive(self._kept.deletion(key, calls), self._perform(producer))

    def delete_pattern(self, pattern: str) -> int:
        """Forget every key that matches."""
        with self._lock:
            self._flights.clear()
        producer, calls = self._kept.redis()
        return drive(self._kept.sweep(pattern, calls), self._perform(producer))


class _Async:
    """A cached coroutine function."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._by_loop: WeakKeyDictionary[Any, dict[str, asyncio.Future[Result | None]]] = WeakKeyDictionary()

    async def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the kept value, or compute it."""
        kept = self._kept
        key = kept.key_of(args, kwargs)
        loop = asyncio.get_running_loop()
        flights = self._by_loop.setdefault(loop, {})
        for _ in range(TRIES_MAX):
            flight = flights.get(key)
            if flight is None:
                flight = flights[key] = loop.create_future()
                await self._lead(key, flights, flight, lambda: kept.function(*args, **kwargs))
            try:
                async with asyncio.timeout(kept.wait_s):
                    result = await asyncio.shield(flight)
            except TimeoutError:
                if flight.done():
                    raise  # the function's own
                break
            if result is not None:
                return kept.decode(result.data) if result.data is not None else result.value
        return await kept.function(*args, **kwargs)

    async def _lead(
        self,
        key: str,
        flights: dict[str, asyncio.Future[Result | None]],
        flight: asyncio.Future[Result | None],
        compute: Callable[[], Any],
    ) -> None:
        try:
            producer, calls = self._kept.redis()
            perform = self._perform(producer, compute)
            flight.set_result(await drive_async(self._kept.steps(key, calls), perform, errors=BaseException))
        except Exception as error:  # noqa: BLE001 - it is the callers', every one of them
            flight.set_exception(error)
            flight.exception()  # seen, even if nobody else waits
        finally:
            if flights.get(key) is flight:
                del flights[key]
            if not flight.done():
                flight.set_result(None)  # cut off: whoever waited begins anew

    @staticmethod
    def _perform(producer: Any, compute: Any = None) -> Callable[[Any], Any]:
        def perform(step: Any) -> Any:  # an awaitable
            if isinstance(step, Call):
                return producer.run_async(step)
            return asyncio.sleep(step, None) if isinstance(step, float) else compute()

        return perform

    async def delete(self, *args: Any, **kwargs: Any) -> int:
        """Forget the value kept for these arguments; who calls from now on does not wait for what is being computed."""
        key = self._kept.key_to_delete(args, kwargs)
        self._by_loop.get(asyncio.get_running_loop(), {}).pop(key, None)
        producer, calls = self._kept.redis()
        return await drive_async(self._kept.deletion(key, calls), self._perform(producer))

    async def delete_pattern(self, pattern: str) -> int:
        """Forget every key that matches."""
        self._by_loop.get(asyncio.get_running_loop(), {}).clear()
        producer, calls = self._kept.redis()
        return await drive_async(self._kept.sweep(pattern, calls), self._perform(producer))


def cached(
    *, key: str, ttl: float | str, scope: str = "redis", wait: float | str = "10s", name: str | None = None
) -> Callable[[Callable[P, R_co]], Cached[P, R_co]]:
    """Keep the results of a function, plain or coroutine, and compute each once, however many ask.

    Args:
        key: text with placeholders, ``"{tenant}/{day}"``, each a parameter of the function, with text between them.
        ttl: how long a result is kept: seconds, or ``"5m"``; up to 30 days.
        scope: ``redis``, for the whole cluster, or ``local``, up to 1,000 results in this process. Where there is no
            Redis, as in a test, everything is local.
        wait: how long others wait for the one who computes, before they do it themselves; up to ten minutes.
        name: the key part of the results; default: ``module.function``.

    Raises:
        ValueError: one of them cannot be; a key names no parameter, or has two placeholders without text between them.
    """
    ttl_s, wait_s = seconds_of("ttl", ttl), seconds_of("wait", wait)
    if not 0.001 <= ttl_s <= TTL_S_MAX:
        raise ValueError(f"ttl must be 1 ms to 30 days, got {ttl!r}")
    if not 0.001 <= wait_s <= WAIT_S_MAX:
        raise ValueError(f"wait must be 1 ms to 10 minutes, got {wait!r}")
    if scope not in {"redis", "local"}:
        raise ValueError(f"scope must be redis or local, got {scope!r}")

    def decorate(function: Callable[P, R_co]) -> Cached[P, R_co]:
        if not inspect.isfunction(function) or inspect.isgeneratorfunction(function):
            raise ValueError(f"cached: {function!r} must be a function defined with def or async def, which returns")
        kept = Kept(function, key=key, ttl_s=ttl_s, wait_s=wait_s, scope=scope, name=name)
        return cast("Cached[P, R_co]", _coroutine(kept) if inspect.iscoroutinefunction(function) else _plain(kept))

    return decorate


def _plain(kept: Kept) -> Any:
    caller = _PlainFunction(kept)

    @wraps(kept.function)
    def through_cache(*args: Any, **kwargs: Any) -> Any:
        return caller.call(args, kwargs)

    return _with_methods(through_cache, caller)


def _coroutine(kept: Kept) -> Any:
    caller = _Async(kept)

    @wraps(kept.function)
    async def through_cache(*args: Any, **kwargs: Any) -> Any:
        return await caller.call(args, kwargs)

    return _with_methods(through_cache, caller)


def _with_methods(function: Any, caller: _PlainFunction | _Async) -> Any:
    function.delete = caller.delete
    function.delete_pattern = caller.delete_pattern
    return function
