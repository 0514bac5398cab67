"""Programs with a user, a control group and files of their own, as the kernel shows them; and what cannot be, told first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.jobs.confinement import Confinement
from supervisor.process.command import confinement as confining
from supervisor.process.command.confinement import confined, faults, home_of
from supervisor.process.command.guard import AT_CGROUP, PLACES
from supervisor.process.command.handle import CommandEnd, CommandGuard, signals_held
from supervisor.process.command.spec import prepare
from supervisor.process.system import landlock

IS_ROOT = os.geteuid() == 0
OTHER = 65534 if IS_ROOT else os.geteuid()


def run(line: str, **confinement: Any) -> tuple[str, CommandEnd]:
    """Run a shell line confined; return what it wrote, and how it ended."""
    launch = prepare(command=line, shell="/bin/sh", env={"PATH": os.defpath}, cwd="/", stdin=None)
    guard, (end, output), null = CommandGuard(), os.pipe(), os.open(os.devnull, os.O_RDONLY)
    try:
        with signals_held():
            guard.fork(confined(launch, Confinement(**confinement)), stdin=null, output=output)
        os.close(output)
        text = b"".join(iter(lambda: os.read(end, 65536), b"")).decode()
        while (ending := guard.take_report()) is None:
            pass
        return text, ending
    finally:
        guard.close()
        os.close(end)
        os.close(null)


def test_a_program_has_the_user_and_groups_that_are_configured() -> None:
    """All of them, and no way back: real, effective and saved."""
    text, _ = run("grep -E '^(Uid|Gid|Groups|NoNewPrivs)' /proc/self/status", user=str(OTHER), group=str(os.getegid()))

    lines = dict(line.split(":", 1) for line in text.splitlines())
    assert lines["Uid"].split() == [str(OTHER)] * 4
    assert lines["Gid"].split() == [str(os.getegid())] * 4
    assert lines["NoNewPrivs"].split() == ["1"]


def test_a_program_of_another_user_dies_with_its_guard_and_cannot_signal_the_tree() -> None:
    """A change of the user takes the kernel's promise away, so it is asked for again."""
    text, ending = run(f"kill -0 {os.getpid()} 2>&1; kill -9 $PPID; echo left", user=str(OTHER))

    if IS_ROOT:  # another user's processes cannot be signalled
        assert ("ermitted" in text, ending.wait_status) == (True, 0)
    else:
        assert ending.wait_status is None


def test_a_user_changes_the_variables_that_tell_who_one_is() -> None:
    """Else programs would write to the home of the tree's user."""
    assert home_of(Confinement(user="root")) == {"HOME": "/root", "USER": "root", "LOGNAME": "root"}
    assert home_of(Confinement(user="4242424242")) == home_of(Confinement()) == {}


def test_files_that_are_not_listed_are_closed(tmp_path: Path) -> None:
    """Reading, writing, making and removing, also by another path; what is listed works."""
    if landlock.version() == 0:
        assert [each.setting for each in faults(Confinement(write_paths=("/tmp",)))] == ["write_paths"]
        return
    secret, room = tmp_path / "secret", tmp_path / "room"
    secret.write_text("hunter2")
    room.mkdir()
    (room / "link").symlink_to(secret)
    line = (
        f"cat {secret} {room}/link {room}/../secret; echo x > {secret}; rm {secret}; echo y > {tmp_path}/new;"
        f"echo kept > {room}/file && cat {room}/file; mv {room}/file {tmp_path}/moved; echo > /dev/null && echo done"
    )

    text, _ = run(f"({line}) 2>/dev/null", write_paths=[str(room)])

    assert text == "kept\ndone\n"
    assert (secret.read_text(), sorted(each.name for each in tmp_path.iterdir())) == ("hunter2", ["room", "secret"])


def test_files_that_are_listed_for_reading_cannot_be_changed(tmp_path: Path) -> None:
    """And a path that does not exist opens nothing."""
    file = tmp_path / "file"
    file.write_text("text")
    text, ending = run(
        f"cat {file}; echo x > {file}", read_paths=["/usr", "/bin", "/lib", "/lib64", str(file), "/none"]
    )

    assert text.startswith("text")
    assert file.read_text() == ("text" if landlock.version() else "x\n")
    assert (ending.wait_status == 0) == (landlock.version() == 0 and ending.failed_at is None)


def test_a_program_has_the_umask_of_the_start_or_the_configured_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others read the pages and metrics that commands write; the tree's own umask hides them."""
    before = os.umask(0o077)
    try:
        assert run("umask")[0] == "0077\n"
        monkeypatch.setattr(Confinement, "umask_at_start", 0o022)
        assert run("umask")[0] == "0022\n"
        assert run("umask", umask=0o027)[0] == "0027\n"
        assert run("umask", umask=0)[0] == "0000\n"
    finally:
        assert os.umask(before) == 0o077


def test_what_fails_between_fork_and_exec_says_where() -> None:
    """A control group that went since the start, a user that may not be changed, a kernel that refuses."""
    _, ending = run("true", cgroup="/sys/fs/cgroup/none-of-that-name")
    assert ending.failed_at is not None
    assert ending.failed_at[0] == AT_CGROUP
    assert PLACES[AT_CGROUP] == "the cgroup"


@pytest.mark.parametrize(
    ("wanted", "setting", "message"),
    [
        ({"user": "nobody-has-this-name"}, "user", "not known"),
        ({"user": str(2**32)}, "user", "not known"),
        ({"group": "nobody-has-this-name"}, "group", "not known"),
        ({"cgroup": "/tmp"}, "cgroup", "not below"),
        ({"cgroup": "/sys/fs/cgroup/none"}, "cgroup", "no control group"),
        ({"cgroup": "/sys/fs/cgroup/../../../tmp"}, "cgroup", "not below"),
    ],
)
def test_what_this_machine_cannot_do_is_told_before_anything_starts(
    wanted: dict[str, str], setting: str, message: str
) -> None:
    """With the setting and a remedy."""
    (fault,) = faults(Confinement(**wanted))

    assert (fault.setting, message in fault.message, bool(fault.remedy)) == (setting, True, True)


def test_only_root_changes_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree without rights says so; its own user is no change."""
    monkeypatch.setattr(confining.os, "geteuid", lambda: 4242)
    assert "root alone" in next(faults(Confinement(user="0"))).message
    assert list(faults(Confinement(user="4242"))) == []


def test_a_kernel_without_landlock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence would be a sandbox that is none."""
    monkeypatch.setattr(confining.landlock, "version", lambda: 0)
    assert "Landlock" in next(faults(Confinement(read_paths=("/usr",)))).message


def test_a_program_with_listed_files_signals_nobody_outside() -> None:
    """From Linux 6.12; before, the user alone decides."""
    text, _ = run(f"kill -0 {os.getpid()} 2>/dev/null && echo may", read_paths=["/usr", "/bin", "/lib", "/lib64"])

    assert text == ("" if landlock.version() >= 6 else "may\n")
