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
        "handover",
        "clean hand-over: release sent to the other may fire",
        electors.clean_hand_over,
        200,
        p50_max=2,
        p99_max=25,
    ),
    Row(
        "sigterm",
        "SIGTERM to the other's first accepted fire, 100k schedules",
        succession.sigterm,
        20,
        p99_max=250,
        parts=(Goal(succession.ELECTION, "of which election", p99_max=50),),
    ),
    Row("killed", "whole supervisor killed -9, host alive, presence on", takeovers.supervisor_killed, 20, p99_max=750),
    Row(
        "scheduler",
        "scheduler child killed -9 to someone fires again",
        takeovers.scheduler_killed,
        20,
        p50_max=100,
        parts=(Goal(takeovers.AGAIN, "… the second time within a minute"),),
    ),
    Row("host", "host lost, default settings", takeovers.host_lost_default, 8, p99_max=5100),
    Row("host-fast", "host lost, fast settings", takeovers.host_lost_fast, 12, p99_max=2100),
    Row(
        "redis",
        "Redis back after an outage with its data to first fire",
        takeovers.redis_back,
        12,
        p99_max=500,
        parts=(Goal(takeovers.CHANGED, "outages that changed the term", p99_max=0, unit=""),),
    ),
    Row(
        "sentinel",
        "Sentinel fail-over: promotion to first accepted fire",
        failovers.sentinel,
        8,
        p99_max=1000,
        parts=(failovers.PART,),
    ),
    Row(
        "idle",
        "idle round trips of the election: leader",
        idle.round_trips,
        3,
        p50_max=1.1,
        unit="/s",
        parts=(
            Goal(idle.STANDBY, "… standby", p50_max=0.45, unit="/s"),
            Goal(idle.WITH_PRESENCE, "… the busier one with presence", p50_max=4, unit="/s"),
            Goal(idle.AGENT_LEADER, "… leader, with the agent's watch of worker sessions", unit="/s"),
            Goal(idle.AGENT_STANDBY, "… standby, with it", unit="/s"),
        ),
    ),
    Row(
        "chaos",
        "double or lost runs, real-process rounds",
        chaos_rounds.lost_or_doubled,
        200,
        p99_max=0,
        unit="",
        is_optional=True,
    ),
)


if __name__ == "__main__":
    sys.exit(run("bench.election", __doc__, ROWS))
