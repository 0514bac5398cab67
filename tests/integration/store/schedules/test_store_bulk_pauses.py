"""Pauses of many schedules at once, which may be paused already: by a person, by their definition, by a plugin."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.store.plugins import Plugins
from supervisor.store.schedules.control import Control, PauseCode
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.reads import Pause, Views
from tests.kit.builders import StoreCalls, schedule

PAUSED, KEPT = PauseCode.PAUSED, PauseCode.KEPT
HOUR_MS = 3_600_000


class Desk:
    """The schedules ``a`` and ``b``, and what people do to them."""

    def __init__(self, world: StoreCalls) -> None:
        self.world, self.control = world, Control(world.keys)
        self.define(is_paused=False)
        self.define("b", is_paused=False)

    def define(self, name: str = "a", *, is_paused: bool) -> None:
        change = Change(definition=schedule(name, paused=is_paused, pause_reason="not here" if is_paused else ""))
        self.world.run(Definitions(self.world.keys).upsert([change], wall_ms=1))

    def pause(self, *names: str, **fields: Any) -> list[PauseCode]:
        call = self.control.pause(names or ["a"], **fields)
        first, second = self.world.twice(call)
        assert first == second
        return [code for code, _ in first.results]

    def stored(self, name: str = "a") -> Pause:
        record = self.world.run(Views(self.world.keys).inspect([name]))[0].record
        assert record is not None
        assert record.pause is not None
        assert self.world.raw.zscore(self.world.keys.schedule_next, name) == record.pause.until_ms
        return record.pause

    def suspend(self) -> None:
        self.world.run(Plugins(self.world.keys).suspend(["a"], by="plugin p", reason="it hangs", for_ms=HOUR_MS))


@pytest.fixture
def desk(world: StoreCalls) -> Desk:
    return Desk(world)


@pytest.mark.parametrize("former_ms", [None, 2 * HOUR_MS])
def test_of_a_selection_none_that_is_paused_for_longer_is_paused_for_less(desk: Desk, former_ms: int | None) -> None:
    """Whoever selects has not looked at each: what somebody stopped for good began after the hour."""
    desk.pause(reason="no budget", by="kim", for_ms=former_ms)
    former = desk.stored()

    assert desk.pause("a", "b", for_ms=HOUR_MS, is_selected=True) == [KEPT, PAUSED]
    assert desk.stored() == former
    assert desk.stored("b").until_ms is not None
    assert desk.world.run(desk.control.pause(["a"], for_ms=HOUR_MS, is_selected=True)).results == [
        (KEPT, former.until_ms)
    ]


@pytest.mark.parametrize("later", [{}, {"for_ms": 2 * HOUR_MS}])
def test_of_a_selection_one_that_is_paused_for_less_is_paused_for_longer(desk: Desk, later: dict[str, int]) -> None:
    """And says who asked for that."""
    desk.pause(by="kim", for_ms=HOUR_MS)

    assert desk.pause(by="lee", is_selected=True, **later) == [PAUSED]
    assert desk.stored().by == "lee"


def test_a_schedule_that_is_named_may_be_paused_for_less(desk: Desk) -> None:
    """Whoever names it means this one."""
    desk.pause()

    assert desk.pause(for_ms=HOUR_MS) == [PAUSED]
    assert desk.stored().until_ms is not None


@pytest.mark.parametrize("is_selected", [False, True])
def test_no_pause_with_an_end_replaces_the_definitions(desk: Desk, *, is_selected: bool) -> None:
    """It goes on beside it, the longest one: the definition may say otherwise before that has ended."""
    desk.define(is_paused=True)
    for by, hours in (("kim", 1), ("lee", 3), ("mia", 2)):
        assert desk.pause(by=by, reason='a "b"\n', for_ms=hours * HOUR_MS, is_selected=is_selected) == [KEPT]
        assert (desk.stored().by, desk.stored().reason, desk.stored().until_ms) == ("definition", "not here", None)
    assert desk.world.raw.hget(desk.world.keys.schedule_paused, "a").count(b'"beside":') == 1

    desk.define(is_paused=False)
    assert (desk.stored().by, desk.stored().reason) == ("lee", 'a "b"\n')


def test_a_pause_without_an_end_replaces_the_definitions(desk: Desk) -> None:
    """Nobody's deploy ends what a person stopped for good."""
    desk.define(is_paused=True)

    assert desk.pause(by="kim", is_selected=True) == [PAUSED]
    desk.define(is_paused=False)
    assert desk.stored().by == "kim"


def test_a_suspension_gives_way_to_every_other_pause(desk: Desk) -> None:
    """It ends as soon as its plugin works, and so would the pause that it had outlasted."""
    desk.world.raw.zadd(desk.world.keys.schedule_next, {"a": 9e12})  # the leader looked: nothing is owed
    desk.suspend()
    assert desk.pause(by="kim", for_ms=HOUR_MS // 2, is_selected=True) == [PAUSED]
    assert desk.stored().by == "kim"

    desk.world.run(desk.control.resume(["a"]))
    desk.world.raw.zadd(desk.world.keys.schedule_next, {"a": 9e12})
    desk.suspend()
    desk.define(is_paused=True)
    assert desk.stored().by == "definition"
    desk.world.run(Plugins(desk.world.keys).release(["a"], by="plugin p"))
    assert desk.stored().by == "definition"
    desk.define(is_paused=False)
    assert not desk.world.raw.hexists(desk.world.keys.schedule_paused, "a")
