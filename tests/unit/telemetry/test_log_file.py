"""The log file: appended to by many processes, rotated under their feet, and never a reason to stop."""

from __future__ import annotations

import json
import os
import resource
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from supervisor.core.errors import CannotCreateError
from supervisor.telemetry import logs
from supervisor.telemetry.log_lines.log_sink import FileSink, LineSink, Sink, open_log_file, open_sink

pytestmark = pytest.mark.usefixtures("logging_restored")
PROCESSES, LINES = 4, 300


class Number:
    """A word of the board that a test counts up."""

    def __init__(self) -> None:
        self.value = 0

    def __call__(self) -> int:
        return self.value


def start(file: FileSink) -> Any:
    """Configure for ``file`` and return a logger."""
    logs.configure(level="info", format="auto", cluster="c1", replica="r1", role="worker-io-0", file=file)
    return structlog.get_logger()


def test_no_line_is_lost_or_torn_while_the_file_is_rotated(tmp_path: Path) -> None:
    """Logrotate renames the file and then sends SIGUSR1; until every process has seen that, the old one gets lines."""
    path, rotated = tmp_path / "tree.log", tmp_path / "tree.log.1"
    read, write = os.pipe()
    children = []
    for process in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            os.close(read)
            number = Number()
            log = start(FileSink(str(path), number=number))
            for count in range(LINES):
                if rotated.exists():
                    number.value = 1  # as the parent counts up the word after SIGUSR1
                log.info("line", process=process, count=count, fill="f" * (count * 17 % 3000))
                if count == LINES // 3:
                    os.write(write, b".")
            os._exit(0)
        children.append(pid)
    assert os.read(read, 1) == b"."
    path.rename(rotated)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    os.close(read)
    os.close(write)

    seen = [json.loads(line) for file in (rotated, path) for line in file.read_bytes().splitlines()]
    assert sorted((line["process"], line["count"]) for line in seen) == [
        (process, count) for process in range(PROCESSES) for count in range(LINES)
    ]
    assert path.stat().st_size > 0


def test_copying_and_truncating_works_too(tmp_path: Path) -> None:
    """The file is appended to, so that its new end is where the next line goes."""
    path = tmp_path / "tree.log"
    log = start(FileSink(str(path)))
    log.info("before")
    os.truncate(path, 0)

    log.info("after")

    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["after"]


def test_a_process_that_says_nothing_lets_go_of_the_old_file_when_it_looks(tmp_path: Path) -> None:
    """Else an idle worker would keep gigabytes of a deleted log on the disk."""
    path, number = tmp_path / "tree.log", Number()
    start(FileSink(str(path), number=number))
    path.unlink()
    number.value = 1

    logs.look()

    assert path.exists()


def test_a_file_that_cannot_be_opened_anew_keeps_the_old_one_and_says_so(tmp_path: Path) -> None:
    """A rotation that went wrong must cost neither lines nor the process."""
    directory = tmp_path / "logs"
    directory.mkdir()
    number = Number()
    log = start(FileSink(str(directory / "tree.log"), number=number))
    directory.rename(tmp_path / "gone")
    number.value = 1

    log.info("still heard")

    (line,) = (json.loads(line) for line in (tmp_path / "gone/tree.log").read_text().splitlines())
    assert "No such file or directory" in line["log_problem"]
    directory.mkdir()
    number.value = 2
    log.info("mended")
    assert "log_problem" not in json.loads((directory / "tree.log").read_text())


def test_a_process_that_starts_while_its_file_cannot_be_opened_logs_elsewhere_until_it_can(tmp_path: Path) -> None:
    """After a rotation that went wrong each child that was replaced ended with its start, and the tree with the web child."""
    path, number = tmp_path / "logs/tree.log", Number()
    read, write = os.pipe()
    file = open_log_file(str(path), number, instead=write)
    assert file is not None
    log = start(file)

    log.info("heard there")

    line = json.loads(os.read(read, 4096))
    assert (line["event"], "No such file or directory" in line["log_problem"]) == ("heard there", True)
    path.parent.mkdir()
    number.value = 1
    log.info("mended")
    assert "log_problem" not in json.loads(path.read_text())
    for each in (read, write):
        os.close(each)


def test_a_full_disk_drops_lines_and_counts_them(tmp_path: Path) -> None:
    """Supervision goes on; the first line that gets through says how many did not."""
    pid = os.fork()
    if pid == 0:  # a limit on the size of files, which cannot be undone
        code = 1
        try:
            sink = FileSink(str(tmp_path / "tree.log"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            for _ in range(3):
                sink.write(b"x" * 20 + b"\n")
            code = int(sink.dropped != 3)
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("is_instead", [False, True], ids=["as the file", "in place of one"])
def test_a_pipe_in_the_place_of_the_file_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_instead: bool
) -> None:
    """As with `log.file: /dev/stdout`, whose reader stands still: the tree would stand still with it."""
    monkeypatch.setattr("supervisor.telemetry.log_lines.log_sink._WAIT_MS", 1)
    read, write = os.pipe()
    path, instead = (str(tmp_path / "none/tree.log"), write) if is_instead else (f"/proc/self/fd/{write}", None)
    number = Number()
    sink = FileSink(path, number=number, instead=instead)
    os.set_blocking(write, False)
    while fill(write):
        pass
    os.set_blocking(write, True)

    def write_some() -> None:
        sink.write(b"unheard\n")
        number.value += 1  # a rotation, which must lose no count
        sink.write(b"unheard\n")

    writing = threading.Thread(target=write_some, daemon=True)
    writing.start()
    writing.join(10)

    assert (writing.is_alive(), sink.dropped) == (False, 2)
    os.read(read, 1 << 20)
    sink.write(b"heard\n")
    assert (os.read(read, 4096), sink.dropped) == (b"heard\n", 0)
    sink.close()
    os.close(read)
    os.close(write)


def test_a_pipe_that_nobody_reads_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """Whoever opens it anew would wait for a reader, the parent of the tree too."""
    path, number = tmp_path / "tree.log", Number()
    log = start(FileSink(str(path), number=number))
    path.rename(tmp_path / "old.log")
    os.mkfifo(path)
    number.value = 1
    logging = threading.Thread(target=log.info, args=("still heard",), daemon=True)
    logging.start()
    logging.join(10)

    assert not logging.is_alive()
    assert "cannot be opened anew: No such device" in json.loads((tmp_path / "old.log").read_text())["log_problem"]


def test_a_file_that_cannot_be_made_is_refused_with_its_remedy(tmp_path: Path) -> None:
    """Exit 73 at the start, where somebody looks."""
    with pytest.raises(CannotCreateError, match=r"log\.file .*/none/tree\.log cannot be opened: No such file .*; make"):
        open_log_file(str(tmp_path / "none/tree.log"), Number())
    assert open_log_file(None, Number()) is None


def test_a_changed_level_applies_to_the_next_line(tmp_path: Path) -> None:
    """A reload turns debugging on while a process lives, and off again."""
    path = tmp_path / "tree.log"
    log = start(FileSink(str(path)))
    log.debug("unheard")

    logs.retune(level="debug", format="json")
    structlog.get_logger().debug("heard")

    line = json.loads(path.read_text())
    assert (line["event"], line["role"]) == ("heard", "worker-io-0")


def test_a_pipe_that_others_fill_never_blocks_a_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """That there was room when it looked is no promise: a sibling may take it before the write."""
    monkeypatch.setattr("supervisor.telemetry.log_lines.log_sink._WAIT_MS", 1)
    read, write = os.pipe()
    sink = LineSink(write)
    monkeypatch.setattr("supervisor.telemetry.log_lines.log_sink.select.poll", Always)
    os.set_blocking(write, False)
    while fill(write):
        pass
    os.set_blocking(write, True)

    sink.write(b"line\n")

    assert sink.dropped == 1
    sink.close()
    os.close(read)
    os.close(write)


class Always:
    """A poll that sees room, whether or not there is any, for as long as a caller may wait."""

    def __init__(self) -> None:
        self.looks = 0

    def register(self, _fd: int, _events: int) -> None:
        """Whatever it is."""

    def poll(self, _timeout_ms: float) -> list[tuple[int, int]]:
        self.looks += 1
        return [(0, 0)] if self.looks < 3 else []


def fill(descriptor: int) -> int:
    """Write as much as fits; 0 once nothing does."""
    try:
        return os.write(descriptor, b"x" * 4096)
    except BlockingIOError:
        return 0


def test_a_process_without_standard_error_logs_nowhere() -> None:
    """Python has None in its place, and the descriptor may be somebody else's socket."""
    sink, is_terminal = open_sink(None)
    sink.write(b"unheard\n")

    assert type(sink) is Sink
    assert not is_terminal
