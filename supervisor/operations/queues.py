"""Operations on queues.

Guarantees
    A queue that is paused, purged or moved is known: a run was in it, or a pool serves it.
    A pause has its reason whole, or is refused.
    A purge or move ends, however fast runs are enqueued meanwhile: it takes about as many as waited when it began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias, TypeVar

from supervisor.core.errors import EXIT_FAILED, EXIT_NO, StoreRefusedError, TenureError
from supervisor.core.suggestions import SUGGESTIONS_MAX, suggestion
from supervisor.operations import PAGES_MAX, Operation, Tell, checked_reason, one, pages, untold
from supervisor.store.keys import LETTER_KIND, Keys
from supervisor.store.queues.control import PAGE, REASON_MAX, QueueControl
from supervisor.store.queues.fsck import Calls, Fsck, FsckFinding
from supervisor.store.queues.reads import PARTS, QueueCounts, Served, ServedKinds, UnservedQueue
from supervisor.store.queues.runs import Queues
from supervisor.store.wire.poll import DEAD_CAP

RATE_SAMPLE = 1000
RATE_S = 60.0
T = TypeVar("T")
TellRefused: TypeAlias = Callable[[str, StoreRefusedError], object]
"""Told of each of all queues that Redis refuses to read, and why."""


class UnknownQueueError(TenureError):
    """No run was ever in a queue of this name, and no pool here serves it."""

    exit_code = EXIT_FAILED
    http_status = 404


class UnservedQueueError(TenureError):
    """No live worker takes runs from a queue that was named for a run. Nothing was enqueued."""

    exit_code = EXIT_NO
    http_status = 409

    def __init__(self, queue: str, remedy: str) -> None:
        super().__init__(f"no live worker takes runs from queue {queue}; {remedy}")


def names(keys: Keys) -> Operation[list[str]]:
    """Read every queue that was ever used, sorted."""
    return one(Queues(keys).names())


def known(keys: Keys, queues: Sequence[str], configured: Collection[str] = ()) -> Operation[list[str]]:
    """Return each of ``queues`` once, in their order; all that were ever used where none is given.

    Queues that are ``configured``, of the pools here, are known also before their first run.

    Raises:
        UnknownQueueError: one is unknown; names the nearest.
    """
    used = yield from names(keys)
    for queue in queues:
        if queue not in used and queue not in configured:
            hint = suggestion(queue, {*used, *configured}, "`tenure queue list` shows all", count=SUGGESTIONS_MAX)
            raise UnknownQueueError(f"no queue is called {queue[:200]!r}; {hint}")
    return list(dict.fromkeys(queues)) if queues else used


def of_each(
    keys: Keys, queue: str | None, read: Callable[[str], Operation[T]], *, tell_refused: TellRefused
) -> Operation[list[T]]:
    """Return what ``read`` finds in ``queue``, or without one in every queue that was ever used.

    Of these, one that Redis refuses alone, such as for a key of another type, is told and left out.
    """
    found = []
    for name in (yield from names(keys)) if queue is None else [queue]:
        try:
            found.append((yield from read(name)))
        except StoreRefusedError as error:
            if queue is not None or error.concerns_client:
                raise
            tell_refused(name, error)
    return found


def overview(keys: Keys, *, tell_refused: TellRefused) -> Operation[list[QueueCounts]]:
    """Read the state of every queue that was ever used; one that Redis refuses alone is told and left out."""
    return of_each(keys, None, lambda queue: one(Queues(keys).counts(queue)), tell_refused=tell_refused)


def counts(keys: Keys, queue: str, configured: Collection[str] = ()) -> Operation[QueueCounts]:
    """Read the state of a queue that is ``known``."""
    (name,) = yield from known(keys, [queue], configured)
    return (yield from one(Queues(keys).counts(name)))


def rate(keys: Keys, found: QueueCounts) -> Operation[float]:
    """Return how many attempts end in a second: of the last minute, or of the newest thousand if they are newer."""
    ended = [each.ended_ms for each in (yield Queues(keys).recent(found.queue, RATE_SAMPLE))]
    recent = [each for each in ended if each >= found.now_ms - RATE_S * 1000]
    span_s = RATE_S if len(recent) < RATE_SAMPLE else max(1.0, found.now_ms - min(recent)) / 1000
    return round(len(recent) / span_s, 3)


def unserved(keys: Keys) -> Operation[list[UnservedQueue]]:
    """Read in which queues runs wait that no live worker of any replica takes; a page of them."""
    return (yield from one(Queues(keys).unserved())).items


def is_served(keys: Keys, queue: str) -> Operation[bool]:
    """Return whether a live worker takes runs from ``queue``."""
    return (yield from served(keys, queue)) is Served.YES


def served_kinds(keys: Keys) -> Operation[ServedKinds]:
    """Read from which queues live workers of any replica take runs, and of which kinds."""
    return one(Queues(keys).served_kinds())


def served(keys: Keys, queue: str) -> Operation[Served]:
    """Read whether a live worker takes runs from ``queue``, and if not, whether the cluster ever had a replica."""
    return one(Queues(keys).served(queue))


def pause(
    keys: Keys, queues: Sequence[str], *, by: str, reason: str = "", configured: Collection[str] = ()
) -> Operation[list[tuple[str, bool]]]:
    """Let nothing be fetched from ``queues``; the answer has for each whether that is new.

    Raises:
        InvalidRequestError: the reason is too long to be kept.
        UnknownQueueError: one is unknown. None is paused.
    """
    checked_reason(reason, REASON_MAX)
    done = []
    for queue in (yield from known(keys, queues, configured)):
        is_new = yield QueueControl(keys).pause(queue, by=by, reason=reason)
        done.append((queue, is_new))
    return done


def resume(keys: Keys, queues: Sequence[str], *, configured: Collection[str] = ()) -> Operation[list[tuple[str, bool]]]:
    """End the pause of ``queues``; the answer has for each whether there was one.

    Raises:
        UnknownQueueError: one is unknown. None is resumed.
    """
    done = []
    for queue in (yield from known(keys, queues, configured)):
        was_paused = yield QueueControl(keys).resume(queue)
        done.append((queue, was_paused))
    return done


def purge(
    keys: Keys, found: QueueCounts, *, job: str = "", by: str, reason: str = "", history: int, tell: Tell = untold
) -> Operation[int]:
    """End the waiting runs of a queue, with ``job`` those of one job, and return how many; running and dead ones stay.

    ``found`` are the queue's counts, which were shown to who asks. The reason is cut at 200 characters; ``history``:
    how many ended attempts each queue remembers.
    """
    control, ended = QueueControl(keys, history=history), 0
    for part in (yield from _waiting_parts(keys, found.queue)):
        left, position = _length(found, part), "0"
        for _ in range(PAGES_MAX):
            page = yield control.purge(found.queue, part, job=job, position=position, by=by, reason=reason)
            ended, left, position = ended + page.ended, left - page.ended, page.position
            tell(min(ended, waiting(found)))
            if not position or left <= 0:  # else a producer that is faster would keep this going for ever
                break
    return ended


def move(keys: Keys, found: QueueCounts, target: str, *, tell: Tell = untold) -> Operation[tuple[int, int]]:
    """Move the waiting runs of a queue to ``target``, in their order; return how many moved, and how many stayed.

    ``found`` are the queue's counts, which were shown to who asks. A run whose id ``target`` has stays.
    """
    moved, stayed = 0, 0
    for part in (yield from _waiting_parts(keys, found.queue)):
        left, offset = _length(found, part), 0
        for _ in range(PAGES_MAX):
            count = min(PAGE, max(1, left))  # one that stays goes to the tail, and must not come twice
            page = yield QueueControl(keys).move(found.queue, target, part, count=count, offset=offset)
            moved, stayed, left = moved + page.moved, stayed + page.stayed, left - page.moved - page.stayed
            offset += page.stayed if part == "later" else 0
            tell(min(moved, waiting(found)))
            if page.seen < count or left <= 0:
                break
    return moved, stayed


def waiting(found: QueueCounts) -> int:
    """Return how many runs of a queue wait."""
    return found.ready_total + found.later + found.blocked + sum(found.suspects.values())


def entries(keys: Keys, queues: Sequence[str]) -> Operation[int]:
    """Return about how many entries a verification of ``queues`` reads."""
    total = 0
    for queue in queues:
        try:
            found = yield Queues(keys).counts(queue)
        except StoreRefusedError as error:
            if error.concerns_client:
                raise
            continue  # the verification tells of it
        total += 2 * (waiting(found) + found.running + found.dead)
    return total


def verify(
    keys: Keys, queues: Sequence[str], *, is_mending: bool = False, dead_cap: int = DEAD_CAP, tell: Tell = untold
) -> Calls[list[FsckFinding]]:
    """Return the faults of ``queues``, which are ``known``, and of the limits and lists that their runs are in.

    One that Redis refuses alone is told among them, and the others are verified. ``is_mending``: they are mended, and
    no run is lost. ``tell`` is told how many entries were read.
    """
    check, found = Fsck(keys, is_mending=is_mending, dead_cap=dead_cap, tell=tell), []
    for queue in queues:
        found += yield from check.queue(queue)
    return found + (yield from check.shared())


def _waiting_parts(keys: Keys, queue: str) -> Operation[list[str]]:
    """Return every place of ``queue`` in which runs wait: its lists, and one for each concurrency key."""
    blocked: list[tuple[str, str]] = yield from pages(lambda cursor: Queues(keys).blocked(queue, cursor))
    return [*PARTS, *(f"wait:{key}" for key in sorted({key for _, key in blocked}))]


def _length(found: QueueCounts, part: str) -> int:
    """Return about how many runs waited in ``part`` when ``found`` was read."""
    place, _, rest = part.partition(":")
    if place in {"later", "wait"}:
        return found.later if place == "later" else found.blocked
    kind = LETTER_KIND[rest[0]]
    return found.suspects[kind] if place == "suspect" else found.ready[kind, int(rest[2])]
