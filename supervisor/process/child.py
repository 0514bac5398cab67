"""The first instructions of every child, and its last.

Guarantees
    Nothing of the parent is left in it: no handler, no descriptor that it was not given (its
    number is /dev/null), no blocked signal, no state of the global generators of random numbers (Python's, numpy's).
    It dies with the parent, and it leaves through ``os._exit`` with the code of its role, so no code of the parent's
    stack ever runs in it.

Does not guarantee
    That its own children die with it; the parent kills its process group (see system/reaper.py).
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import random
import signal
import sys
from typing import NoReturn

from supervisor.core.errors import EXIT_CRASH_LOOP, EXIT_OK, TenureError
from supervisor.core.supervision.slot import Group
from supervisor.process.slots import ChildIdentity, Log, SlotSpec
from supervisor.process.system import linux, signals, systemd
from supervisor.telemetry.log_lines.log_sink import unblocked_copy
from supervisor.telemetry.log_lines.render import print_traceback

EXIT_INTERNAL = EXIT_CRASH_LOOP  # 70, EX_SOFTWARE of sysexits(3)
_STDERR = 2
_faults: list[int] = []  # of this process: where its stacks go


def enter(spec: SlotSpec, launch: ChildIdentity, log: Log) -> NoReturn:
    """Become the child of ``spec``: prologue, role, exit. Never returns into the parent's stack."""
    code = EXIT_INTERNAL
    try:
        code = _run(spec, launch, log)
    finally:
        flush_streams()
        os._exit(code)


def _prologue(spec: SlotSpec, launch: ChildIdentity) -> None:
    """Cut every tie to the parent but one. The order is the point, and signals come last."""
    die_with(launch.parent_pid)
    if spec.group is not Group.EMBEDDED:
        os.setpgid(0, 0)  # the server makes a session of its own, which a group leader could not
    signals.reset_in_child(execs=spec.group is Group.EMBEDDED)
    _let_go_of_descriptors(keep={0, 1, 2, *spec.keep_fds})
    watch_faults()
    linux.widen_signal_stack()  # where the parent had no standard error
    linux.set_name(spec.name)
    systemd.forget(os.environ)
    random.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        with contextlib.suppress(Exception):  # something in its place that cannot be seeded
            numpy_random.seed()
    gc.enable()  # off in the parent, where nothing makes garbage
    signals.unblock_all()


def die_with(parent_pid: int) -> None:
    """Be killed when the parent dies; exit at once if it died before that could be asked for."""
    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(EXIT_OK)


def _let_go_of_descriptors(*, keep: set[int]) -> None:
    """Replace the parent's open descriptors by /dev/null.

    A number that was closed would be given out again, while objects that were made before the fork still write to it.
    """
    inherited = set(linux.open_descriptors()) - keep
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    for descriptor in inherited:
        try:
            os.dup2(null, descriptor, inheritable=False)
        except OSError:  # above a limit of open files that was lowered since: it is given to nobody again
            os.close(descriptor)
    os.close(null)


def watch_faults() -> None:
    """Write the stacks of all threads on a fault, on SIGABRT (a hang) and on SIGUSR1 (a question).

    Of a pipe whose reader stands still they get what room there is: they are written under the lock of the interpreter,
    and to wait would hold up every thread. Call it again when standard error has come to mean something else.
    """
    before = _faults.pop() if _faults else -1
    try:
        # A copy, so that a job that plays with standard error cannot silence it.
        descriptor = unblocked_copy(_STDERR)
    except OSError:
        return  # started without a standard error
    # The parent's own are still marked as installed, but their handlers are gone: enabling again would do nothing.
    faulthandler.disable()
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.enable(file=descriptor, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True, chain=False)
    _faults.append(descriptor)
    if before >= 0:
        os.close(before)


def _run(spec: SlotSpec, launch: ChildIdentity, log: Log) -> int:
    """Prologue and role. The only place of a child where every exception ends."""
    try:
        _prologue(spec, launch)
        return spec.run(launch)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except TenureError as error:
        log("child_crashed", level="error", slot=spec.name, error=str(error), code=error.exit_code)
        return error.exit_code
    except BaseException as error:  # noqa: BLE001  # the top of a process
        print_traceback(error)
        log("child_crashed", level="error", slot=spec.name, error=repr(error), code=EXIT_INTERNAL)
        return EXIT_INTERNAL


def flush_streams() -> None:
    """Write out Python's buffers; a reader that is gone stops nobody."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, broken, or never there
            stream.flush()
