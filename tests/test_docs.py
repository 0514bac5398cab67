"""What the documents name must exist: prose rots where no test reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "systemd").glob("*.md")])
FOLDERS = ("supervisor/", "jobs/", "tests/", "docs/", "config/", "systemd/", "bench/", "deploy/", ".ci/")
PATH = re.compile(r"`((?:%s)[A-Za-z0-9_./-]*)`" % "|".join(map(re.escape, FOLDERS)))  # noqa: UP031 - braces abound
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
TEST = re.compile(r"`(test_[a-z0-9_]+)`")
TARGET = re.compile(r"`make ([a-z0-9-]+)")


def relative(path: Path) -> str:
    """Return a path as a test id."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_path_and_link_resolves(document: Path) -> None:
    """A map that names a street which is gone sends the reader the wrong way."""
    text = document.read_text()
    for name in PATH.findall(text):
        assert (ROOT / name).exists(), f"{relative(document)} names {name}"
    for link in LINK.findall(text):
        assert (document.parent / link).exists(), f"{relative(document)} links to {link}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_test_and_make_target_named_exists(document: Path) -> None:
    """A promise whose proof was renamed is no longer proved."""
    text = document.read_text()
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for name in TEST.findall(text):
        if not (ROOT / f"tests/{name}.py").exists():
            assert f"def {name}(" in tests, f"{relative(document)} names {name}"
    makefile = (ROOT / "Makefile").read_text()
    for target in TARGET.findall(text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{relative(document)} names make {target}"


@pytest.mark.parametrize("decision", sorted((ROOT / "docs/adr").glob("*.md")), ids=relative)
def test_every_decision_has_its_five_parts(decision: Path) -> None:
    """A decision without its alternatives will be argued again (Nygard's form)."""
    headings = re.findall(r"^## (.+)$", decision.read_text(), re.MULTILINE)

    assert headings == ["Status", "Context", "Decision", "Consequences", "Alternatives"]
