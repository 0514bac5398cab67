"""Steps of a run: a finished one stays finished, however often the run is tried again.

Guarantees
    A step that was noted as done is not called again by a later attempt of its run: that gets its result. One that
    spawned runs is, since those of an attempt that did not finish never existed.
    It is noted under the fence of the attempt: a process that was taken for dead notes nothing.
    A result has the form that JSON gives it, at once as after an attempt.
    An outage of Redis, and a time in which it refuses the worker everything or has no memory, is waited out, until the
    job is asked to end: it charges no attempt and repeats no step.

Does not guarantee
    That a step is executed once: one whose process died before it was noted is executed again.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from supervisor.clock import Clock
from supervisor.core.effects import Call
from supervisor.core.errors import PayloadTooLargeError, StoreRefusedError, StoreUnavailableError, TenureError
from supervisor.core.json_values import json_of, read_json
from supervisor.core.model_types import plain_model
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.worker.attempt.run_output import MESSAGE_CHARS_MAX, SpawnMark, within_step
from supervisor.store.queues.run_records import STEP_BYTES_MAX, STEPS_BYTES_MAX, STEPS_MAX, Step, StepCalls
from supervisor.telemetry.masking import mask_text, text_of

if TYPE_CHECKING:
    from supervisor.store.producer.producer import Producer

NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,100}", re.ASCII)
UNFINISHED_MS = 30 * 86_400_000
"""How long steps of a run are kept that has not ended: from one attempt to the next."""

AGAIN_S = 0.5


class StepError(TenureError):
    """A step that cannot be: its name is unusable or taken, there are too many, or the run is another worker's."""


class Steps:
    """The steps of one attempt. Without a worker they are called and kept here, for tests of the job."""

    def __init__(
        self, *, attempt: int, clock: Clock, calls: StepCalls | None = None, runner: Producer | None = None
    ) -> None:
        self._attempt = attempt
        self._clock = clock
        self._calls = calls
        self._runner = runner
        self._earlier: dict[str, Step] | None = None if calls else {}
        self._under_way: dict[str, object] = {}
        self.records: dict[str, Step] = {}
        """How the steps of this attempt ended."""

        self.must_end: Callable[[], bool] = lambda: False
        """Returns whether the job was asked to end, so that it has no time to wait for Redis."""

    def step(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``function``, or return its result of an earlier attempt."""
        with self._begun(name):
            return self._step(name, function, args, kwargs)

    def _step(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._earlier is None:
            self._earlier = self._run(lambda calls: calls.read(ttl_ms=UNFINISHED_MS))
        if (done := self._done(name)) is not None:
            return done.result
        started_ns = self._clock.elapsed_ns()
        try:
            with _marked() as mark:
                value = function(*args, **kwargs)
            _must_be_plain(name, value)
            step, data = self._ended(name, started_ns, value=value, has_spawned=mark.has_spawned)
        except Exception as error:
            _, data = self._ended(name, started_ns, error=error)
            with suppress(TenureError):  # the step's own error tells more
                self._run(lambda calls: calls.write(name, data, ttl_ms=UNFINISHED_MS), waits=False)
            raise
        self._noted(name, self._run(lambda calls: calls.write(name, data, ttl_ms=UNFINISHED_MS)))
        return step.result

    async def step_async(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Do the same in a coroutine job; ``function`` may be a coroutine function or a plain one."""
        with self._begun(name):
            return await self._step_async(name, function, args, kwargs)

    async def _step_async(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._earlier is None:
            self._earlier = await self._run_async(lambda calls: calls.read(ttl_ms=UNFINISHED_MS))
        if (done := self._done(name)) is not None:
            return done.result
        started_ns = self._clock.elapsed_ns()
        try:
            with _marked() as mark:
                value = function(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = await value
            step, data = self._ended(name, started_ns, value=value, has_spawned=mark.has_spawned)
        except Exception as error:
            _, data = self._ended(name, started_ns, error=error)
            with suppress(TenureError):  # the step's own error tells more
                await self._run_async(lambda calls: calls.write(name, data, ttl_ms=UNFINISHED_MS), waits=False)
            raise
        self._noted(name, await self._run_async(lambda calls: calls.write(name, data, ttl_ms=UNFINISHED_MS)))
        return step.result

    @contextmanager
    def _begun(self, name: str) -> Iterator[None]:
        """Hold the name while its step is under way, also in other tasks and threads of the attempt."""
        if not NAME.fullmatch(name):
            raise StepError(f"step name {name[:120]!r} must be 1 to 100 of A-Z a-z 0-9 _ . : / -")
        mark = object()
        if name in self.records or self._under_way.setdefault(name, mark) is not mark:
            raise StepError(f"step {name} was called twice by one attempt; give each step a name of its own")
        try:
            yield
        finally:
            del self._under_way[name]  # one that was cancelled may be called again

    def _done(self, name: str) -> Step | None:
        assert self._earlier is not None
        step = self._earlier.get(name)
        if step is None or step.status != "done" or step.has_spawned:
            return None
        self.records[name] = step
        return step

    def _ended(
        self,
        name: str,
        started_ns: int,
        *,
        value: Any = None,
        error: Exception | None = None,
        has_spawned: bool = False,
    ) -> tuple[Step, bytes]:
        said = "" if error is None else mask_text(f"{type(error).__name__}: {text_of(error)}", MESSAGE_CHARS_MAX)
        text = " ".join(said.split())
        step = Step(
            status="done" if error is None else "failed",
            number=len(self.records) + 1,
            attempt=self._attempt,
            ended_ms=self._clock.wall_ms(),
            duration_ms=(self._clock.elapsed_ns() - started_ns) // MILLISECOND_NS,
            result=_as_json(name, value),
            error=text[:MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode(),
            has_spawned=has_spawned,
        )
        data = msgspec.json.encode(step)
        remedy = "store the data elsewhere and return a reference"
        PayloadTooLargeError.check(f"step {name}: its result", data, STEP_BYTES_MAX, remedy)
        self.records[name] = step
        return step, data

    @staticmethod
    def _noted(name: str, reply: int | None) -> None:
        if reply == 0:
            raise StepError(f"step {name}: this run is no longer this worker's, which was taken for dead")
        if reply == -1:
            raise StepError(f"step {name}: a run has up to {STEPS_MAX} steps with {STEPS_BYTES_MAX} bytes together")

    def _run(self, call: Callable[[StepCalls], Call[Any]], *, waits: bool = True) -> Any:
        while self._calls is not None and self._runner is not None:
            try:
                return self._runner.run(call(self._calls))
            except (StoreUnavailableError, StoreRefusedError) as error:
                if not waits or self.must_end() or not _will_pass(error):
                    raise
            threading.Event().wait(AGAIN_S)
        return None

    async def _run_async(self, call: Callable[[StepCalls], Call[Any]], *, waits: bool = True) -> Any:
        while self._calls is not None and self._runner is not None:
            try:
                return await self._runner.run_async(call(self._calls))
            except (StoreUnavailableError, StoreRefusedError) as error:
                if not waits or self.must_end() or not _will_pass(error):
                    raise
            await asyncio.sleep(AGAIN_S)
        return None


def _will_pass(error: StoreUnavailableError | StoreRefusedError) -> bool:
    """Return whether the call is worth another try: credentials and rights of the whole client are mended, too."""
    return isinstance(error, StoreUnavailableError) or error.concerns_client


@contextmanager
def _marked() -> Iterator[SpawnMark]:
    """Note whether the code inside spawns runs, for the steps around it too."""
    mark, around = SpawnMark(), within_step.get()
    before = within_step.set(mark)
    try:
        yield mark
    finally:
        with suppress(ValueError):  # a coroutine that another task closes
            within_step.reset(before)
        if around is not None and mark.has_spawned:
            around.has_spawned = True


def _as_json(name: str, value: Any) -> Any:
    try:
        return read_json(json_of(value, encode_other=plain_model))
    except ValueError as error:
        raise TypeError(f"step {name} returned what is {error}; return what can be kept, or nothing") from None


def _must_be_plain(name: str, value: Any) -> None:
    if inspect.isawaitable(value):
        getattr(value, "close", lambda: None)()
        raise TypeError(f"step {name}: a coroutine function takes a coroutine job, and step_async")
