"""A process that lives follows its configuration by one word of the board."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.reload.audiences import Audience
from supervisor.reload.config_memfd import Brief, Handover
from supervisor.roles import child
from supervisor.roles.child import ConfigFollower
from supervisor.settings.sections.models import Settings
from supervisor.telemetry import events
from supervisor.telemetry.logs import LogRules


class FollowedSettings:
    """A header, a handover, and what was done to the log."""

    def __init__(self, handover: Handover, monkeypatch: pytest.MonkeyPatch) -> None:
        self.handover = handover
        self.header = SimpleNamespace(config_epoch=0)
        self.retuned: list[tuple[str, str]] = []
        self.rules: list[LogRules] = []

        def retune(*, level: str, format: str, rules: LogRules) -> None:  # noqa: A002 - as it is named
            self.retuned.append((level, format))
            self.rules.append(rules)

        monkeypatch.setattr(child.logs, "retune", retune)
        context: Any = SimpleNamespace(
            board=SimpleNamespace(header=self.header),
            handover=handover.reader(Audience.WORKER),
            config_epoch=0,
            settings=Settings(),
        )
        self.following = ConfigFollower(context)

    def publish(self, number: int, **settings: Any) -> None:
        """Put a configuration into effect."""
        in_effect = self.header.config_epoch
        self.handover.open(number, in_effect=in_effect)
        self.handover.write(
            number,
            plan=b"",
            settings=Settings.model_validate(settings),
            brief=Brief("", {}),
            definitions=(),
        )
        self.handover.take(number, in_effect=in_effect)
        self.header.config_epoch = number


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[FollowedSettings]:
    """Return a process that started with the first configuration."""
    handover = Handover()
    yield FollowedSettings(handover, monkeypatch)
    handover.close()


def test_a_new_configuration_is_told_once(world: FollowedSettings) -> None:
    """Whoever has more to do about it does it then."""
    assert world.following.poll() == 0
    world.publish(3)

    assert [world.following.poll(), world.following.poll()] == [3, 0]
    assert world.retuned == []


def test_the_log_follows_by_itself(world: FollowedSettings) -> None:
    """Also in a worker that nothing else touches."""
    world.publish(1, log={"level": "debug"})
    world.following.poll()
    world.publish(2, log={"level": "debug", "format": "json"})
    world.following.poll()

    assert world.retuned == [("debug", "auto"), ("debug", "json")]


def test_the_rules_of_the_log_follow_too(world: FollowedSettings) -> None:
    """What must not be read any more is masked without a restart."""
    world.publish(1, log={"mask": {"*": ["to"]}, "exclude": ["noise"]})
    world.following.poll()

    assert world.rules == [LogRules.of(mask={"*": ["to"]}, exclude=["noise"])]


def test_one_that_was_overtaken_is_left_out(world: FollowedSettings) -> None:
    """A process that slept through two reloads finds the number of the third, and reads that."""
    world.header.config_epoch = 7

    assert world.following.poll() == 0
    world.publish(8, log={"level": "error"})
    assert world.following.poll() == 8
    assert world.retuned == [("error", "auto")]


def test_which_ends_of_runs_are_events_follows_by_itself(world: FollowedSettings) -> None:
    """The agent, which no reload replaces, tells of runs whose worker died."""
    events.attach(None, replica="r", role="agent", runs="none")
    world.publish(1, events={"runs": "all"})
    world.following.poll()

    assert events.run_events() == "all"


def test_settings_in_effect_are_those_of_the_last_poll(world: FollowedSettings) -> None:
    """By a longer grace the agent has its time at the end of a stop, which it had used up by the former one."""
    assert world.following.settings.supervision.grace_s != 90
    world.publish(1, supervision={"grace": "90s"})
    world.following.poll()

    assert world.following.settings.supervision.grace_s == 90
