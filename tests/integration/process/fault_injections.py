"""Ways in which a test makes the world of a toy tree a worse place. Each takes the directory of the test."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from supervisor.core.supervision import shutdown
from supervisor.core.units import SECOND_NS
from supervisor.process import spawn
from supervisor.process.system import linux, systemd

NOBODY = 65534
PR_SET_DUMPABLE = 4


def hostile_starter(_: Path) -> None:
    """Starts the tree with signals blocked and ignored, as some launchers do."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGUSR1, signal.SIGTERM})


def inheritable_descriptors(_: Path) -> None:
    """Opens things that no child may keep."""
    for _ in range(20):
        os.set_inheritable(os.open("/dev/zero", os.O_RDONLY), True)  # noqa: FBT003


def seeded_generators(_: Path) -> None:
    """Seeds generators of random numbers, Python's and what stands for numpy's, as a module of jobs may."""
    random.seed(7)
    module = ModuleType("numpy.random")
    generator = random.Random(7)
    vars(module).update(seed=generator.seed, random=generator.random)
    sys.modules["numpy.random"] = module


def killed_in_prologue(directory: Path) -> None:
    """The first child dies before its prologue is over."""

    def die(_: object) -> None:
        try:
            (directory / "killed").touch(exist_ok=False)  # in one step: siblings come here at the same time
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    systemd.forget = die


_STORM = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD)


def signals_in_prologue(_: Path) -> None:
    """Every child gets every signal before its first own instruction."""
    die_with_parent = linux.die_with_parent

    def storm(number: int) -> None:
        for sent in _STORM:
            os.kill(os.getpid(), sent)
        die_with_parent(number)

    linux.die_with_parent = storm


def orphaned_in_prologue(directory: Path) -> None:
    """A child whose parent dies before it could ask to die with it."""
    die_with_parent = linux.die_with_parent
    parent = os.getpid()

    def late(number: int) -> None:
        (directory / "in_prologue").touch()
        while os.getppid() == parent:
            threading.Event().wait(0.005)
        die_with_parent(number)

    linux.die_with_parent = late


def forks_fail(directory: Path) -> None:
    """The kernel has no process to give for as long as a file exists."""
    fork = os.fork

    def scarce() -> int:
        if (directory / "no_forks").exists():
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    os.fork = scarce


def kernel_refuses(directory: Path) -> None:
    """The limit of the user's processes is reached for as long as a file exists."""
    if os.geteuid() == 0:  # to root that limit does not apply
        os.chown(directory, NOBODY, NOBODY)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        linux._prctl(PR_SET_DUMPABLE, 1)  # else its own /proc/self would be root's
    fork, (soft, hard) = os.fork, resource.getrlimit(resource.RLIMIT_NPROC)

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_NPROC, (0 if Path("no_forks").exists() else soft, hard))  # of this directory
        return fork()

    os.fork = limited


def second_thread(_: Path) -> None:
    """A library started a thread behind our back."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def no_fork_budget(_: Path) -> None:
    """Restarts cost nothing, so that a test can have hundreds."""
    spawn.FORKS_PER_S = 10_000


def long_debounce(_: Path) -> None:
    """Two signals are one although a busy machine lets seconds pass between them."""
    shutdown.DEBOUNCE_NS = 20 * SECOND_NS


WAYS: dict[str, Callable[[Path], None]] = {f.__name__: f for f in (
    hostile_starter, inheritable_descriptors, seeded_generators, killed_in_prologue, signals_in_prologue, orphaned_in_prologue,
    forks_fail, kernel_refuses, second_thread, no_fork_budget,
    long_debounce,
)}  # fmt: skip
