"""Everything the parent asks of the operating system, in one place, so that tests can replace it."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
from pathlib import Path
from signal import Signals

from supervisor.clock import Clock
from supervisor.process import spawn
from supervisor.process.system import linux, reaper, signals

_TO_ACT_ON = frozenset({Signals.SIGTERM, Signals.SIGQUIT, Signals.SIGABRT})


class Kernel:
    """Processes and signals of this machine."""

    fork = staticmethod(spawn.fork)
    kill = staticmethod(reaper.kill)
    reap = staticmethod(reaper.reap)
    wait = staticmethod(signals.take)
    processor_wait = staticmethod(linux.processor_wait)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._memory_kills_file = memory_kills_file()

    def prepare(self) -> None:
        """Block signals, adopt orphans, and stop the garbage collector, which would unshare every child's memory."""
        signals.block()
        if sys.stderr is not None:
            faulthandler.enable()  # the watchdog of systemd ends a hung parent by SIGABRT; this says where it hung
            linux.widen_signal_stack()  # children inherit it, the check of a configuration among them
        linux.adopt_orphans()
        gc.disable()

    def send(self, pid: int, number: Signals) -> None:
        """Signal one child; a stopped one goes on, because until then it cannot act on the signal."""
        reaper.send(pid, number)
        if number in _TO_ACT_ON:
            reaper.send(pid, Signals.SIGCONT)

    def sweep(self, until_ns: int) -> int:
        """End every descendant that is left; return how many resisted."""
        return reaper.sweep(os.getpid(), elapsed_ns=self._clock.elapsed_ns, until_ns=until_ns)

    def pressure_percent(self) -> float:
        """Return the percentage of the last ten seconds in which something waited for a processor."""
        return processor_pressure_percent()

    def memory_kills(self) -> int | None:
        """Return the number of out-of-memory kills in our control group so far; None: nobody counts."""
        return memory_kills(self._memory_kills_file)


MOUNT = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def _own(controller: str, proc: Path) -> str:
    """Return the path of our group in a hierarchy: ``memory`` of version 1, or an empty name for version 2."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return "/"
    for line in lines:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return "/"


def _files(mount: Path, path: str, name: str) -> tuple[Path, ...]:
    """Return where a file of our group may be: in a container the path can be the host's, and the mount our own."""
    return mount / path.lstrip("/") / name, mount / name


def memory_kills_file(mount: Path = MOUNT, proc: Path = PROC) -> Path | None:
    """Return the file that counts processes of our group which the kernel killed for memory; None without one."""
    files = (
        *_files(mount, _own("", proc), "memory.events"),
        *_files(mount / "memory", _own("memory", proc), "memory.oom_control"),
        proc / "vmstat",  # of the whole machine, where we are in no group
    )
    return next((path for path in files if memory_kills(path) is not None), None)


def memory_kills(path: Path | None) -> int | None:
    """Return the count in such a file; None where there is none."""
    if path is None:
        return None
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    counts = (line.partition(" ")[2] for line in lines if line.startswith("oom_kill "))
    return next((int(count) for count in counts), None)


def processor_pressure_percent(mount: Path = MOUNT, proc: Path = PROC) -> float:
    """Return the share of the last ten seconds in which something waited for a processor; 0 where unknown."""
    found = 0.0
    # The machine's own pressure does not show a quota of our group.
    for path in (proc / "pressure/cpu", *_files(mount, _own("", proc), "cpu.pressure")):
        try:
            first = path.read_text().splitlines()[0]
        except (OSError, IndexError):
            continue  # a kernel without pressure information, or a group of version 1
        fields = dict(field.split("=") for field in first.split()[1:])
        found = max(found, float(fields.get("avg10", "0")))
    return found
