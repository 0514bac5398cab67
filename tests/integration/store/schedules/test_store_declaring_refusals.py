"""Parts of a configuration that Redis refuses: told by name, tried again each minute, and in nobody's way."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import After, Kind, ScheduleDef, Template
from supervisor.roles.scheduler.config_sync import REFUSED_NS, ConfigSync
from supervisor.store.schedules.definitions import BATCH_MAX, Definitions
from tests.integration.store.schedules.declaration import Declaration
from tests.kit.builders import StoreCalls, schedule
from tests.kit.stepper import term_of


@pytest.fixture
def desk(world: StoreCalls) -> Declaration:
    return Declaration(world)


def starting(name: str, queue: str, every_ms: int) -> ScheduleDef:
    """Return a schedule whose change of timing starts a run in ``queue``."""
    template = Template(job="j", kind=Kind.SYNC, queue=queue)
    return schedule(name, template=template, every_ms=every_ms, on_change="run_now")


def finish(desk: Declaration, declaring: ConfigSync) -> None:
    """Bring a set in, as far as it can be."""
    term = term_of(desk.world.lead())
    desk.stepper.until(lambda: declaring.is_done(term), declaring, term)


def stored(desk: Declaration) -> dict[str, int | None]:
    """Return how often each schedule is due."""
    return {name: each.definition.every_ms for name, each in desk.world.stored().items()}


def test_a_renamed_schedule_and_a_new_follower_come_in_one_step(
    desk: Declaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a run between two would make the follower due under neither name."""
    others = [schedule(f"s{n:03}") for n in range(BATCH_MAX - 1)]
    desk.declare(desk.world.lead(), *others, schedule("old"))
    steps: list[list[str]] = []
    page = Definitions.page

    def noted(self: Definitions, term: Any, **options: Any) -> Any:
        steps.append([change.definition.id for change in options["changes"]])
        return page(self, term, **options)

    monkeypatch.setattr(Definitions, "page", noted)
    changed = [schedule(each.id, every_ms=7000) for each in others]
    follower = schedule("follower", every_ms=None, after=After(schedule="new"))
    finish(desk, desk.declaring(*changed, follower, schedule("new", renamed_from="old")))

    assert any({"new", "follower"} <= set(step) for step in steps)
    assert sorted(chain.from_iterable(steps)) == sorted([*(each.id for each in others), "follower", "new"])
    assert set(desk.world.stored()) == {*(each.id for each in others), "follower", "new"}


def test_a_schedule_that_is_refused_keeps_no_other_of_its_page_out(desk: Declaration) -> None:
    """A foreign key in one queue: the former definition stays, and the rest of the set is in place."""
    before = [starting(f"s{n:02}", f"q{n}", 1000) for n in range(20)]
    after = [starting(f"s{n:02}", f"q{n}", 2000) for n in range(19)]
    desk.declare(desk.world.lead(), *before)
    foreign = desk.world.keys.queue("q7").data
    desk.world.raw.set(foreign, "another program's")

    declaring = desk.declaring(*after)
    finish(desk, declaring)

    assert stored(desk) == {each.id: 1000 if each.id == "s07" else 2000 for each in after}
    (told,) = desk.stepper.events("schedules_put_off")
    assert (told["schedules"], told["count"]) == (["s07"], 1)
    assert desk.stepper.events("schedules_declared")[-1]["is_refused"]

    desk.world.raw.delete(foreign)
    desk.stepper.now_ns += REFUSED_NS
    finish(desk, declaring)
    assert set(stored(desk).values()) == {2000}
    assert desk.stepper.events("schedules_declared")[-1]["applied"]
    assert len(desk.stepper.events("schedules_put_off")) == 1


def test_a_schedule_whose_removal_is_refused_keeps_no_other_in(
    desk: Declaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removals are asked about one by one, in the end."""
    desk.declare(desk.world.lead(), *(schedule(f"s{n}") for n in range(9)))
    run = desk.world.run

    def refuse(call: Call[Any]) -> Any:
        if call.script == "declare_remove" and "s4" in call.args:
            raise StoreRefusedError("a key of this cluster holds another type")
        return run(call)

    monkeypatch.setattr(desk.world, "run", refuse)
    finish(desk, desk.declaring(schedule("s0")))

    assert sorted(stored(desk)) == ["s0", "s4"]
    assert [told["schedules"] for told in desk.stepper.events("schedules_put_off")] == [["s4"]]
