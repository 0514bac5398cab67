"""Everything about events in the web child, put together: arrival, forwarding, and followers."""

from __future__ import annotations

from supervisor.core.events import LEVELS
from supervisor.roles.child import Seat
from supervisor.roles.web.events.followers import Followers
from supervisor.roles.web.events.handlers import EventPages
from supervisor.roles.web.events.sink import Eventing
from supervisor.roles.web.events.webhook import EventWebhook
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.event_log import EventLog
from supervisor.store.keys import Keys


class EventOffice:
    """The parts, started and ended together."""

    def __init__(self, seat: Seat, store: AsyncStore) -> None:
        events = EventLog(Keys(seat.settings.cluster))
        self._followers = Followers(store, events)
        self.pages = EventPages(store, events, self._followers, seat.clock)
        self._eventing = None if seat.mailbox is None else _eventing(seat, store, events, seat.mailbox.read_fd)

    def start(self) -> None:
        """Begin; in the loop."""
        if self._eventing is not None:
            self._eventing.start()

    async def close(self) -> None:
        """End, and send followers away."""
        await self._followers.close()
        if self._eventing is not None:
            await self._eventing.close()


def _eventing(seat: Seat, store: AsyncStore, events: EventLog, read_fd: int) -> Eventing:
    settings = seat.settings.events
    writer = f"{seat.replica}/{seat.name}/{seat.generation}"
    webhook = None
    if settings.webhook_url is not None:
        webhook = EventWebhook(
            settings.webhook_url.get_secret_value(),
            token=None if settings.webhook_token is None else settings.webhook_token.get_secret_value(),
            secret=None if settings.webhook_secret is None else settings.webhook_secret.get_secret_value(),
            timeout_s=settings.webhook_timeout_s,
            cluster=seat.settings.cluster,
            writer=writer,
            wall_ms=seat.clock.wall_ms,
        )
    return Eventing(
        read_fd,
        store=store,
        events=events,
        writer=writer,
        kept=settings.kept,
        webhook=None if webhook is None else webhook.send,
        webhook_level=LEVELS.index(settings.webhook_level.value),
    )
