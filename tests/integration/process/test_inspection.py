"""A process of a tree is closed to other processes of its user, and a command gains no rights."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.process.command.handle import CommandGuard, signals_held
from supervisor.process.command.spec import prepare
from supervisor.process.system import linux

NOBODY = 65534
PR_GET_DUMPABLE = 3


@contextmanager
def child(function: Callable[[], object]) -> Iterator[int]:
    """A process that runs ``function`` and waits; it is an unprivileged one, so that nothing opens for it."""
    ready, done = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                linux._prctl(linux._PR_SET_DUMPABLE, 1)
            os.close(done[1])
            os.write(ready[1], b"1" if function() in {None, True} else b"0")
            os.read(done[0], 1)
        finally:
            os._exit(0)
    try:
        os.close(done[0])
        assert os.read(ready[0], 1) == b"1"
        yield pid
    finally:
        os.close(done[1])
        os.waitpid(pid, 0)
        os.close(ready[0])
        os.close(ready[1])


def can_open(path: str) -> bool:
    """Whether this process may read ``path`` of another one."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        return False
    return True


@pytest.mark.share(3)
@pytest.mark.parametrize("name", ["environ", "mem", "fd"])
def test_a_process_of_a_tree_shows_nothing_to_others_of_its_user(name: str) -> None:
    """Passwords stand in the environment, in memory and in the buffer of the configuration."""
    with (
        child(lambda: None) as plain,
        child(linux.forbid_inspection) as closed,
        child(lambda: can_open(f"/proc/{plain}/{name}") and not can_open(f"/proc/{closed}/{name}")),
    ):
        assert Path(f"/proc/{closed}").stat().st_uid == Path(f"/proc/{plain}").stat().st_uid


def test_a_process_that_shows_nothing_can_still_do_its_work() -> None:
    """It counts its threads and finds its descriptors, and dumps no core."""

    def work() -> bool:
        linux.forbid_inspection()
        return (
            linux._prctl(PR_GET_DUMPABLE, 0) == 0
            and linux.thread_count() >= 1
            and 0 in linux.open_descriptors()
            and resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
        )

    with child(work):
        pass


def oom_score() -> int:
    """How much the kernel prefers this process when memory runs out."""
    return int(Path("/proc/self/oom_score_adj").read_text())


def test_a_child_gives_way_when_memory_runs_out_and_never_shows_itself_for_that() -> None:
    """While it could be inspected, a command of its user might open its memory, and keep it open for good."""

    def work() -> bool:
        linux.forbid_inspection()
        before, asked = oom_score(), []
        linux._prctl = lambda option, _: asked.append(option)  # type: ignore[assignment,func-returns-value]
        with linux.raised_oom_score(7):
            forked = os.fork()
            if forked == 0:
                os._exit(oom_score() != min(1000, before + 7))
        _, status = os.waitpid(forked, 0)
        return status == 0 and oom_score() == before and asked == []

    with child(work):
        pass


def test_a_command_gains_no_rights_by_a_set_user_id_program() -> None:
    """The kernel's own word for it, as the command sees it."""
    launch = prepare(
        command=["grep", "NoNewPrivs", "/proc/self/status"],
        shell="/bin/sh",
        env={"PATH": os.defpath},
        cwd=None,
        stdin=None,
    )
    guard, (end, output), null = CommandGuard(), os.pipe(), os.open(os.devnull, os.O_RDONLY)
    try:
        with signals_held():
            guard.fork(launch, stdin=null, output=output)
        assert os.read(end, 100) == b"NoNewPrivs:\t1\n"
    finally:
        guard.close()
        for descriptor in (end, output, null):
            os.close(descriptor)
