"""``make bench-election``: the goals of the election, measured on a real server, never part of the tests.

The clock of a row starts at the blow (signal, SIGSTOP, first answer of Redis) and ends when Redis
accepted a fire, by its own log. The server is durable (it syncs each write). Figures depend on the
machine and on what else it does.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import chaos_rounds, electors, failovers, idle, succession, takeovers
from bench.table import Goal, Result, Row, print_json, print_results

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


def main() -> int:
    """Measure the rows that were asked for and print one table."""
    options = _options()
    asked = options.rows.split(",") if options.rows else [row.name for row in ROWS if not row.is_optional]
    rows = [row for row in ROWS if row.name in asked or (options.chaos and row.name == "chaos")]
    results: list[Result] = []
    # On standard error, so that --json leaves standard output to the program that reads it.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for row in rows:
            results += _run(row, options.rounds or row.rounds, progress)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    (print_json if options.json else print_results)(results)
    return int(any(result.verdict not in {"", "holds"} for result in results))


def _options() -> argparse.Namespace:
    names = ", ".join(row.name for row in ROWS)
    parser = argparse.ArgumentParser(prog="python -m bench.election", description=__doc__)
    parser.add_argument("--rows", help=f"only these, by comma: {names}")
    parser.add_argument("--rounds", type=int, help="of each row, instead of its own number")
    parser.add_argument("--chaos", action="store_true", help="also 200 rounds of random kills: about five minutes")
    parser.add_argument("--json", action="store_true", help="print every sample")
    options = parser.parse_args()
    unknown = set((options.rows or "").split(",")) - {"", *(row.name for row in ROWS)}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {names}")
    return options


def _run(row: Row, rounds: int, progress: Progress) -> list[Result]:
    """Measure one row; a failure costs that row only, and is shown in its place."""
    task = progress.add_task(row.name, total=rounds)
    with tempfile.TemporaryDirectory(prefix="tenure-bench-", ignore_cleanup_errors=True) as directory:
        try:
            samples = row.measure(Path(directory) / "b", rounds, lambda: progress.advance(task))
        except AssertionError as error:
            failure = " ".join(str(error).split())
            return [Result(line, failure=failure) for line in (row, *row.parts)]
    parts = [Result(part, type(samples)(samples.parts[part.name])) for part in row.parts]
    return [Result(row, samples), *parts]


if __name__ == "__main__":
    sys.exit(main())
