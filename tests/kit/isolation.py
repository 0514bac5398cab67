"""Isolation of tests: the state of the process is compared before and after each test.

Guarantees
    A test that leaves one of the states below changed fails, and the message names what it left. Threads, child
    processes and descriptors that are about to end are waited for, within a bound.

Does not guarantee
    That fixtures of a wider scope leave nothing: they are set up before the comparison begins and outlive it.
    That modules imported by a test are as they were; only those that were imported before it are compared.
"""

from __future__ import annotations

import _signal  # the wrapper turns each answer into an enum, sixty times for each test
import asyncio
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.kit.waiting import wait_until

SETTLE_S_MAX = 10.0
FAILED = pytest.StashKey[bool]()
"""Set on a test whose setup or call failed: its traceback keeps alive what it held."""

_ABSENT = "absent"
# pytest-timeout installs a handler of its own around each phase.
_SIGNALS = tuple((each.name, int(each)) for each in signal.Signals if each is not signal.SIGALRM)
_PR_GET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_GET_CHILD_SUBREAPER, _PR_GET_NO_NEW_PRIVS = 2, 3, 37, 39
_LASTING = (f"{Path(__file__).resolve().parents[2]}/", sys.prefix, sys.base_prefix)
_LIBC = ctypes.CDLL(None, use_errno=True)


def _flag(option: int) -> int:
    value = ctypes.c_int(0)
    if option in (_PR_GET_DUMPABLE, _PR_GET_NO_NEW_PRIVS):
        return int(_LIBC.prctl(option, 0, 0, 0, 0))
    _LIBC.prctl(option, ctypes.byref(value), 0, 0, 0)
    return value.value


def environment() -> Mapping[str, object]:
    """Return the environment variables of this process."""
    found: dict[Any, object] = dict(os.environ._data)  # type: ignore[attr-defined]  # its items are decoded one by one
    found.pop(b"PYTEST_CURRENT_TEST", None)
    return found


def process() -> Mapping[str, object]:
    """Return attributes of the process that the kernel keeps: directory, mask, limits, flags."""
    mask = os.umask(0o077)
    os.umask(mask)
    try:
        directory = os.getcwd()  # noqa: PTH109 - here and below, paths are made ten thousand times
    except FileNotFoundError:
        directory = "(deleted)"
    return {
        "directory": directory,
        "umask": mask,
        "nice": os.nice(0),
        "process group": os.getpgrp(),
        "blocked signals": frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "time zone": time.tzname,
        "limits": tuple(resource.getrlimit(each) for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)),
        "prctl": tuple(_flag(each) for each in (_PR_GET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_GET_CHILD_SUBREAPER)),
    }


def signals() -> Mapping[str, object]:
    """Return the handler of each signal, by name."""
    return {name: _signal.getsignal(number) for name, number in _SIGNALS}


def logs() -> Mapping[str, object]:
    """Return the configuration of ``logging`` and structlog. pytest's own handlers are left out."""
    configured = structlog.get_config()
    found: dict[str, object] = {
        "structlog": (*map(id, configured["processors"]), configured["wrapper_class"].__name__),
        "logging.disable": logging.root.manager.disable,
        "captureWarnings": getattr(logging, "_warnings_showwarning", None) is not None,
    }
    placeholder = logging.PlaceHolder  # here and below: this is done ten thousand times
    for name, logger in (("root", logging.root), *logging.root.manager.loggerDict.items()):
        if type(logger) is placeholder:
            continue
        found[f"logger {name}"] = (
            logger.level,
            logger.disabled,
            logger.propagate,
            tuple(map(id, filter(_is_own, logger.handlers))) if logger.handlers else (),
            tuple(map(id, logger.filters)) if logger.filters else (),
        )
    return found


def _is_own(handler: logging.Handler) -> bool:
    # logging gives py.warnings a handler of its own, once
    return not type(handler).__module__.startswith("_pytest.") and not isinstance(handler, logging.NullHandler)


def interpreter() -> Mapping[str, object]:
    """Return switches of the interpreter: hooks, paths, collector, event loop policy."""
    return {
        "sys.path": tuple(sys.path),
        "sys.meta_path": tuple(map(id, sys.meta_path)),
        "sys.excepthook": sys.excepthook,
        "sys.unraisablehook": sys.unraisablehook,
        "threading.excepthook": threading.excepthook,
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "trace": (sys.gettrace(), sys.getprofile()),
        "collector": (gc.isenabled(), gc.get_debug()),  # counting what is frozen would walk through all of it
        "event loop policy": getattr(asyncio.events, "_event_loop_policy", None).__class__,
    }


def _is_of_tests(function: object) -> bool:
    """Return whether no import brings it back: it was defined by a test, or in a file that a test wrote."""
    name = str(getattr(function, "__module__", ""))
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return not file.startswith(_LASTING) or name.startswith("tests.") or "<locals>" in str(function)


def forget_jobs_of_tests(known: frozenset[str]) -> None:
    """Take what a test added to the jobs of before, other than modules of ours, out of registry and imports again."""
    from supervisor.core.jobs.registry import registry  # noqa: PLC0415 - tests without jobs need not import it

    for name, spec in list(registry._jobs.items()):
        if name not in known and _is_of_tests(spec.function):
            del registry._jobs[name], registry._by_function[spec.function]
            sys.modules.pop(spec.function.__module__, None)


def registries() -> Mapping[str, object]:
    """Return what the product keeps one of in each process. Jobs of modules that a test imports first may be added."""
    found: dict[str, object] = {}
    loaded = sys.modules
    if (jobs := loaded.get("supervisor.core.jobs.registry")) is not None:
        known = jobs.registry._jobs
        found["jobs of tests"] = frozenset(name for name, spec in known.items() if _is_of_tests(spec.function))
        found["job policies"] = tuple(sorted(jobs.registry._policies))
        found["jobs that follow these"] = frozenset(name for name, spec in known.items() if spec.declared is not None)
    if (middleware := loaded.get("supervisor.roles.worker.attempt.middleware")) is not None:
        found["middleware"] = tuple(each for each in middleware._installed if _is_of_tests(type(each)))
    for module, attribute in (
        ("supervisor.telemetry.masking", "_hidden"),
        ("supervisor.store.producer.connection", "_default"),
        ("supervisor.telemetry.logs", "_last.sink"),
        ("supervisor.telemetry.events", "_process.recorder.write_fd"),
        ("supervisor.telemetry.metric_files.slots", "_store.directory"),
        ("supervisor.telemetry.metric_files.series", "_limits.disabled"),
        ("supervisor.compat.cloudforet.tasks.runtime", "_settings"),
    ):
        value: object = loaded.get(module)
        if value is None:
            continue
        for part in attribute.split("."):
            value = getattr(value, part, _ABSENT)
        if attribute == "_last.sink":
            value = None if type(value).__name__ == "Sink" else type(value)
        if attribute == "_settings" and value == type(value)():
            value = None
        found[f"{module}.{attribute}"] = value  # false where it is as an import leaves it: a test may be the first
    return found


def modules() -> Mapping[str, object]:
    """Return each module that is imported: the mapping of before, where none has been added since."""
    global _modules  # noqa: PLW0603
    if len(_modules) != len(sys.modules) or next(reversed(_modules), None) != next(reversed(sys.modules), None):
        _modules = dict(sys.modules)
    return _modules


_modules: dict[str, object] = {}


_shared: set[int] = set()


def share_process(pid: int) -> None:
    """Let a process outlive the test that starts it: one of a fixture of a wider scope, which ends it."""
    _shared.add(pid)


def threads() -> frozenset[threading.Thread]:
    """Return the threads that run."""
    return frozenset(threading.enumerate())


def children() -> frozenset[int]:
    """Return the processes that this one started and has not reaped."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208
        try:
            with open(f"/proc/self/task/{task}/children", "rb", buffering=0) as file:  # noqa: PTH123
                found.update(map(int, file.readall().split()))
        except FileNotFoundError:  # the thread has just ended
            continue
    return frozenset(found)


def descriptors() -> Counter[str]:
    """Return how many descriptors of each kind are open. Memory that is mapped is left to the collector."""
    found: Counter[str] = Counter()
    folder = os.open("/proc/self/fd", os.O_RDONLY)  # names below it cost less than paths from the root
    for number in os.listdir(folder):  # noqa: PTH208
        try:
            target = os.readlink(number, dir_fd=folder)
        except FileNotFoundError:  # the one that listed the directory
            continue
        kind = target.partition(":[")[0]  # a connection that was made again is another number of the same kind
        if not kind.startswith("/memfd:"):
            found[kind] += 1
    os.close(folder)
    return found


STATES: tuple[Callable[[], Mapping[str, object]], ...] = (
    environment,
    process,
    signals,
    logs,
    interpreter,
    registries,
)


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    if before == after:
        return
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, _ABSENT), after.get(name, _ABSENT)
        # a module that is imported during the test sets up its own logger, or is empty
        shown = os.fsdecode(name)
        is_first_import = was is _ABSENT and (not now or shown.startswith("logger "))
        if was != now and not is_first_import:
            yield f"{shown}: {_short(was)} before, {_short(now)} after"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:120]} … {text[-60:]}"


def _replaced(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    if before == after:
        return
    for name, was in before.items():
        if after.get(name, was) is not was:
            yield f"module {name}: replaced by another one of that name"


class Snapshot:
    """State of this process at one moment."""

    def __init__(self) -> None:
        self.states = {each.__name__: each() for each in STATES}
        self.modules = modules()
        self.threads = threads()
        self.children = children()
        self.descriptors = descriptors()

    def left_behind(self) -> list[str]:
        """Return what differs now, a line each, after what was about to end has ended."""
        found = [f"{each.__name__}: {line}" for each in STATES for line in _changes(self.states[each.__name__], each())]
        if replaced := list(_replaced(self.modules, sys.modules)):
            found += replaced
            _modules.clear()  # the next test begins with what there is now
        for look in (self._new_threads, self._new_children, self._new_descriptors):
            found += self._after_settling(look)
        return found

    def _after_settling(self, look: Callable[[], list[str]]) -> list[str]:
        if not look():
            return []
        for bound_s in (SETTLE_S_MAX / 1000, SETTLE_S_MAX / 10, SETTLE_S_MAX):  # a thread may hold a cycle for a moment
            try:
                wait_until(lambda: not look(), "what the test started to end", bound_s=bound_s)
            except AssertionError:
                with warnings.catch_warnings():  # of a socket that a cycle holds, whose owner is gone
                    warnings.simplefilter("ignore", ResourceWarning)
                    gc.collect()
            else:
                return []
        return look()

    def _new_threads(self) -> list[str]:
        return [f"thread {each.name}" for each in threads() - self.threads if each.is_alive()]

    def _new_children(self) -> list[str]:
        return [f"process {pid}" for pid in sorted(children() - self.children - _shared)]

    def _new_descriptors(self) -> list[str]:
        return [f"descriptor: {kind} ({count} more)" for kind, count in (descriptors() - self.descriptors).items()]


@pytest.fixture(autouse=True)
def isolated(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves the process other than it found it. A test that failed is told of by its own error.

    Loading a configuration adds the working directory to the search path, for the life of the process; each test has
    a path of its own.
    """
    before, path = Snapshot(), sys.path
    sys.path = list(path)
    yield
    sys.path = path
    request.node.funcargs.clear()  # all others are finished by now; what they returned may hold a descriptor
    left = [] if request.node.stash.get(FAILED, False) else before.left_behind()
    assert not left, "left behind by this test:\n  " + "\n  ".join(left)
