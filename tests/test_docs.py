"""What the documents name must exist: prose rots where no test reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "systemd").glob("*.md")])
FOLDERS = ("supervisor/", "tenure/", "jobs/", "tests/", "docs/", "config/", "systemd/", "bench/", "deploy/", ".ci/")
PATH = re.compile(r"`((?:%s)[A-Za-z0-9_./-]*)`" % "|".join(map(re.escape, FOLDERS)))  # noqa: UP031 - braces abound
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
TEST = re.compile(r"`(test_[a-z0-9_]+)`")
GLOSSARY = ROOT / "docs/glossary.md"
TARGET = re.compile(r"`make ([a-z0-9-]+)")


def relative(path: Path) -> str:
    """Return a path as a test id."""
    return str(path.relative_to(ROOT))


def problems_of(document: Path) -> Iterator[str]:
    """Yield every path, link, test and make target that a document names and that does not exist."""
    text = document.read_text()
    for name in PATH.findall(text):
        if not (ROOT / name).exists():
            yield f"{relative(document)} names {name}"
    for link in LINK.findall(text):
        if not (document.parent / link).exists():
            yield f"{relative(document)} links to {link}"
    for name in TEST.findall(text):
        if name not in names_of_tests():
            yield f"{relative(document)} names {name}"
    for target in TARGET.findall(text):
        if target not in targets():
            yield f"{relative(document)} names make {target}"


@cache
def names_of_tests() -> frozenset[str]:
    """Return the names of all tests and of their files."""
    files = list((ROOT / "tests").rglob("*.py"))
    functions = re.compile(r"\bdef (test_\w+)\(")
    return frozenset(name for path in files for name in (path.stem, *functions.findall(path.read_text())))


@cache
def targets() -> frozenset[str]:
    """Return the targets of the Makefile."""
    return frozenset(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_what_documents_name_exists() -> None:
    """A map that names a street which is gone sends the reader the wrong way; a renamed proof proves nothing."""
    assert [problem for document in DOCUMENTS for problem in problems_of(document)] == []


def test_the_index_lists_every_page() -> None:
    """A page that no index names is found by nobody."""
    index = ROOT / "docs/README.md"
    listed = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    assert [relative(page) for page in (ROOT / "docs").glob("*.md") if page not in {index, *listed}] == []


def test_nobody_is_told_to_install_the_name_from_an_index() -> None:
    """The name belongs there to whoever claims it first, and a remedy is followed without a second look."""
    told = re.compile(r"pip install (?:--\S+ )*['\"]?tenure(?![-\w./])")
    files = [*DOCUMENTS, *(ROOT / "config").rglob("*.yaml"), *(ROOT / "deploy").rglob("*.yaml")]
    files += [
        path for folder in ("supervisor", "tenure", "jobs") for path in (ROOT / folder).rglob("*") if path.is_file()
    ]
    texts = {relative(path): path.read_text(errors="ignore") for path in files if path.suffix not in {".pyc", ".so"}}
    assert [name for name, text in texts.items() if told.search(text)] == []


def test_every_decision_has_its_five_parts() -> None:
    """A decision without its alternatives will be argued again (Nygard's form)."""
    parts = ["Status", "Context", "Decision", "Consequences", "Alternatives"]
    decisions = sorted((ROOT / "docs/adr").glob("*.md"))
    assert [
        relative(each) for each in decisions if re.findall(r"^## (.+)$", each.read_text(), re.MULTILINE) != parts
    ] == []


def test_decisions_are_numbered_once_without_a_gap() -> None:
    """Others cite a decision by its number."""
    names = sorted(each.name for each in (ROOT / "docs/adr").glob("*.md"))
    assert [name[:4] for name in names] == [f"{number:04}" for number in range(1, len(names) + 1)]
    titles = [(ROOT / "docs/adr" / name).read_text().splitlines()[0] for name in names]
    assert [title for title, name in zip(titles, names, strict=True) if not title.startswith(f"# {name[:4]}: ")] == []


def test_every_line_of_the_threat_model_has_a_verdict_and_what_is_prevented_its_test() -> None:
    """A claim of prevention without a test is a hope, and an actor without an asset was not thought of."""
    actors = re.split(r"^## ", (ROOT / "docs/threat-model.md").read_text(), flags=re.MULTILINE)[1:6]
    assets = {"control of runs", "code execution", "secrets", "availability", "other tenants"}
    for actor in actors:
        rows = re.findall(r"^\| (?!asset)([^|-][^|]*) \| ([^|]*) \|$", actor, re.MULTILINE)
        assert {asset for asset, _ in rows} == assets, actor.splitlines()[0]
        for _, text in rows:
            assert re.match(r"Allowed|Prevented|Accepted", text), text
            for claim in re.split(r"\b(?=Allowed|Prevented|Accepted)", text):
                assert not claim.startswith("Prevented") or TEST.search(claim), text


def singular(word: str) -> str:
    """Return a noun without its plural ending."""
    for plural, ending in (("ies", "y"), ("sses", "ss"), ("ches", "ch")):
        if word.endswith(plural) and word != "series":
            return word.removesuffix(plural) + ending
    return word if word.endswith(("ss", "us", "is", "series")) else word.removesuffix("s")


def terms() -> list[str]:
    """Return the terms of the glossary, each row's together."""
    rows = re.findall(r"^\| ([^|]+) \| ", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return [row for row in rows if row != "term"]


def words_of_modules() -> dict[str, str]:
    """Return each word of a module's or folder's name, with one module of that name."""
    paths = [path for folder in ("supervisor", "jobs") for path in (ROOT / folder).rglob("*.py")]
    named = [(word, path) for path in paths for part in (path.stem, path.parent.name) for word in part.split("_")]
    return {singular(word): str(path.relative_to(ROOT)) for word, path in named if word.isalpha()}


def test_every_module_is_named_in_terms_of_the_glossary_or_plain_words() -> None:
    """A private word has its meaning on one page. Add a term to docs/glossary.md, or a plain word to plain_words.txt."""
    plain = set((ROOT / "tests/data/plain_words.txt").read_text(encoding="utf-8").split())
    explained = {singular(word) for row in terms() for word in re.findall("[a-z]+", row.lower())}
    used = words_of_modules()
    assert {word: path for word, path in used.items() if word not in explained | plain} == {}
    assert sorted(plain - used.keys()) == []


def test_every_term_of_the_glossary_is_in_use() -> None:
    """A term that nobody uses hides the one that replaced it. Pages, code and scripts count."""
    files = [path for folder in ("docs", "supervisor", "jobs") for path in (ROOT / folder).rglob("*")]
    used = " ".join(
        path.read_text(encoding="utf-8").lower()
        for path in files
        if path.suffix in {".py", ".lua", ".md"} and path != GLOSSARY
    )
    named = [term for row in terms() for term in re.sub(r" ?\(.*\)", "", row.lower()).replace("`", "").split(", ")]
    spelled = {term: re.sub(r"\\?[ -]", lambda _: r"[_\s-]", re.escape(term)) for term in named}
    assert [term for term, pattern in spelled.items() if not re.search(rf"\b{pattern}", used)] == []


def test_terms_are_explained_once() -> None:
    """Two explanations of one word are two meanings."""
    found = [term.strip() for row in terms() for term in row.split(",")]
    assert sorted({term for term in found if found.count(term) > 1}) == []
