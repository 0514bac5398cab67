"""Finding the tree of a data directory, and never signalling anybody else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.errors import CannotCreateError
from supervisor.core.reload import Ending, ReloadOutcome
from supervisor.process import nameplate
from supervisor.process.nameplate import Handle, NameplateHolder, Place, claim, living, of_process, started_ticks


def nothing(_path: Path) -> None:
    """Prepare no metrics."""


def quiet(_event: str, /, *, level: str = "info", **_fields: object) -> None:
    """Log nowhere."""
    del level


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place that this process holds, with its nameplate up."""
    found, descriptor = claim(tmp_path, nothing)
    NameplateHolder(found, replica="web-1.abc", cluster="c1", version="1", log=quiet).publish(Ending())
    yield found
    os.close(descriptor)


def test_a_tree_that_lives_is_found(place: Place) -> None:
    """By its data directory, and by its process alone: the configuration may be the broken one."""
    (found,) = living(place.directory)

    assert (found.plate.replica, found.plate.pid) == ("web-1.abc", os.getpid())
    assert of_process(os.getpid()) == found
    assert of_process(1 << 22) is None


def test_each_tree_has_a_place_of_its_own(place: Place) -> None:
    """Two replicas on one directory, as in development."""
    other, descriptor = claim(place.directory, nothing)

    assert other.number == place.number + 1
    os.close(descriptor)


def test_a_tree_that_died_is_not_found(tmp_path: Path) -> None:
    """Its files stay after kill -9; the kernel has let go of the lock."""
    found, descriptor = claim(tmp_path, nothing)
    NameplateHolder(found, replica="r.1", cluster="c1", version="1", log=quiet).publish(Ending())
    os.close(descriptor)

    assert living(tmp_path) == []


def test_a_number_that_went_to_another_process_is_never_signalled(place: Place) -> None:
    """The start of the process tells them apart."""
    found = living(place.directory)[0]
    written: dict[str, Any] = json.loads(place.file.read_bytes())
    place.file.write_text(json.dumps(written | {"started_ticks": written["started_ticks"] - 1}))

    assert living(place.directory) == []
    assert of_process(os.getpid()) is None
    stale = nameplate.Found(place, nameplate.Nameplate(**written | {"started_ticks": 1, "reload": Ending()}))
    with pytest.raises(ProcessLookupError):
        Handle(stale)
    Handle(found).close()


def test_a_process_in_hand_is_signalled_and_seen_to_go(tmp_path: Path) -> None:
    """By a descriptor that no other process can inherit."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    plate = nameplate.Nameplate(
        pid=child.pid, started_ticks=started_ticks(child.pid), replica="r.1", cluster="c1", version="1"
    )
    handle = Handle(nameplate.Found(Place(tmp_path, 0), plate))
    assert not handle.is_gone()

    handle.send(signal.SIGKILL)

    assert handle.is_gone(30)
    assert child.wait() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        handle.send(signal.SIGTERM)
    handle.close()
    assert child.stdin is not None
    child.stdin.close()


def test_how_a_reload_ended_and_the_exit_code_stand_there(place: Place) -> None:
    """For a command that waits, without a connection to anything."""
    holder = NameplateHolder(place, replica="web-1.abc", cluster="c1", version="1", log=quiet)
    holder.publish(Ending(number=3, outcome=ReloadOutcome.REFUSED, reasons=("tenure.yaml:1: no",)))
    holder.ended(1)

    plate = nameplate.read(place)
    assert plate is not None
    assert (plate.reload.reasons, plate.exit_code) == (("tenure.yaml:1: no",), 1)


def test_a_disk_that_takes_nothing_is_told_and_survived(tmp_path: Path) -> None:
    """Supervision needs no file."""
    told: list[str] = []
    holder = NameplateHolder(
        Place(tmp_path / "gone", 0), replica="r.1", cluster="c1", version="1", log=lambda event, **_: told.append(event)
    )

    holder.publish(Ending())

    assert told == ["nameplate_not_written"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}'])
def test_a_torn_or_foreign_file_is_nobody(place: Place, text: str) -> None:
    """Anything may lie in a directory."""
    place.file.write_text(text)

    assert living(place.directory) == []


def test_a_directory_that_cannot_be_used_is_refused_with_its_remedy(tmp_path: Path) -> None:
    """Exit 73."""
    (tmp_path / "file").write_text("")

    with pytest.raises(CannotCreateError, match="set data_dir"):
        claim(tmp_path / "file", nothing)
