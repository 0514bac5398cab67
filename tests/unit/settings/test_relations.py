"""What must hold between settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.settings.rules.cross_rules import violations
from supervisor.settings.sections.models import ElectionSettings, RedisSettings, Settings
from tests.kit.tables import table

Problems = Callable[[str], list[str]]


@pytest.mark.parametrize(
    ("election", "problems"),
    [
        ("{lease_duration: 3s}", []),
        ("{lease_duration: 2999ms}", ["more than a third"]),
        ("{lease_duration: 5s, renew_period: 2s}", ["more than a third"]),
        ("{renew_period: 500ms}", ["is more than renew_period"]),
        ("{lease_duration: 60s, renew_period: 20s, renew_timeout: 17s}", []),
        ("{lease_duration: 60s, renew_period: 20s, renew_timeout: 17001ms}", ["is too short"]),
        ("{lease_duration: 1s, renew_period: 300ms, renew_timeout: 300ms}", []),
        ("{presence: true, presence_poll: 2500ms}", []),
        ("{presence: true, presence_poll: 2501ms}", ["is more than half of lease_duration"]),
        ("{presence_poll: 4s}", []),
        ("{lease_duration: 1s, renew_period: 300ms, renew_timeout: 301ms}", ["is too short", "is more than renew_period"]),
    ],
)  # fmt: skip
def test_the_election_has_time_for_a_lost_renewal(election: str, problems: list[str], desk: Any) -> None:
    """renew_period + 2 renew_timeout + margin ≤ lease_duration: the bound itself is allowed."""
    desk.add(f"election: {election}\n")
    if not problems:
        assert desk.load().settings.election
        return
    lines = desk.lines()
    assert len(lines) == len(problems)
    for expected in problems:
        assert any(expected in line for line in lines)


@given(st.integers(1000, 300_000), st.integers(1, 100_000), st.integers(1, 30_000))
def test_no_accepted_election_can_lose_its_lease_to_one_lost_reply(
    lease_ms: int, period_ms: int, timeout_ms: int
) -> None:
    """The rule in whole milliseconds, for every triple."""
    election = ElectionSettings.model_construct(
        lease_duration_s=lease_ms / 1000, renew_period_s=period_ms / 1000, renew_timeout_s=timeout_ms / 1000
    )
    is_accepted = not list(violations(Settings(election=election)))
    margin_tenth_ms = max(1000, lease_ms)
    holds = (
        (period_ms + 2 * timeout_ms) * 10 + margin_tenth_ms <= lease_ms * 10
        and period_ms * 3 <= lease_ms
        and timeout_ms <= period_ms
    )
    assert is_accepted == holds


@table(
    "url",
    [
        "embedded", "redis://h", "redis://h:6379", "redis://h:6379/0", "rediss://u:p%40ss@h.example:1/15", "redis://:pw@h/",
        "redis://[::1]:6379/1", "unix:///run/redis.sock", "unix://user:pw@/run/redis.sock?db=2", "redis://h?db=3", "redis://u@h",
    ],
)  # fmt: skip
def test_a_usable_url_is_accepted(url: str) -> None:
    """Host, port, database, user, socket."""
    assert not list(violations(Settings(redis=RedisSettings(url=url))))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis.example:6379", "must be embedded, or start with"), ("http://h", "must be embedded"), ("redis:/h", "must be embedded"),
        ("valkey://h", "must be embedded"), ("Embedded", "must be embedded"), ("", "must be embedded"), ("redis://", "names no host"),
        ("redis://h:99999", "is not a URL"), ("redis://h:x", "is not a URL"), ("redis://h/one", "must end in /N"),
        ("redis://:hunt/er2@h", "is not a URL"), ("redis://:hunt#er2@h", "is not a URL|holds a #"), ("unix://", "names no socket"),
        ("redis://h?ssl=1", "takes nothing but"), ("redis://h?db=x", "takes nothing but"), ("redis://[::1", "is not a URL"),
        ("redis://h:0", "names no host"), ("redis://h#x", "holds a #"), ("redis://:hunt?er2@h/0", "is not a URL|takes nothing|names no host"),
    ],
)  # fmt: skip
def test_an_unusable_url_says_why_and_never_what(url: str, message: str, desk: Any) -> None:
    """Most of these are a password that was not percent-encoded, so nothing of it is quoted."""
    desk.add(f"redis: {{url: '{url}'}}\n")
    (line,) = desk.lines()
    assert any(part in line for part in message.split("|")), line
    assert "hunt" not in line
    assert "er2" not in line


@pytest.mark.parametrize(
    ("redis", "message"),
    [
        ("{password: x}", "redis.password: is not used by the embedded server"),
        ("{url: 'redis://h', tls_ca_file: a}", "redis.tls_ca_file: is used by rediss:// only"),
        ("{url: 'rediss://h', tls_cert_file: a}", "redis.tls_cert_file: a client certificate needs both"),
        ("{url: 'rediss://h', tls_key_file: a}", "redis.tls_cert_file: a client certificate needs both"),
        ("{url: 'redis://:**********@h'}", "redis.url: is the mask"),
    ],
)
def test_settings_of_redis_that_cannot_work_together_are_refused(
    redis: str, message: str, problems_of: Problems
) -> None:
    """Each would otherwise be ignored in silence."""
    (line,) = problems_of(f"redis: {redis}\n")
    assert f"tenure.yaml:1: {message}" in line


def test_a_relation_names_the_line_of_what_was_written(problems_of: Problems) -> None:
    """Not that of a default: nobody can look it up in a file."""
    lines = problems_of("cluster: a\nelection:\n  renew_period: 3s\n")
    assert [line.split(" ")[0] for line in lines] == ["tenure.yaml:3:"]


def test_a_relation_with_a_wrong_value_is_not_judged(problems_of: Problems) -> None:
    """A second problem about a value that has to change anyway would only confuse."""
    assert len(problems_of("election: {lease_duration: 0s, renew_period: 2s}\n")) == 1


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("{job: x}", "schedules.a: has none of every, cron, calendar_interval, at, after_completion, when and after; add one, e.g. every: 10m"),
        ("{job: x, every: 50ms}", "schedules.a.every: must be at least 100ms, got '50ms'"),
        ("{job: x, every: 0}", "schedules.a.every: must be at least 100ms, got 0"),
        ("{job: x, every: -5m}", "schedules.a.every: is not a duration, got '-5m'"),
        ("{job: x, cron: '0 0 30 2 *'}", "never matches"),
        ("{job: x, cron: '* * * *'}", "schedules.a.cron: "),
        ("{job: x, every: 1m, timezone: Nowhere}", "schedules.a.timezone: timezone 'Nowhere' is not in the time zone database"),
        ("{job: x, every: 1m, overlap: maybe}", "schedules.a.overlap: must be skip, allow, buffer_one, buffer_all, cancel_other or terminate_other, got 'maybe'"),
        ("{job: x, every: 1m, timeout: 0}", "schedules.a.timeout: must be above 0s, got 0"),
    ],
)  # fmt: skip
def test_a_schedule_that_could_never_be_right_is_refused(schedule: str, message: str, problems_of: Problems) -> None:
    """Interval 0 would hang a scheduler; February 30th would never fire."""
    (line,) = problems_of(f"schedules: {{a: {schedule}}}\n")
    assert message in line


@pytest.mark.parametrize(
    ("supervision", "problem"),
    [
        ("{grace: 20s}", ""),
        ("{grace: 20s, stop_timeout: 23500ms}", ""),
        ("{grace: 20s, stop_timeout: 23s}", "which is 23500ms"),
        ("{grace: 1m, stop_timeout: 1m}", "is too short"),
    ],
)
def test_a_grace_must_fit_into_the_patience_of_what_stops_the_tree(supervision: str, problem: str, desk: Any) -> None:
    """A kubelet that kills before the drain is over interrupts jobs at every deploy, and nobody sees why."""
    desk.add(f"supervision: {supervision}\n")
    if not problem:
        assert desk.load().settings.supervision
        return
    (line,) = desk.lines()
    assert "supervision.stop_timeout" in line
    assert problem in line
