"""What kind of scheduler a class is, read from its source."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.importers.cloudforet.classes import Sources, TimingKind, split_name
from tests.kit.tables import table


def sources(directory: Path, **files: str) -> Sources:
    for name, text in files.items():
        path = directory / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Sources([directory])


def test_the_bases_are_followed_through_imports_to_a_known_scheduler(tmp_path: Path) -> None:
    """Relative, renamed, dotted and starred imports, and a class of the same module."""
    found = sources(
        tmp_path,
        pkg__base="from supervisor.compat.cloudforet import HourlyScheduler as H\nclass Base(H):\n    pass\n",
        pkg__one="from .base import Base\nclass One(Base):\n    pass\nclass Two(One):\n    pass\n",
        pkg__star="from pkg.base import *\nclass Star(Base):\n    pass\n",
        pkg__dotted="import pkg.base\nclass Dotted(pkg.base.Base):\n    pass\n",
        pkg__plain="class Plain:\n    pass\n",
    )
    for name in ("pkg.one.One", "pkg.one:Two", "pkg.star.Star", "pkg.dotted.Dotted"):
        assert found.find(name).kind is TimingKind.HOURLY, name
    assert found.find("pkg.plain.Plain").kind is None
    assert found.find("pkg.plain.Plain").is_known


def test_a_constructor_tells_what_it_takes_and_what_it_fixes(tmp_path: Path) -> None:
    """Literals and defaults that reach the base are the timing; other arguments are taken."""
    found = sources(
        tmp_path,
        m=(
            "from spaceone.core.scheduler import IntervalScheduler\n"
            "class A(IntervalScheduler):\n"
            "    def __init__(self, queue, interval=45, region='x'):\n"
            "        super().__init__(queue, interval)\n"
        ),
    ).find("m.A")
    assert found.fixed == {"interval": 45}
    assert found.takes == {"interval", "region"}


@table("name", ["", "A", "a b.C", "a..B", "a.b:", "a:b:C", "../x.Y", "a.b.C()"])
def test_what_names_no_class_is_refused(name: str) -> None:
    """A backend is package.module.Class or package.module:Class."""
    assert split_name(name) is None


def test_sources_that_cannot_be_read_tell_nothing(tmp_path: Path) -> None:
    """A syntax error, a circle of imports, a module that is not there, a pipe or device in its place."""
    found = sources(tmp_path, bad="class A(:\n", a="from b import X\n", b="from a import X\n")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "endless.py").symlink_to("/dev/zero")
    names = ("bad.A", "a.X", "absent.A", "pipe.A", "endless.A")
    assert [found.find(name).kind for name in names] == [None] * 5
