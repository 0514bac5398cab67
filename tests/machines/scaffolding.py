"""``tenure init`` from a wheel of this tree, in an empty directory with an empty virtual environment.

Needs a package index. What make test shows with this interpreter and this checkout, this shows for a person who has
neither: that the wheel carries the templates, and that nothing is used which only developers have.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.machines.proof import Proof, run, seconds, wait_for

ROOT = Path(__file__).resolve().parents[2]
RUNS = {"app": ("demo.remind", "demo.sync", "demo.sync_all"), "plugin": ("plugin.plan", "plugin.run")}


def prove(proof: Proof) -> None:
    """Build, install, and do what the README of each template says."""
    with TemporaryDirectory(prefix="tenure-init-") as place:
        directory = Path(place)
        python = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        took = seconds(lambda: run([*python, "--wheel-dir", str(directory), str(ROOT)]))
        (wheel,) = directory.glob("*.whl")
        proof.check("the wheel builds", True, f"{wheel.name}, {took:.0f} s")  # noqa: FBT003
        for template in RUNS:
            _prove_template(proof, directory / template, wheel, template)


def _prove_template(proof: Proof, directory: Path, wheel: Path, template: str) -> None:
    directory.mkdir()
    venv.create(directory / "venv", with_pip=True)
    tools = directory / "venv/bin"
    pip = [str(tools / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TENURE_"))}
    project = directory / "demo"
    took = seconds(lambda: run([*pip, f"{wheel}[testing]"]))
    made = _in(directory, environ, str(tools / "tenure"), "init", "demo", "--template", template)
    proof.check(f"{template}: tenure init", made.returncode == 0, f"installed in {took:.0f} s; {made.stderr.strip()}")
    installed = _in(project, environ, *pip, "--editable", ".[test]")
    proof.check(f"{template}: the project installs", installed.returncode == 0, installed.stderr[-500:] or "quietly")
    tested = _in(project, environ, str(tools / "pytest"))
    is_green = tested.returncode == 0 and " passed" in tested.stdout
    proof.check(f"{template}: its tests pass", is_green, tested.stdout.strip()[-2000 if not is_green else -60 :])
    with _running(project, environ, str(tools / "tenure"), "run", "--port", "0", "--log-format", "json") as log:
        wait_for(lambda: set(RUNS[template]) <= _finished(log), what=f"runs of {RUNS[template]}", bound_s=150)
    proof.check(f"{template}: tenure run runs its jobs", True, sorted(_finished(log)))  # noqa: FBT003


def _in(directory: Path, environ: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=600, check=False)


@contextmanager
def _running(project: Path, environ: dict[str, str], *command: str) -> Iterator[Path]:
    log = project / "run.log"
    with log.open("wb") as file:
        tree = subprocess.Popen(command, cwd=project, env=environ, stdout=file, stderr=file)
    try:
        yield log
    finally:
        tree.send_signal(signal.SIGTERM)
        tree.wait(60)


def _finished(log: Path) -> set[str]:
    """Return the jobs of which a run has finished."""
    lines = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}"))
    return {str(line["job"]) for line in lines if line["event"] == "run_succeeded"}
