"""The unit under a real systemd, booted in a namespace: start, reload, watchdog, kill -9, stop, restart limits.

Needs root, systemd-nspawn and mmdebstrap. Tenure is installed by the very lines of systemd/README.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.machines.proof import Proof, need, run, seconds, wait_for
from tests.machines.roots import systemd_machine

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("supervisor", "tenure", "jobs", "config", "systemd", "pyproject.toml", "README.md", "LICENSE")
UNIT = "tenure.service"
CONFIG = """
version: 1
web: {port: 18098}
jobs: [jobs.shell]
workers:
  cpu: {kind: sync, processes: 2, queues: [default, shell]}
supervision: {grace: 3s}
"""


class Machine:
    """A booted Debian whose processes are in namespaces of their own."""

    def __init__(self, root: Path, leader: int) -> None:
        self.root = root
        self._enter = ["nsenter", "-t", str(leader), "-a", "--"]

    def run(self, *command: str, check: bool = True, bound_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run ``command`` in it."""
        return run([*self._enter, *command], check=check, bound_s=bound_s)

    def show(self, name: str, unit: str = UNIT) -> str:
        """Return one property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()

    def journal(self, unit: str = UNIT) -> str:
        """Return what the unit logged."""
        return self.run("journalctl", "--no-pager", "-o", "cat", "-u", unit).stdout

    def configure(self, text: str) -> None:
        """Write the configuration."""
        (self.root / "etc/tenure/tenure.yaml").write_text(text)

    def processes(self) -> int:
        """Return how many processes of the service's group are left."""
        return int(self.run("sh", "-c", "pgrep -fc '[/]opt/tenure/bin/tenure' || true").stdout or 0)


def prove(proof: Proof) -> None:
    """Install, boot, and hold the unit against its comments."""
    need("systemd-nspawn", "mmdebstrap", "nsenter", packages="systemd-container mmdebstrap util-linux")
    with TemporaryDirectory(prefix="tenure-machine-") as directory:
        root = Path(directory) / "root"
        root.mkdir()
        run(["tar", "-C", str(root), "-xf", str(systemd_machine())])
        _copy_sources(root)
        with _booted(root) as machine:
            took = seconds(lambda: _install(machine))
            version = machine.run("systemctl", "--version").stdout.split()[1]
            proof.check("the lines of systemd/README.md install it", True, f"systemd {version}, {took:.0f} s")  # noqa: FBT003
            _starts(proof, machine)
            _reloads(proof, machine)
            _is_watched(proof, machine)
            _stops(proof, machine)
            _gives_up(proof, machine)
            _takes_credentials(proof, machine)
            _runs_several(proof, machine)


def _copy_sources(root: Path) -> None:
    target = root / "src"
    target.mkdir()
    for name in SOURCES:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, target / name)
    for path in ("/etc/pip.conf", "/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if Path(path).exists():
            (root / path[1:]).unlink(missing_ok=True)
            shutil.copy(path, root / path[1:])


@contextmanager
def _booted(root: Path) -> Iterator[Machine]:
    """Boot ``root``; every process of it ends with the block."""
    log = root.parent / "boot.log"
    command = ["systemd-nspawn", "-D", str(root), "--register=no", "--keep-unit", "--boot", "--console=pipe"]
    with log.open("wb") as output:
        nspawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    leader: list[int] = []
    try:
        wait_for(lambda: leader.extend(_leaders(nspawn.pid)) or leader, what=f"the machine to boot ({log})")
        machine = Machine(root, leader[0])
        states = ("running", "degraded")
        wait_for(
            lambda: machine.run("systemctl", "is-system-running", check=False).stdout.strip() in states, what="systemd"
        )
        yield machine
        machine.run("systemctl", "poweroff", check=False)
        nspawn.wait(30)
    except Exception:
        if leader:
            print(Machine(root, leader[0]).journal("tenure*")[-3000:], flush=True)
        raise
    finally:
        nspawn.kill()
        nspawn.wait()


def _leaders(nspawn: int) -> list[int]:
    children = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split()
    ours = Path("/proc/self/ns/pid").readlink()
    return [int(pid) for pid in children if Path(f"/proc/{pid}/ns/pid").readlink() != ours]


def _install(machine: Machine) -> None:
    block = re.findall(r"```sh\n(.*?)```", (ROOT / "systemd/README.md").read_text(), re.DOTALL)[0]
    lines = [line for line in block.splitlines() if "enable --now" not in line]
    machine.run("sh", "-ec", "cd /src\n" + "\n".join(lines), bound_s=500)
    machine.run("systemctl", "daemon-reload")
    machine.configure(CONFIG)


def _starts(proof: Proof, machine: Machine) -> None:
    took = seconds(lambda: machine.run("systemctl", "start", UNIT))
    status = machine.show("StatusText")
    proof.check(
        "start returns when the tree is ready",
        machine.show("ActiveState") == "active",
        f"{took:.2f} s, status: {status}",
    )
    user = machine.run("sh", "-c", f"stat -c %U /proc/{machine.show('MainPID')}").stdout.strip()
    proof.check("it does not run as root", user not in {"root", ""}, user)
    exposure = machine.run("systemd-analyze", "security", "--no-pager", UNIT, check=False).stdout.splitlines()[-1]
    found = re.findall(r"exposure level for \S+: ([0-9.]+)", exposure)
    proof.check("exposure at most 2.0", bool(found) and float(found[0]) <= 2.0, exposure.strip())
    verified = machine.run("systemd-analyze", "verify", UNIT, check=False).stderr.strip()
    proof.check("systemd-analyze verify has nothing to say", not verified, verified or "nothing")


def _reloads(proof: Proof, machine: Machine) -> None:
    before = machine.processes()
    machine.configure(CONFIG.replace("processes: 2", "processes: 3"))
    done = machine.run("systemctl", "reload", UNIT, check=False)
    wait_for(lambda: machine.processes() == before + 1, what="the third worker")
    proof.check("reload adds a worker", done.returncode == 0, f"{before} to {machine.processes()} processes")
    pid, worse = machine.show("MainPID"), CONFIG.replace("kind: sync", "kind: sink")
    machine.configure(worse)
    done = machine.run("systemctl", "reload", UNIT, check=False)
    same = machine.show("MainPID") == pid and machine.processes() == before + 1
    proof.check(
        "a reload of a bad file is refused and changes nothing",
        done.returncode != 0 and same,
        f"exit {done.returncode}",
    )
    why = [line for line in machine.journal().splitlines() if "sink" in line]
    proof.check(
        "and the journal names the place", any("tenure.yaml:" in line for line in why), (why or ["nothing"])[-1][:160]
    )
    machine.configure(CONFIG)
    machine.run("systemctl", "reload", UNIT)


def _is_watched(proof: Proof, machine: Machine) -> None:
    pid = machine.show("MainPID")
    machine.run("kill", "-KILL", pid)
    wait_for(
        lambda: machine.show("ActiveState") == "active" and machine.show("MainPID") not in {pid, "0"}, what="a restart"
    )
    wait_for(lambda: machine.show("SubState") == "running", what="the tree to be ready again")
    proof.check(
        "kill -9 of the parent: nothing is left, and it comes back",
        machine.show("NRestarts") == "1",
        f"NRestarts {machine.show('NRestarts')}",
    )
    _override(machine, "WatchdogSec=2")
    machine.run("systemctl", "restart", UNIT)
    pid = machine.show("MainPID")
    machine.run("kill", "-STOP", pid)
    wait_for(
        lambda: machine.show("MainPID") not in {pid, "0"} and machine.show("ActiveState") == "active",
        what="the watchdog",
    )
    journal = machine.run("journalctl", "--no-pager", "-o", "cat", "-u", UNIT).stdout
    proof.check(
        "a parent that hangs is replaced by the watchdog",
        "Watchdog timeout" in journal,
        "Watchdog timeout in the journal",
    )
    time.sleep(5)  # more than two watchdog periods: the loop feeds it
    alive = machine.show("MainPID")
    proof.check(
        "one that works feeds the watchdog",
        machine.show("Result") == "success" and alive != "0",
        f"pid {alive} after 5 s of a 2 s watchdog",
    )
    _override(machine, "")


def _stops(proof: Proof, machine: Machine) -> None:
    took = seconds(lambda: machine.run("systemctl", "stop", UNIT))
    result = machine.show("Result")
    proof.check(
        "an idle stop is clean",
        result == "success" and machine.processes() == 0,
        f"{took:.2f} s, {result}, {machine.processes()} processes",
    )
    machine.run("systemctl", "start", UNIT)
    enqueue = '/opt/tenure/bin/tenure enqueue --config /etc/tenure shell.command \'command=["sleep", "60"]\''
    machine.run("sh", "-c", f"cd /var/lib/tenure && {enqueue}")
    wait_for(lambda: machine.run("pgrep", "-x", "sleep", check=False).returncode == 0, what="the job to run")
    took = seconds(lambda: machine.run("systemctl", "stop", UNIT))
    left = machine.run("pgrep", "-x", "sleep", check=False).stdout.strip()
    code = machine.show("ExecMainStatus")
    proof.check(
        "a stop with a long job ends within grace + 3.5 s, and its command too",
        took < 7 and not left,
        f"{took:.2f} s, exit {code}",
    )


def _gives_up(proof: Proof, machine: Machine) -> None:
    machine.configure("nonsense: 1\n")
    machine.run("systemctl", "reset-failed", UNIT, check=False)
    machine.run("systemctl", "start", UNIT, check=False)
    state = machine.show("ActiveState"), machine.show("ExecMainStatus"), machine.show("NRestarts")
    proof.check("a wrong configuration is not tried again", state == ("failed", "78", "0"), f"{state}")
    machine.configure(CONFIG)


def _runs_several(proof: Proof, machine: Machine) -> None:
    machine.run("install", "-m", "644", "/src/systemd/tenure@.service", "/etc/systemd/system/tenure@.service")
    machine.run("systemctl", "daemon-reload")
    for number, name in enumerate(("blue", "green")):
        machine.run("mkdir", "-p", f"/etc/tenure/{name}")
        text = CONFIG.replace("18098", str(18110 + number)) + f"cluster: {name}\n"
        (machine.root / f"etc/tenure/{name}/tenure.yaml").write_text(text)
        machine.run("chgrp", "-R", "tenure", "/etc/tenure")
        machine.run("systemctl", "start", f"tenure@{name}.service")
    states = [machine.show("ActiveState", f"tenure@{name}.service") for name in ("blue", "green")]
    proof.check("two clusters run side by side from the template", states == ["active", "active"], states)
    machine.run("systemctl", "stop", "tenure@blue.service", "tenure@green.service")


def _takes_credentials(proof: Proof, machine: Machine) -> None:
    server = "$(/opt/tenure/bin/python -c 'from supervisor.embedded.valkey import find_server; print(find_server())')"
    listens = "--port 18097 --requirepass not-a-secret --save '' --dir /tmp --daemonize yes"
    machine.run("sh", "-c", f"{server} {listens}")
    drop_in = machine.root / "etc/systemd/system/tenure.service.d"
    drop_in.mkdir(exist_ok=True)
    shutil.copy(ROOT / "systemd/credentials.conf", drop_in / "credentials.conf")
    secret = machine.root / "etc/tenure/redis-password"
    secret.write_text("not-a-secret\n")
    secret.chmod(0o600)
    machine.configure(CONFIG + "redis: {url: 'redis://127.0.0.1:18097'}\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)
    shown = machine.show("Environment") + machine.journal()
    is_hidden = "not-a-secret" not in shown and "{file:/run/credentials/" in shown
    proof.check(
        "a credential opens Redis and is shown nowhere",
        is_hidden,
        f"{machine.show('StatusText')}, {machine.show('Environment')}",
    )
    machine.run("systemctl", "stop", UNIT)
    (drop_in / "credentials.conf").unlink()
    machine.configure(CONFIG)


def _override(machine: Machine, line: str) -> None:
    directory = machine.root / "etc/systemd/system/tenure.service.d"
    directory.mkdir(exist_ok=True)
    (directory / "proof.conf").write_text(f"[Service]\n{line}\n")
    machine.run("systemctl", "daemon-reload")
