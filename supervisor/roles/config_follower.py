"""Configuration updates of a live process: it reads one word of the board with each of its beats.

Guarantees
    A poll costs about a microsecond when nothing changed. The log file is opened anew when that was
    asked for, the log follows the configuration in effect, and counted events are reported.

Does not guarantee
    That other settings follow: for those the parent replaces processes. The scheduler and the agent take
    the schedules besides, through the return value of ``poll``.
"""

from __future__ import annotations

from supervisor.reload.config_memfd import HandoverError
from supervisor.roles.child import Seat
from supervisor.telemetry import events, logs
from supervisor.telemetry.log_lines.rules import LogRules


class Following:
    """One process's view of which configuration is in effect."""

    def __init__(self, seat: Seat) -> None:
        self._header = seat.board.header
        self._handover = seat.handover
        self._epoch = seat.config_epoch
        self._log = seat.settings.log

    def poll(self) -> int:
        """Follow the configuration in every process; return the number of a configuration that is new here, else 0."""
        logs.look()
        events.flush()
        epoch = self._header.config_epoch
        if epoch == self._epoch or self._handover is None:
            return 0
        self._epoch = epoch
        try:
            log = self._handover.settings(epoch).log
        except HandoverError:
            return 0  # already the one after the next: the word says so at the next poll
        if log != self._log:
            self._log = log
            rules = LogRules.of(mask=log.mask, exclude=log.exclude)
            logs.retune(level=log.level, format=log.format, rules=rules)
        return epoch
