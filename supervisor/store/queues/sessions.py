"""Worker sessions: one for each worker process; runs are held under it.

Guarantees
    After ``condemn`` returned true, no turn of that session has any effect.
    Nothing is judged by Redis' time: a counter that does not move is judged by whoever
    watched it on its own clock.

Does not guarantee
    That a session without a process goes by itself: agents condemn, give back, and bury.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import foreign_number, is_text, pairs, text, texts

INFO_TTL_MS = 30 * 86_400_000  # longer than an outage in which a session stays open: beats do not bring it back
_JOBS_PAGE = 1000


class Sessions(CallBuilder):
    """Builds the calls."""

    def open(self, session: str, info: Mapping[str, Any]) -> Call[bool]:
        """Let a worker process take runs. False: it was condemned, and its process should end."""
        check_session(session)
        flat = [str(part) for item in info.items() for part in item]
        args = {"session": session, "ttl_ms": INFO_TTL_MS, "info": flat}
        return self._call("session_open", args, bool, keys={"description": self.keys.session(session)})

    def close(self, session: str) -> Call[None]:
        """End a session that holds nothing."""
        args = {"session": session}
        return self._call("session_close", args, lambda _: None, keys={"description": self.keys.session(session)})

    def beat(self, sessions: Sequence[str]) -> Call[list[str]]:
        """Count a beat of each session; returns those that are not open any more."""
        return self._call("session_beat", {"ttl_ms": INFO_TTL_MS, "sessions": list(sessions)}, texts)

    def info(self, session: str) -> Call[dict[str, str]]:
        """Read the description that a session's worker gave of itself; empty when unknown."""
        return self._hash(self.keys.session(session), lambda r: {text(name): text(value) for name, value in pairs(r)})

    def condemn(self, session: str, counter: int | None) -> Call[bool]:
        """Shut a session off before its runs are given back.

        Args:
            session: which.
            counter: only if its beat counter still is this. None: its process is known to be dead; then a session that
                never opened is condemned too, because its open may still be on its way.
        """
        return self._call("session_condemn", {"session": session, "counter": "" if counter is None else counter}, bool)

    def dying(self) -> Call[list[str]]:
        """Read the sessions that are condemned and not buried: someone must give their runs back."""
        return self._call("set_read", {}, lambda r: sorted(texts(filter(is_text, r))), keys={"set": self.keys.dying})

    def bury(self, session: str) -> Call[None]:
        """Forget a condemned session whose runs have been given back."""
        args = {"session": session}
        return self._call("session_bury", args, lambda _: None, keys={"description": self.keys.session(session)})

    def publish_jobs(self, jobs: Mapping[str, str | bytes]) -> Call[None]:
        """Publish the jobs there are to bare producers: name to JSON."""
        assert 0 < len(jobs) <= _JOBS_PAGE
        flat = [part for item in sorted(jobs.items()) for part in item]
        return self._call("jobs_publish", {"pairs": flat}, lambda _: None, keys={"seen": self.keys.jobs_seen})

    def bound_queues(self, length_max: int) -> Call[None]:
        """Publish how many runs may wait in a queue to whoever enqueues; 0: any number."""
        return self._call("queues_bound", {"most": length_max}, lambda _: None)

    def read_jobs(self) -> Call[dict[str, bytes]]:
        """Read every published job: name to JSON."""
        return self._hash(self.keys.jobs, lambda r: {text(name): value for name, value in pairs(r)})

    def list(self) -> Call[dict[str, int]]:
        """Read every open session with its beat counter. Last in the class: it hides the type of this name."""
        return self._hash(
            self.keys.sessions,
            lambda r: {text(name): foreign_number(counter) or 0 for name, counter in pairs(r) if is_text(name)},
        )


def check_session(session: str) -> str:
    """Return ``session`` if the fence can carry it."""
    assert session, "a session has a name"
    assert session.isprintable(), session
    assert not set(session) & {"|", " "}, session
    return session
