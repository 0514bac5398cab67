"""What the documents show can be typed: code parses, the README's runs, configurations load.

Examples of docs/testing.md and docs/writing-jobs.md are run where their subjects are tested.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from supervisor.app.configuration import load
from tests.kit.launcher import tenure

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PARTS = {"working-hours", "exclude"}  # top keys of examples that show a part of a schedule


def blocks(language: str, is_meant: Callable[[str], bool] = bool) -> list[object]:
    """Return every example in a language that is meant, named by its document."""
    found = []
    for document in DOCUMENTS:
        texts = re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)
        meant = [text for text in texts if is_meant(text)]
        found += [pytest.param(text, id=f"{document.stem}-{number}") for number, text in enumerate(meant)]
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
    (file := tmp_path / "tenure.yaml").write_text(re.sub(r"\$\{file:[^}]*\}", f"${{file:{secret}}}", text))

    assert load(files=[file], environ={}, flags={}).files == (file,)


def test_the_example_of_the_readme_is_a_whole_program(tmp_path: Path) -> None:
    """Two files as they stand there; the first thing that people try."""
    readme = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (config,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "myjobs.py").write_text(code)
    (tmp_path / "tenure.yaml").write_text(config)
    checked = tenure(tmp_path, "config", "validate")

    assert checked.returncode == 0, checked.stdout + checked.stderr
