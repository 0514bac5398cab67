"""The zone of an imported crontab: the one that the libc of this host, and so its cron, uses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from supervisor.importers.crontab.host_zone import HostFiles, host_zone

NEW_YORK, LIMA, UTC = b"TZif2 EST5EDT", b"TZif2 <-05>5", b"TZif2 UTC0"


class FakeHost:
    """A host whose /etc and database lie under one directory."""

    def __init__(self, root: Path) -> None:
        self.etc, self.database = root / "etc", root / "share" / "zoneinfo"
        self.etc.mkdir()
        self.localtime = self.etc / "localtime"
        self.files = HostFiles(self.etc, (self.database,), root / "mountinfo")
        zones = {"US/Eastern": NEW_YORK, "America/New_York": NEW_YORK, "America/Lima": LIMA, "Etc/UTC": UTC}
        for name, content in zones.items():
            file = self.database / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        (self.database / "zone1970.tab").write_text("# comment\nUS\t+404251-0740023\tAmerica/New_York\tEastern\n")

    def zone(self, **environ: str) -> str:
        return host_zone(environ, self.files).name


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.mark.parametrize("is_relative", [True, False])
def test_a_link_into_the_database_names_the_zone(host: FakeHost, *, is_relative: bool) -> None:
    """Whatever /etc/timezone says, which libc never reads: images change the link alone."""
    (host.etc / "timezone").write_text("Etc/UTC\n")
    target = Path("../share/zoneinfo") if is_relative else host.database
    host.localtime.symlink_to(target / "America" / "New_York")
    assert host.zone() == "America/New_York"


def test_a_link_to_a_link_names_the_zone(host: FakeHost) -> None:
    """Some systems keep the link elsewhere."""
    (host.etc / "zone").symlink_to(host.database / "posix" / "America" / "Lima")
    shutil.copytree(host.database / "America", host.database / "posix" / "America")
    host.localtime.symlink_to("zone")
    assert host.zone() == "America/Lima"


@pytest.mark.parametrize(
    ("named", "content", "expected"),
    [("", NEW_YORK, "America/New_York"), ("US/Eastern\n", NEW_YORK, "US/Eastern"), ("Etc/UTC\n", NEW_YORK, "America/New_York"),
     ("", LIMA, "America/Lima"), ("", UTC, "Etc/UTC"), ("Etc/UTC\n", b"TZif2 JST-9", ""), ("Etc/UTC\n", b"", "")],
)  # fmt: skip
def test_a_copy_is_the_zone_of_the_same_rules(host: FakeHost, named: str, content: bytes, expected: str) -> None:
    """/etc/timezone only chooses among their names; without one the zone is not known."""
    (host.etc / "timezone").write_text(named)
    host.localtime.write_bytes(content)
    assert host.zone() == expected


def test_a_hard_link_is_a_copy(host: FakeHost) -> None:
    """It is one file with that of the database."""
    host.localtime.hardlink_to(host.database / "America" / "Lima")
    assert host.zone() == "America/Lima"


def test_a_link_whose_target_another_file_is_mounted_over_names_nothing(host: FakeHost) -> None:
    """`-v /etc/localtime:/etc/localtime:ro` follows the link of the container."""
    target = host.database / "Etc" / "UTC"
    host.localtime.symlink_to(target)
    (host.etc / "timezone").write_text("Etc/UTC\n")
    assert host.zone() == "Etc/UTC"
    target.write_bytes(NEW_YORK)
    host.files.mounts.write_text(f"600 500 8:1 /usr/share/zoneinfo/x {target} ro - ext4 /dev/sda1 rw\n")
    assert host.zone() == "America/New_York"


@pytest.mark.parametrize(("named", "expected"), [(None, "UTC"), ("Etc/UTC\n", "Etc/UTC"), ("Asia/Tokyo\n", "")])
def test_without_a_file_libc_has_utc(host: FakeHost, named: str | None, expected: str) -> None:
    """A name beside it that says otherwise is a question."""
    if named is not None:
        (host.etc / "timezone").write_text(named)
    assert host.zone() == expected


def test_a_link_that_leads_nowhere_names_nothing(host: FakeHost) -> None:
    """An image without a database: libc has UTC, whoever made the link wanted another."""
    host.localtime.symlink_to(host.database / "Asia" / "Tokyo")
    assert host.zone() == ""


def test_the_variable_names_the_zone_where_there_is_no_file(host: FakeHost) -> None:
    """By a name, a path in the database, or a path of a file of its own."""
    assert host.zone(TZ="Asia/Tokyo") == host.zone(TZ=":Asia/Tokyo") == "Asia/Tokyo"
    assert host.zone(TZ=f":{host.database}/America/Lima") == "America/Lima"
    assert host.zone(TZ="") == "UTC"


@pytest.mark.parametrize("zone", ["US/Eastern", ":America/New_York", ":/etc/localtime"])
def test_a_variable_that_says_what_the_file_says_names_the_zone(host: FakeHost, zone: str) -> None:
    """By whatever name."""
    host.localtime.write_bytes(NEW_YORK)
    assert host.zone(TZ=zone.replace("/etc/localtime", str(host.localtime))) in {"US/Eastern", "America/New_York"}


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Lima", ""])
def test_a_variable_that_differs_from_the_file_names_nothing(host: FakeHost, zone: str) -> None:
    """It is often that of a person's session alone, and cron of the machine has its own."""
    host.localtime.write_bytes(NEW_YORK)
    found = host_zone({"TZ": zone}, host.files)
    assert found == ("", f"TZ={zone}, unlike America/New_York by {host.localtime}, which has its rules")
