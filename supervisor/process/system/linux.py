"""Linux-only system calls and files: ``prctl``, ``/proc``, and the limit of open files."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import ConfigError, Problem

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_NAME_BYTES_MAX = 15
_OOM_SCORE = "/proc/self/oom_score_adj"
_OOM_SCORE_MAX = 1000
DESCRIPTORS_MIN = 1024
"""The web child has 64 connections, 64 of gRPC and its own files; a worker has those that its jobs open."""
DESCRIPTORS_LEAST = 64
"""A child of a tree with the default settings has some 50 descriptors before it serves anybody."""

_SIGNAL_STACK_BYTES = 1024 * 1024
"""Frames of all 64 signals, of 12 KiB on processors with AMX (AT_MINSIGSTKSZ). A page costs memory once it is used."""

_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork
_signal_stack: list[ctypes.Array[ctypes.c_char]] = []
_own_score: list[int] = []  # descriptor of the score of a process that is closed to inspection


def _checked(call: str, answer: int) -> int:
    """Return the answer of a system call; raise OSError with its ``errno`` where it failed."""
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return answer


def _prctl(option: int, argument: int | bytes) -> int:
    value = ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    zero = ctypes.c_ulong(0)
    return _checked(f"prctl({option})", _libc.prctl(ctypes.c_int(option), value, zero, zero, zero))


def die_with_parent(signal_number: int) -> None:
    """Ask for ``signal_number`` when the thread that forked us ends. Not inherited, and cleared by setuid."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def forbid_inspection() -> None:
    """Keep memory, environment and descriptors from other processes of this user, and from core dumps.

    Children inherit it; a program that they execute does not (prctl(2), PR_SET_DUMPABLE). Root may look still.
    """
    with contextlib.suppress(OSError):
        _own_score[:] = [os.open(_OOM_SCORE, os.O_RDWR | os.O_CLOEXEC)]  # it belongs to root from here on
    _prctl(_PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _SignalStack(ctypes.Structure):
    _fields_ = (("pointer", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def widen_signal_stack() -> None:
    """Give handlers of this thread, the main one, an alternate stack with room for all signals.

    Call it after ``faulthandler.enable``, which puts its own in place the first time.

    Python's handlers run on the alternate stack (bpo-43390), and that of ``faulthandler`` holds the frames of four
    signals safely (``5 * AT_MINSIGSTKSZ``): more that are unblocked at one moment end the process by SIGSEGV, or are
    written over the heap below it. Forked processes inherit the stack.

    Raises:
        OSError: there is no memory.
    """
    if not _signal_stack:
        memory = mmap.mmap(-1, _SIGNAL_STACK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        _signal_stack.append((ctypes.c_char * _SIGNAL_STACK_BYTES).from_buffer(memory))
    stack = _SignalStack(ctypes.addressof(_signal_stack[0]), 0, _SIGNAL_STACK_BYTES)
    _checked("sigaltstack", _libc.sigaltstack(ctypes.byref(stack), None))


def sealed_memory(name: str, content: bytes) -> int:
    """Return a descriptor of memory that holds ``content`` and can never change."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """Set the name that ``ps -o comm`` shows; the kernel keeps 15 bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:_NAME_BYTES_MAX])


def thread_count() -> int:
    """Return how many threads the kernel knows in this process; Python's own count misses those of libraries."""
    return len(list(Path("/proc/self/task").iterdir()))


def open_descriptors() -> dict[int, str]:
    """Return the open descriptors of this process: each with its path, or the kernel's name for it."""
    found = {}
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # the one used to find out is closed again
            found[int(path.name)] = str(path.readlink())
    return found


@dataclass(frozen=True, slots=True)
class Wait:
    """Time that the main thread of a process waited for a processor."""

    total_ns: int  # that it waited so far; a wait that lasts is added when it ends
    is_now: bool  # it could run at this moment, if it is not running


def processor_wait(pid: int) -> Wait:
    """Return how ``pid`` waits for a processor; of one that nothing is known of, that it does."""
    try:
        total_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
        return Wait(total_ns, is_now=_stat(pid)[0] == b"R")
    except (OSError, IndexError):
        return Wait(0, is_now=True)


@contextmanager
def raised_oom_score(points: int) -> Iterator[None]:
    """Make the kernel prefer processes forked inside when memory runs out. Raising needs no privilege.

    The forking process raises its own score and takes that back. A child that is closed to inspection could write its
    score only by opening its memory for a moment to every process of its user (proc(5)).
    """
    raised = _raise_score(points)
    try:
        yield
    finally:
        _raise_score(-raised)


def _raise_score(points: int) -> int:
    """Return by how much the score of this process was raised: 0 where /proc is read-only, and all are equal."""
    if points == 0:
        return 0
    try:
        score = os.dup(_own_score[0]) if _own_score else os.open(_OOM_SCORE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        before = int(os.pread(score, 16, 0))
        after = min(_OOM_SCORE_MAX, before + points)
        os.pwrite(score, b"%d" % after, 0)
    except OSError:
        return 0
    else:
        return after - before
    finally:
        os.close(score)


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is ``pid``, zombies included."""
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [process for process in processes if _parent_of(process) == pid]


def _parent_of(pid: int) -> int:
    try:
        return int(_stat(pid)[1])
    except OSError:
        return 0  # gone meanwhile


def _stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/<pid>/stat`` from the state on (see proc(5)); OSError when it is gone."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    # The command stands in parentheses and may hold any byte, so count from the last one.
    return stat[stat.rindex(b")") + 2 :].split()


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to ``DESCRIPTORS_MIN``, or as far as the hard limit allows.

    Raises:
        ConfigError: the hard limit is below ``DESCRIPTORS_LEAST``; with it no child would come up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MIN if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_MIN, hard)
    if wanted < DESCRIPTORS_LEAST:
        message = f"the hard limit of open files is {hard}, and a tree needs {DESCRIPTORS_LEAST} at least"
        remedy = f"raise it to {DESCRIPTORS_MIN}: ulimit -n, LimitNOFILE=, --ulimit nofile="
        raise ConfigError([Problem("this machine", "", message, remedy)])
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptors_short() -> int | None:
    """Return the soft limit of open files where it is below ``DESCRIPTORS_MIN``, else None."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY or soft >= DESCRIPTORS_MIN else soft
