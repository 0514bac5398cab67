"""Finding the tree of a data directory, and never signalling anybody else."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.errors import CannotCreateError
from supervisor.core.supervision.reload import ReloadOutcome, ReloadRecord
from supervisor.process import run_file
from supervisor.process.run_file import (
    Handle,
    NameplateHolder,
    ReplicaPlace,
    claim,
    living,
    of_process,
    show,
    started_ticks,
)


def nothing(_path: Path) -> None:
    """Prepare no metrics."""


def quiet(_event: str, /, *, level: str = "info", **_fields: object) -> None:
    """Log nowhere."""
    del level


@contextmanager
def held(directory: Path) -> Iterator[tuple[ReplicaPlace, int]]:
    """A place that another process holds, with its nameplate up, and the number of that process."""
    told, tell = os.pipe()
    ended, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(end)
            found, _ = claim(directory, nothing)
            with show(found):
                holder = NameplateHolder(found, replica="web-1.abc", cluster="c1", version="1", log=quiet)
                holder.publish(ReloadRecord())
                os.write(tell, str(found.number).encode())
                os.read(ended, 1)
        finally:
            os._exit(0)
    os.close(tell)
    os.close(ended)
    try:
        yield ReplicaPlace(directory, int(os.read(told, 20))), pid
    finally:
        os.close(end)
        os.close(told)
        os.waitpid(pid, 0)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[tuple[ReplicaPlace, int]]:
    """A tree on a directory of its own."""
    with held(tmp_path) as found:
        yield found


def test_a_tree_that_lives_is_found(tree: tuple[ReplicaPlace, int]) -> None:
    """By its data directory, and by its process alone: the configuration may be the broken one."""
    place, pid = tree
    (found,) = living(place.directory)

    assert (found.plate.replica, found.plate.pid) == ("web-1.abc", pid)
    assert of_process(pid) == found
    assert of_process(1 << 22) is None


def test_a_tree_is_found_by_its_number_where_its_descriptors_are_hidden(
    tree: tuple[ReplicaPlace, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root may look at the descriptors of a tree, which its own user may reload too."""
    place, pid = tree
    monkeypatch.setattr(run_file, "_open_in", lambda _pid: ())

    found = of_process(pid)

    assert found is not None
    assert (found.place, found.plate.pid) == (place, pid)


def test_each_tree_has_a_place_of_its_own(tree: tuple[ReplicaPlace, int]) -> None:
    """Two replicas on one directory, as in development."""
    other, descriptor = claim(tree[0].directory, nothing)

    assert other.number == tree[0].number + 1
    os.close(descriptor)


@pytest.mark.parametrize("named", ["another process", "the wrong moment"])
def test_a_process_that_does_not_hold_the_lock_is_never_signalled(tree: tuple[ReplicaPlace, int], named: str) -> None:
    """A job of the tree may write its nameplate; an administrator who stops the tree ends nobody for it."""
    place, pid = tree
    written: dict[str, Any] = json.loads(place.file.read_bytes())
    number = os.getpid() if named == "another process" else pid
    ticks = started_ticks(number) - (named == "the wrong moment")
    place.file.write_text(json.dumps(written | {"pid": number, "started_ticks": ticks}))

    assert living(place.directory) == []
    assert of_process(number) is None
    assert of_process(pid) is None


@pytest.mark.parametrize("function", ["holder", "_read"])
def test_a_nameplate_or_lock_of_another_user_names_no_tree(
    tree: tuple[ReplicaPlace, int], monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """Who may put files into the directory could link to the lock of another user's tree."""
    known = getattr(run_file, function)
    monkeypatch.setattr(run_file, function, lambda place: (known(place)[0], 65534))

    assert living(tree[0].directory) == []


@pytest.mark.parametrize("file", ["lock", "file"])
def test_a_fifo_or_link_in_place_of_a_nameplate_holds_nobody_up(tree: tuple[ReplicaPlace, int], file: str) -> None:
    """A command of root's reads the directory of a tree whose jobs can write there."""
    path = getattr(tree[0], file)
    path.unlink()
    os.mkfifo(path)
    assert living(tree[0].directory) == []

    path.unlink()
    path.symlink_to("/dev/zero")
    assert living(tree[0].directory) == []


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_what_a_job_puts_in_place_of_a_draft_holds_no_parent_up_and_is_not_written_to(
    tmp_path: Path, kind: str
) -> None:
    """The parent writes its nameplate after each reload and at its end; nothing else would end it then."""
    place, other = ReplicaPlace(tmp_path, 0), tmp_path / "other"
    other.write_text("kept")
    draft = place.file.with_suffix(".new")
    if kind == "fifo":
        os.mkfifo(draft)
    else:
        draft.symlink_to(other)
    plate = run_file.Nameplate(pid=1, started_ticks=2, replica="r.1", cluster="c1", version="1")
    run_file.write(place, plate)

    assert (run_file.read(place), other.read_text()) == (plate, "kept")


def test_a_tree_that_died_is_not_found(tmp_path: Path) -> None:
    """Its files stay after kill -9; the kernel has let go of the lock."""
    found, descriptor = claim(tmp_path, nothing)
    NameplateHolder(found, replica="r.1", cluster="c1", version="1", log=quiet).publish(ReloadRecord())
    os.close(descriptor)

    assert living(tmp_path) == []


def test_a_number_that_went_to_another_process_is_never_signalled(tree: tuple[ReplicaPlace, int]) -> None:
    """The start of the process tells them apart."""
    (found,) = living(tree[0].directory)
    stale = run_file.RunningTree(tree[0], msgspec.structs.replace(found.plate, started_ticks=1))

    with pytest.raises(ProcessLookupError):
        Handle(stale)
    Handle(found).close()


def test_a_process_in_hand_is_signalled_and_seen_to_go(tree: tuple[ReplicaPlace, int]) -> None:
    """By a descriptor that no other process can inherit."""
    (found,) = living(tree[0].directory)
    handle = Handle(found)
    assert not handle.is_gone()

    handle.send(signal.SIGKILL)

    assert handle.is_gone(30)
    os.waitid(os.P_PID, tree[1], os.WEXITED | os.WNOWAIT)
    handle.close()
    with pytest.raises(ProcessLookupError):
        Handle(found)


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process can be seen, and this one is of the user of the tree, who is not root."""
    monkeypatch.setattr(run_file, "started_ticks", lambda _pid: 0)
    if os.geteuid() == 0:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
        for name in ("holder", "_read"):
            known = getattr(run_file, name)
            monkeypatch.setattr(run_file, name, lambda place, known=known: (known(place)[0], 65534))


@pytest.mark.usefixtures("hidden")
def test_a_tree_that_a_sandbox_hides_is_found_and_signalled_by_its_own_user(tree: tuple[ReplicaPlace, int]) -> None:
    """As by `systemctl reload`, which needs no root for it."""
    place, pid = tree
    found = of_process(pid)

    assert found is not None
    assert living(place.directory) == [found]
    handle = Handle(found)
    handle.send(signal.SIGKILL)
    assert handle.is_gone(30)
    handle.close()
    with pytest.raises(ProcessLookupError):
        Handle(found)
    assert living(place.directory) == []


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("whose", ["signals are refused", "the lock is another's", "the caller is root"])
def test_a_hidden_process_of_another_user_is_no_tree(
    tree: tuple[ReplicaPlace, int], monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """The kernel lets a user signal processes of its own alone, and root everybody's."""

    def refuse(_pid: int, _number: int) -> None:
        raise PermissionError

    if whose == "signals are refused":
        monkeypatch.setattr(os, "kill", refuse)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0 if whose == "the caller is root" else 4242)

    assert living(tree[0].directory) == []
    assert of_process(tree[1]) is None


def test_how_a_reload_ended_and_the_exit_code_stand_there(tmp_path: Path) -> None:
    """For a command that waits, without a connection to anything."""
    place = ReplicaPlace(tmp_path, 0)
    holder = NameplateHolder(place, replica="web-1.abc", cluster="c1", version="1", log=quiet)
    holder.publish(ReloadRecord(number=3, outcome=ReloadOutcome.REFUSED, reasons=("tenure.yaml:1: no",)))
    holder.ended(1)

    plate = run_file.read(place)
    assert plate is not None
    assert (plate.reload.reasons, plate.exit_code) == (("tenure.yaml:1: no",), 1)


def test_a_disk_that_takes_nothing_is_told_and_survived(tmp_path: Path) -> None:
    """Supervision needs no file."""
    told: list[str] = []
    holder = NameplateHolder(
        ReplicaPlace(tmp_path / "gone", 0),
        replica="r.1",
        cluster="c1",
        version="1",
        log=lambda event, **_: told.append(event),
    )

    holder.publish(ReloadRecord())

    assert told == ["nameplate_not_written"]


def test_a_disk_that_takes_a_part_of_a_nameplate_leaves_the_former_one(tmp_path: Path) -> None:
    """`tenure stop` and `tenure reload` find the tree by it."""
    told: list[object] = []
    holder = NameplateHolder(
        place := ReplicaPlace(tmp_path, 0),
        replica="r.1",
        cluster="c1",
        version="1",
        log=lambda event, **fields: told.append((event, fields["error"])),
    )
    holder.publish(ReloadRecord())
    former = run_file.read(place)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        holder.publish(ReloadRecord(number=1, outcome=ReloadOutcome.REFUSED, reasons=("no" * 500,)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert former is not None
    assert run_file.read(place) == former
    assert told == [("nameplate_not_written", "File too large")]
    assert list(tmp_path.iterdir()) == [place.file]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}'])
def test_a_torn_or_foreign_file_is_nobody(tree: tuple[ReplicaPlace, int], text: str) -> None:
    """Anything may lie in a directory."""
    tree[0].file.write_text(text)

    assert living(tree[0].directory) == []


def test_a_directory_that_cannot_be_used_is_refused_with_its_remedy(tmp_path: Path) -> None:
    """Exit 73."""
    (tmp_path / "file").write_text("")

    with pytest.raises(CannotCreateError, match="set data_dir"):
        claim(tmp_path / "file", nothing)
