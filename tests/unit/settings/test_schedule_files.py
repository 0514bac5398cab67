"""Files of schedules: three forms, one meaning, and the line of each mistake."""

from __future__ import annotations

from supervisor.settings.document import Node
from supervisor.settings.schedules.files import Format, guess_format, read_entries
from tests.kit.tables import table


def plain(raw: str, name: str = "f", form: Format | None = None) -> dict[str, object]:
    found = read_entries(raw.encode(), name=name, form=form)
    assert found.problems == ()
    return {key: value.plain() if isinstance(value, Node) else value for key, value in found.schedules.items()}


@table(
    ("name", "raw", "form"),
    [
        ("a.json", b"", Format.JSON),
        ("a.jsonl", b"", Format.NDJSON),
        ("a.ndjson", b"", Format.NDJSON),
        ("a.yaml", b'{"id": 1}', Format.YAML),
        ("-", b'{"id": "a"}\n{"id": "b"}\n', Format.NDJSON),
        ("-", b'{"id": "a"}', Format.NDJSON),
        ("-", b'{"a": {"job": "j"}}', Format.JSON),
        ("-", b'{\n "id": "a"}', Format.JSON),
        ("-", b"[]", Format.JSON),
        ("-", b"a: {job: j}\n", Format.YAML),
    ],
)
def test_the_form_is_told_by_the_name_else_by_the_beginning(name: str, raw: bytes, form: Format) -> None:
    """Standard input has no name."""
    assert guess_format(name, raw) is form


def test_all_forms_give_the_same_entries() -> None:
    """A mapping, one under ``schedules``, a list, and lines."""
    wanted = {"a": {"job": "j"}, "b": {"job": "k"}}
    assert plain("a: {job: j}\nb: {job: k}\n") == wanted
    assert plain("x-note: 1\nschedules:\n  a: {job: j}\n  b: {job: k}\n") == wanted
    assert plain("- {id: a, job: j}\n- {id: b, job: k}\n") == wanted
    assert plain('[{"id": "a", "job": "j"}, {"id": "b", "job": "k"}]') == wanted
    assert plain('{"id": "a", "job": "j"}\n\n{"id": "b", "job": "k"}') == wanted


def test_every_entry_knows_its_line() -> None:
    """For the mistakes that are found later."""
    lines = read_entries(b'{"id": "a"}\n\n{"id": "b"}\n', name="f.ndjson").schedules
    assert lines["b"].origin == "f.ndjson:3"
    assert read_entries(b"a: {job: j}\nb: {job: k}\n", name="f.yaml").schedules["b"].origin == "f.yaml:2"


@table(
    ("name", "raw", "told"),
    [
        ("f.ndjson", b'{"id": "a"}\n{"id": "a"}', "f.ndjson:2: id: 'a' is there already; see line 1"),
        (
            "f.ndjson",
            b'{"id": "a", "args": {"x": 1, "x": 2}}',
            "f.ndjson:1: is not a JSON object with an id: the key 'x' stands twice",
        ),
        ("f.json", b'{"a": {"every": "1h", "every": "2h"}}', "f.json: is not JSON: the key 'every' stands twice"),
        ("f.ndjson", b'{"id": "a"}\nnonsense', "f.ndjson:2: is not a JSON object with an id"),
        ("f.ndjson", b"[" * 5000, "f.ndjson:1: is not a JSON object with an id"),
        ("f.json", b"[" * 5000, "f.json: is not JSON"),
        ("f.json", b"[" * 400 + b"]" * 400, "f.json: is nested deeper than 110 levels"),
        ("f.ndjson", b'{"id": "a", "args": ' + b"[" * 400 + b"]" * 400 + b"}", "f.ndjson:1: is nested deeper"),
        ("f.json", b"[1]", "has no id"),
        ("f.json", b"7", "must be a mapping"),
        ("f.yaml", b"\xff", "f.yaml:1: is not UTF-8"),
        ("f.yaml", b"- {id: a}\n- {id: a}\n", "'a' is there already; see f.yaml:1"),
        ("f.yaml", b"web: {}\nschedules: {}\n", "f.yaml:1: web: is not a schedule"),
        ("f.yaml", b"a: [\n", "is not YAML"),
        ("f.yaml", b" " * (8 * 1024 * 1024 + 1), "write one JSON object on each line"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(name: str, raw: bytes, told: str) -> None:
    """And never a traceback."""
    found = read_entries(raw, name=name)
    assert any(told in str(problem) for problem in found.problems), found.problems


def test_an_empty_file_holds_nothing() -> None:
    """An apply of it changes nothing; a prune deletes what it covered."""
    assert read_entries(b"", name="f.ndjson") == ({}, ())
    assert read_entries(b"{}", name="f.json").schedules == {}
