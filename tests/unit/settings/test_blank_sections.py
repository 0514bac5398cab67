"""A section, table or entry with nothing after its colon: it says nothing, where null goes back to the default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.settings.document import Node, merge
from supervisor.settings.schema import Shape, ShapeKind, settings_shape
from supervisor.settings.sections.models import Settings
from supervisor.settings.yaml_source import parse_text
from tests.kit.tables import table


def _mappings(shape: Shape, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every section, table and free mapping, of entries of tables too."""
    if shape.kind not in {ShapeKind.SECTION, ShapeKind.TABLE, ShapeKind.FREE}:
        return
    yield path
    inner = {"entry": shape.item} if shape.kind is ShapeKind.TABLE else shape.children
    for key, child in inner.items():
        if child is not None:
            yield from _mappings(child, (*path, key))


@table("path", [path for path in _mappings(settings_shape()) if path])
def test_a_mapping_with_nothing_in_it_says_nothing(path: tuple[str, ...]) -> None:
    """What a file keeps when its last line there is commented out; null is an order to forget, and says so."""
    shape = settings_shape()
    base, blank, null = (
        parse_text("".join(f"{'  ' * depth}{key}:\n" for depth, key in enumerate(path))[:-1] + text, str).root
        for text in (" {kept: 1}", "", " null")
    )
    assert base is not None
    assert blank is not None
    assert null is not None

    found, forgot = merge(base, blank, shape), merge(base, null, shape)
    assert found is not None
    assert found.plain() == base.plain()
    assert forgot is not None
    assert forgot.nearest(path)[0] == path[:-1]
    alone = merge(Node({}, ""), blank, shape)
    assert alone is not None
    assert alone.nearest(path)[0] != path


BLANK = "redis:\n  # url: x\nschedules:\n  # s: {}\nprofiles:\nworkers:\n  w:\nweb:\n  # port: 3\ncluster:\n"


@pytest.mark.parametrize("place", ["file", "conf.d", "variables", "null"])
def test_blank_sections_of_a_later_layer_keep_those_before(place: str, desk: Any) -> None:
    """A drop-in whose entries are commented out took schedules, Redis and blackouts away, on all replicas at once."""
    desk.add(
        "redis: {url: 'redis://r/0'}\nschedules: {s: {job: x, every: 1m}}\nweb: {port: 1}\ncluster: c\n"
        "profiles: {p: {timeout: 5s}}\nworkers: {w: {kind: sync}}\n",
        "1.yaml",
    )
    environ = {}
    if place == "variables":
        environ = {f"TENURE_{name}": "# nothing\n" for name in ("REDIS", "SCHEDULES", "PROFILES", "WORKERS", "WEB")}
        environ |= {"TENURE_SCHEDULES__S": " ", "TENURE_WORKERS__W": "# kind: async"}
    else:
        text = BLANK if place != "null" else "redis: null\nschedules: ~\nprofiles: Null\nweb: NULL\n"
        if place == "conf.d":
            desk.write("conf.d/9.yaml", text)
        else:
            desk.add(text, "2.yaml")

    settings = desk.load(environ).settings
    if place == "null":
        assert (settings.redis, settings.schedules, settings.web) == (Settings().redis, {}, Settings().web)
        assert "p" not in settings.profiles
        return
    assert settings.redis.url.get_secret_value() == "redis://r/0"
    assert (set(settings.schedules), set(settings.workers), settings.web.port) == ({"s"}, {"w"}, 1)
    assert "p" in settings.profiles
    assert settings.cluster == ("c" if place == "variables" else "default"), "a single value goes back"


def test_blank_sections_of_the_defaults_of_an_image_say_nothing(desk: Any) -> None:
    """They lie over nothing."""
    assert desk.load({"TENURE_DEFAULTS": str(desk.write("image/d.yaml", BLANK))}).settings == Settings()
