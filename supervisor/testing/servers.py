"""A real replica for a test: started on a free port, ready when the test begins, gone when it ends.

    from supervisor.testing import start_server

    with start_server({"jobs": ["shop.jobs"], "schedules": {"tick": {"job": "shop.tick", "every": "1s"}}}) as server:
        assert server.get("/readyz")[0] == 200
        server.command("schedule", "trigger", "tick")

Guarantees
    Inside of the block the replica answers /readyz with 200; after it no process and no file of it is left.
    Variables of the environment that are settings do not reach it, so that a test does the same everywhere.

Does not guarantee
    Speed: this is the whole tree. Where no process is needed, ``tenure_cluster`` takes milliseconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from supervisor.clock import SystemClock
from supervisor.core.errors import TenureError
from supervisor.core.units import SECOND_NS
from supervisor.settings.sections.redis_url import EMBEDDED_SOCKET
from supervisor.store.producer.substitute import refused

TENURE = (sys.executable, "-m", "supervisor")
LOG_CHARS_SHOWN = 4000
_LOOK_S = 0.05
_HTTP_TIMEOUT_S = 10.0
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever proxy the environment names


class ServerNotReadyError(TenureError):
    """The replica ended, or was not ready in time; the message ends with the end of its log."""


@dataclass(slots=True)
class RunningServer:
    """A replica that runs for a test."""

    directory: Path
    """Where it was started: its configuration, its data and its log."""

    program: tuple[str, ...]
    environ: dict[str, str]
    process: subprocess.Popen[bytes]
    address: str = ""
    """``host:port`` of its HTTP endpoint."""

    @property
    def url(self) -> str:
        """Its HTTP endpoint."""
        return f"http://{self.address}"

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.directory / "tenure.yaml"

    @property
    def redis_url(self) -> str:
        """URL of its Redis, for ``tenure.connect`` and clients of your own."""
        settings = yaml.safe_load(self.config.read_text())
        url = settings.get("redis", {}).get("url", "embedded")
        data = self.directory / settings.get("data_dir", ".tenure")
        return f"unix://{data / EMBEDDED_SOCKET}" if url == "embedded" else str(url)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a GET."""
        try:
            with _LOCAL.open(f"{self.url}{path}", timeout=_HTTP_TIMEOUT_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def command(self, *words: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a command of ``tenure`` against it and return how it ended."""
        return subprocess.run(  # noqa: S603 - the command under test, no shell
            [*self.program, *words],
            cwd=self.directory,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def log(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the lines of its log, or those of one event."""
        lines = self.log_text().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [entry for entry in entries if event in {None, entry["event"]}]

    def log_text(self) -> str:
        """Return all that it wrote."""
        return (self.directory / "server.log").read_text(errors="replace")

    def stop(self, timeout_s: float = 30.0) -> int:
        """Stop it as SIGTERM does, and return its exit code; one that does not go in time is killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()  # its children die with it
        return self.process.wait()


@contextmanager
def start_server(
    config: Mapping[str, Any] | None = None,
    *,
    program: Sequence[str] = TENURE,
    arguments: Sequence[str] = (),
    redis_url: str | None = None,
    environ: Mapping[str, str] | None = None,
    ready_s: float = 60.0,
) -> Iterator[RunningServer]:
    """Start a replica, hand it over once it is ready, and stop it.

    Args:
        config: settings as in a file; the port is free, the data lie in a directory of the test's own.
        program: the command; of a program that embeds it: ``[sys.executable, "my_service.py"]``.
        arguments: more words after ``run``.
        redis_url: where Redis is; None: the embedded server, or that of ``config``.
        environ: variables over those of this process.
        ready_s: how long it may take until it is ready.

    Raises:
        ServerNotReadyError: it ended, or was not ready in time.
    """
    directory = Path(tempfile.mkdtemp(prefix="tenure-"))  # short: a unix socket has to fit
    try:
        _write_config(directory, config or {}, redis_url)
        server = _start(directory, (*program,), arguments, environ or {})
        try:
            _wait_until_ready(server, ready_s)
            with refused(""):  # whoever starts a server asks for a real one
                yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _write_config(directory: Path, config: Mapping[str, Any], redis_url: str | None) -> None:
    settings = {
        **config,
        "web": {"port": 0, **config.get("web", {})},
        "log": {"format": "json", **config.get("log", {})},
    }
    if redis_url is not None:
        settings["redis"] = {**config.get("redis", {}), "url": redis_url}
    (directory / "tenure.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))


def _start(
    directory: Path, program: tuple[str, ...], arguments: Sequence[str], environ: Mapping[str, str]
) -> RunningServer:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    # Modules that this process can import, the replica can: a test's jobs lie beside the test.
    installed = (f"{sys.prefix}{os.sep}", f"{sys.base_prefix}{os.sep}lib")  # the interpreter knows those itself
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if not entry.startswith(installed))
    variables = {**ours, "PYTHONPATH": path, **environ}
    words = tuple(str(Path(word).resolve()) if word.endswith(".py") else word for word in program)
    with (directory / "server.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - as above
            [*words, "run", "--config", "tenure.yaml", *arguments],
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return RunningServer(directory, words, variables, process)


def _wait_until_ready(server: RunningServer, ready_s: float) -> None:
    clock = SystemClock()
    until_ns = clock.elapsed_ns() + int(ready_s * SECOND_NS)
    while not _is_ready(server):
        try:
            code = server.process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            if clock.elapsed_ns() < until_ns:
                continue
            problem = f"was not ready within {ready_s:g} s"
        else:
            problem = f"ended with exit code {code}"
        raise ServerNotReadyError(f"the server {problem}; its log ends with:\n{server.log_text()[-LOG_CHARS_SHOWN:]}")


def _is_ready(server: RunningServer) -> bool:
    if not server.address:
        told = server.log("http_listening")
        server.address = str(told[-1]["address"]) if told else ""
    try:
        return bool(server.address) and server.get("/readyz")[0] == 200
    except OSError:
        return False
