"""Everything the parent asks of the operating system, in one place, so that tests can replace it."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
from collections.abc import Container
from signal import Signals
from typing import Protocol

from supervisor.clock import Clock
from supervisor.process import spawn
from supervisor.process.slots import ChildIdentity, Log, SlotSpec
from supervisor.process.system import cgroup, linux, reaper, signals
from supervisor.process.system.linux import Wait
from supervisor.process.system.reaper import Ended
from supervisor.process.system.signals import Received

_TO_ACT_ON = frozenset({Signals.SIGTERM, Signals.SIGQUIT, Signals.SIGABRT})


class Kernel(Protocol):
    """Processes and signals."""

    def prepare(self) -> None:
        """Make this process fit to be the parent."""
        ...

    def fork(self, spec: SlotSpec, launch: ChildIdentity, log: Log) -> int:
        """Start a child; OSError when that is not possible now."""
        ...

    def send(self, pid: int, number: Signals) -> None:
        """Signal one child."""
        ...

    def kill(self, pid: int) -> None:
        """SIGKILL one child and its group."""
        ...

    def reap(self, ours: Container[int]) -> list[Ended]:
        """Collect dead children."""
        ...

    def wait(self, timeout_ns: int) -> Received | None:
        """Wait for a signal."""
        ...

    def sweep(self, until_ns: int) -> int:
        """End every descendant that is left; return how many resisted."""
        ...

    def pressure_percent(self) -> float:
        """Return the percentage of the last ten seconds in which something waited for a processor."""
        ...

    def processor_wait(self, pid: int) -> Wait:
        """Return one child's wait for a processor."""
        ...

    def memory_kills(self) -> int | None:
        """Return the number of out-of-memory kills in our control group so far; None: nobody counts."""
        ...


class LinuxKernel:
    """The real one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._memory_kills_file = cgroup.memory_kills_file()

    def prepare(self) -> None:
        """Block signals, adopt orphans, and stop the garbage collector, which would unshare every child's memory."""
        signals.block()
        if sys.stderr is not None:
            faulthandler.enable()  # the watchdog of systemd ends a hung parent by SIGABRT; this says where it hung
        linux.adopt_orphans()
        gc.disable()

    def fork(self, spec: SlotSpec, launch: ChildIdentity, log: Log) -> int:
        """Start a child."""
        return spawn.fork(spec, launch, log)

    def send(self, pid: int, number: Signals) -> None:
        """Signal one child; a stopped one goes on, because until then it cannot act on the signal."""
        reaper.send(pid, number)
        if number in _TO_ACT_ON:
            reaper.send(pid, Signals.SIGCONT)

    def kill(self, pid: int) -> None:
        """SIGKILL one child and its group."""
        reaper.kill(pid)

    def reap(self, ours: Container[int]) -> list[Ended]:
        """Collect dead children."""
        return reaper.reap(ours)

    def wait(self, timeout_ns: int) -> Received | None:
        """Wait for a signal."""
        return signals.take(timeout_ns)

    def sweep(self, until_ns: int) -> int:
        """End every descendant that is left."""
        return reaper.sweep(os.getpid(), elapsed_ns=self._clock.elapsed_ns, until_ns=until_ns)

    def pressure_percent(self) -> float:
        """Read the kernel's pressure information."""
        return cgroup.processor_pressure_percent()

    def processor_wait(self, pid: int) -> Wait:
        """Read the kernel's account of the process."""
        return linux.processor_wait(pid)

    def memory_kills(self) -> int | None:
        """Read the count of the control group, or of the machine."""
        return cgroup.memory_kills(self._memory_kills_file)
