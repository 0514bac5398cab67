"""One cached function: how its keys, values and questions to Redis look. Who calls it is in ``decorator``.

Sans I/O but for the clock: the steps are yielded, and whoever drives them answers (adr/0010).
"""

from __future__ import annotations

import inspect
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, NamedTuple, get_type_hints

import msgspec
import structlog

from supervisor.clock import SystemClock
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.json_values import canonical_text, json_of, json_reader
from supervisor.core.model import PAYLOAD_BYTES_MAX
from supervisor.core.model_types import plain_model, read_model
from supervisor.core.units import SECOND_NS
from supervisor.store.keys import Keys
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import number, text

ENTRIES_MAX = 1000
PAGES_MAX = 10_000
PAUSE_S, PAUSE_S_MAX = 0.01, 0.25  # between two questions whether another process has computed it
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
_KEY = re.compile(r"(?!#)[!-~]{1,200}", re.ASCII)  # what begins with # is the digest of another
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NONCE_BYTES = 12
_CLOCK = SystemClock()
_STORE_ERRORS = (StoreUnavailableError, StoreRefusedError)

log = structlog.get_logger("tenure.cache")


class Result(NamedTuple):
    """Found or computed value: bytes that are kept, or a value that could not be."""

    data: bytes | None
    value: Any = None


class Compute:
    """The step that calls the function."""


Step = Call[Any] | float | Compute
Steps = Generator[Step, Any, Result]
COMPUTE = Compute()


class Kept:
    """One cached function: the decisions about it, without a call to Redis."""

    def __init__(
        self, function: Callable[..., Any], *, key: str, ttl_s: float, wait_s: float, scope: str, name: str | None
    ) -> None:
        self.function = function
        self.name = name or f"{function.__module__}.{function.__qualname__}".replace("<locals>.", "")
        self.ttl_s, self.wait_s, self.scope = ttl_s, wait_s, scope
        self.local = BoundedCache(ENTRIES_MAX, threading.Lock())
        self._pattern = key
        between = _PLACEHOLDER.split(key)[2:-1:2]
        marks = {text[:1] for text in between}
        self._escaped = re.compile(f"[%{re.escape(''.join(sorted(marks)))}]") if marks else None
        self._signature = inspect.signature(function)
        self._decoder: Callable[[bytes], Any] | None = None
        self._calls: tuple[Any, CacheCalls] | None = None
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"cached {self.name!r}: its name must be 1 to 128 of A-Z a-z 0-9 _ . : -; give name=")
        for wanted in _PLACEHOLDER.findall(key):
            if wanted not in self._signature.parameters:
                raise ValueError(f"cached {self.name}: key {key!r} names {{{wanted}}}, which is no parameter of it")
        if not all(between):
            raise ValueError(
                f"cached {self.name}: key {key!r}: its placeholders need text between them, such as {{a}}/{{b}}; "
                "without it calls with different arguments would share a result"
            )

    def key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the key of a call.

        Raises:
            TypeError: the arguments do not fit the function, or one that the key names is no JSON.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        key = _PLACEHOLDER.sub(lambda found: self._text(bound.arguments[found[1]]), self._pattern)
        return key if _KEY.fullmatch(key) else f"#{blake2b(key.encode(), digest_size=16).hexdigest()}"

    def key_to_delete(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the key of a call whose value is to go.

        Raises:
            TypeError: as ``key_of``, or this is a method, and the first argument no object that has it.
        """
        first = next(iter(self._signature.parameters), "")
        if first in {"self", "cls"} and not (args and hasattr(args[0], self.function.__name__)):
            raise TypeError(f"cached {self.name} is a method: delete takes the object first, then its other arguments")
        return self.key_of(args, kwargs)

    def _text(self, value: Any) -> str:
        """Return an argument in its form in a key: the separator from the next one does not occur in it."""
        text = canonical_text(value, encode_other=plain_model)
        return text if self._escaped is None else self._escaped.sub(lambda found: f"%{ord(found[0]):02X}", text)

    def decode(self, data: bytes) -> Any:
        """Return the value in ``data``, as the annotation of the function has it.

        Raises:
            msgspec.MsgspecError: another version of the function wrote it.
        """
        if self._decoder is None:
            try:
                wanted = get_type_hints(self.function).get("return", Any)
                self._decoder = json_reader(wanted, decode_other=read_model)
            except (NameError, AttributeError, TypeError):  # known to type checkers alone, or no type of JSON
                self._decoder = json_reader(Any)
        return self._decoder(data)

    def encode(self, value: Any) -> Result:
        """Return the bytes that are kept of ``value``.

        Raises:
            TypeError: it is no JSON.
        """
        try:
            data = json_of(value, encode_other=plain_model)
        except ValueError as error:
            raise TypeError(f"cached {self.name} returned what is {error}") from None
        if len(data) > PAYLOAD_BYTES_MAX:
            log.warning("cached_value_too_large", function=self.name, bytes=len(data), limit=PAYLOAD_BYTES_MAX)
            return Result(None, value)
        return Result(data)

    def redis(self) -> tuple[Any, CacheCalls] | tuple[None, None]:
        """Return whom to ask, and by which calls; nobody for a local cache, and in a program that has no Redis."""
        if self.scope == "local":
            return None, None
        from supervisor.store.producer import connection as producing  # noqa: PLC0415 - declaring loads no Redis client

        try:
            producer = producing.current()
        except producing.NoRedisError:
            return None, None
        if self._calls is None or self._calls[0] is not producer:
            self._calls = producer, CacheCalls(producer.keys, self.name)
        return self._calls

    def steps(self, key: str, calls: CacheCalls | None) -> Steps:
        """Find or compute the value of ``key``."""
        return self._local_steps(key) if calls is None else self._redis_steps(key, calls)

    def deletion(self, key: str, calls: CacheCalls | None) -> Generator[Step, Any, int]:
        """Forget the value of ``key``; return how many values went."""
        gone = self.local.delete(key)
        return gone if calls is None else gone + int((yield calls.delete(key)))

    def sweep(self, pattern: str, calls: CacheCalls | None) -> Generator[Step, Any, int]:
        """Forget every key that ``pattern`` matches; return how many values went."""
        gone, cursor = self.local.delete_matching(pattern), "0"
        for _ in range(PAGES_MAX if calls else 0):
            assert calls is not None
            page: Swept = yield calls.sweep(pattern, cursor)
            gone, cursor = gone + page.gone, page.cursor
            if cursor == "0":
                break
        return gone

    def _local_steps(self, key: str) -> Steps:
        found = self.local.get(key, _CLOCK.elapsed_ns())
        if found is not None:
            return Result(found)
        generation = self.local.generation
        result = self.encode((yield COMPUTE))
        if result.data is not None and generation == self.local.generation:
            self.local.put(key, result.data, _CLOCK.elapsed_ns() + round(self.ttl_s * SECOND_NS))
        return result

    def _redis_steps(self, key: str, calls: CacheCalls) -> Steps:
        nonce = os.urandom(_NONCE_BYTES).hex()
        ttl_ms = round(1000 * self.ttl_s)
        try:
            found = yield from self._found(key, calls, nonce, ttl_ms)
        except _STORE_ERRORS as error:
            log.warning("cache_unavailable", function=self.name, error=str(error))
            return self.encode((yield COMPUTE))
        if isinstance(found, Result):
            return found if found.data is not None else self.encode((yield COMPUTE))
        try:
            result = self.encode((yield COMPUTE))
        except GeneratorExit:
            raise  # nobody is left to let the next one compute it at once: the lease will
        except BaseException:
            yield from self._told(calls.put(key, nonce=nonce, mark=found, value=b"", ttl_ms=0))
            raise
        kept_ms = 0 if result.data is None else ttl_ms
        yield from self._told(calls.put(key, nonce=nonce, mark=found, value=result.data or b"", ttl_ms=kept_ms))
        return result

    def _told(self, call: Call[int]) -> Generator[Step, Any, None]:
        try:
            yield call
        except _STORE_ERRORS as error:
            log.warning("cache_unavailable", function=self.name, error=str(error))

    def _found(self, key: str, calls: CacheCalls, nonce: str, ttl_ms: int) -> Generator[Step, Any, Result | str]:
        """Return the kept value, an empty result if nobody else computed it in time, or the mark if it is ours to."""
        until_ns = _CLOCK.elapsed_ns() + round(self.wait_s * SECOND_NS)
        pause_s = PAUSE_S
        while True:
            taken = yield calls.take(key, nonce=nonce, lease_ms=round(1000 * self.wait_s), ttl_ms=ttl_ms)
            if taken.mark:
                return str(taken.mark)
            if taken.value is not None:
                try:
                    self.decode(taken.value)
                except msgspec.MsgspecError:
                    yield calls.delete(key)
                else:
                    return Result(taken.value)
            left_s = (until_ns - _CLOCK.elapsed_ns()) / SECOND_NS
            if left_s <= 0:
                return Result(None)
            yield min(pause_s, left_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


class BoundedCache:
    """At most ``entries_max`` values."""

    def __init__(self, entries_max: int, lock: AbstractContextManager[Any]) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[str, tuple[bytes, int]] = OrderedDict()
        self._lock = lock
        self.generation = 0
        """Grows with each deletion: what was being computed at that time is not to be kept."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str, now_ns: int) -> bytes | None:
        """Return the value of ``key``, unless its time is over."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            if found[1] <= now_ns:
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: str, value: bytes, until_ns: int) -> None:
        """Keep ``value``, and forget the least recently used if there is too much."""
        with self._lock:
            self._entries[key] = value, until_ns
            self._entries.move_to_end(key)
            while len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)

    def delete(self, key: str) -> int:
        """Forget ``key``; return how many values went."""
        with self._lock:
            self.generation += 1
            return int(self._entries.pop(key, None) is not None)

    def delete_matching(self, pattern: str) -> int:
        """Forget every key that ``pattern`` matches: ``*``, ``?`` and ``[…]``."""
        with self._lock:
            self.generation += 1
            matching = [key for key in self._entries if fnmatchcase(key, pattern)]
            for key in matching:
                del self._entries[key]
            return len(matching)


SWEEP_COUNT = 1000


class Taken(NamedTuple):
    """Result of asking for a value."""

    value: bytes | None
    mark: str = ""
    """There is none, and the caller is to compute it, by this mark."""


class Swept(NamedTuple):
    """Result of one page of a deletion by pattern. ``cursor`` "0": the last one."""

    cursor: str
    gone: int


class CacheCalls(CallBuilder):
    """Builds the calls of one function."""

    def __init__(self, keys: Keys, name: str) -> None:
        super().__init__(keys)
        self._name = name

    def take(self, key: str, *, nonce: str, lease_ms: int, ttl_ms: int) -> Call[Taken]:
        """Read a value, or become the one who computes it."""
        args = {"nonce": nonce, "lease_ms": max(1, lease_ms), "ttl_ms": ttl_ms}
        return self._call("cache_take", {"name": self._name, "key": key, **args}, _taken)

    def put(self, key: str, *, nonce: str, mark: str, value: bytes, ttl_ms: int) -> Call[int]:
        """Keep a value, if nobody else did meanwhile; with no time: let the next one compute it at once."""
        args = {"nonce": nonce, "mark": mark, "ttl_ms": ttl_ms, "new_value": value}
        return self._call("cache_put", {"name": self._name, "key": key, **args}, int)

    def delete(self, key: str) -> Call[int]:
        """Forget a value."""
        return self._call("cache_delete", {"name": self._name, "key": key}, int)

    def sweep(self, pattern: str, cursor: str = "0") -> Call[Swept]:
        """Forget a page of the entries that ``pattern`` matches; begin with "0", end when the reply's cursor is "0"."""
        args = {"name": self._name, "cursor": cursor, "pattern": pattern, "count": SWEEP_COUNT}
        return self._call("cache_sweep", args, lambda reply: Swept(text(reply[0]), number(reply[1])))


def _taken(reply: Any) -> Taken:
    return Taken(reply[1]) if reply[0] == b"HIT" else Taken(None, text(reply[1]))
