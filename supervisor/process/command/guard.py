"""The two processes of a command, from the fork on: the guard and the command itself.

    worker ── guard (session and group leader, PDEATHSIG=SIGTERM)
                └─ command (same group, PDEATHSIG=SIGKILL) ── whatever it starts

Guarantees
    When the worker is gone, however it went, the guard kills its whole group, itself included:
    one kill(2), which no fork can outrun. When the guard is killed, the command dies with it.
    When the command ends, the guard reports its status and then kills the processes it left behind.
    No set-user-ID program or file capability gives the command a right that the worker lacks.

Does not guarantee
    Anything about a process that leaves the group (setsid, setpgid, a daemon) or that the
    kernel does not let us signal (a set-user-ID program). Those need a cgroup or a PID namespace.

Runs between fork and exec, so: no logging, no locks, no allocation worth naming, nothing but
system calls, and ``os._exit`` at the end. PDEATHSIG belongs to the thread that forked (prctl(2)),
so only the main thread of the worker may fork a guard.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import os
import resource
import signal
import struct
from typing import NoReturn

from supervisor.process.command.spec import Identity, Launch
from supervisor.process.system import landlock

RECORD = struct.Struct("=cci")
ENDED = b"E"  # then b"-" and the wait status
FAILED = b"F"  # then where it failed and errno
AT_GUARD, AT_CWD, AT_EXEC, AT_LIMIT = b"g", b"c", b"x", b"l"
AT_CGROUP, AT_PATHS, AT_USER = b"o", b"p", b"u"

PLACES = {AT_CGROUP: "the cgroup", AT_PATHS: "the paths", AT_USER: "the user or group"}
"""What of a confinement failed, for people."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_NO_NEW_PRIVS = 38
_PRCTL = ctypes.CDLL(None).prctl  # looked up before any fork

_STATUS = 3  # the descriptor that reports to the worker, in both processes
_ABOVE = 10  # descriptors are parked from here on while 0 to 3 are put in place
_DESCRIPTORS_END = 2**31 - 1
_EXIT_NOT_STARTED = 127  # as shells have it
_WAITED = frozenset({signal.SIGCHLD, signal.SIGTERM})
_CHANGEABLE = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def run_guard(
    launch: Launch, *, worker: int, stdin: int, output: int, status: int, errors: int | None = None
) -> NoReturn:
    """Become the guard of ``launch``. Called right after the fork by ``worker``, every signal blocked; never returns.

    The descriptors are the command's; without ``errors`` both of its streams go to ``output``. On ``status`` this guard
    reports how it ended.
    """
    code = os.EX_SOFTWARE
    try:
        gc.disable()  # a finalizer run here would act on what the worker still uses
        os.setsid()
        _die_with(worker, signal.SIGTERM)
        _PRCTL(_PR_SET_NAME, b"tenure-guard", 0, 0, 0)
        _PRCTL(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _default_dispositions()
        _place_descriptors(stdin, output, output if errors is None else errors, status)
        guard = os.getpid()
        command = os.fork()
        if command == 0:
            _run_command(launch, guard)
        os.closerange(0, _STATUS)  # the pipe's end must be the command's alone
        _wait(command, worker)
        code = os.EX_OK
    except OSError as error:
        _report(FAILED, AT_GUARD, error.errno or 0)
    finally:
        os._exit(code)


def _wait(command: int, worker: int) -> None:
    """Wait until the command ends or the worker is gone, then kill the group and with it this process."""
    while True:
        received = signal.sigwait(_WAITED)
        if received == signal.SIGTERM and os.getppid() == worker:
            continue  # the worker asks the whole group to stop: the command answers, the guard stays
        if received == signal.SIGCHLD:
            ended, wait_status = os.waitpid(command, os.WNOHANG)
            if ended == 0:
                continue
            _report(ENDED, b"-", wait_status)
        os.kill(0, signal.SIGKILL)


def _run_command(launch: Launch, guard: int) -> NoReturn:
    where = AT_GUARD
    try:
        _die_with(guard, signal.SIGKILL)
        where = AT_CGROUP
        if launch.cgroup is not None:
            _enter(launch.cgroup)
        where = AT_USER
        if launch.identity is not None:
            _become(launch.identity)
            _die_with(guard, signal.SIGKILL)  # a change of the user cleared it
        where = AT_CWD
        if launch.cwd is not None:
            os.chdir(launch.cwd)
        where = AT_PATHS
        if launch.paths is not None:
            landlock.restrict(*launch.paths)
        where = AT_LIMIT
        for number, most in launch.limits:
            resource.setrlimit(number, (most, most))
        if launch.umask is not None:
            os.umask(launch.umask)
        where = AT_EXEC
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a blocked mask would be inherited through exec
        _execute(launch)
    except OSError as error:
        _report(FAILED, where, error.errno or 0)
    except ValueError:
        _report(FAILED, where, errno.EINVAL)  # a limit above the one that the tree itself has
    finally:
        os._exit(_EXIT_NOT_STARTED)


def _enter(cgroup: str) -> None:
    place = os.open(f"{cgroup}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    os.write(place, b"0")  # this process
    os.close(place)


def _become(identity: Identity) -> None:
    """Change groups and user for good; the order matters, since the right to do so goes with the user."""
    if os.geteuid() == 0:
        os.setgroups(identity.groups)
    os.setresgid(identity.group, identity.group, identity.group)
    os.setresuid(identity.user, identity.user, identity.user)


def _execute(launch: Launch) -> None:
    """Try every candidate; raise the first error with more information than "not here"."""
    refusal: OSError | None = None
    for candidate in launch.candidates:
        try:
            os.execve(candidate, launch.argv, launch.env)  # noqa: S606 - it is what the job is for
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refusal = refusal or error
    raise refusal or FileNotFoundError(errno.ENOENT, "")


def _die_with(parent: int, number: signal.Signals) -> None:
    """Be sent ``number`` when ``parent`` goes; gone already, between fork and here: go too."""
    _PRCTL(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_EXIT_NOT_STARTED)


def _default_dispositions() -> None:
    """Restore dispositions that the worker set: ignored signals stay ignored through exec, SIGPIPE among them."""
    signal.set_wakeup_fd(-1)
    for number in _CHANGEABLE:
        signal.signal(number, signal.SIG_DFL)


def _place_descriptors(stdin: int, output: int, errors: int, status: int) -> None:
    """Make 0, 1, 2 the command's and 3 the report, close-on-exec; close everything else of the worker's."""
    parked = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for number in (stdin, output, errors, status)]
    for number, source in enumerate(parked):
        os.dup2(source, number, inheritable=number < _STATUS)
    os.closerange(_STATUS + 1, _DESCRIPTORS_END)


def _report(kind: bytes, where: bytes, value: int) -> None:
    """Report to the worker; a write of six bytes to a pipe is whole or not at all (pipe(7), PIPE_BUF)."""
    try:
        os.write(_STATUS, RECORD.pack(kind, where, value))
    except OSError:
        return  # the worker is gone; nobody is left to be told
