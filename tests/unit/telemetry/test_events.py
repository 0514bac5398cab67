"""The recorder: what it writes where, and what it does when there is no room."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.events import Event
from supervisor.store.wire.fire import FireCode
from supervisor.telemetry import event_catalogue, events, logs, metrics
from supervisor.telemetry.events import MESSAGE_BYTES_MAX, Mailbox, Recorder
from supervisor.telemetry.metric_files.slots import Counter
from supervisor.telemetry.metrics import EVENTS_DROPPED
from tests.kit.mailboxes import arrived

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("logging_restored")


@pytest.fixture
def recorder(mailbox: Mailbox, still_clock: Any) -> Recorder:
    """A process that records into it."""
    return events.attach(mailbox.write_fd, replica="r1", role="agent", clock=still_clock)


def dropped() -> float:
    """Return how many events the recorder dropped so far."""
    return float(EVENTS_DROPPED.labels(sink="recorder")._value.get())


@pytest.mark.usefixtures("recorder")
def test_an_event_says_what_happened_to_what_and_where(mailbox: Mailbox) -> None:
    """A person who reads it elsewhere needs to know whom it came from."""
    events.record("fire_rejected", "hook quota said no", subject="nightly", level="warning", hook="quota")

    (event,) = arrived(mailbox)
    assert (event.reason, event.subject, event.note, event.level) == (
        "fire_rejected", "nightly", "hook quota said no", "warning",
    )  # fmt: skip
    assert (event.replica, event.role, event.fields, event.count) == ("r1", "agent", {"hook": "quota"}, 1)
    assert event.first_ms == event.last_ms == 1_795_178_096_007


@pytest.mark.usefixtures("recorder")
def test_an_event_is_a_line_of_the_log_unless_there_is_one(mailbox: Mailbox) -> None:
    """The log is the first sink; a decision that is logged already is not told twice."""
    stream = io.BytesIO()
    logs.configure(level="info", format="json", cluster="c", replica="r", role="t", stream=stream)

    events.record("plugin_stopped", "idle", subject="mailer", event="odd", level="info")
    events.record("leader_lost", is_logged=True)

    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["subject"], line["note"], line["event_"]) == ("plugin_stopped", "mailer", "idle", "odd")
    assert len(arrived(mailbox)) == 2


@pytest.mark.usefixtures("recorder")
def test_no_secret_and_nothing_large_travels(mailbox: Mailbox) -> None:
    """Notes come from errors, and errors hold what they hold."""
    events.record(
        "run_failed",
        "password=hunter2 " + "x" * 9000,
        token="hunter2",
        many=["a", "b"],
        deep={"pwd": "hunter2"},
        **{"redis://:hunter2@h": 3},
    )

    (event,) = arrived(mailbox)
    assert "hunter2" not in msgspec.json.encode(event).decode()
    assert len(event.note) == events.NOTE_CHARS_MAX
    assert event.fields["many"] == "a, b"


@pytest.mark.usefixtures("recorder")
def test_half_a_character_costs_neither_the_event_nor_the_caller(mailbox: Mailbox) -> None:
    """Names of files and JSON of others may hold one, and what is told with a beat would end the process."""
    events.record("plugin_failed", "no file \ud800", subject="mailer", path="\udcff")

    (event,) = arrived(mailbox)
    assert (event.note, event.fields) == ("no file ?", {"path": "?"})


@pytest.mark.usefixtures("recorder")
def test_a_message_is_one_write_that_a_pipe_takes_whole(mailbox: Mailbox) -> None:
    """Beyond PIPE_BUF, messages of two processes could mix."""
    fields = {f"field{number}": "é" * 500 for number in range(50)}
    events.record("run_failed", "é" * 5000, **fields)

    text = os.read(mailbox.read_fd, 1 << 20)
    assert len(text) <= MESSAGE_BYTES_MAX
    assert msgspec.json.decode(text, type=Event).fields == {"cut": True}


def test_a_full_mailbox_costs_the_event_and_is_counted(mailbox: Mailbox, recorder: Recorder, still_clock: Any) -> None:
    """The web child may hang; nobody waits for it."""
    while True:
        try:
            os.write(mailbox.write_fd, b"x" * 4096)
        except BlockingIOError:
            break
    before = dropped()
    for number in range(3):
        events.record("run_failed", subject=str(number))
    still_clock.now_ns += 1
    recorder.flush()

    assert dropped() - before == 3


def test_what_was_counted_is_told_with_a_beat(mailbox: Mailbox, recorder: Recorder, still_clock: Any) -> None:
    """Every process flushes with its beats."""
    for _ in range(5):
        events.record("run_failed")
    assert [event.count for event in arrived(mailbox)] == [1]

    still_clock.now_ns += 5_000_000_000
    events.flush()
    assert [event.count for event in arrived(mailbox)] == [5]


def test_a_fork_starts_counting_anew(mailbox: Mailbox, recorder: Recorder) -> None:
    """What the parent counted is the parent's to tell, and a lock that a lost thread held is no lock."""
    events.record("child_exited", subject="web")
    events.record("child_exited", subject="web")
    recorder._lock.acquire()
    pid = os.fork()
    if pid == 0:
        events.record("child_exited", subject="web")
        events.flush(is_last=True)
        os._exit(0)
    recorder._lock.release()
    os.waitpid(pid, 0)

    assert [event.count for event in arrived(mailbox)] == [1, 1]


def test_a_turn_that_is_taken_costs_the_event_not_the_caller(mailbox: Mailbox, recorder: Recorder) -> None:
    """A signal handler that records while its own thread does would wait for ever."""
    recorder._lock.acquire()
    events.record("run_failed")
    recorder._lock.release()
    events.flush()

    assert arrived(mailbox) == []


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("decision", event_catalogue.DECISIONS)
def test_every_decision_that_is_an_event_is_told_whatever_its_fields(mailbox: Mailbox, decision: str) -> None:
    """A field that a version lacks is a question mark, never an error in the middle of an election."""
    event_catalogue.record(decision, {"reason": "because", "note": "n", "level": "x", "subject": "s"}, level="warning")

    (event,) = arrived(mailbox)
    assert event.reason == decision


@pytest.mark.usefixtures("recorder")
def test_what_was_to_happen_is_no_event(mailbox: Mailbox) -> None:
    """A worker that was retired did not die, and most lines of the log are no events."""
    event_catalogue.record("child_exited", {"slot": "worker-io-0"}, level="info")
    event_catalogue.record("standby", {}, level="info")

    assert arrived(mailbox) == []


def test_the_page_lists_every_decision() -> None:
    """docs/events.md is what people write their filters from."""
    page = (ROOT / "docs/events.md").read_text(encoding="utf-8")
    assert not [name for name in event_catalogue.DECISIONS if f"`{name}`" not in page]


def test_one_decision_has_one_name_in_log_event_and_metric() -> None:
    """Who reads an event finds its line and its counter by the same word."""
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "supervisor").rglob("*.py")
        if path.name != "event_catalogue.py"
    )
    by_code = {f"schedule_{code.value.lower()}" for code in FireCode} - {"schedule_paused"}
    assert not [name for name in event_catalogue.DECISIONS if f'"{name}"' not in code and name not in by_code]
    counters = {
        f"{each._name}_total": {*each._labelnames} for each in vars(metrics).values() if isinstance(each, Counter)
    }
    shared = {"tenure_election_terms_total": "event", "tenure_fires_total": "code"}
    for name, event in event_catalogue.DECISIONS.items():
        if event.metric in shared:
            assert shared[event.metric] in counters[event.metric], name
        elif event.metric:
            assert event.metric in counters, name
            assert any(word[:5] in event.metric for word in name.split("_")), (name, event.metric)
