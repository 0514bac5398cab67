"""Every key of the key table holds another type, in turn: what needs it stops, and no more than that."""

from __future__ import annotations

import pytest

from supervisor.store.key_table import KEY_TABLE, PIECES
from supervisor.store.schedules.reads import Views
from supervisor.testing.cluster import Cluster, ClusterFactory
from tests.integration.roles.scheduler.planned import EPOCH_MS, every, planned
from tests.kit.shares import share

ROWS = {row.name: row for row in KEY_TABLE if row.type not in {"none", "channel"}}
OF_OTHERS = ("q:", "leadership:")
"""Keys of one queue, which tests of refused plans spoil, and of a lease of programs."""
NAMES = [name for name, row in ROWS.items() if not row.pattern.startswith(OF_OTHERS)]
OF_THE_LEASE = {"lease", "genesis"}
OF_THE_PLAN = {
    "queues", "schedule_def", "schedule_invalid", "schedule_live", "schedule_mark", "schedule_next", "schedule_paused",
    "schedule_state", "schedule_wait",
}  # fmt: skip
"""What no schedule fires without, as docs/guarantees.md says."""
SCHEDULES = {
    f"s{n}": {"job": "probe.tick", "every": "10s", "overlap": overlap}
    for n, overlap in enumerate(["allow", "terminate_other"])
}


def spoil(cluster: Cluster, name: str) -> None:
    """Put another program's key in place of the one of that name."""
    server = cluster._world.server
    key = server.keys.prefix + "x".join(PIECES[name])
    server.store.raw.delete(key)
    if ROWS[name].type == "string":
        server.store.raw.hset(key, "another", "program's")
    else:
        server.store.raw.set(key, "another program's")


def entered(cluster: Cluster) -> int:
    """Return how many runs were ever added to the queue."""
    server = cluster._world.server
    return int(server.store.raw.hget(server.keys.queue("default").stat, "in") or 0)


@pytest.mark.share(3)
@pytest.mark.parametrize("name", share(NAMES, 3))
def test_a_foreign_key_stops_no_schedule_unless_it_is_of_the_lease_or_the_plan(name: str) -> None:
    """Keys that only inform (events, candidates, changes, decisions, expectations) are left out, and told."""
    with ClusterFactory() as factory:
        cluster = factory(replicas=1, schedules=SCHEDULES, lease="5s")
        cluster.advance("25s")
        leader, before = cluster.leader, entered(cluster)
        spoil(cluster, name)
        cluster.advance("16s")

        assert (cluster.leader == leader) is (name not in OF_THE_LEASE)
        assert (entered(cluster) - before == 4) is (name not in OF_THE_LEASE | OF_THE_PLAN)


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("name", "event", "said"),
    [
        ("events", "lease_unreadable", {"fields": ["events"]}),
        ("candidates", "duty_refused", {"duty": "candidates"}),
        ("schedule_changes", "reading_refused", {"what": "changes"}),
        ("schedule_log", "reading_refused", {"what": "log"}),
        ("schedule_promised", "reading_refused", {"what": "expectations"}),
        ("schedule_expected", "reading_refused", {"what": "expectations"}),
    ],
)
def test_a_foreign_key_that_only_informs_is_told(name: str, event: str, said: dict[str, object]) -> None:
    """Somebody has to clear it away, and nothing else shows that it is there."""
    with ClusterFactory() as factory:
        cluster = factory(replicas=2, schedules=SCHEDULES, lease="30s")
        cluster.advance("25s")
        spoil(cluster, name)
        cluster.advance("6m")
        told = [line.fields for line in cluster._world.history if line.event == event]

        assert [fields for fields in told if said.items() <= fields.items()]


@pytest.mark.parametrize("name", ["events", "candidates"])
def test_a_dead_leader_is_followed_though_the_record_has_a_foreign_key_beside_it(name: str) -> None:
    """The standby hears nothing, and its watch of the record does not begin anew with each refusal."""
    with ClusterFactory() as factory:
        cluster = factory(replicas=2, schedules=SCHEDULES, lease="5s")
        cluster.advance("25s")
        leader = cluster.leader
        spoil(cluster, name)
        cluster.advance("20s")
        assert leader is not None
        cluster.kill(leader)
        cluster.advance("15s")

        assert cluster.leader not in {None, leader}


DIGITS = b"9" * 5000
"""A number that Python refuses to read."""


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("line", "value"), [(0, DIGITS), (0, b"9" * 16), (1, b"\xff"), (1, b"x"), (2, b"\xff\xfe"), (2, DIGITS)]
)
def test_a_line_of_a_definition_that_nobody_writes_stops_no_other_schedule(line: int, value: bytes) -> None:
    """Definitions are read a page at a time: a page that could not be read stopped every schedule of the cluster."""
    with ClusterFactory() as factory:
        cluster = factory(replicas=1, schedules=SCHEDULES, lease="5s")
        cluster.advance("25s")
        server, before = cluster._world.server, entered(cluster)
        raw, keys = server.store.raw, server.keys
        lines = raw.hget(keys.schedule_def, "s0").split(b"\n", 3)
        lines[line] = value
        raw.hset(keys.schedule_def, "s0", b"\n".join(lines))
        raw.zadd(keys.schedule_next, {"s0": 0})
        cluster.advance("26s")

        assert entered(cluster) - before >= 2
        shown = {each.id for each in server.execute(Views(keys).browse()).items}
        assert shown == set(SCHEDULES)


@pytest.mark.parametrize("key", ["schedule_state", "schedule_expected"])
def test_numbers_of_thousands_of_digits_count_as_none(key: str) -> None:
    """Wherever several stand in one row."""
    with ClusterFactory() as factory:
        cluster = factory(replicas=1, schedules=SCHEDULES, lease="5s")
        cluster.advance("25s")
        server = cluster._world.server
        stretch = b" ".join([DIGITS] * 5)
        row = {"schedule_state": b" ".join([DIGITS] * 12) + b"\nF" + stretch, "schedule_expected": stretch}[key]
        server.store.raw.hset(server.keys.prefix + PIECES[key][0], "s0", row)

        (shown,) = server.execute(Views(server.keys).inspect(["s0"]))
        assert shown.record is not None
        assert (shown.record.completed_ms, shown.record.expected) == (0, None)


@pytest.mark.parametrize("due", ["9" * 17, str(EPOCH_MS + 35_000), "-5", "1.5"])
def test_what_a_pause_in_other_json_owes_is_read_alike_by_leader_and_script(due: str) -> None:
    """Else a pause that is over stays: the leader fires what the script takes for paused."""
    with planned() as plan:
        plan.upsert(every(10, overlap="allow", missed="all"))
        plan.until(15)
        plan.leader.kill_scheduler()
        plan.until(36)
        pause = f'{{"until_ms" : {EPOCH_MS + 35_000}, "due_ms" : {due}}}'
        plan.server.store.raw.hset(plan.keys.schedule_paused, "s", pause)
        plan.leader.start_scheduler()
        plan.until(55)
        assert plan.fired()[-2:] == [40, 50]
        assert not plan.server.store.fields(plan.keys.schedule_paused)
