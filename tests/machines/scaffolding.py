"""The README's first project and ``tenure init``, from a wheel of this tree in an empty virtual environment.

Needs a package index. What make test shows with this interpreter and this checkout, this shows for a person who has
neither: that the wheel carries the templates, that nothing is used which only developers have, and that a first job,
its awaited result and its test take less than five minutes, the installation included.
"""

from __future__ import annotations

import json
import os
import re
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
INSTALL = ("install", "--quiet", "--disable-pip-version-check")
FIRST_JOB_S_MAX = 300.0
FIRST_FILES = ["myjobs.py", "tenure.yaml", "shop.py", "test_myjobs.py"]
RUNS = {"app": ("demo.remind", "demo.sync", "demo.sync_all"), "plugin": ("plugin.plan", "plugin.run")}


def prove(proof: Proof) -> None:
    """Build, install, and do what the README of each template says."""
    with TemporaryDirectory(prefix="tenure-init-") as place:
        directory = Path(place)
        python = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        took = seconds(lambda: run([*python, "--wheel-dir", str(directory), str(ROOT)]))
        (wheel,) = directory.glob("*.whl")
        proof.check("the wheel builds", True, f"{wheel.name}, {took:.0f} s")  # noqa: FBT003
        took = seconds(lambda: _prove_first_job(proof, directory / "first", wheel))
        proof.check("all of it within five minutes", took <= FIRST_JOB_S_MAX, f"{took:.0f} s")
        for template in RUNS:
            _prove_template(proof, directory / template, wheel, template)


def _prove_first_job(proof: Proof, project: Path, wheel: Path) -> None:
    tools, environ, took = _install(project, wheel)
    readme = (ROOT / "README.md").read_text()
    shown = dict(re.findall(r"```(?:python|yaml)\n# ([\w.]+)[^\n]*\n(.*?)```", readme, re.DOTALL))
    proof.check(
        "the README shows a whole project", list(shown) == FIRST_FILES, f"{[*shown]}; installed in {took:.0f} s"
    )
    for name, text in shown.items():
        (project / name).write_text(re.sub(r"(?m)^redis: .*leave it out.*\n", "", text))
    with _running(project, environ, str(tools / "tenure"), "run", "--port", "0", "--log-format", "json") as log:
        wait_for(lambda: _events(log, "tree_ready"), what="the tree to be ready")
        awaited = _in(project, environ, str(tools / "python"), "shop.py")
    proof.check(
        "the result is awaited", awaited.stdout == "{'rows': 42}\n", (awaited.stdout + awaited.stderr)[-500:].strip()
    )
    tested = _in(project, environ, str(tools / "pytest"), "-q")
    proof.check("the test passes", "1 passed" in tested.stdout, tested.stdout.strip()[-500:])


def _install(directory: Path, wheel: Path) -> tuple[Path, dict[str, str], float]:
    """Return the programs of a new virtual environment with Tenure, its variables, and the seconds it took."""
    directory.mkdir()
    venv.create(directory / "venv", with_pip=True)
    tools = directory / "venv/bin"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TENURE_"))}
    return tools, environ, seconds(lambda: run([str(tools / "pip"), *INSTALL, f"{wheel}[testing]"]))


def _prove_template(proof: Proof, directory: Path, wheel: Path, template: str) -> None:
    tools, environ, took = _install(directory, wheel)
    project = directory / "demo"
    made = _in(directory, environ, str(tools / "tenure"), "init", "demo", "--template", template)
    proof.check(f"{template}: tenure init", made.returncode == 0, f"installed in {took:.0f} s; {made.stderr.strip()}")
    installed = _in(project, environ, str(tools / "pip"), *INSTALL, "--editable", ".[test]")
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
    return {str(line["job"]) for line in _events(log, "run_succeeded")}


def _events(log: Path, event: str) -> list[dict[str, object]]:
    lines = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}"))
    return [line for line in lines if line["event"] == event]
