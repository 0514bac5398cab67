"""Settings for services that came from Cloudforet: their schedulers and task messages.

See docs/cloudforet-services.md. The loader for Cloudforet's own files fills it; it can be written by hand as well.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, SecretStr, field_serializer

from supervisor.settings.base import ModuleName, QueueName, Section
from supervisor.settings.masking import MASK


class Bridge(StrEnum):
    """Side of a queue that existing SpaceONE processes are still on."""

    NONE = "none"  # neither: both sides are here, and nothing lies in their list
    INGEST = "ingest"  # they push to their list, workers here execute
    EMIT = "emit"  # schedulers here plan, their workers pop from their list


class CloudforetQueueSettings(Section):
    """One topic of Cloudforet's ``QUEUES``."""

    channel: str = Field(default="", max_length=500)
    """The Redis list that SpaceONE uses for it, in the database of ``redis.url``; default: the queue's name."""

    bridge: Bridge = Bridge.NONE
    """``ingest``: messages in that list become runs here. ``emit``: what is planned here is pushed to that list for
    SpaceONE's workers. ``none``: both sides are here."""


class CloudforetSettings(Section):
    """Services that came from Cloudforet: packages of their classes, token, queues."""

    packages: tuple[ModuleName, ...] = Field(default=(), max_length=32)
    """Packages whose ``service`` and ``manager`` modules hold the classes that task messages name."""

    token: SecretStr | None = None
    """The system token that schedulers put into their tasks. Runs carry a reference to it, never its value."""

    queues: dict[QueueName, CloudforetQueueSettings] = Field(default_factory=dict, max_length=100)
    """Topics by name; one that is not listed is a queue of the same name without a bridge."""

    config: dict[str, Any] = Field(default_factory=dict, max_length=1000)
    """Other keys of the service's configuration, for ``config.get_global`` in its code. Values are never shown."""

    @field_serializer("config")
    def _mask_config(self, values: dict[str, Any]) -> dict[str, str]:
        return dict.fromkeys(values, MASK)

    def channel_of(self, queue: str) -> str:
        """Return the Redis list of ``queue``."""
        known = self.queues.get(queue)
        return known.channel if known is not None and known.channel else queue

    def bridge_of(self, queue: str) -> Bridge:
        """Return which bridge ``queue`` has."""
        known = self.queues.get(queue)
        return known.bridge if known is not None else Bridge.NONE

    def ingested(self) -> dict[str, str]:
        """Return the queues that take messages from a list of SpaceONE's, each with that list."""
        return {name: self.channel_of(name) for name, queue in self.queues.items() if queue.bridge is Bridge.INGEST}
