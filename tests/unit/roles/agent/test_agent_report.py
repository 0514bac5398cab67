"""One line for each decision, and the counters that dashboards and alarms look at."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from supervisor.roles.agent.reporting import ENDED_LINES_MAX, NOT_RESTORED, AgentReport
from supervisor.store.queues.runs import EndedRun
from supervisor.telemetry import events, metrics
from supervisor.telemetry.events import Mailbox
from supervisor.telemetry.run_lines import FOLDED_MAX
from tests.kit.clock import FakeClock
from tests.kit.mailboxes import arrived


def value(counter: object, **labels: str) -> float:
    """Return what a counter shows."""
    child = counter.labels(**labels)  # type: ignore[attr-defined]  # every counter of the project has labels here
    return float(child._value.get())


def test_an_outage_is_one_line_and_its_end_another() -> None:
    """However many questions go unanswered."""
    report = AgentReport()
    with capture_logs() as lines:
        for failures in range(1, 50):
            report("election_unanswered", operation="renew", failures=failures, error="away")
        report("election_answer", operation="renew", result="renewed", seconds=0.001, mode="")

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("redis_unanswered", "warning"),
        ("redis_answers_again", "info"),
    ]


@pytest.mark.parametrize(
    ("result", "counted"), [("renewed", "ok"), ("reclaimed", "ok"), ("outdated", "ok"), ("lost", "lost")]
)
def test_a_renewal_counts_as_ok_where_the_term_goes_on(result: str, counted: str) -> None:
    """An alarm on lost renewals must not ring for a term that is about to get a later epoch."""
    before = value(metrics.ELECTION_RENEWALS, result=counted)
    AgentReport()("election_answer", operation="renew", result=result, seconds=0.001, mode="")
    assert value(metrics.ELECTION_RENEWALS, result=counted) == before + 1


def test_losses_of_data_are_counted_from_zero_on() -> None:
    """The shipped alarm sees growth: of a series that begins at 1 with the one loss there is, it would see none."""
    metrics.REDIS_LOST_DATA.clear()
    AgentReport()
    (family,) = metrics.REDIS_LOST_DATA.collect()
    found = {each.labels["kind"]: each.value for each in family.samples if each.name.endswith("_total")}
    assert found == {"data": 0, "rolled_back": 0}


def test_a_loss_of_data_says_what_nobody_writes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause that ends with the data leaves no other trace: whoever made it has to read that here."""
    noted: list[str] = []
    monkeypatch.setattr(events, "record", lambda _, note, **__: noted.append(note))
    with capture_logs() as lines:
        AgentReport()("redis_lost_data", kind="data", epoch=0, floor=8, genesis="")

    (line,) = lines
    assert (line["event"], line["not_restored"]) == ("redis_lost_data", NOT_RESTORED)
    assert noted == [f"data, at epoch 0; not restored: {NOT_RESTORED}"]


def test_renewals_are_counted_by_result() -> None:
    """A rate of time-outs is an alarm."""
    report = AgentReport()
    before = {result: value(metrics.ELECTION_RENEWALS, result=result) for result in ("ok", "lost", "timeout")}
    with capture_logs():
        report("election_answer", operation="renew", result="reclaimed", seconds=0.001, mode="")
        report("election_answer", operation="renew", result="lost", seconds=0.001, mode="")
        report("election_answer", operation="campaign", result="denied", seconds=0.001, mode="")
        report("election_unanswered", operation="renew", failures=1, error="away")

    assert {result: value(metrics.ELECTION_RENEWALS, result=result) - seen for result, seen in before.items()} == {
        "ok": 1,
        "lost": 1,
        "timeout": 1,
    }


def test_transitions_and_reclaimed_runs_are_told_and_counted() -> None:
    """With the fields that answer who, what and how many."""
    report = AgentReport()
    before = value(metrics.RUNS_RECLAIMED, reason="crashed")
    with capture_logs() as lines:
        report("leader_acquired", epoch=7, reason="granted", mode="free", gap_ms=2)
        report("session_reclaimed", session="r1/worker-io-0/1", runs=3, death="crashed", reasons={"crashed": 1})

    assert [line["event"] for line in lines] == ["leader_acquired", "session_reclaimed"]
    assert lines[1]["runs"] == 3
    assert value(metrics.RUNS_RECLAIMED, reason="crashed") == before + 1


DEAD = EndedRun("q", "r1", "crashed", 3, "bill", "nightly")
CANCELLED = EndedRun("q", "r2", "cancelled", 1, "bill", "")


@pytest.mark.parametrize(
    ("runs", "expected"),
    [("failures", ["run_dead", "run_dead"]), ("all", ["run_dead", "run_cancelled", "run_dead"]), ("none", [])],
)
def test_runs_that_ended_with_their_worker_are_told_as_a_worker_tells_them(
    mailbox: Mailbox, runs: str, expected: list[str]
) -> None:
    """Same line, event and series: an alarm on dead runs, or whoever reads a webhook, need not know who found out."""
    events.attach(mailbox.write_fd, replica="r1", role="agent", runs=runs)
    counter = metrics.RUNS_FINISHED
    series = [("bill", "dead"), ("bill", "cancelled"), ("unknown", "dead")]
    before = [value(counter, queue="q", job=job, outcome=outcome) for job, outcome in series]
    ended = [DEAD, CANCELLED, EndedRun("q", "r3", "lost", 0, "", "")]
    with capture_logs() as lines:
        AgentReport(jobs={"bill"})("runs_ended", runs=ended, how="killed at a hard timeout")

    assert [(line["log_level"], line["event"], line["run"], line["job"]) for line in lines] == [
        ("error", "run_dead", "r1", "bill"),
        ("info", "run_cancelled", "r2", "bill"),
        ("error", "run_dead", "r3", "unknown"),
    ]
    assert (lines[0]["error"], lines[0]["attempt"], lines[0]["queue"], lines[0]["schedule"]) == (
        "crashed: killed at a hard timeout", 3, "q", "nightly",
    )  # fmt: skip
    after = [value(counter, queue="q", job=job, outcome=outcome) for job, outcome in series]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 1]
    told = arrived(mailbox)
    assert [event.reason for event in told] == expected
    assert [(event.subject, event.note, event.fields["run"]) for event in told][:1] == [
        ("bill", "crashed: killed at a hard timeout", "r1")
    ][: len(expected)]


def test_many_runs_that_ended_with_their_worker_are_few_lines() -> None:
    """A pool of a thousand at_most_once runs dies, by as many calls as there are sessions: lines are folded."""
    clock = FakeClock()
    before = value(metrics.RUNS_FINISHED, queue="q", job="bill", outcome="dead")
    with capture_logs() as lines:
        report = AgentReport(clock, jobs={"bill"})
        for _ in range(ENDED_LINES_MAX + 7):
            report("runs_ended", runs=[DEAD], how="")
        clock.advance(1.0)
        report.flush()

    assert [line["event"] for line in lines] == ["run_dead"] * ENDED_LINES_MAX + ["failures_folded"]
    assert (lines[-1]["count"], lines[-1]["last_error"]) == (7, "crashed")
    assert value(metrics.RUNS_FINISHED, queue="q", job="bill", outcome="dead") == before + ENDED_LINES_MAX + 7


def test_names_of_jobs_that_nobody_registered_are_no_series(mailbox: Mailbox) -> None:
    """Whoever may enqueue by Redis invents them: neither series nor lines nor events grow with their number."""
    events.attach(mailbox.write_fd, replica="r1", role="agent", runs="failures")
    clock, before = FakeClock(), value(metrics.RUNS_FINISHED, queue="q", job="unknown", outcome="dead")
    ended = [EndedRun("q", f"r{n}", "crashed", 3, f"invented-{n}", "") for n in range(500)]
    with capture_logs() as lines:
        report = AgentReport(clock, jobs={"bill"})
        report("runs_ended", runs=ended, how="")
        report.flush(is_last=True)

    assert value(metrics.RUNS_FINISHED, queue="q", job="unknown", outcome="dead") == before + 500
    assert value(metrics.RUNS_FINISHED, queue="q", job="invented-7", outcome="dead") == 0
    assert [line["job"] for line in lines if line["event"] == "run_dead"] == [
        f"invented-{n}" for n in range(ENDED_LINES_MAX)
    ]
    assert len(lines) == ENDED_LINES_MAX + FOLDED_MAX + 1
    assert {event.subject for event in arrived(mailbox)} == {"unknown"}


def test_the_election_is_counted_as_dashboards_need_it() -> None:
    """Each decision once: lapses, promotions, losses, suspicions, and how long nobody held the lease."""
    report = AgentReport()
    counters = {
        "lapses": metrics.ELECTION_LAPSES,
        "reclaims": metrics.ELECTION_RECLAIMS,
        "promotions": metrics.ELECTION_PROMOTIONS,
        "lost data": metrics.REDIS_LOST_DATA.labels(kind="data"),
        "suspicions": metrics.ELECTION_SUSPICIONS.labels(confirmed="no"),
        "campaigns": metrics.ELECTION_CAMPAIGNS.labels(mode="free", result="granted"),
        "transitions": metrics.ELECTION_TERMS.labels(event="leader_acquired", reason="granted"),
        "leaderless": metrics.ELECTION_LEADERLESS_SECONDS,
        "hand-overs": metrics.ELECTION_HANDOFF_SECONDS,
    }

    def shown() -> dict[str, float]:
        return {
            name: float(getattr(each, "_sum", getattr(each, "_value", None)).get()) for name, each in counters.items()
        }

    before = shown()
    with capture_logs():
        report("leader_lapsed", epoch=7)
        report("election_answer", operation="renew", result="reclaimed", seconds=0.001, mode="")
        report("leader_acquired", epoch=7, reason="reclaimed", mode="", gap_ms=-1)
        report("leader_promoted", epoch=8, generation=2)
        report("redis_lost_data", kind="data", epoch=0, floor=8, genesis="")
        report("leader_suspected", epoch=8, holder="x", confirmed=False)
        report("election_answer", operation="campaign", result="granted", seconds=0.001, mode="free")
        report("leader_acquired", epoch=9, reason="granted", mode="free", gap_ms=2)
        report("leader_acquired", epoch=9, reason="granted", mode="expired", gap_ms=3)
        report("leader_acquired", epoch=9, reason="granted", mode="cold", gap_ms=-1)

    seen = {name: round(now - before[name], 6) for name, now in shown().items()}
    assert seen == {
        "lapses": 1, "reclaims": 1, "promotions": 1, "lost data": 1, "suspicions": 1, "campaigns": 1, "transitions": 3,
        "leaderless": 0.005, "hand-overs": 0.002,
    }  # fmt: skip
