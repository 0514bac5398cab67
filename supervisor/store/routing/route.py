"""Route of a client to its server: from the agent of its tree, or by a search of its own."""

from __future__ import annotations

from typing import Protocol

from supervisor.core.errors import StoreUnavailableError
from supervisor.core.supervision.scoreboard import RedisEndpoint

LOOK_S = 0.05
"""How often a client that follows looks for another endpoint while it waits for a reply."""

MOVED_ON = "the agent has found another master meanwhile"


class Signpost(Protocol):
    """Source of the endpoint that the agent publishes: the board."""

    @property
    def endpoint_generation(self) -> int:
        """One word; another one means another endpoint."""
        ...

    def endpoint(self) -> RedisEndpoint:
        """Return where Redis is."""
        ...

    def publish_endpoint(self, address: str) -> None:
        """Publish the address of Redis."""
        ...


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


class Followed:
    """The endpoint that the agent of this tree publishes."""

    is_search = False

    def __init__(self, signpost: Signpost) -> None:
        self._signpost = signpost

    def generation(self) -> int:
        """Return the word on the board."""
        return self._signpost.endpoint_generation

    def find(self, bound_s: float) -> RedisEndpoint:
        """Return the endpoint on the board; see ``Route``."""
        del bound_s
        endpoint = self._signpost.endpoint()
        if not endpoint.address:
            raise StoreUnavailableError("the agent of this replica has not found Redis yet; its log says why")
        return endpoint

    def lost(self) -> None:
        """Do nothing: the agent notices by itself, and two searches could disagree."""
