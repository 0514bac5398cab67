"""Hears each decision of the scheduler as a consumer would, and when."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

import redis

BLOCK_MS = 200
COUNT = 2000


class Listener:
    """Reads the log of decisions in a thread of its own, from now on.

    A decision counts as made when a reader has it, so that lateness includes the script, the server and the way back.
    """

    def __init__(self, url: str, log: str) -> None:
        self._raw = redis.Redis.from_url(url, protocol=2)
        self._log = log
        last: Any = self._raw.xrevrange(log, count=1)
        self._last: bytes = last[0][0] if last else b"0-0"
        self._is_over = False
        self._heard: list[tuple[float, list[Any]]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._thread.join()
        self._raw.close()

    def fires(self, *, missed: bool = False) -> list[tuple[str, int, float]]:
        """Return (schedule, nominal ms, lateness in ms) of enqueued runs, or of those that others were missed for."""
        found = []
        for at_ms, entries in list(self._heard):
            for _, fields in entries:
                for line in fields[b"r"].decode().splitlines():
                    schedule, nominal, _, _, code, skipped, _ = line.split(" ")
                    if code == "FIRED" and (skipped != "0" or not missed):
                        found.append((schedule, int(nominal), at_ms - int(nominal)))
        return found

    @property
    def first_ms(self) -> float | None:
        """When the first decision was heard, on the wall clock."""
        return self._heard[0][0] if self._heard else None

    def _listen(self) -> None:
        while not self._is_over:
            reply: Any = self._raw.xread({self._log: self._last}, count=COUNT, block=BLOCK_MS)
            at_ms = time.time_ns() / 1e6
            if reply:
                entries = reply[0][1]
                self._last = entries[-1][0]
                self._heard.append((at_ms, entries))
