"""The same blows to other process managers, in the same run: gunicorn, uvicorn, circus, supervisord.

``python -m bench.supervision_peers BIN``: BIN is the folder of an environment that has them (``make bench-supervision``
makes one). Each starts four workers that do next to nothing. What cannot be told of one is left empty.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.supervision_world import configuration, is_alive
from tests.kit.waiting import wait_until

WORKERS = 4
ROUNDS = 5
ORPHANS_S_MAX = 3.0
STOP_S_MAX = 15.0
SLEEPER = "import signal; signal.pause()"
APP = "async def app(scope, receive, send): pass\n\ndef wsgi(environ, start_response): pass\n"


@dataclass(frozen=True, slots=True)
class Peer:
    """How to start one of them so that it has four workers."""

    name: str
    command: Callable[[Path, Path], Sequence[str]]  # environment's bin, working directory
    processes: int  # children when all are up
    settle_s: float = 1.5  # it takes a child for started only after that


def _gunicorn(bin_: Path, _: Path) -> Sequence[str]:
    return [str(bin_ / "gunicorn"), "-w", str(WORKERS), "-b", "127.0.0.1:0", "--log-level", "error", "app:wsgi"]


def _uvicorn(bin_: Path, _: Path) -> Sequence[str]:
    return [str(bin_ / "uvicorn"), "--workers", str(WORKERS), "--port", "0", "--log-level", "error", "app:app"]


def _circus(bin_: Path, place: Path) -> Sequence[str]:
    text = f"[circus]\ncheck_delay = 1\n[watcher:w]\ncmd = {sys.executable} -c '{SLEEPER}'\nnumprocesses = {WORKERS}\n"
    (place / "circus.ini").write_text(text)
    return [str(bin_ / "circusd"), "--log-level", "error", "circus.ini"]


def _supervisord(bin_: Path, place: Path) -> Sequence[str]:
    program = f'[program:w]\ncommand = {sys.executable} -c "{SLEEPER}"\nprocess_name = w%(process_num)s\n'
    program += f"numprocs = {WORKERS}\n"
    (place / "s.conf").write_text(
        "[supervisord]\nnodaemon = true\nlogfile = /dev/null\nlogfile_maxbytes = 0\n" + program
    )
    return [str(bin_ / "supervisord"), "-c", "s.conf"]


def _tenure(_: Path, place: Path) -> Sequence[str]:
    (place / "tenure.yaml").write_text(configuration(workers=WORKERS).replace("bench_jobs, ", ""))
    return [sys.executable, "-m", "supervisor", "run", "--config", "tenure.yaml"]


PEERS = (
    Peer("tenure", _tenure, WORKERS + 4),
    Peer("gunicorn", _gunicorn, WORKERS),
    Peer("uvicorn", _uvicorn, WORKERS + 1),  # and a resource tracker
    Peer("circus", _circus, WORKERS),
    Peer("supervisord", _supervisord, WORKERS),
)
LINES = (
    "worker killed -9 → a new one",
    "SIGTERM → gone",
    "parent killed -9 → 0 children",
    "PSS of the parent",
    "its idle CPU",
)


def main() -> int:
    """Measure each and print one table."""
    bin_ = Path(sys.argv[1]).resolve()
    table = Table("", *(peer.name for peer in PEERS), title=f"{WORKERS} workers, medians of {ROUNDS}")
    found: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="tenure-peers-") as directory:
        for peer in track(PEERS, description="peers", console=Console(stderr=True)):
            place = Path(directory) / peer.name
            place.mkdir()
            (place / "app.py").write_text(APP)
            found.append(_measure(peer, bin_, place))
    for number, line in enumerate(LINES):
        table.add_row(line, *(cells[number] for cells in found))
    Console(width=None if Console().is_terminal else 140).print(table)
    return 0


def _measure(peer: Peer, bin_: Path, place: Path) -> list[str]:
    replaced, stopped, orphaned, memory, cpu = [], [], [], [], []
    for _ in range(ROUNDS):
        process = _start(peer, bin_, place)
        memory.append(psutil.Process(process.pid).memory_full_info().pss / (1 << 20))
        cpu.append(_idle_percent(process.pid))
        replaced.append(_replaced_ms(process.pid))
        stopped.append(_ended_ms(process, signal.SIGTERM))
        process = _start(peer, bin_, place)
        orphaned.append(_ended_ms(process, signal.SIGKILL))
    return [
        f"{median(replaced):.0f} ms",
        _within(stopped, STOP_S_MAX),
        _within(orphaned, ORPHANS_S_MAX),
        f"{median(memory):.1f} MiB",
        f"{median(cpu):.2f} %",
    ]


def _within(found_ms: list[float], bound_s: float) -> str:
    beyond = sum(each >= bound_s * 1e3 for each in found_ms)
    return f"{median(found_ms):.0f} ms" if not beyond else f"{beyond} of {len(found_ms)} not after {bound_s:g} s"


def _start(peer: Peer, bin_: Path, place: Path) -> subprocess.Popen[bytes]:
    # For us alone: supervisord has a package of the same name as ours.
    ours = {"PYTHONPATH": str(Path(__file__).parents[1])} if peer.command is _tenure else {}
    environ = {**os.environ, **ours}
    process = subprocess.Popen(
        peer.command(bin_, place), cwd=place, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(_children(process.pid)) >= peer.processes, what=f"{peer.name} to start")
    time.sleep(peer.settle_s)
    assert process.poll() is None, f"{peer.name} ended by itself with {process.returncode}"
    return process


def _children(pid: int) -> set[int]:
    try:
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    except OSError:
        return set()


def _idle_percent(pid: int) -> float:
    before = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    time.sleep(2)
    return (int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) - before) / 2e9 * 100


def _replaced_ms(parent: int) -> float:
    before = _children(parent)
    struck = time.perf_counter()
    os.kill(max(before), signal.SIGKILL)
    wait_until(lambda: _children(parent) - before, what="a new child")
    return (time.perf_counter() - struck) * 1e3


def _ended_ms(process: subprocess.Popen[bytes], number: signal.Signals) -> float:
    """Signal the parent; return when it and every child of it are gone, or how long that was waited for."""
    family = psutil.Process(process.pid).children(recursive=True)
    struck = time.perf_counter()
    process.send_signal(number)
    bound_s = ORPHANS_S_MAX if number is signal.SIGKILL else STOP_S_MAX
    while time.perf_counter() - struck < bound_s:
        if process.poll() is not None and not any(is_alive(each) for each in family):
            break
        time.sleep(0.002)
    took_ms = (time.perf_counter() - struck) * 1e3
    for each in (psutil.Process(process.pid), *family) if process.poll() is None else family:
        if is_alive(each):
            each.kill()
    process.wait()
    return took_ms


if __name__ == "__main__":
    sys.exit(main())
