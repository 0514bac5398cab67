"""YAML with line numbers: every trap is a problem that names its line, and reading is bounded."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from supervisor.settings.yaml_source import BYTES_MAX, DEPTH_MAX, Parsed, parse_text, read_file
from tests.kit.tables import table


def parse(text: str) -> Parsed:
    """Read a text whose lines are called f:1, f:2 and so on."""
    return parse_text(text, lambda line: f"f:{line}")


def plain(text: str) -> object:
    """Return the data of a text without problems."""
    parsed = parse(text)
    assert not parsed.problems
    return parsed.root.plain() if parsed.root else None


def test_values_know_the_line_of_their_key() -> None:
    """A problem found at the very end still sends people to the right line."""
    root = parse("a: 1\nb:\n  c: |\n    text\n  d:\n    - x\n    - y\n").root
    assert root is not None
    assert {path: node.origin for path, node in root.walk() if path} == {
        ("a",): "f:1", ("b",): "f:2", ("b", "c"): "f:3", ("b", "d"): "f:5", ("b", "d", 0): "f:6", ("b", "d", 1): "f:7",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "---\n...\n", "null\n", "\ufeff"])
def test_an_empty_file_sets_nothing(text: str, tmp_path: Path) -> None:
    """A file whose every line is commented out is a usual thing."""
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    assert read_file(path) == Parsed(None, ())


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Editors on Windows put one there."""
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    root = read_file(path).root
    assert root is not None
    assert root.plain() == {"a": 1, "b": 2}


def test_every_duplicate_key_is_reported_with_both_lines() -> None:
    """PyYAML lets the last one win in silence."""
    parsed = parse("a: 1\nb: {c: 1, c: 2}\na: 2\n'a': 3\n")
    assert [str(problem) for problem in parsed.problems] == [
        "f:2: b.c: is written twice, first at f:2; keep one of them",
        "f:3: a: is written twice, first at f:1; keep one of them",
        "f:4: a: is written twice, first at f:1; keep one of them",
    ]


def test_every_ambiguous_scalar_is_reported_with_its_remedy() -> None:
    """All at once: fixing one file in five rounds is no way to work."""
    parsed = parse("a: on\nb: [12:30:00]\nc: {d: 012}\n")
    assert [str(problem) for problem in parsed.problems] == [
        "f:1: a: 'on' is a truth value to some YAML parsers and text to others; write true or false, or quote it",
        "f:2: b[0]: '12:30:00' is a base-60 number to some YAML parsers; quote it",
        "f:3: c.d: '012' is octal to some YAML parsers because of its leading zero; drop the zero, or quote it",
    ]


def test_quoted_scalars_are_texts() -> None:
    """Quoting is the remedy that the messages promise."""
    assert plain("a: 'on'\nb: \"012\"\nc: !!str 12:30\ne: |-\n  yes\n") == {
        "a": "on", "b": "012", "c": "12:30", "e": "yes",
    }  # fmt: skip


def test_keys_are_texts_as_written() -> None:
    """A schedule may be called 2026 or on; keys are names, not values."""
    assert plain("on: 1\n2026: 2\n~: 3\ntrue: 4\n") == {"on": 1, "2026": 2, "~": 3, "true": 4}


@table(
    ("text", "where", "message"),
    [
        ("a:\n\tb: 1\n", "f:2:1", "indent with spaces, not tabs"),
        ("a: 1\n \tb: 1\n", "f:2:", "tabs"),
        ("a: [1, 2\nb: 3\n", "f:2:", "not YAML"),
        ("a: 'x\n", "f:2:", "not YAML"),
        ("a: b: c\n", "f:1:5", "not YAML"),
        ("a: @x\n", "f:1:4", "not YAML"),
        ("a: 1\nb: \x01\n", "f:", "control characters"),
        ("%FOO\n%YAML 9.9\n---\na: 1\n", "f:1", "not YAML"),
    ],
)
def test_a_syntax_error_names_line_and_column(text: str, where: str, message: str) -> None:
    """The parser knows where it stumbled; so should the reader."""
    parsed = parse(text)
    assert parsed.root is None
    (problem,) = parsed.problems
    assert problem.where.startswith(where)
    assert message in str(problem)


@table(
    ("text", "message"),
    [
        ("a: 1\n---\nb: 2\n", "f:2: a second document starts here"),
        ("? [1]\n: 2\n", "a key must be text"),
        ("? {a: 1}\n: 2\n", "a key must be text"),
        ("a: !!python/object/apply:os.system [x]\n", "tags are not supported"),
        ("a: !secret x\n", "tags are not supported"),
        ("a: *b\n", "names no anchor"),
        ("a: &a [*a]\n", "names no anchor"),
        ("a: &a {b: *a}\n", "names no anchor"),
        ("a: &x 1\n<<: *x\n", "<< merges mappings only"),
    ],
)
def test_what_settings_have_no_use_for_is_refused(text: str, message: str) -> None:
    """Tags construct objects, a second document would be ignored, and a loop has no end."""
    assert any(message in str(problem) for problem in parse(text).problems)


def test_anchors_and_merge_keys_work() -> None:
    """x-defaults with << is how people share settings; explicit keys win over merged ones."""
    text = "x-d: &d {a: 1, b: 2}\nx-e: &e {b: 3, c: 4}\none: {<<: *d, b: 9}\ntwo: {<<: [*d, *e]}\n'<<': text\nkeep: {'<<': 1}\n"
    assert plain(text) == {
        "x-d": {"a": 1, "b": 2}, "x-e": {"b": 3, "c": 4}, "one": {"a": 1, "b": 9}, "two": {"a": 1, "b": 2, "c": 4},
        "<<": "text", "keep": {"<<": 1},
    }  # fmt: skip


def test_an_alias_bomb_is_refused_before_it_is_expanded() -> None:
    """Ten lines that stand for ten billion values; aliases count as often as they are used."""
    names = "abcdefghijk"
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in pairwise(names)
    )
    (problem,) = parse(bomb).problems
    assert "holds more than 200,000 values" in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{a: " * 100_000,
        "".join(f"{'  ' * level}a:\n" for level in range(1000)),
        "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(500)),
    ],
    ids=["lists", "mappings", "indentation", "chain of aliases"],
)
def test_deep_nesting_is_refused(text: str) -> None:
    """Whatever walks the tree later may recurse, because depth is bounded here."""
    (problem,) = parse(text).problems
    assert problem.message == f"is nested deeper than {DEPTH_MAX} levels"


def test_a_file_may_be_large_but_not_without_limit(tmp_path: Path) -> None:
    """Somebody will point --config at a data file one day."""
    path = tmp_path / "a.yaml"
    path.write_bytes(b"#" * (BYTES_MAX + 1))
    (problem,) = read_file(path).problems
    assert "larger than 8 MiB" in str(problem)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a: 1\nb: \xff\n", ":2: is not UTF-8"), (b"- a\n", ":1: the top level"), (b"text", "mapping")],
)
def test_a_file_that_is_no_configuration_says_why(content: bytes, message: str, tmp_path: Path) -> None:
    """One line each, never a traceback."""
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    parsed = read_file(path)
    assert parsed.root is None
    assert message in str(parsed.problems[0])


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """The operating system's own words, without a traceback."""
    assert str(read_file(tmp_path / "no.yaml").problems[0]).endswith(
        "no.yaml: cannot be read: No such file or directory"
    )
    assert "Is a directory" in str(read_file(tmp_path).problems[0])


@pytest.mark.parametrize(
    "text", ["password: 0123", "redis: {url: on}", "api_key: *hunter2", "token: !hunter2 x", "secret: 12:30"]
)
def test_a_trap_under_a_secret_key_is_not_quoted(text: str) -> None:
    """A password of digits is the likeliest victim of the octal trap, and must not land in a log."""
    shown = " ".join(str(problem) for problem in parse(text).problems)
    assert shown
    for secret in ("0123", "'on'", "hunter2", "12:30"):
        assert secret not in shown
