"""``make bench-election``: the goals of the election, measured on a real server, never part of the tests.

The clock of a row starts at the blow (signal, SIGSTOP, first answer of Redis) and ends when Redis
accepted a fire, by its own log. The server is durable (it syncs each write). Figures depend on the
machine and on what else it does.
"""

from __future__ import annotations

import sys

from bench import chaos_rounds, electors, failovers, idle, succession, takeovers
from bench.program import run
from bench.table import Goal, Row

ROWS = (
    Row(
        name="handover",
        title="clean hand-over: release sent to the other may fire",
        measure=electors.clean_hand_over,
        rounds=200,
        p50_max=2,
        p99_max=25,
    ),
    Row(
        name="sigterm",
        title="SIGTERM to the other's first accepted fire, 100k schedules",
        measure=succession.sigterm,
        rounds=20,
        p99_max=250,
        parts=(Goal(name=succession.ELECTION, title="of which election", p99_max=50),),
    ),
    Row(
        name="killed",
        title="whole supervisor killed -9, host alive, presence on",
        measure=takeovers.supervisor_killed,
        rounds=20,
        p99_max=750,
    ),
    Row(
        name="scheduler",
        title="scheduler child killed -9 to someone fires again",
        measure=takeovers.scheduler_killed,
        rounds=20,
        p50_max=100,
        parts=(Goal(name=takeovers.AGAIN, title="… the second time within a minute"),),
    ),
    Row(
        name="host",
        title="host lost, default settings",
        measure=takeovers.host_lost_default,
        rounds=8,
        p99_max=5100,
    ),
    Row(
        name="host-fast",
        title="host lost, fast settings",
        measure=takeovers.host_lost_fast,
        rounds=12,
        p99_max=2100,
    ),
    Row(
        name="redis",
        title="Redis back after an outage with its data to first fire",
        measure=takeovers.redis_back,
        rounds=12,
        p99_max=500,
        parts=(Goal(name=takeovers.CHANGED, title="outages that changed the term", p99_max=0, unit=""),),
    ),
    Row(
        name="sentinel",
        title="Sentinel fail-over: promotion to first accepted fire",
        measure=failovers.sentinel,
        rounds=8,
        p99_max=1000,
        parts=(failovers.PART,),
    ),
    Row(
        name="idle",
        title="idle round trips of the election: leader",
        measure=idle.round_trips,
        rounds=3,
        p50_max=1.1,
        unit="/s",
        parts=(
            Goal(name=idle.STANDBY, title="… standby", p50_max=0.45, unit="/s"),
            Goal(name=idle.WITH_PRESENCE, title="… the busier one with presence", p50_max=4, unit="/s"),
            Goal(name=idle.AGENT_LEADER, title="… leader, with the agent's watch of worker sessions", unit="/s"),
            Goal(name=idle.AGENT_STANDBY, title="… standby, with it", unit="/s"),
        ),
    ),
    Row(
        name="chaos",
        title="double or lost runs, real-process rounds",
        measure=chaos_rounds.lost_or_doubled,
        rounds=200,
        p99_max=0,
        unit="",
        is_optional=True,
    ),
)


if __name__ == "__main__":
    sys.exit(run("bench.election", __doc__, ROWS))
