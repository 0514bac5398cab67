"""What the documents show can be typed: code parses, the README's runs, configurations load.

Examples of docs/writing-jobs.md are run where their subjects are tested.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from supervisor.app.configuration import load
from tests.kit.launcher import run_pytest, tenure
from tests.unit.core.test_icalendar import file_of

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PARTS = {"working-hours", "exclude", "patches"}  # top keys of examples of a part of a schedule, and of Kustomize's


def blocks(language: str, is_meant: Callable[[str], bool] = bool) -> list[object]:
    """Return every example in a language that is meant, named by its document."""
    found = []
    for document in DOCUMENTS:
        texts = re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)
        meant = [text for text in texts if is_meant(text)]
        found += [pytest.param(text, id=f"{document.stem}-{number}") for number, text in enumerate(meant)]
    assert found, f"no example in {language}"
    return found


def is_configuration(text: str) -> bool:
    """Return whether an example is a whole configuration of ours: no part of a schedule, and none of Cloudforet's."""
    names = set(yaml.safe_load(text))
    return not names & PARTS and not all(name.isupper() for name in names)


@pytest.mark.parametrize("text", blocks("python"))
def test_examples_of_code_parse(text: str) -> None:
    """Somebody will paste it."""
    assert ast.parse(text).body


@pytest.mark.parametrize("text", blocks("yaml", is_configuration))
def test_examples_of_configuration_load(text: str, tmp_path: Path) -> None:
    """Every name and value is checked as at a start; that their jobs exist is not."""
    (secret := tmp_path / "secret").write_text("a secret of more than 32 characters, for every use")
    (tmp_path / "feiertage.ics").write_text(file_of("DTSTART:20261225"))
    (file := tmp_path / "tenure.yaml").write_text(re.sub(r"\$\{file:[^}]*\}", f"${{file:{secret}}}", text))

    assert load(files=[file], environ={}, flags={}).files == (file,)


def test_the_examples_of_the_readme_are_a_whole_project(tmp_path: Path) -> None:
    """Files as they are shown; the first thing that people try. Their test runs the job and awaits its result."""
    shown = re.findall(r"```(?:python|yaml)\n# ([\w.]+)[^\n]*\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for name, text in shown:
        (tmp_path / name).write_text(text)
    checked = tenure(tmp_path, "config", "validate")
    tested = run_pytest(tmp_path, "test_myjobs.py")

    assert [name for name, _ in shown] == ["myjobs.py", "tenure.yaml", "shop.py", "test_myjobs.py"]
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


SLOW = "replica_answers or winter_and_summer"
"""Examples of docs/testing.md that start a server or live for a day."""


@pytest.mark.parametrize("chosen", [f"not ({SLOW})", pytest.param(SLOW, marks=pytest.mark.long)])
def test_the_examples_of_the_documentation_run(tmp_path: Path, chosen: str) -> None:
    """docs/testing.md is copied into a file and run as a user would."""
    texts = re.findall(r"```python\n(.*?)```", (ROOT / "docs/testing.md").read_text(), re.DOTALL)
    assert texts
    (tmp_path / "test_example.py").write_text("\n\n".join(texts))
    result = run_pytest(tmp_path, "-k", chosen, "test_example.py")

    assert result.returncode == 0, result.stdout + result.stderr
