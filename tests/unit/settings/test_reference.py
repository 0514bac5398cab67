"""The reference file: complete, true, and the file in config/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from supervisor.settings.loader import load
from supervisor.settings.render import default_file
from supervisor.settings.schema import settings_shape
from supervisor.settings.sections.models import Settings

ROOT = Path(__file__).resolve().parents[3]


def test_the_file_in_config_is_the_generated_one() -> None:
    """After a change of settings: `tenure config default > config/tenure.yaml`."""
    assert (ROOT / "config/tenure.yaml").read_text(encoding="utf-8") == default_file()


def test_the_reference_file_loads_to_exactly_the_defaults(desk: Any) -> None:
    """Whoever starts from it starts from what the program would do without it."""
    desk.add(default_file())
    assert desk.load().settings == Settings()


def test_every_setting_appears_under_a_comment() -> None:
    """Those of a schedule in its example."""
    text = default_file()
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    shape = settings_shape()
    keys = [path[-1] for path in shape.paths()]
    for table in ("workers", "schedules", "plugins"):
        item = shape.children[table].item
        assert item is not None
        keys += list(item.children)
    for key in keys:
        places = [index for index, line in enumerate(lines) if re.match(rf" *(# )?{key}:", line)]
        assert any(
            lines[index - 1].lstrip().startswith("#") or index == 0 or _is_prose(lines[index - 1]) for index in places
        ), key


def _is_prose(line: str) -> bool:
    return bool(line.strip()) and not re.match(r" *[a-z_-]+:( |$)", line)


def test_the_example_of_a_schedule_is_valid_once_uncommented(desk: Any) -> None:
    """An example that does not load teaches the wrong thing."""
    text = default_file()
    example = re.search(r"^# schedules:\n(?:#  .*\n)+", text, re.MULTILINE)
    assert example is not None
    desk.add(re.sub(r"^# ", "", example[0], flags=re.MULTILINE))
    (schedule,) = desk.load().settings.schedules.values()
    assert schedule.every_s == 600


@pytest.mark.parametrize("name", ["demo", "conf.d"])
def test_the_examples_in_config_load(name: str, desk: Any) -> None:
    """`make run` starts one of them, and people copy the others."""
    for path in sorted((ROOT / "config" / name).iterdir()):
        if path.name.endswith((".yaml", ".yaml.example")):
            desk.files = [desk.write("copy.yaml", path.read_text(encoding="utf-8"))]
            assert desk.load().settings.schedules


def test_nothing_beside_the_reference_file_is_loaded_with_it() -> None:
    """conf.d holds examples that are not active, so that the file's defaults are what runs."""
    loaded = load(files=[ROOT / "config/tenure.yaml"], environ={}, flags={})
    assert loaded.settings == Settings()
