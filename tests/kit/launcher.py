"""Commands of the project, forked from a process that has imported it, instead of started by a new interpreter.

Starting an interpreter and importing costs over a second of processor time for each command and each tree; a fork of
a process that has done so costs milliseconds. What runs after the fork is the entry of the command itself, with the
directory, environment, arguments and descriptors that a new process would have.

Guarantees
    The forked process has one thread, the interpreter's own signal handlers, no blocked signals, and no descriptors
    but the three that it is given. Modules that a job or a configuration names are not imported before the fork.
    A process that was forked stays a zombie until it is waited for, as with ``subprocess``.

Does not guarantee
    That the start of the interpreter is tested. Tests of signals during the start, of variables of the interpreter
    (``PYTHON…``, ``LD_…``, locale, time zone) or of wrappers start a new one: ``launch`` does so by itself when the
    environment asks for it.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

ROOT = Path(__file__).resolve().parents[2]
MESSAGE_BYTES_MAX = 1 << 20
WAIT_S_MAX = 60.0
_OF_THE_INTERPRETER = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "COVERAGE")
_PRELOADED = (
    "supervisor.cli.main", "supervisor.cli.replica.run", "supervisor.cli.connection", "supervisor.cli.config.commands",
    "supervisor.app.replica", "supervisor.roles.child", "sqlalchemy", "aiohttp.web", "uvloop", "rich.table",
)  # fmt: skip


class Process(Protocol):
    """The part of ``subprocess.Popen`` that tests use."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...
    def terminate(self) -> None: ...
    def send_signal(self, sig: int) -> None: ...


class Forked:
    """A command that was forked by the launcher."""

    def __init__(self, launcher: Launcher, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._launcher = launcher

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self.returncode is None and self._has_ended(0):
            self._reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: it still runs after ``timeout`` seconds.
        """
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self._reap()
        assert self.returncode is not None
        return self.returncode

    def _has_ended(self, timeout_s: float | None) -> bool:
        pidfd = os.pidfd_open(self.pid)  # of a process that nobody has reaped, so of no other one
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))
        finally:
            os.close(pidfd)

    def _reap(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(self._launcher.reap(self.pid))

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


class Launcher:
    """The process that forks commands, one for each process of the test run."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for side in (self._link, theirs):
            side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES_MAX)
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.launcher", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environ,
            cwd=ROOT,
        )
        theirs.close()

    def start(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        stdio: tuple[int, int, int],
        program: Path | None,
    ) -> Forked:
        """Fork a process that runs ``tenure``, or a program in Python, with these words."""
        own = {"program": program and str(program), "cwd": str(cwd), "environ": dict(environ)}
        request = json.dumps({"words": list(words), **own}).encode()
        socket.send_fds(self._link, [request], list(stdio))
        return Forked(self, self._answer())

    def reap(self, pid: int) -> int:
        """Return the wait status of a process that has ended."""
        self._link.sendall(json.dumps({"reap": pid}).encode())
        return self._answer()

    def _answer(self) -> int:
        answer = self._link.recv(MESSAGE_BYTES_MAX)
        assert answer, "the launcher has ended"
        return int(answer)

    def close(self) -> None:
        """End the launcher."""
        self._link.close()
        self._process.wait(WAIT_S_MAX)


_launcher: list[Launcher] = []


@contextlib.contextmanager
def launching() -> Iterator[None]:
    """Fork commands from here on, instead of starting interpreters."""
    _launcher.append(Launcher())
    yield
    _launcher.pop().close()


def is_fork_enough(environ: Mapping[str, str]) -> bool:
    """Return whether a process of this environment needs no interpreter of its own."""
    own = {name: value for name, value in os.environ.items() if name.startswith(_OF_THE_INTERPRETER)}
    asked = {name: value for name, value in environ.items() if name.startswith(_OF_THE_INTERPRETER)}
    own.pop("PYTHONPATH", None)
    asked.pop("PYTHONPATH", None)
    return bool(_launcher) and own == asked


def launch(
    words: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    stdout: Any,
    stderr: Any,
    wrapper: Sequence[str] = (),
    is_fresh: bool = False,
    program: Path | None = None,
) -> Process:
    """Start ``tenure``, or a program in Python, with these words.

    In a new interpreter where ``is_fresh``, a wrapper or the environment ask for it.
    """
    if wrapper or is_fresh or not is_fork_enough(environ):
        command = [*wrapper, sys.executable, *([str(program)] if program else ["-m", "supervisor"]), *words]
        return subprocess.Popen(
            command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL, cwd=cwd, env=dict(environ)
        )
    with Path(os.devnull).open("rb") as null:
        stdio = (null.fileno(), *(each if isinstance(each, int) else each.fileno() for each in (stdout, stderr)))
        return _launcher[-1].start(words, cwd=cwd, environ=environ, stdio=stdio, program=program)


def run(
    words: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    timeout_s: float = WAIT_S_MAX,
    is_fresh: bool = False,
    program: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``tenure``, or a program in Python, with these words to its end; return what it printed and its exit code."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = launch(words, cwd=cwd, environ=environ, stdout=out, stderr=err, is_fresh=is_fresh, program=program)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(["tenure", *words], code, *texts)


def tenure(directory: Path, *words: str, is_fresh: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``tenure`` in a directory, with no variable of its own but those given."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    environ |= {"PYTHONPATH": str(ROOT), **variables}
    return run(words, cwd=directory, environ=environ, is_fresh=is_fresh)


def run_pytest(directory: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a directory, as a user would; see ``tenure``."""
    import pytest  # noqa: PLC0415 - the process that forks does without

    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "PYTEST"))}
    program = Path(pytest.__file__).with_name("__main__.py")
    words = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", *words)
    variables = environ | {"PYTHONPATH": str(ROOT), **variables}
    return run(words, cwd=directory, environ=variables, program=program, timeout_s=5 * WAIT_S_MAX)


def _serve(link: socket.socket) -> Mapping[str, Any]:
    """Fork a process for each request, and report the status of those that ended, until the link is closed.

    Returns:
        In a forked process, its request; in the launcher, nothing.
    """
    while True:
        message, ancillary, _, _ = link.recvmsg(MESSAGE_BYTES_MAX, socket.CMSG_SPACE(3 * array.array("i").itemsize))
        if not message:
            return {}
        request = json.loads(message)
        if "reap" in request:
            link.sendall(str(os.waitpid(request["reap"], 0)[1]).encode())
            continue
        stdio = array.array("i")
        stdio.frombytes(ancillary[0][2])
        pid = os.fork()
        if pid == 0:
            _become(request, stdio)
            return dict(request)
        for each in stdio:
            os.close(each)
        link.sendall(str(pid).encode())


def _become(request: Mapping[str, Any], stdio: Sequence[int]) -> None:
    """Make this forked process what a new one would be."""
    for number, given in enumerate(stdio):
        os.dup2(given, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    added = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    program = request["program"]
    sys.path[:] = [str(Path(program).parent) if program else request["cwd"], *added, *_base_path()]
    sys.argv[:] = [program or "tenure", *request["words"]]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the interpreter's own stream, for its whole life
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115


def _base_path() -> list[str]:
    """Return the interpreter's own search path, without this project's folder and the working directory."""
    return [each for each in sys.path if each not in {"", str(ROOT)}]


def main() -> None:
    """Import the project, then fork commands; in a forked process, run the command."""
    import importlib  # noqa: PLC0415

    for name in _PRELOADED:
        importlib.import_module(name)
    from supervisor import __main__ as entry  # noqa: PLC0415

    fd = int(sys.argv[1])
    link = socket.socket(fileno=fd)
    gc.freeze()
    request = _serve(link)
    link.detach()
    if not request:
        return
    try:
        if request["program"]:
            runpy.run_path(request["program"], run_name="__main__")
        else:
            entry.main()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _exit(end.code or 0)
    _exit(0)


def _exit(code: int) -> NoReturn:
    """End as the interpreter does, without freeing one by one what was imported before the fork."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
