"""Configurations in memory that processes share: whole, or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.settings import handover as module
from supervisor.settings.handover import Brief, Handover, HandoverError
from supervisor.settings.models import Settings

SCHEDULE = ScheduleDef(id="a", template=Template(job="j", kind=Kind.SYNC))
BRIEF = Brief("digest", {"j": "{}"})


@pytest.fixture
def handover() -> Iterator[Handover]:
    """Both buffers, empty."""
    made = Handover()
    yield made
    made.close()


def write(handover: Handover, number: int, *, in_effect: int, cluster: str = "c1") -> None:
    """Hand over configuration ``number``."""
    settings = Settings.model_validate(
        {"cluster": cluster, "redis": {"url": "redis://:secret@h"}, "schedules": {"a": {"job": "j", "every": "1s"}}}
    )
    handover.write(number, in_effect=in_effect, plan=b"{}", settings=settings, brief=BRIEF, definitions=(SCHEDULE,))


def test_what_is_handed_over_comes_out_whole(handover: Handover) -> None:
    """Secrets included: the children must connect with them."""
    write(handover, 3, in_effect=0)

    assert handover.plan(3) == b"{}"
    assert handover.settings(3).redis.url.get_secret_value() == "redis://:secret@h"
    assert handover.settings(3).schedules == {}
    assert list(handover.settings(3, with_schedules=True).schedules) == ["a"]
    assert handover.definitions(3) == (SCHEDULE,)
    assert handover.brief(3) == BRIEF


def test_the_one_in_effect_survives_any_number_of_checks(handover: Handover) -> None:
    """A child may be started at any moment, also while the next configuration is being judged and refused."""
    write(handover, 1, in_effect=0, cluster="first")
    for number in range(2, 6):
        write(handover, number, in_effect=1)
        assert handover.settings(1).cluster == "first"
        assert handover.plan(number) == b"{}"
    write(handover, 6, in_effect=5)
    assert handover.settings(5).cluster == "c1"


def test_an_unknown_number_is_an_error_not_another_configuration(handover: Handover) -> None:
    """A child that reads late must not take what it was not told to take."""
    assert handover.plan(1) is None
    write(handover, 1, in_effect=0)
    with pytest.raises(HandoverError):
        handover.settings(2)


def test_a_check_that_died_half_way_left_nothing(handover: Handover) -> None:
    """The header goes last."""
    write(handover, 1, in_effect=0)
    for descriptor in handover.descriptors:
        os.pwrite(descriptor, bytes(56), 0)

    assert handover.plan(1) is None


def test_a_configuration_that_is_too_large_is_refused(handover: Handover, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every payload has a limit."""
    monkeypatch.setattr(module, "BYTES_MAX", 100)

    with pytest.raises(HandoverError, match="larger than"):
        write(handover, 1, in_effect=0)
