"""``tenure schedule apply -f DIRECTORY``: a directory of files is one whole, applied as often as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import ClusterWithJobs

pytestmark = [pytest.mark.server]
REPORT = "report: {job: report.make, every: 1h}\n"


@pytest.fixture
def folder(desk: ClusterWithJobs) -> Path:
    """A directory with two files of schedules, and what editors and mounts leave beside them."""
    folder = Path(desk.write("10-reports.yaml", REPORT)).parent / "schedules"
    folder.mkdir()
    (folder / "10-reports.yaml").write_text(REPORT)
    (folder / "20-mail.ndjson").write_text('{"id": "mail", "job": "mail.send", "every": "1h", "args": {"to": "kim"}}\n')
    (folder / ".10-reports.yaml.swp").write_text("nothing to read")
    (folder / "README.md").write_text("# Not a schedule")
    return folder


def test_a_directory_is_applied_and_again_changes_nothing(desk: ClusterWithJobs, folder: Path) -> None:
    """What a deploy calls each time: files in the order of their names, whatever their format."""
    first = desk.tenure("apply", "-f", str(folder))
    assert (first.code, first.out) == (0, "2 created, 0 changed, 0 unchanged\n")

    again = desk.tenure("apply", "-f", str(folder), "-o", "json").json()

    assert again == {"created": 0, "changed": 0, "unchanged": 2, "deleted": 0, "refused": []}
    assert set(desk.world.stored()) == {"report", "mail"}


def test_an_id_in_two_files_is_refused_by_both_names_and_nothing_is_applied(
    desk: ClusterWithJobs, folder: Path
) -> None:
    """Which of them counts would depend on a name; mistakes of all files are told at once."""
    (folder / "30-more.yaml").write_text(f"{REPORT}broken: {{job: report.make}}\n")
    refused = desk.tenure("apply", "-f", str(folder))

    assert refused.code == 78
    assert f"30-more.yaml: report: is in {folder}/10-reports.yaml as well" in refused.err
    assert "broken" in refused.err
    assert desk.world.stored() == {}


def test_a_directory_without_schedules_is_told(desk: ClusterWithJobs, folder: Path) -> None:
    """A wrong path must not look like success."""
    for each in folder.iterdir():
        each.unlink()
    refused = desk.tenure("apply", "-f", str(folder))

    assert refused.code == 78
    assert "holds no file of schedules; up to 1000 files that end in .yaml" in refused.err


def test_prune_is_refused_while_one_of_the_files_is_empty(desk: ClusterWithJobs, folder: Path) -> None:
    """Several programs write them, and one failed: what its file held is still meant, unless it holds ``[]``."""
    (folder / "10-reports.yaml").write_text("report: {job: report.make, every: 1h, labels: {by: us}}\n")
    apply = ("apply", "-f", str(folder), "--prune", "--label", "by=us", "--yes")
    assert desk.tenure(*apply).code == 0
    (folder / "10-reports.yaml").write_text("")
    refused = desk.tenure(*apply)

    assert (refused.code, set(desk.world.stored())) == (78, {"report", "mail"})
    assert "10-reports.yaml: is empty, so --prune would delete all that it held" in refused.err
    (folder / "10-reports.yaml").write_text("[]")
    assert desk.tenure(*apply).code == 0
    assert set(desk.world.stored()) == {"mail"}
