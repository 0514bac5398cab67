"""One line for each decision, and the counters that dashboards and alarms look at."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from supervisor.roles.agent.reporting import NOT_RESTORED, AgentReport
from supervisor.telemetry import events, metrics


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
