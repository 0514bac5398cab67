"""Passwords that a connection tries: the one that its file holds now, then the last that worked.

So a password can be replaced while the program runs, whether the file or the server learns of it first.
"""

from __future__ import annotations

from supervisor.store.client.redis_options import FollowedFile, PlainSecret, Secret


class Passwords:
    """The passwords of one client, or of one search."""

    def __init__(self, secret: Secret | None) -> None:
        """Take the setting; one that names no file is never read again."""
        self._secret = secret if isinstance(secret, FollowedFile) else None
        self._served: PlainSecret | None = None

    def __repr__(self) -> str:
        """Show nothing."""
        return f"<{type(self).__name__}>"

    def candidates(self, fixed: str | None) -> list[str | None]:
        """Return the passwords to try, in order; ``fixed`` is the one of a connection whose secret is in no file."""
        if self._secret is None:
            return [fixed]
        newest = self._secret.current()
        served = newest if self._served is None else self._served.get_secret_value()
        return [newest] if served == newest else [newest, served]

    def served(self, password: str | None) -> None:
        """Take note that the server took ``password``."""
        if self._secret is not None and password is not None:
            self._served = PlainSecret(password)
