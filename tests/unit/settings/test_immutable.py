"""Options, settings, completed configuration: three types, each made from the one before, none of them changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from supervisor.app.tree import Tree
from supervisor.core.model import ScheduleDef
from supervisor.settings.base import Section
from supervisor.settings.loader import Loaded, load
from supervisor.settings.schedules.complete import complete
from supervisor.settings.sections.models import Settings
from tests.kit.tables import table


def sections(of: type[Section] = Section) -> Iterator[type[Section]]:
    """Yield every kind of section that the settings have."""
    for kind in of.__subclasses__():
        yield kind
        yield from sections(kind)


@table("kind", sorted(set(sections()), key=str))
def test_every_section_is_frozen_and_knows_its_keys(kind: type[Section]) -> None:
    """What was validated cannot become something else afterwards."""
    assert kind.model_config["frozen"] is True
    assert kind.model_config["extra"] == "forbid"


def test_settings_cannot_be_changed() -> None:
    """A change is a new start or a reload, with everything validated again."""
    loaded = load(files=[], environ={}, flags={})

    with pytest.raises(ValidationError, match="frozen"):
        loaded.settings.cluster = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        loaded.settings.web.port = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.settings = Settings()  # type: ignore[misc]


def test_what_runs_was_completed_from_what_was_loaded() -> None:
    """complete() takes what only load() returns, and its schedules are immutable; so is the tree made of them."""
    assert dataclasses.fields(Loaded)
    assert dataclasses.is_dataclass(Tree)
    assert Tree.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert ScheduleDef.__struct_config__.frozen
    assert (
        complete.__annotations__ | {"return": "tuple[ScheduleDef, ...]", "loaded": "Loaded"} == complete.__annotations__
    )


def test_every_setting_has_its_default_and_its_meaning_in_one_place() -> None:
    """The docstring under a field is the documentation of files, flags and the schema."""
    for kind in set(sections()):
        for name, info in kind.model_fields.items():
            assert info.description, f"{kind.__name__}.{name} has no docstring"
