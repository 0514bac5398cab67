"""Many runs of one job, in batches: each is packed while the server is busy with the one before.

Guarantees
    They are enqueued in their order, so that at any moment the first so many are in and the rest is not, but
    for the one batch that is on its way. The error counts both.
    Memory holds two batches, of at most 500 runs and about 1 MiB each, however many there are in total.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import KW_ONLY, InitVar, dataclass, field, is_dataclass
from itertools import islice
from types import NoneType
from typing import Any

import msgspec

from supervisor.core.errors import OptionError, QueueFullError, TenureError, shown
from supervisor.core.model import ENTROPY_BYTES, fresh_run_ids
from supervisor.store.producer.job_templates import JobTemplate
from supervisor.store.producer.options import Args, Each
from supervisor.store.queues.runs import ENQUEUE_MAX, Enqueued, Queues
from supervisor.store.scripts import Argument, Call
from supervisor.store.wire.envelope import check_run_id

BATCH_BYTES = 1024 * 1024


@dataclass(slots=True)
class Totals:
    """Counts of many enqueued runs by their result."""

    new: int = 0
    """Enqueued."""

    present: int = 0
    """Not enqueued: a run of the same id was there."""

    duplicates: int = 0
    """Not enqueued: an unfinished run holds their unique key."""

    taken: int = 0
    """Not enqueued: their id is that of another job's run, or of a schedule's, or has other arguments."""

    @property
    def done(self) -> int:
        """Number of arguments, from the first on, that were dealt with."""
        return self.new + self.present + self.duplicates + self.taken


class PartlyEnqueuedError(TenureError):
    """Enqueueing many runs stopped before the end; its cause is the reason.

    The first ``totals.done`` are dealt with. Of ``unsure``, which follow them, it is not known: they are in, all
    or none. Nothing after those is in. To go on without doubt, pass ids of your own and start again from
    ``totals.done`` within an hour: runs that are in already are left alone.
    """

    def __init__(self, totals: Totals, unsure: Sequence[str], cause: BaseException) -> None:
        where = f"of the {len(unsure)} runs after them it is not known" if unsure else "nothing after them is in"
        super().__init__(f"{totals.done} runs were enqueued, {where}: {cause}")
        self.totals = totals
        self.unsure = tuple(unsure)


@dataclass(slots=True)
class Batch:
    """Payload of one script call."""

    ids: list[str] = field(default_factory=list)
    runs: list[Argument] = field(default_factory=list)
    nonce: str = ""
    is_chosen: bool = False  # the caller made the ids

    def calls(self, queues: Queues) -> tuple[Call[bytes], Callable[[bytes], list[Enqueued]]]:
        """Return the call, and how to read its reply: who only counts has no use for an object for each run."""
        call = queues.enqueue_flat(nonce=self.nonce, ids=self.ids, runs=self.runs, is_chosen=self.is_chosen)
        return Call(call.script, call.keys, call.args, bytes), call.parse


@dataclass(eq=False)
class BatchStream:
    """Arguments in, batches out. ``pull`` runs the caller's code, ``pack`` of it only the arguments' types."""

    job: JobTemplate
    many: InitVar[Iterable[Args]]
    _: KW_ONLY
    queues: Queues
    run_id: Callable[[Args], str] | None
    delay_ms: int
    wall_ms: Callable[[], int]
    entropy: Callable[[int], bytes]
    on_new: Callable[[int], None]
    each: Each | None
    traceparent: str = ""
    due_ms: int | None = None
    """When the runs come due, whatever time their source takes; None: ``delay_ms`` after each batch."""

    def __post_init__(self, many: Iterable[Args]) -> None:
        for option, function in (("run_id", self.run_id), ("each", self.each)):
            if not (function is None or callable(function)):
                raise OptionError(f"{option} of many runs must be a function, got {shown(function)}")
        if not isinstance(many, Iterable):
            raise OptionError(f"many must be mappings of arguments, one for each run, got {shown(many)}")
        self._many = iter(many)
        self.queue = self.job.template.queue
        self._pulled: list[tuple[Args, str]] = []  # with the id, if the caller chose it
        self._next: Batch | None = None
        self._is_over = False
        self.fault: BaseException | None = None  # why nothing after what was packed so far can be enqueued
        self.totals = Totals()

    def pull(self) -> None:
        """Take arguments for one more batch from the caller."""
        if self._is_over or self._pulled:
            return
        try:
            for each in islice(self._many, ENQUEUE_MAX):  # one by one: what came before a fault counts
                args = _as_now(each)
                self._pulled.append((args, "" if self.run_id is None else check_run_id(self.run_id(args))))
        except Exception as error:  # noqa: BLE001 - raised again when what came before is in
            self.fault, self._is_over = error, True
        self._is_over = self._is_over or len(self._pulled) < ENQUEUE_MAX

    def pack(self) -> None:
        """Make the next batch, unless there is one."""
        if self._next is not None or not self._pulled:
            return
        batch, size = Batch(nonce=self.entropy(16).hex(), is_chosen=self.run_id is not None), 0
        wall_ms = self.wall_ms()
        delay_ms = self._delay_ms(wall_ms)
        tail = self.job.tail(wall_ms, delay_ms, self.traceparent)
        fresh = fresh_run_ids(wall_ms, self.entropy(0 if batch.is_chosen else ENTROPY_BYTES * len(self._pulled)))
        try:
            for index, (args, chosen) in enumerate(self._pulled):
                run_id = chosen or fresh[index]
                data = self.job.pack(run_id, args, tail)
                content = (self.job.content(args),) if batch.is_chosen else ()  # it may fail: before anything is added
                batch.ids.append(run_id)
                batch.runs += (run_id, self.queue, delay_ms, data, *content)
                size += len(data)
                if size > BATCH_BYTES:
                    break
        except Exception as error:  # noqa: BLE001 - raised again when what came before is in
            self.fault, self._is_over = error, True
            self._pulled = []
        del self._pulled[: len(batch.ids)]
        self._next = batch if batch.ids else None

    def _delay_ms(self, wall_ms: int) -> int:
        return self.delay_ms if self.due_ms is None else max(0, self.due_ms - wall_ms)

    def take(self) -> Batch | None:
        """Return the next batch; None when there is none."""
        batch, self._next = self._next, None
        return batch

    def settled(self, reply: bytes, read: Callable[[bytes], list[Enqueued]]) -> None:
        """Take note of the results of a batch: a digit for each run, up to one that has no room."""
        digits, refused, _ = reply.partition(b"\n")[0].partition(b"3")
        new = digits.count(b"1")
        self.totals.new += new
        self.totals.present += digits.count(b"0")
        self.totals.duplicates += digits.count(b"2")
        self.totals.taken += digits.count(b"4") + digits.count(b"5")
        if refused:  # and nothing new after it
            self.fault, self._is_over = QueueFullError(self.job.template.queue), True
            self._pulled, self._next = [], None
        if new:
            self.on_new(new)
        if self.each is not None:
            self.each(read(reply))

    def batches(self) -> Generator[Call[bytes], bytes, Totals]:
        """Yield the call of each batch, be sent its reply, and return the totals. ``pack`` may be done meanwhile.

        Raises:
            PartlyEnqueuedError: it stopped before the end.
        """
        self.pull()
        self.pack()
        while (batch := self.take()) is not None:
            self.pull()  # before the call: the caller's code may take its time, the call may not
            if self.due_ms is not None:  # that was counted from when they were packed
                delays = [self._delay_ms(self.wall_ms())] * len(batch.ids)
                batch.runs[2 :: len(batch.runs) // len(batch.ids)] = delays
            call, read = batch.calls(self.queues)
            try:
                reply = yield call
            except TenureError as error:
                raise PartlyEnqueuedError(self.totals, batch.ids, error) from error
            self.pack()
            self.settled(reply, read)
        if self.fault is not None:
            raise PartlyEnqueuedError(self.totals, (), self.fault) from self.fault
        return self.totals


_FIXED = frozenset({str, int, float, bool, bytes, NoneType})


def _as_now(args: Any) -> Any:
    """Return arguments as they are now: until they are packed, their source may fill the same mapping and lists."""
    kind = type(args)
    if kind is dict:
        return {name: each if type(each) in _FIXED else _as_now(each) for name, each in args.items()}
    if kind is list or kind is tuple:
        return kind(each if type(each) in _FIXED else _as_now(each) for each in args)
    if isinstance(args, dict | list | tuple | set | bytearray | msgspec.Struct) or is_dataclass(args):
        with suppress(Exception):  # it may have a lock or a connection beside its fields, which are all that is packed
            return deepcopy(args)  # an OrderedDict, a row of a database: as what it is
    return args
