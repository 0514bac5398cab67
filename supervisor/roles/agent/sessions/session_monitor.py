"""Detection of dead sessions of other replicas, by this machine's clock alone.

Guarantees
    A session is called dead only after its counter was seen unchanged, in readings that
    followed one another without a gap, for a whole session lease. So an outage of Redis,
    a suspended machine or a step of any wall clock calls nobody dead.

Does not guarantee
    That the session is dead when its runs are given back: it may beat at that moment. The
    script that condemns it compares the counter once more.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

GAP_PERIODS_MAX = 3  # readings further apart than so many periods prove nothing about the time between


@dataclass(slots=True)
class _Seen:
    counter: int
    since_ns: int


class SessionWatch:
    """Remembers the last counter of each foreign session, and since when."""

    def __init__(self, *, lease_ns: int, period_ns: int) -> None:
        self._lease_ns = lease_ns
        self._gap_ns = GAP_PERIODS_MAX * period_ns
        self._seen: dict[str, _Seen] = {}
        self._read_ns = 0

    def reading(
        self, counters: Mapping[str, int], *, ours: Container[str], now_ns: int, answered_ns: int = 0
    ) -> list[tuple[str, int]]:
        """Take in one reading; return the (session, counter) that stood still for a whole lease.

        Args:
            counters: of every open session.
            ours: sessions that are not judged.
            now_ns: when Redis was asked; silence ends there at the latest.
            answered_ns: when it had answered, if later; silence begins there at the earliest.
        """
        if now_ns - self._read_ns > self._gap_ns:
            self._seen.clear()
        self._read_ns = now_ns
        known, self._seen = self._seen, {}
        silent = []
        for session, counter in counters.items():
            if session in ours:
                continue
            seen = known.get(session)
            if seen is None or seen.counter != counter:
                seen = _Seen(counter, max(now_ns, answered_ns))
            self._seen[session] = seen
            if now_ns - seen.since_ns >= self._lease_ns:
                silent.append((session, counter))
        return silent

    def due_ns(self) -> int | None:
        """Return when the first session will have been silent for a lease, unless it beats; None without any."""
        return min((seen.since_ns + self._lease_ns for seen in self._seen.values()), default=None)

    def interrupted(self) -> None:
        """Count everything afresh: Redis did not answer."""
        self._seen.clear()
