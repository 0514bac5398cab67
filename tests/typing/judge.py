"""Judges a type checker's findings in the code of users beside this file: ``python -m tests.typing.judge pyright``.

Each line that ends in ``# expect-error`` must be refused, and no other.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("tests/typing/right_calls.py", "tests/typing/wrong_calls.py")
_MYPY = re.compile(r"^(\S+?):(\d+): error: (.*)$", re.MULTILINE)

Findings = dict[tuple[str, int], str]


def expected() -> set[tuple[str, int]]:
    """Return the lines that must be refused."""
    lines = [
        (name, number, line) for name in FILES for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
    ]
    return {(name, number) for name, number, line in lines if line.endswith("# expect-error")}


def by_mypy() -> Findings:
    """Return what mypy refuses, with the settings of the product."""
    done = subprocess.run([sys.executable, "-m", "mypy", *FILES], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return {(name, int(line)): text for name, line, text in _MYPY.findall(done.stdout)}


def by_pyright() -> Findings:
    """Return what pyright refuses in its standard mode."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *FILES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {
        (str(Path(each["file"]).relative_to(ROOT)), each["range"]["start"]["line"] + 1): each["message"]
        for each in found
        if each["severity"] == "error"
    }


CHECKERS = {"mypy": by_mypy, "pyright": by_pyright}


def verdict(checker: str) -> list[str]:
    """Return where a checker is of another opinion; empty: nowhere."""
    found, wanted = CHECKERS[checker](), expected()
    wrong = [
        f"{name}:{line}: {checker} refuses it: {text}"
        for (name, line), text in found.items()
        if (name, line) not in wanted
    ]
    return sorted(wrong + [f"{name}:{line}: {checker} accepts it" for name, line in wanted - set(found)])


if __name__ == "__main__":
    problems = verdict(sys.argv[1])
    sys.exit("\n".join(problems) if problems else 0)
