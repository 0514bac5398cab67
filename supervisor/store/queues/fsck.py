"""Verification and repair of queues, on a system at work.

Guarantees
    A reported fault was there: suspects in the pages, which show different moments, are judged again
    by a script that sees one moment. A fault is judged and mended in one step, and no run is lost.
    No call takes longer than a page; only for a run that looks wrong again and again the server searches its lists.

Does not guarantee
    That a fault which came while the pages were read is found; the next check finds it.
    That slots of a concurrency key are verified which no unfinished run names: whoever needs one heals them.

The whole of a queue's ids is held in memory, about 300 bytes for each run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from supervisor.core.errors import StoreRefusedError
from supervisor.core.names import check_name
from supervisor.store.keys import Keys
from supervisor.store.queues.reads import PARTS
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import chunks, foreign_number, text, texts
from supervisor.store.wire.poll import DEAD_CAP

PAGE = 500
CHECK_MAX = 100
SCAN_ENTRIES_MAX = 100_000
"""About how many entries of lists the server compares in one call, at about 50 ns each; more only for a single run."""

SUSPECTS_MAX = 10
SHORT_ENTRIES = 5_000
ROUNDS = 4
"""How often the pages are read, at most, while lists are long and more runs than that look wrong."""

PAGES_MAX = 1_000_000
T = TypeVar("T")
Calls: TypeAlias = Generator[Call[Any], Any, T]
_LISTS = PARTS[1:]
_ORDER = (*PARTS, "blocked", "run", "dead")
"""The places in the order in which runs mostly pass through them, so that few are missed on their way."""


@dataclass(frozen=True, slots=True)
class FsckFinding:
    """A fault and the remedy applied; empty: none."""

    queue: str  # empty: of the whole cluster
    what: str  # a run, a key, a counter
    problem: str
    remedy: str

    def record(self) -> dict[str, str]:
        """Return the fault for programs."""
        return {"queue": self.queue, "what": self.what, "problem": self.problem, "done": self.remedy}


@dataclass(slots=True)
class _Picture:
    """Content of one queue, collected from pages of different moments."""

    heads: dict[str, str] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    stale: Counter[str] = field(default_factory=Counter)
    entries: int = 0
    suspects: set[str] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


class Fsck(CallBuilder):
    """Verifies by generators that yield calls and are sent the replies."""

    def __init__(
        self,
        keys: Keys,
        *,
        is_mending: bool = False,
        dead_cap: int = DEAD_CAP,
        tell: Callable[[int], object] = lambda _done: None,
    ) -> None:
        """Build it.

        Args:
            keys: of the cluster.
            is_mending: whether faults are mended.
            dead_cap: how many dead runs each queue keeps.
            tell: receives now and then the number of entries read so far.
        """
        super().__init__(keys)
        self._is_mending = is_mending
        self._dead_cap = dead_cap
        self._tell = tell
        self._read = 0
        self._limit_keys: set[str] = set()

    def queue(self, queue: str) -> Calls[list[FsckFinding]]:
        """Return the faults of one queue; that Redis refuses it alone is one, such as for a key of another type."""
        check_name("queue", queue)
        return _unless_refused(queue, "queue", self._queue(queue))

    def _queue(self, queue: str) -> Calls[list[FsckFinding]]:
        picture = yield from self._picture(queue)
        suspects = _look_wrong(picture)
        for _ in range(ROUNDS - 1):
            if len(suspects) <= SUSPECTS_MAX or picture.entries <= SHORT_ENTRIES:
                break
            # Most of them were on their way while the pages were read. What looks wrong again has another reason.
            picture = yield from self._picture(queue)
            suspects &= _look_wrong(picture)
        self._limit_keys |= picture.keys
        size = max(1, min(CHECK_MAX, SCAN_ENTRIES_MAX // max(1, picture.entries)))
        found = yield from self._runs(queue, "all", sorted(suspects), size)
        found += yield from self._runs(queue, "limits", sorted(picture.limited - suspects), CHECK_MAX)
        return found + (yield from self._counters(queue))

    def _runs(self, queue: str, how: str, ids: list[str], size: int) -> Calls[list[FsckFinding]]:
        found = []
        for start in range(0, len(ids), size):
            args = {
                "queue": queue, "is_mending": int(self._is_mending), "dead_cap": self._dead_cap, "how": how,
                "ids": ids[start : start + size],
            }  # fmt: skip
            faults = yield self._call("queue_fsck_run", args, texts)
            found += [FsckFinding(queue, *fault) for fault in chunks(faults, 3)]
        return found

    def shared(self) -> Calls[list[FsckFinding]]:
        """Return the faults beside the queues that were verified before: limits and lists of unfinished runs."""
        found = []
        slots = [("slots", key, f"concurrency key {key}") for key in sorted(self._limit_keys)]
        for part, key, what in [("unique", "", "unique keys"), ("live", "", "runs of schedules"), *slots]:
            found += yield from _unless_refused("", what, self._shared(part, key))
        return found

    def _shared(self, part: str, key: str) -> Calls[list[FsckFinding]]:
        position, faults = "0", []
        for _ in range(PAGES_MAX):
            args = {"part": part, "key": key, "position": position, "is_mending": int(self._is_mending)}
            position, *found = yield self._call("queue_fsck_shared", args, texts)
            faults += [FsckFinding("", *fault) for fault in chunks(found, 3)]
            if position == "0":
                break
        return faults

    def _counters(self, queue: str) -> Calls[list[FsckFinding]]:
        counters = yield from self._pages(queue, "stat")
        wrong = [name for name, value in counters if not value.lstrip("-").isdecimal()]
        args = {"queue": queue, "is_mending": int(self._is_mending), "names": wrong}
        if not wrong:
            return []
        done = yield self._call("queue_fsck_stat", args, texts)
        return [FsckFinding(queue, f"counter {name}", "is no number", remedy) for name, remedy in chunks(done, 2)]

    def _picture(self, queue: str) -> Calls[_Picture]:
        picture = _Picture()
        picture.heads.update((yield from self._pages(queue, "data")))
        for part in _ORDER:
            yield from self._place(picture, queue, part)
        waiting = set()
        for key in sorted(picture.keys):
            waiting |= {run_id for run_id, _ in (yield from self._pages(queue, f"wait:{key}"))}
        picture.suspects |= {
            run_id for run_id, places in picture.places.items() if "blocked" in places and run_id not in waiting
        }
        for part in ("att", "err", "limits"):
            for run_id, value in (yield from self._pages(queue, part)):
                if run_id not in picture.heads or (part == "att" and not _is_charge(value)):
                    picture.suspects.add(run_id)
                elif part == "limits":
                    picture.limited.add(run_id)
                    picture.keys.update(each.partition(":")[2] for each in value[1:-1].split(";") if each[:1] == "c")
        for entry, count in (yield from self._pages(queue, "stale")):
            picture.stale[entry] = foreign_number(count) or 0
        return picture

    def _place(self, picture: _Picture, queue: str, part: str) -> Calls[None]:
        for run_id, value in (yield from self._pages(queue, part)):
            picture.places.setdefault(run_id, []).append(part)
            if part in _LISTS:
                picture.entries += 1
            elif part == "run" and not value.startswith("1"):
                picture.suspects.add(run_id)
            elif part == "blocked":
                picture.keys.add(value)

    def _pages(self, queue: str, part: str) -> Calls[list[tuple[str, str]]]:
        position, found = "0", []
        for _ in range(PAGES_MAX):
            args = {"queue": queue, "part": part, "position": position, "count": PAGE}
            position, *items = yield self._call("queue_fsck_page", args, lambda r: [text(one) for one in r])
            self._read += len(items) // 2
            self._tell(self._read)
            found += [(name, value) for name, value in chunks(items, 2)]
            if position == "0":
                break
        return found


def _unless_refused(queue: str, what: str, verification: Calls[list[FsckFinding]]) -> Calls[list[FsckFinding]]:
    try:
        return (yield from verification)
    except StoreRefusedError as error:
        if error.concerns_client:
            raise
        return [FsckFinding(queue, what, f"cannot be verified: {error}", "")]


def _look_wrong(picture: _Picture) -> set[str]:
    """Return the runs whose places look wrong: none, several, the wrong list, or remains of a run that is over."""
    found = set(picture.suspects)
    for entry, count in picture.stale.items():
        part, _, run_id = entry.partition(" ")
        places = picture.places.setdefault(run_id, [])
        if count > places.count(part):
            found.add(run_id)
        for _ in range(min(count, places.count(part))):
            places.remove(part)
    for run_id, head in picture.heads.items():
        places = picture.places.get(run_id, [])
        if len(places) != 1 or not _fits(head, places[0]):
            found.add(run_id)
        elif head[2:3] == "[" and places[0] != "dead":
            picture.limited.add(run_id)
    for run_id, places in picture.places.items():
        if run_id not in picture.heads and {"dead", "blocked"} & set(places):
            found.add(run_id)
    return found


def _fits(head: str, place: str) -> bool:
    """Return whether a run whose data begins with ``head`` may be in ``place``."""
    kind, priority = head[:1], head[1:2]
    if kind not in {"a", "s"} or priority not in {"0", "1", "2"}:
        return False
    return place not in _LISTS or place in {f"ready:{kind}:{priority}", f"suspect:{kind}"}


def _is_charge(value: str) -> bool:
    parts = value.split(",")
    is_aged = value.startswith("0,0,0,")  # (see `came_at` in lib/waiting.lua)
    return len(parts) == 3 + is_aged and all(part.isdecimal() for part in parts)
