"""A flood of events: bounded in time and memory, and nothing of it uncounted."""

from __future__ import annotations

import os

import msgspec
import pytest

from supervisor.clock import SystemClock
from supervisor.core.events import Event
from supervisor.telemetry import events
from supervisor.telemetry.events import FRESH_PER_S, PACE_NS, PIPE_BYTES, SERIES_MAX, Mailbox, Recorder

MILLION = 1_000_000
CLOCK = SystemClock()


def told(mailbox: Mailbox) -> int:
    """Return how many events the messages in the mailbox count, by the newest message of each series."""
    text = os.read(mailbox.read_fd, PIPE_BYTES)
    newest: dict[str, Event] = {}
    for line in text.splitlines():
        event = msgspec.json.decode(line, type=Event)
        newest[event.subject] = event
    return sum(event.count for event in newest.values())


def flood(recorder: Recorder, count: int, subjects: int) -> None:
    """Record so many events."""
    for number in range(count):
        recorder.record("run_failed", "an error", subject=str(number % subjects), level="warning", is_logged=True)


@pytest.mark.parametrize("count", [MILLION // 20, pytest.param(MILLION, marks=pytest.mark.long)])
def test_a_flood_of_equal_events_is_a_handful_of_messages(mailbox: Mailbox, count: int) -> None:
    """Every one is counted, and what they take is what one takes."""
    recorder = events.attach(mailbox.write_fd, replica="r1", role="worker-io-0")
    flood(recorder, count, 1)
    recorder.flush(is_last=True)

    assert len(recorder.folding) == 1
    assert (told(mailbox), recorder.dropped) == (count, 0)


def test_events_that_have_no_room_are_counted_one_by_one(mailbox: Mailbox) -> None:
    """A flood of new subjects is refused at the door; the sum is right to the last event."""
    recorder = events.attach(mailbox.write_fd, replica="r1", role="worker-io-0")
    count = 100_000
    flood(recorder, count, count)

    assert len(recorder.folding) <= SERIES_MAX
    assert told(mailbox) + recorder.dropped == count
    assert recorder.dropped >= count - FRESH_PER_S * 60  # at most a minute of a busy machine


def test_a_mailbox_that_nobody_empties_is_tried_no_more_often_than_another(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What records events must not feel whether they arrive: no try for each event, and none that waits."""
    recorder = events.attach(mailbox.write_fd, replica="r1", role="scheduler")
    try:
        while True:
            os.write(mailbox.write_fd, b"x" * 4096)
    except BlockingIOError:
        pass
    tries: list[int] = []
    write = os.write

    def counted(descriptor: int, message: bytes) -> int:
        tries.append(descriptor)
        return write(descriptor, message)

    monkeypatch.setattr(os, "write", counted)
    began_ns = CLOCK.elapsed_ns()
    flood(recorder, 40_000, 10)
    paces = 1 + (CLOCK.elapsed_ns() - began_ns) // PACE_NS

    assert 0 < tries.count(mailbox.write_fd) <= 10 * (1 + paces)
    assert recorder.dropped >= tries.count(mailbox.write_fd)
