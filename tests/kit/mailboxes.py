"""The pipe through which the processes of a tree tell events, for tests of those who write to it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pytest

from supervisor.core.events import Event
from supervisor.telemetry import events
from supervisor.telemetry.events import Mailbox


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    """A pipe as the tree has it, that nobody empties."""
    made = Mailbox()
    yield made
    events.attach(None, replica="", role="")
    for descriptor in made.descriptors:
        os.close(descriptor)


def arrived(mailbox: Mailbox) -> list[Event]:
    """Return what lies in the mailbox."""
    try:
        text = os.read(mailbox.read_fd, 1 << 20)
    except BlockingIOError:
        return []
    return [msgspec.json.decode(line, type=Event) for line in text.splitlines()]
