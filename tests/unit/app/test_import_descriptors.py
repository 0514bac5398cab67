"""Files that job modules open while they are imported."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from supervisor.app.replica import OpenedByImports


@pytest.fixture
def opened() -> Iterator[tuple[OpenedByImports, ExitStack]]:
    """Return a look at this process, and a place for what a module opens after it."""
    with ExitStack() as stack:
        yield OpenedByImports(), stack


def told_by(opened: OpenedByImports) -> list[dict[str, Any]]:
    """Return the warnings."""
    told: list[dict[str, Any]] = []
    opened.tell(lambda event, /, **fields: told.append({"event": event, **fields}))
    return told


def test_what_processes_can_share_stays_open_in_workers(
    opened: tuple[OpenedByImports, ExitStack], tmp_path: Path
) -> None:
    """The file of a logging.FileHandler is opened for appending; a device has no position."""
    looked, stack = opened
    log = stack.enter_context((tmp_path / "own.log").open("a"))
    device = os.open("/dev/zero", os.O_RDONLY)
    stack.callback(os.close, device)

    looked.note("mail.jobs")

    assert sorted(looked.shared) == sorted([log.fileno(), device])
    assert told_by(looked) == []


def test_what_processes_cannot_share_is_told_by_module_and_path(
    opened: tuple[OpenedByImports, ExitStack], tmp_path: Path
) -> None:
    """A database, a position in a file, a connection: each would break in the second process that uses it."""
    looked, stack = opened
    (tmp_path / "prices.csv").write_text("1;2")
    stack.enter_context((tmp_path / "prices.csv").open())
    stack.enter_context((tmp_path / "own.db").open("w+b"))
    looked.note("shop.jobs")
    stack.enter_context(socket.socket())
    looked.note("mail.jobs")
    looked.note("last.jobs")

    shop, mail = told_by(looked)

    assert looked.shared == ()
    assert (shop["event"], shop["level"], shop["module"]) == ("module_opened_files", "warning", "shop.jobs")
    assert shop["files"] == [str(tmp_path / "prices.csv"), str(tmp_path / "own.db")]
    assert "Resource" in shop["remedy"]
    assert mail["module"] == "mail.jobs"
    assert mail["files"][0].startswith("socket:")


def test_what_was_open_before_belongs_to_no_module() -> None:
    """The log and the listening socket are the tree's."""
    read, write = os.pipe()
    looked = OpenedByImports()
    looked.note("mail.jobs")
    os.close(read)
    os.close(write)

    assert (looked.shared, told_by(looked)) == ((), [])
