"""Commands of people on their way to a replica, and what became of them."""

from __future__ import annotations

import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.store.election import commands as module
from supervisor.store.election.commands import Answer, Command, Commands, Word, WorkerReport
from tests.kit.builders import StoreCalls
from tests.kit.servers import on_both

R = "web-1.abc"
QUIET = Command(word=Word.QUIET, slot="worker-io-0", generation=3, by="me@host")


@pytest.fixture
def commands(world: StoreCalls) -> Commands:
    """Return the calls of one cluster."""
    return Commands(world.keys)


@on_both("command_answer", "command_read", "command_send", "command_take")
def test_a_command_waits_until_it_is_answered(world: StoreCalls, commands: Commands) -> None:
    """An agent that dies between taking and answering leaves it to its successor."""
    assert world.run(commands.send(R, "c1", QUIET))
    assert world.run(commands.send("other.abc", "c2", QUIET))
    first = world.run(commands.take(R))

    assert first == world.run(commands.take(R))
    assert [name for name, _ in first] == ["c1"]

    world.twice(commands.answer(R, "c1", Answer(is_done=True, workers=(WORKER,))))
    assert world.run(commands.take(R)) == []
    assert world.run(commands.read(["c1", "c2"])) == [Answer(is_done=True, workers=(WORKER,)), None]


WORKER = WorkerReport(slot="worker-io-0", pool="io", state="running", generation=3, pid=7, busy=1, done=9)


def test_a_command_sent_twice_is_one(world: StoreCalls, commands: Commands) -> None:
    """The reply to the first sending may have been lost; also when it was carried out meanwhile."""
    assert world.twice(commands.send(R, "c1", QUIET)) == (True, True)
    assert len(world.run(commands.take(R))) == 1

    world.run(commands.answer(R, "c1", Answer(is_done=True)))
    assert world.run(commands.send(R, "c1", QUIET))
    assert world.run(commands.take(R)) == []


def test_a_command_that_nobody_takes_is_forgotten(
    world: StoreCalls, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that comes back tomorrow must not stop because of yesterday."""
    world.run(commands.send(R, "c1", QUIET))
    assert 0 < world.raw.pttl(f"{world.keys.commands}{R}") <= module.WAITS_MS
    monkeypatch.setattr(module, "WAITS_MS", 0)
    world.raw.persist(f"{world.keys.commands}{R}")
    world.raw.hset(f"{world.keys.commands}{R}", "old", "1000 2000 {}")

    assert [name for name, _ in world.run(commands.take(R))] == ["c1"]
    assert world.raw.hkeys(f"{world.keys.commands}{R}") == [b"c1"]


def test_a_replica_that_takes_nothing_is_full_at_last(world: StoreCalls, commands: Commands) -> None:
    """Every queue has a limit."""
    sent = [world.run(commands.send(R, f"c{number}", QUIET)) for number in range(101)]

    assert sent == [True] * 100 + [False]


def test_commands_are_taken_in_the_order_of_their_sending(world: StoreCalls, commands: Commands) -> None:
    """Quiet and resume undo each other."""
    key = f"{world.keys.commands}{R}"
    far = 10**14
    for name, at_ms in (("b", 2000), ("a", 3000), ("c", 1000)):
        world.raw.hset(key, name, f"{at_ms} {far} {{}}")

    assert [name for name, _ in world.run(commands.take(R))] == ["c", "b", "a"]


@pytest.mark.parametrize("name", [b"", b"\xff", b"a b", "ä".encode()])
def test_a_command_that_no_answer_could_name_holds_up_no_other(
    world: StoreCalls, commands: Commands, name: bytes
) -> None:
    """Its answer was refused, or removed another one: it was carried out at each look, and those behind it never."""
    key = f"{world.keys.commands}{R}"
    world.raw.hset(key, name, f"1 {10**14} {{}}")
    world.run(commands.send(R, "c1", QUIET))

    assert [each for each, _ in world.run(commands.take(R))] == ["c1"]
    assert world.raw.hkeys(key) == [b"c1"]


def test_nothing_is_left_behind_for_ever(world: StoreCalls, commands: Commands) -> None:
    """Replicas come and go under new ids."""
    world.run(commands.send(R, "c1", QUIET))
    world.run(commands.answer(R, "c2", Answer(is_done=False, reason="no")))

    assert all(world.raw.pttl(key) > 0 for key in world.raw.keys(f"{world.keys.prefix}*"))


def test_a_command_without_a_name_is_refused(world: StoreCalls, commands: Commands) -> None:
    """Before the first write."""
    with pytest.raises(StoreRefusedError):
        world.run(commands.send("", "c1", QUIET))
    assert world.raw.keys(f"{world.keys.prefix}*") == []
