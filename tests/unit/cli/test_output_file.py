"""The file that ``tenure import crontab`` writes: replaced as a whole, private, or as it was."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from click.testing import CliRunner, Result

from supervisor.cli.config.import_ import import_group

CRONTABS = Path(__file__).parents[2] / "data" / "crontabs"
UTC = ("--timezone", "UTC")


def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(import_group, ["crontab", *map(str, arguments)], input=stdin)


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Let no file of this process get larger, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_existing_file_is_replaced_only_when_asked_to(tmp_path: Path) -> None:
    """It may be somebody's configuration."""
    output = tmp_path / "tenure.yaml"
    output.write_text("mine")
    refused = run(CRONTABS / "user", "--output", output, *UTC)
    assert refused.exit_code == 73
    assert "exists; choose another name, or replace it with --force" in refused.stderr
    assert output.read_text() == "mine"
    assert run(CRONTABS / "user", "--output", output, "--force", *UTC).exit_code == 0
    assert "shell.command" in output.read_text()
    assert run(CRONTABS / "user", "--output", tmp_path / "no" / "where", *UTC).exit_code == 73


def test_a_crontab_is_not_replaced_by_what_is_made_of_it(tmp_path: Path) -> None:
    """What cannot be converted, and its comments, would be lost."""
    crontab = tmp_path / "crontab"
    crontab.write_bytes(content := (CRONTABS / "user").read_bytes())
    refused = run(crontab, "--output", crontab, "--force", *UTC)
    assert refused.exit_code == 73
    assert f"error: {crontab} is one of the files that are read" in refused.stderr
    assert crontab.read_bytes() == content


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    """A crontab is, and the secrets in its commands come along."""
    output = tmp_path / "tenure.yaml"
    assert run(CRONTABS / "user", "--output", output, *UTC).exit_code == 0
    assert output.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("mode", "after"), [(0o644, 0o640), (0o600, 0o600), (0o660, 0o660), (0o777, 0o770)])
def test_a_file_that_is_replaced_is_read_by_others_no_more(tmp_path: Path, mode: int, after: int) -> None:
    """That of ``tenure init`` is everybody's; its group may be that of the tree."""
    output = tmp_path / "tenure.yaml"
    output.write_text("mine")
    output.chmod(mode)
    assert run(CRONTABS / "user", "--output", output, "--force", *UTC).exit_code == 0
    assert output.stat().st_mode & 0o777 == after


@pytest.mark.parametrize("is_there", [True, False])
def test_a_full_disk_leaves_the_former_file_or_none(tmp_path: Path, *, is_there: bool) -> None:
    """It may be the configuration that a tree starts from next, and half of one would be read as a whole."""
    output = tmp_path / "tenure.yaml"
    if is_there:
        output.write_text("web: {port: 9}\n")
    with limited_files(100):
        done = run(CRONTABS / "user", "--output", output, *(["--force"] if is_there else []), *UTC)

    assert done.exit_code == 73
    assert f"error: cannot write the configuration to {output}: File too large; choose a writable place" in done.stderr
    assert [(file, file.read_text()) for file in tmp_path.iterdir()] == [(output, "web: {port: 9}\n")] * is_there


def test_a_file_behind_a_link_is_replaced_as_a_whole_and_the_link_stays(tmp_path: Path) -> None:
    """A full disk, or one that takes no modes, cost its content."""
    output, aim = tmp_path / "tenure.yaml", tmp_path / "aim.yaml"
    aim.write_text("web: {port: 9}\n")
    output.symlink_to("aim.yaml")

    with limited_files(100):
        refused = run(CRONTABS / "user", "--output", output, "--force", *UTC)
    former = aim.read_text()
    done = run(CRONTABS / "user", "--output", output, "--force", *UTC)

    assert (refused.exit_code, former) == (73, "web: {port: 9}\n")
    assert done.exit_code == 0
    assert output.is_symlink()
    assert "shell.command" in aim.read_text()
    assert sorted(tmp_path.iterdir()) == [aim, output]


@pytest.mark.parametrize("refused", ["open", "rename"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY], ids=errno.errorcode.get)
def test_a_file_whose_directory_may_not_be_written_to_is_written_in_place(
    refused: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One's own file in /etc/tenure, and one that is mounted by itself; a full disk costs nothing there either."""
    output = tmp_path / "tenure.yaml"
    output.write_text(former := "web: {port: 9}\n" * 400)
    node = output.stat().st_ino
    fault = Mock(side_effect=OSError(code, os.strerror(code)))
    monkeypatch.setattr(*((tempfile, "mkstemp") if refused == "open" else (Path, "replace")), fault)
    monkeypatch.setattr(os, "fchmod", Mock(side_effect=PermissionError))  # as where it is another's

    if refused == "open":
        with monkeypatch.context() as full:
            full.setattr(os, "posix_fallocate", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
            assert run(CRONTABS / "user", "--output", output, "--force", *UTC).exit_code == 73
        assert output.read_text() == former
    assert run(CRONTABS / "user", "--output", output, "--force", *UTC).exit_code == 0

    assert list(yaml.safe_load(output.read_text())["schedules"])
    assert [(file, file.stat().st_ino) for file in tmp_path.iterdir()] == [(output, node)]


def test_a_new_file_where_none_may_be_made_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to write in place."""
    monkeypatch.setattr(tempfile, "mkstemp", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    done = run(CRONTABS / "user", "--output", tmp_path / "new.yaml", "--force", *UTC)
    assert done.exit_code == 73
    assert "new.yaml: Permission denied; choose a writable place" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_replaced_stays_its_owners_and_its_groups(tmp_path: Path) -> None:
    """Root imports for the user of the tree, which is to read it."""
    owner, group = (12_345, 23_456) if os.geteuid() == 0 else (os.geteuid(), os.getegid())  # only root gives files away
    output = tmp_path / "tenure.yaml"
    output.write_text("mine")
    os.chown(output, owner, group)
    output.chmod(0o640)

    assert run(CRONTABS / "user", "--output", output, "--force", *UTC).exit_code == 0

    status = output.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (owner, group, 0o640)


def test_the_right_of_a_group_goes_to_no_other_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this user may not give the file to the former group, its own one does not read it instead."""
    output = tmp_path / "tenure.yaml"
    output.write_text("mine")
    output.chmod(0o640)
    monkeypatch.setattr(os, "fchown", Mock(side_effect=PermissionError))

    assert run(CRONTABS / "user", "--output", output, "--force", *UTC).exit_code == 0
    assert output.stat().st_mode & 0o777 == 0o600
