"""Route of a client to its server: from the agent of its tree, or by a search of its own."""

from __future__ import annotations

from typing import Protocol

from supervisor.core.errors import StoreUnavailableError
from supervisor.core.supervision.scoreboard import Board, RedisEndpoint

LOOK_S = 0.05
"""How often a client that follows looks for another endpoint while it waits for a reply."""

MOVED_ON = "the agent has found another master meanwhile"


class Route(Protocol):
    """Endpoint discovery of a client."""

    is_search: bool  # whether ``find`` waits for others

    def generation(self) -> int:
        """Return the generation of the endpoint; 0: not known."""
        ...

    def find(self, bound_s: float) -> RedisEndpoint:
        """Return where to connect.

        Raises:
            StoreUnavailableError: nobody knows, for now.
            StoreRefusedError: a person must act.
        """
        ...

    def lost(self) -> None:
        """Take note that the endpoint did not serve."""
        ...

    def close(self) -> None:
        """Leave nothing behind; the route may be used again."""
        ...


class Followed:
    """The endpoint that the agent of this tree publishes on the board."""

    is_search = False

    def __init__(self, board: Board) -> None:
        self._board = board

    def generation(self) -> int:
        """Return the word on the board."""
        return self._board.endpoint_generation

    def find(self, bound_s: float) -> RedisEndpoint:
        """Return the endpoint on the board; see ``Route``."""
        del bound_s
        endpoint = self._board.endpoint()
        if not endpoint.address:
            raise StoreUnavailableError("the agent of this replica has not found Redis yet; its log says why")
        return endpoint

    def lost(self) -> None:
        """Do nothing: the agent notices by itself, and two searches could disagree."""

    def close(self) -> None:
        """Do nothing: it reads the board."""
