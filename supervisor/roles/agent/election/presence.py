"""Shows that this replica lives, by a subscription that the kernel ends with the process.

Guarantees
    The elector never waits for it. A connection that was cut is made again within a
    fraction of a second.

Does not guarantee
    That others see it: a proxy may hide subscribers. The renewal reports whether they do,
    and without that nobody concludes anything (supervisor.core.election.presence).

A small thread of its own: a subscribed connection can do nothing else.
"""

from __future__ import annotations

from threading import Event, Thread

from supervisor.clock import Clock
from supervisor.core.errors import TenureError
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys

SLICE_S = 0.25  # how soon a new term is noticed
RETRY_S = 0.1
REFRESH_PERIOD_NS = 30_000_000_000  # a proxy that hides subscribers is not asked to try again more often


class PresenceThread:
    """Holds the subscription for one term at a time."""

    def __init__(self, store: Store, keys: Keys, clock: Clock) -> None:
        self._store = store
        self._prefix = keys.alive
        self._clock = clock
        self._wanted = 0
        self._shown = 0
        self._refreshed_ns = 0
        self._changed = Event()
        self._thread = Thread(target=self._run, name="presence", daemon=True)

    def start(self) -> None:
        """Begin. Nothing is shown before a term is."""
        self._thread.start()

    def show(self, epoch: int) -> None:
        """Show it for ``epoch``; 0: for none."""
        self._wanted = epoch
        self._changed.set()

    def is_shown(self, epoch: int) -> bool:
        """Return whether Redis has confirmed the subscription for ``epoch``."""
        return epoch > 0 and self._shown == epoch

    def refresh(self) -> None:
        """Subscribe anew, now and then: Redis does not see the connection that is there."""
        now_ns = self._clock.elapsed_ns()
        if now_ns - self._refreshed_ns >= REFRESH_PERIOD_NS:
            self._refreshed_ns = now_ns
            self._shown = 0

    def _run(self) -> None:
        while True:
            wanted = self._wanted
            if wanted == 0:
                self._shown = 0
                self._store.close()
                self._changed.wait()
                self._changed.clear()
            elif self._shown != wanted:
                self._subscribe(wanted)
            elif not self._store.stays_connected(SLICE_S):
                self._shown = 0

    def _subscribe(self, epoch: int) -> None:
        self._store.close()
        try:
            self._store.command("SUBSCRIBE", f"{self._prefix}{epoch}")
        except TenureError:  # away, or not allowed to: then nobody sees it, and nobody expects to
            self._changed.wait(RETRY_S)
            self._changed.clear()
        else:
            self._shown = epoch
