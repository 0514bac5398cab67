"""The image in a container engine: built, run without privileges as PID 1, stopped, starved of memory.

Needs root, podman, runc and mmdebstrap. No image registry: where the base image is not at hand, one is made from
Debian's packages (roots.py).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.machines.proof import Proof, need, run, seconds, wait_for
from tests.machines.roots import python_base

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "localhost/tenure-proof"
PROJECT_IMAGE = "localhost/tenure-project-proof"
NAME = "tenure-proof"
PORT = 18099
JOBS = """
import signal, time
from tenure import job

@job("proof.busy", timeout=600)
def busy() -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass

@job("proof.greedy", max_crashes=1)
def greedy() -> None:
    held = []
    while True:
        held.append(bytearray(8 << 20))
"""


class Container:
    """One container of the image, under the engine."""

    def __init__(self, extra: Path) -> None:
        runc = shutil.which("runc")
        self._engine = ["podman", *(["--runtime", runc] if runc else [])]
        self._extra = extra

    def start(self, *options: str) -> None:
        """Run it without privileges and with a read-only root."""
        environ = {
            "TENURE_WEB__PORT": str(PORT),
            "TENURE_WEB__HOST": "127.0.0.1",
            "TENURE_JOBS": "[proof_jobs]",
            "TENURE_SUPERVISION__GRACE": "2s",
            "PYTHONPATH": "/extra",
        }
        self.remove()
        hardening = ["--read-only", "--tmpfs=/tmp", "--cap-drop=all", "--security-opt=no-new-privileges"]
        limits = ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096", "--network=host", "--memory=300m"]
        mounts = [f"--volume={self._extra}:/extra:ro"]
        values = [f"--env={name}={value}" for name, value in environ.items()]
        self.engine(
            "run", "--pull=never", "--detach", f"--name={NAME}", *hardening, *limits, *mounts, *values, *options, IMAGE
        )

    def engine(self, *arguments: str, check: bool = True) -> str:
        """Give the engine a command and return what it printed."""
        return run([*self._engine, *arguments], check=check).stdout.strip()

    def inside(self, *command: str, check: bool = True) -> str:
        """Run ``command`` in the container."""
        return self.engine("exec", NAME, *command, check=check)

    def stop(self, patience_s: int = 30) -> float:
        """Stop it as an orchestrator does; return how long it took."""
        return seconds(lambda: self.engine("stop", f"--time={patience_s}", NAME))

    def exit_code(self) -> int:
        """Return the exit code of PID 1."""
        return int(self.engine("inspect", NAME, "--format", "{{.State.ExitCode}}"))

    def log(self, event: str) -> list[dict[str, object]]:
        """Return the log's lines of one event."""
        said = run([*self._engine, "logs", NAME], check=False)
        lines = (json.loads(line) for line in (said.stdout + said.stderr).splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    def remove(self) -> None:
        """Remove what is left of it."""
        self.engine("rm", "--force", "--time=0", "--ignore", NAME, check=False)


def prove(proof: Proof) -> None:
    """Build the image and hold it against what docs and Dockerfile promise."""
    need("podman", "mmdebstrap", packages="podman runc mmdebstrap uidmap")
    _base_image()
    proof.check("the image builds", True, f"{seconds(_build):.0f} s")  # noqa: FBT003
    with TemporaryDirectory(prefix="tenure-proof-") as directory:
        (extra := Path(directory)).chmod(0o755)
        (extra / "proof_jobs.py").write_text(JOBS)
        container = Container(extra)
        try:
            _runs_without_privileges(proof, container)
            _survives_its_workers(proof, container)
            _stops(proof, container)
            _carries_a_project(proof, container, extra)
        finally:
            container.remove()


def _base_image() -> None:
    wanted = re.findall(r"(?m)^FROM (\S+)", (ROOT / "Dockerfile").read_text())[-1]
    if run(["podman", "image", "exists", wanted], check=False).returncode == 0:
        return
    if run(["podman", "pull", "--quiet", wanted], check=False, bound_s=120).returncode == 0:
        return
    run(["podman", "import", "--quiet", str(python_base()), f"docker.io/library/{wanted}"])


def _build() -> None:
    _build_image(IMAGE, ROOT)


def _build_image(tag: str, context: Path, *options: str) -> None:
    shared = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()]
    mounts = [f"--volume={path}:{path}:ro" for path in shared]
    how = ["--isolation=chroot", "--pull=never", "--network=host", "--format=docker"]
    run(["podman", "build", *how, *mounts, *options, "--tag", tag, str(context)])


def _is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _start_ready(container: Container, *options: str) -> None:
    container.start(*options)
    wait_for(_is_ready, what="the container to be ready")


def _runs_without_privileges(proof: Proof, container: Container) -> None:
    began = seconds(lambda: _start_ready(container))
    proof.check("ready", True, f"{began:.1f} s after run")  # noqa: FBT003
    uid = container.inside("id", "-u")
    proof.check("not root", uid not in {"", "0"}, f"uid {uid}")
    first = container.inside("cat", "/proc/1/cmdline").replace("\0", " ")
    proof.check(
        "the command is PID 1, with no shell or init before it", "tenure" in first and "/sh" not in first, first
    )
    capabilities = re.findall(r"CapEff:\s*(\S+)", container.inside("cat", "/proc/1/status"))
    proof.check("no capability", capabilities == ["0" * 16], capabilities)
    refused = run([*container._engine, "exec", NAME, "touch", "/etc/x"], check=False)
    proof.check("the root file system is read-only", refused.returncode != 0, refused.stderr.strip()[:80])
    health = run([*container._engine, "healthcheck", "run", NAME], check=False)
    proof.check("HEALTHCHECK is content", health.returncode == 0, f"exit {health.returncode}")


def _survives_its_workers(proof: Proof, container: Container) -> None:
    worker = str(container.log("child_started")[-1]["child_pid"])
    container.inside("python", "-c", f"import os, signal; os.kill({worker}, signal.SIGKILL)")
    wait_for(lambda: len(container.log("child_exited")) == 1, what="the death to be noticed")
    wait_for(_is_ready, what="the worker's successor")
    proof.check("a worker killed -9 is replaced", True, container.log("child_exited")[0].get("signal"))  # noqa: FBT003
    container.inside("sh", "-c", "(sleep 0.2 & sleep 0.2 &) ; exit 0")
    zombies = (
        "import glob; print(sum(' Z ' in open(p).read().rsplit(')', 1)[1][:3] for p in glob.glob('/proc/[0-9]*/stat')))"
    )
    wait_for(lambda: container.inside("python", "-c", zombies) == "0", what="orphans to be reaped")
    proof.check("orphans are reaped", True, "0 zombies")  # noqa: FBT003
    container.inside("tenure", "enqueue", "proof.greedy")
    wait_for(lambda: len(container.log("child_exited")) == 2, what="the greedy worker to be killed")
    wait_for(_is_ready, what="the tree to be ready again")
    ended = container.log("child_exited")[1]
    proof.check("a worker that eats the memory dies alone, and is named", ended.get("signal") == 9, ended.get("hint"))


def _stops(proof: Proof, container: Container) -> None:
    took = container.stop()
    proof.check(
        "an idle stop ends within 1 s with 0",
        took < 1 and container.exit_code() == 0,
        f"{took:.2f} s, exit {container.exit_code()}",
    )
    _start_busy(container)
    took = container.stop()
    is_bound = 2 <= took < 2 + 3.5 + 0.5
    proof.check(
        "a stop with a stubborn job ends within grace + 3.5 s with 1",
        is_bound and container.exit_code() == 1,
        f"{took:.2f} s, exit {container.exit_code()}",
    )
    _start_busy(container, "--env=TENURE_SUPERVISION__GRACE=60s")
    took = container.stop(patience_s=1)
    proof.check(
        "an orchestrator less patient than the grace kills: 137",
        container.exit_code() == 137,
        f"{took:.2f} s, exit {container.exit_code()}",
    )
    codes = []
    for _ in range(5):
        container.start()
        container.stop(patience_s=10)
        codes.append(container.exit_code())
    proof.check("a stop right after the start is heard", set(codes) == {0}, codes)


def _start_busy(container: Container, *options: str) -> None:
    _start_ready(container, *options)
    container.inside("tenure", "enqueue", "proof.busy")
    wait_for(
        lambda: "running  1" in container.inside("tenure", "status") or bool(_running(container)), what="the job to run"
    )


def _running(container: Container) -> int:
    counts = json.loads(container.inside("tenure", "queue", "list", "-o", "json"))
    return sum(int(queue["running"]) for queue in counts)


def _carries_a_project(proof: Proof, container: Container, directory: Path) -> None:
    """Build the image of a new project on ours, and let it run its jobs."""
    run(
        [
            sys.executable,
            "-c",
            f"import os; os.chdir({str(directory)!r}); from supervisor.cli.main import main; main(['init', 'demo'])",
        ]
    )
    _build_image(PROJECT_IMAGE, directory / "demo", f"--build-arg=TENURE_IMAGE={IMAGE}")
    container.remove()
    hardening = [
        "--read-only",
        "--tmpfs=/tmp",
        "--cap-drop=all",
        "--ulimit=nofile=4096:4096",
        "--ulimit=nproc=4096:4096",
    ]
    where = ["--network=host", f"--env=TENURE_WEB__PORT={PORT}"]
    container.engine("run", "--pull=never", "--detach", f"--name={NAME}", *hardening, *where, PROJECT_IMAGE)
    wait_for(lambda: container.log("run_succeeded"), what="a run of the project's jobs")
    seen = {str(each["job"]) for each in container.log("run_succeeded")}
    proof.check("the image of a new project runs its jobs", any(each.startswith("demo.") for each in seen), seen)
