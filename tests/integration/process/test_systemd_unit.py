"""The unit file: systemd accepts every line of it, and every line says why it is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SYSTEMD = Path(__file__).parents[3] / "systemd"
UNIT = SYSTEMD / "tenure.service"
ANALYZE = shutil.which("systemd-analyze")


def directives() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def analyze(unit: Path, *arguments: str) -> tuple[int, str]:
    """Run systemd-analyze; where it is not installed there is nothing it could object to."""
    if ANALYZE is None:
        return 0, ""
    done = subprocess.run([ANALYZE, *arguments, str(unit)], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists, which ``verify`` asks for."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/tenure/bin/tenure", sys.executable))
    return copy


def test_systemd_finds_nothing_to_say_about_the_unit(unit: Path) -> None:
    """Unknown keys and bad values are only warnings, and verify then still returns 0: demand silence."""
    assert analyze(unit, "verify") == (0, "")


def test_the_unit_exposes_little(unit: Path) -> None:
    """Exposure of at most 1.0 of 10, which is what a program with a network has: jobs run code that nobody reviewed here."""
    assert analyze(unit, "security", "--offline=true", "--threshold=10", "--no-pager")[0] == 0


def test_every_line_of_the_unit_says_why() -> None:
    """An administrator who must change a line should know what it held back."""
    is_explained = False
    for number, line in enumerate(UNIT.read_text().splitlines(), start=1):
        if not line or line.startswith("["):
            is_explained = False
        elif line.startswith("#"):
            is_explained = True
        else:
            assert is_explained, f"{UNIT.name}:{number}: {line}"


def test_the_unit_agrees_with_the_parent() -> None:
    """What the two must hold in common: who speaks, who is killed, for how long, and which exits are final."""
    found = directives()
    assert found["Type"] == ["notify"]
    assert found["NotifyAccess"] == ["main"]
    assert found["KillMode"] == ["mixed"]
    assert found["RestartPreventExitStatus"] == ["2 78"]
    assert found["ExecStart"] == ["/opt/tenure/bin/tenure run --config /etc/tenure"]
    assert int(found["TimeoutStopSec"][0]) > 20 + 3.5
    assert int(found["WatchdogSec"][0]) > 3 * 0.5


@pytest.mark.parametrize("name", ["tenure.sysusers.conf", "tenure.tmpfiles.conf"])
def test_the_companions_name_the_same_user(name: str) -> None:
    """A static user of another name would never be taken."""
    lines = [line.split() for line in (SYSTEMD / name).read_text().splitlines() if line[0] != "#"]
    assert lines
    assert all(directives()["User"][0] in line for line in lines)


def test_the_template_is_the_unit_but_for_its_name() -> None:
    """Hardening that only one of the two has would be forgotten in the other."""
    ours = [line for line in UNIT.read_text().splitlines() if line and not line.startswith("#")]
    lines = (SYSTEMD / "tenure@.service").read_text().splitlines()
    template = [line for line in lines if line and not line.startswith("#")]

    changed = [(one, other) for one, other in zip(ours, template, strict=True) if one != other]

    assert [other.replace("/%i", "").replace("-%i", "").replace(" %i", "") for _, other in changed] == [
        one for one, _ in changed
    ]
    assert {other.partition("=")[0] for _, other in changed} == {
        "Description",
        "ExecStart",
        "StateDirectory",
        "WorkingDirectory",
        "RuntimeDirectory",
    }


def test_systemd_finds_nothing_to_say_about_the_template(tmp_path: Path) -> None:
    """An instance is verified, since a template alone is none."""
    copy = tmp_path / "tenure@.service"
    copy.write_text((SYSTEMD / "tenure@.service").read_text().replace("/opt/tenure/bin/tenure", sys.executable))

    assert analyze(tmp_path / "tenure@blue.service", "verify") == (0, "")


def test_the_credential_stays_a_reference() -> None:
    """What stands in the environment of a service is shown to everybody by systemctl."""
    text = (SYSTEMD / "credentials.conf").read_text()
    lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))

    name, _, path = lines["LoadCredential"].partition(":")
    assert lines["Environment"] == f"TENURE_REDIS__PASSWORD=${{file:%d/{name}}}"
    assert path.startswith("/etc/tenure/")
