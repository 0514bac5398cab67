"""What ``tenure init`` writes, refuses and leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from supervisor.cli import init
from supervisor.core.errors import CannotCreateError
from supervisor.version import __version__
from tests.kit.tables import table

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["demo", "night-jobs", "a1", "x" * init.NAME_MAX])
def test_a_usable_name_gives_a_package(name: str) -> None:
    """Hyphens are for people, underscores for Python."""
    assert init.package_of(name) == name.replace("-", "_")


@table(
    ("name", "why"),
    [
        ("", "no name for a project"),
        ("Demo", "no name for a project"),
        ("../demo", "no name for a project"),
        ("/tmp/demo", "no name for a project"),
        ("demo\n", "no name for a project"),
        ("1st", "no name for a project"),
        ("a--b", "no name for a project"),
        ("a_b", "no name for a project"),
        ("x" * (init.NAME_MAX + 1), "no name for a project"),
        ("class", "would hide"),
        ("json", "would hide"),
        ("tests", "would hide"),
        ("jobs", "would hide"),
        ("supervisor", "would hide"),
        ("yaml", "would hide the module that PyYAML installs"),
    ],
)
def test_a_name_that_would_not_work_is_refused_with_the_reason(name: str, why: str) -> None:
    """A project called json breaks in ways that nobody connects with its name."""
    with pytest.raises(ValueError, match=why):
        init.package_of(name)


@pytest.mark.parametrize("template", init.TEMPLATES)
def test_every_placeholder_is_filled_in_names_and_contents(template: str) -> None:
    """One that was left shows as a broken file in somebody else's project."""
    files = init.rendered(template, "night-jobs")

    for path, text in files.items():
        assert not re.search(r"@[a-z]+@", path + text), path
        assert not path.endswith(".tmpl")
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
    assert f"tenure>={__version__}" in files["pyproject.toml"]
    assert any("night_jobs/" in path for path in files)


def test_a_file_that_exists_is_never_written_to(tmp_path: Path) -> None:
    """--force adds what is missing, also beside what somebody changed."""
    (tmp_path / "README.md").write_text("mine")
    written = init.write(tmp_path, {"README.md": "theirs", "tests/test_a.py": "new"})

    assert (written.new, written.kept) == (["tests/test_a.py"], ["README.md"])
    assert (tmp_path / "README.md").read_text() == "mine"


def test_what_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    """A second try then meets what the first one met."""
    (tmp_path / "tests").write_text("a file where a directory is needed")
    with pytest.raises(CannotCreateError, match=r"cannot write .*tests.*nothing was left behind"):
        init.write(tmp_path, {"jobs/demo/mail.py": "", "tests/test_a.py": ""})

    assert [each.name for each in tmp_path.iterdir()] == ["tests"]


@pytest.mark.parametrize("is_dangling", [True, False])
def test_a_link_is_not_followed_out_of_the_project(tmp_path: Path, *, is_dangling: bool) -> None:
    """Whoever owns the directory does not decide where we write."""
    outside, project = tmp_path / "outside", tmp_path / "project"
    project.mkdir()
    if not is_dangling:
        outside.mkdir()
    (project / "config").symlink_to(outside)
    with pytest.raises(CannotCreateError, match="config"):
        init.write(project, {"config/tenure.yaml": "version: 1"})

    assert not is_dangling or not outside.exists()
    assert is_dangling or list(outside.iterdir()) == []


def test_the_unit_of_a_project_is_that_of_tenure() -> None:
    """Two units would drift apart; this one is hardened and proved on a booted systemd."""
    ours = (ROOT / "systemd/tenure@.service").read_text().partition("[Unit]")[2]
    of_project = init.rendered("app", "demo")["systemd/demo.service"].partition("[Unit]")[2]
    for before, after in (
        (r"Description=.*", "Description=demo: periodic and background jobs"),
        (r"/opt/tenure/", "/opt/demo/"),
        (r"/etc/tenure/%i", "/etc/demo"),
        (r"tenure-%i", "demo"),
        (r"User=tenure", "User=demo"),
    ):
        ours = re.sub(before, after, ours)

    assert of_project == ours
