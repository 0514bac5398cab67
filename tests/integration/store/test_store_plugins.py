"""What the cluster keeps of plugins, and suspensions that never stand in a person's way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.store.plugins import RECORD_BYTES_MAX, PluginRecord, Plugins, SuspendCode
from supervisor.store.schedules.control import Control
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.reads import Pause, Views
from supervisor.store.scripts import script
from tests.kit.builders import StoreCalls, schedule
from tests.kit.servers import on_both

BY = "plugin aws"
MINUTE = 60_000


def define(world: StoreCalls, *names: str, **fields: Any) -> None:
    """Store schedules."""
    changes = [Change(definition=schedule(name, **fields)) for name in names]
    world.run(Definitions(world.keys).upsert(changes, wall_ms=1))


def pause_of(world: StoreCalls, name: str) -> Pause | None:
    """Return what holds a schedule."""
    record = world.run(Views(world.keys).inspect([name]))[0].record
    assert record is not None
    return record.pause


def suspend(world: StoreCalls, *names: str, by: str = BY, reason: str = "it hangs", for_ms: int = MINUTE) -> list[str]:
    """Suspend schedules, twice: a lost reply makes no difference."""
    call = Plugins(world.keys).suspend(names, by=by, reason=reason, for_ms=for_ms)
    first, second = world.twice(call)
    assert first.codes == second.codes
    return list(first.codes)


def test_a_suspension_has_a_reason_and_an_end(world: StoreCalls) -> None:
    """So that people see why nothing starts, and nobody has to remember to resume it."""
    define(world, "a")

    assert suspend(world, "a", "b") == [SuspendCode.SUSPENDED, SuspendCode.UNKNOWN]
    pause = pause_of(world, "a")
    assert pause is not None
    assert (pause.reason, pause.by) == ("it hangs", BY)
    assert pause.until_ms == pause.at_ms + MINUTE
    assert world.raw.zscore(world.keys.schedule_next, "a") == pause.until_ms


def test_a_persons_pause_is_never_replaced_or_ended(world: StoreCalls) -> None:
    """Neither by a suspension nor by its end."""
    define(world, "a")
    world.run(Control(world.keys).pause(["a"], reason="audit", by="alice"))

    assert suspend(world, "a") == [SuspendCode.HELD]
    assert world.run(Plugins(world.keys).release(["a"], by=BY)) == [SuspendCode.RUNNING]
    pause = pause_of(world, "a")
    assert pause is not None
    assert (pause.reason, pause.by) == ("audit", "alice")


def test_a_pause_that_is_over_stands_in_nobodys_way(world: StoreCalls) -> None:
    """It ended by itself, although nobody has looked since."""
    define(world, "a")
    stored = '{"reason":"","by":"alice","at_ms":1,"until_ms":2}'
    world.raw.hset(world.keys.schedule_paused, "a", stored)

    assert suspend(world, "a") == [SuspendCode.SUSPENDED]


@on_both("schedule_release", "schedule_suspend")
def test_what_was_suspended_is_released_by_the_same_plugin_only(world: StoreCalls) -> None:
    """Another plugin that works says nothing about this one."""
    define(world, "a")
    suspend(world, "a")
    calls = Plugins(world.keys)

    assert world.run(calls.release(["a"], by="plugin other")) == [SuspendCode.RUNNING]
    assert world.twice(calls.release(["a", "b"], by=BY)) == (
        [SuspendCode.RELEASED, SuspendCode.UNKNOWN],
        [SuspendCode.RUNNING, SuspendCode.UNKNOWN],
    )
    assert pause_of(world, "a") is None


def test_the_time_of_a_suspension_does_not_count_as_missed(world: StoreCalls) -> None:
    """As with a pause: the watermark moves to the moment of the release."""
    define(world, "a")
    world.raw.hset(world.keys.schedule_mark, "a", 5)
    world.raw.zadd(world.keys.schedule_next, {"a": 9e12})  # the leader looked: nothing was due before
    suspend(world, "a")
    world.run(Plugins(world.keys).release(["a"], by=BY))

    assert int(world.raw.hget(world.keys.schedule_mark, "a") or 0) > 1_600_000_000_000


def test_a_later_suspension_by_the_same_plugin_replaces_the_earlier(world: StoreCalls) -> None:
    """Its newest reason counts, and its longer time."""
    define(world, "a")
    suspend(world, "a")
    suspend(world, "a", reason="still", for_ms=2 * MINUTE)
    pause = pause_of(world, "a")

    assert pause is not None
    assert pause.reason == "still"


@pytest.mark.parametrize("name", ["schedule_suspend", "schedule_release"])
def test_a_foreign_key_stops_a_suspension_before_it_writes(world: StoreCalls, name: str) -> None:
    """Half of it would hold a schedule that nobody plans."""
    define(world, "a")
    world.raw.delete(world.keys.schedule_paused)
    world.raw.rpush(world.keys.schedule_paused, "x")
    args: dict[str, object] = {"by": BY, "ids": ["a"]}
    if name == "schedule_suspend":
        args |= {"reason": "", "for_ms": MINUTE}

    with pytest.raises(StoreRefusedError):
        world.run(script(name).call(keys={"prefix": world.keys.prefix}, args=args, parse=lambda reply: reply))


@on_both("plugin_read", "plugin_write")
def test_a_record_is_read_as_it_was_written(world: StoreCalls) -> None:
    """With the time at which Redis took it."""
    calls = Plugins(world.keys)
    record = PluginRecord(plugin="aws", digest="d1", state="ERROR", reason="ä", metadata={"a": [1]}, failures=2)
    assert world.twice(calls.write(record)) == (True, True)
    (found,) = world.run(calls.read())

    assert found.at_ms > 1_600_000_000_000
    assert found == msgspec.structs.replace(record, at_ms=found.at_ms)
    assert world.run(calls.read_one("aws", "d1")) == found
    assert world.run(calls.read_one("aws", "d2")) is None
    assert 0 < world.raw.pttl(world.keys.plugins) <= 7 * 86_400_000


def test_too_much_metadata_is_left_out(world: StoreCalls) -> None:
    """A plugin decides what it says, not how much of Redis it takes."""
    calls = Plugins(world.keys)
    world.run(
        calls.write(PluginRecord(plugin="aws", digest="d", state="ACTIVE", metadata={"x": "y" * RECORD_BYTES_MAX}))
    )
    (found,) = world.run(calls.read())

    assert found.metadata == {"omitted": "it is over 16 KiB"}


def test_of_too_many_records_the_oldest_goes(world: StoreCalls) -> None:
    """Options that change with each run must not fill Redis."""

    def write(name: str) -> int:
        args = {"field": f"aws {name}", "json": "{}", "most": 2, "ttl_ms": 1000}
        return int(world.run(script("plugin_write").call(keys={"plugins": world.keys.plugins}, args=args, parse=int)))

    world.raw.hset(world.keys.plugins, "aws old", "1 {}")
    assert [write("b"), write("c")] == [1, 0]
    assert set(world.raw.hkeys(world.keys.plugins)) == {b"aws b", b"aws c"}


def test_a_record_of_a_later_version_is_passed_over(world: StoreCalls) -> None:
    """Two versions run side by side while a deploy rolls."""
    world.raw.hset(world.keys.plugins, "aws d", '1 {"plugin":7}')

    assert world.run(Plugins(world.keys).read()) == []


@pytest.mark.parametrize("at_ms", ["x", "", "9" * 5000])
def test_a_record_of_a_time_that_nobody_writes_hides_no_other(world: StoreCalls, at_ms: str) -> None:
    """It is shown without one."""
    plugins = Plugins(world.keys)
    for name in ("one", "two"):
        world.run(plugins.write(PluginRecord(plugin=name, digest="d", state="OK")))
    _, _, body = world.raw.hget(world.keys.plugins, "one d").decode().partition(" ")
    world.raw.hset(world.keys.plugins, "one d", f"{at_ms} {body}")

    one, two = world.run(plugins.read())
    assert (one.plugin, one.at_ms, two.plugin) == ("one", 0, "two")
    assert two.at_ms > 0
