"""Identity of the other end of a connection: the address it comes from, or its user at a unix socket.

Guarantees
    At a unix socket the kernel says which user connected (SO_PEERCRED); root, the tree's own user and those of
    ``web.socket_users`` are let in, and every other connection is closed before a byte of it is read.
    At most a line a minute is logged of those that are not.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress

from supervisor.clock import Clock
from supervisor.roles.web.connection_table import address_of
from supervisor.telemetry.logs import RepeatedWarning
from supervisor.trust import peer_uid, uid_of


class Peers:
    """Judge of newcomers."""

    def __init__(self, clock: Clock, users: Iterable[str] = ()) -> None:
        """Let in root, this user and ``users``, by name or number; names that are gone stand for nobody."""
        self._uids = {0, os.geteuid()}
        for user in users:
            with suppress(LookupError):
                self._uids.add(uid_of(user))
        self._refused = RepeatedWarning("peer_refused", clock)

    def identify(self, link: socket.socket, peer: object) -> str | None:
        """Return who connected by ``link``, the key that limits count by; None for who is not let in."""
        if isinstance(peer, tuple):
            return address_of(str(peer[0]))
        uid = peer_uid(link)
        if uid in self._uids:
            return f"uid {uid}"
        self._refused.add(uid=uid, remedy="name the user in web.socket_users")
        return None
