"""Timeout of a turn: an open one is asked again as it was, so what a slow link does not carry needs a longer one."""

from __future__ import annotations

from supervisor.settings.sections.models import Settings

NEARLY = 0.9


class TurnTimeout:
    """Timeout of the next turn: twice the last one after a turn that used it up, else twice what an answered one took.

    Never shorter than that of other calls. Nor much longer than them: before its process counts as hung it must beat,
    and what a turn brought must begin within the lease of its session.
    """

    def __init__(self, settings: Settings) -> None:
        hang_s = settings.supervision.hang_timeout_s
        self._first_s = self.seconds = min(settings.redis.command_timeout_s, hang_s / 4)  # as in roles/worker/entry.py
        self._most_s = max(self._first_s, min(hang_s, settings.queues.session_lease_s) / 2)

    def unanswered(self, took_s: float) -> None:
        """Note that a turn had no answer, after so long: one that is refused at once needs no more time."""
        if took_s >= NEARLY * self.seconds:
            self.seconds = min(2 * self.seconds, self._most_s)

    def answered(self, took_s: float) -> None:
        """Note that a turn was answered, after so long."""
        self.seconds = min(max(2 * took_s, self._first_s), self._most_s)
