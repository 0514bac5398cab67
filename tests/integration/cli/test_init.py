"""``tenure init`` as a person meets it: what it writes works at once. From a wheel, in an empty environment: make init-check."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.launcher import run, run_pytest

ROOT = Path(__file__).parents[3]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
RUFF = """
line-length = 120
target-version = "py311"
src = [".", "jobs"]
[lint]
select = ["ALL"]
ignore = ["COM812", "CPY001", "D203", "D213", "EM101", "TRY003", "S101", "S603", "INP001", "ANN401"]
"""


def command(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module: the command by a fork, another one by a new interpreter."""
    if arguments[0] == "supervisor":
        return run(arguments[1:], cwd=directory, environ=ENVIRON)
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=directory, env=ENVIRON, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("template", ["app", "plugin"])
def test_the_tests_of_a_new_project_pass_at_once(tmp_path: Path, template: str) -> None:
    """Jobs, a fire under a driven clock, an election: the first thing a person sees is green."""
    made = command(tmp_path, "supervisor", "init", "night-jobs", "--template", template)
    assert made.returncode == 0, made.stderr

    tested = run_pytest(tmp_path / "night-jobs")

    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert " passed" in tested.stdout


@pytest.mark.share(2)
@pytest.mark.parametrize("template", ["app", "plugin"])
def test_a_new_project_is_tidy(tmp_path: Path, template: str) -> None:
    """It is read as an example, so it keeps to the rules that this project keeps to."""
    command(tmp_path, "supervisor", "init", "demo", "--template", template)
    (tmp_path / "demo/ruff.toml").write_text(RUFF)
    for check in (["check"], ["format", "--check"]):
        done = command(tmp_path, "ruff", *check, "--no-cache", "demo")
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_of_a_new_project_has_no_lint(tmp_path: Path) -> None:
    """The same linter holds the Dockerfile of this project."""
    command(tmp_path, "supervisor", "init", "demo")
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert hadolint
    found = subprocess.run([hadolint, tmp_path / "demo/Dockerfile"], capture_output=True, text=True, check=False)

    assert (found.returncode, found.stdout) == (0, "")


def test_it_says_what_it_wrote_and_what_comes_next(tmp_path: Path) -> None:
    """Three commands from nothing to running jobs."""
    said = command(tmp_path, "supervisor", "init", "demo").stdout

    assert "demo/jobs/demo/mail.py\n" in said
    assert said.splitlines()[-4:] == ["  cd demo", "  pip install --editable '.[test]'", "  pytest", "  tenure run"]


def test_a_directory_that_holds_something_is_left_alone_without_force(tmp_path: Path) -> None:
    """With it what is missing is added, and nothing that was there changes."""
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/README.md").write_text("mine")
    refused = command(tmp_path, "supervisor", "init", "demo")
    assert refused.returncode == 2
    assert "demo holds something already (README.md)" in refused.stderr
    assert [each.name for each in (tmp_path / "demo").iterdir()] == ["README.md"]

    added = command(tmp_path, "supervisor", "init", "demo", "--force")

    assert added.returncode == 0
    assert "demo/README.md was there already, and is as it was" in added.stderr
    assert (tmp_path / "demo/README.md").read_text() == "mine"
    assert (tmp_path / "demo/pyproject.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["Demo"], 2, "'Demo' is no name for a project"),
        (["json"], 2, "would hide a module of that name"),
        (["demo", "--template", "web"], 2, "'web' is not one of 'app', 'plugin'"),
        ([], 2, "Missing argument 'NAME'"),
        (["taken"], 2, "taken exists and is no directory"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line_and_changes_nothing(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    """A name, a template or a place that will not do."""
    (tmp_path / "taken").write_text("")
    done = command(tmp_path, "supervisor", "init", *arguments)

    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]


def test_a_place_that_takes_no_files_is_named(tmp_path: Path) -> None:
    """Exit 73, as everywhere when something cannot be created; a file system without room for names stands for all."""
    (tmp_path / "demo").symlink_to("/proc/self/task")
    done = command(tmp_path, "supervisor", "init", "demo", "--force")

    assert done.returncode == 73
    assert "cannot write demo/" in done.stderr
    assert "nothing was left behind" in done.stderr
