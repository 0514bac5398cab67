"""What a person is told to do about a wrong value helps: done, it is not refused again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.core.errors import ConfigError
from supervisor.settings.loader import load
from supervisor.settings.schema import Shape, ShapeKind, settings_shape

Place = tuple[str | int, ...]
AROUND: dict[str, dict[str, Any]] = {"schedules": {"job": "m.f"}, "workers": {"kind": "async"}, "webhooks": {}}


def places(shape: Shape, path: Place = ()) -> Iterator[Place]:
    """Yield the path of every text that the settings know, one of each table and list."""
    if shape.kind is ShapeKind.TEXT:
        yield path
    elif shape.kind is ShapeKind.SECTION:
        for name, child in shape.children.items():
            yield from places(child, (*path, name))
    elif shape.item is not None:
        yield from places(shape.item, (*path, 0 if shape.kind is ShapeKind.LIST else "x"))


def written(path: Place, value: Any) -> Any:
    """Return a configuration with one value, and what its section cannot be without."""
    for step in reversed(path[2:] if path[0] in AROUND else path):
        value = [value] if step == 0 else {step: value}
    return {path[0]: {path[1]: AROUND[str(path[0])] | value}} if path[0] in AROUND else value


@pytest.fixture
def problems(tmp_path: Path) -> Any:
    """Return what is wrong with a configuration: path and remedy."""

    def found(tree: Any) -> dict[str, str]:
        (tmp_path / "tenure.yaml").write_text(yaml.safe_dump(tree))
        try:
            load(files=[tmp_path / "tenure.yaml"], environ={}, flags={})
        except ConfigError as error:
            return {problem.path: problem.remedy for problem in error.problems}
        return {}

    return found


@pytest.mark.parametrize("values", [(5, True), pytest.param((5, 1_798_761_600, 2.5, True), marks=pytest.mark.long)])
def test_whoever_is_told_to_quote_a_value_can(problems: Any, values: tuple[float, ...]) -> None:
    """Of every text of the settings, with numbers and a truth value in its place."""
    quoted = []
    for path in places(settings_shape()):
        for value in values:
            told = [where for where, remedy in problems(written(path, value)).items() if remedy == "quote it"]
            if told and path[-1] != "ics":  # which names a file, and it may be called so
                quoted.append(path)
                assert not problems(written(path, str(value).lower())).keys() & told, (path, value)
    assert ("cluster",) in quoted
    assert ("schedules", "x", "description") in quoted


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("at", 1_798_761_600, "2027-01-01T09:00:00+01:00"),
        ("start_at", 1_798_761_600, "2027-01-01T09:00:00+01:00"),
        ("cron", 5, '"30 2 * * *"'),
        ("timezone", 1, "Europe/"),
    ],
)
def test_a_number_for_a_moment_is_told_how_one_is_written(problems: Any, field: str, value: int, words: str) -> None:
    """In quotes it would be refused again."""
    when = {} if field in {"at", "cron"} else {"every": "1h"}
    told = problems({"schedules": {"x": {"job": "m.f", **when, field: value}}})
    assert words in told[f"schedules.x.{field}"], told
