"""shell.command with real processes: results, environment, failures, input and output."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog

from supervisor.core.jobs.registry import registry
from supervisor.telemetry.run_context import RunOutput, enter_run
from tenure import Context
from tenure.jobs.shell import CommandFailedError, CommandRefusedError, command
from tests.integration.jobs.processes import is_gone

Until = Callable[[Callable[[], bool], str], None]


def test_the_job_is_registered_for_the_shell_queue() -> None:
    """Schedules name it shell.command; a failing command is not run thrice unless somebody asks for that."""
    spec = registry.get("shell.command")

    assert (spec.kind, spec.base.queue, spec.base.retry.attempts) == ("sync", "shell", 1)
    assert spec.check({"command": ["true"]})["command"] == ["true"]
    assert spec.check({"command": "true"})["command"] == "true"


def test_a_command_leaves_its_code_and_output_on_record(ctx: Context) -> None:
    """Both streams, in the order they were written."""
    result = command(ctx, command="echo out; echo err >&2; echo again")

    assert result["exit_code"] == 0
    assert result["signal"] is None
    assert result["output_tail"] == "out\nerr\nagain\n"
    assert not result["truncated"]
    assert result["duration_s"] > 0


def test_a_failing_command_fails_the_run_with_its_last_words(ctx: Context) -> None:
    """Where that is asked for: whoever may read runs sees their errors."""
    with pytest.raises(
        CommandFailedError, match=r"/bin/sh exited with 3 after [\d.]+ s; its last output:\nno such host"
    ):
        command(ctx, command="echo no such host; exit 3", output_in_error=True)


def test_the_error_of_a_failed_command_holds_no_output_unless_that_is_asked_for(ctx: Context) -> None:
    """Errors are shown to tokens with ``read``, and a command may print what they must not see."""
    with pytest.raises(CommandFailedError, match=r"^/bin/sh exited with 3 after [\d.]+ s$"):
        command(ctx, command="echo no such host; exit 3")


def test_a_long_output_ends_the_message_with_its_last_lines(ctx: Context) -> None:
    """The message is bounded and starts at a line, and the cause is at the end."""
    with pytest.raises(CommandFailedError) as caught:
        command(ctx, command="seq 100000; echo the cause; exit 1", output_in_error=True)

    assert len(str(caught.value)) < 1000
    assert str(caught.value).endswith("\n100000\nthe cause")


def test_what_a_failed_command_wrote_is_in_the_log_as_long_as_was_asked(ctx: Context) -> None:
    """The run's error has room for the last lines only."""
    with structlog.testing.capture_logs() as lines, pytest.raises(CommandFailedError):
        command(ctx, command="seq 10000; exit 4", output_tail=4000)

    (line,) = [each for each in lines if each["event"] == "command_failed"]
    assert (line["exit_code"], line["truncated"], line["log_level"]) == (4, True, "warning")
    assert 3900 < len(line["output_tail"]) <= 4000
    assert line["output_tail"].endswith("\n10000\n")


def test_what_a_command_wrote_is_output_of_its_run(ctx: Context) -> None:
    """`tenure runs logs` shows it, the end that is kept, whether the command failed or not."""

    class Attempt:
        ended_ns = 0

        def of(self, _attempt: Any) -> RunOutput:
            return output

    for code in (0, 3):
        output = RunOutput()
        enter_run({"run": "r"}, (Attempt(), Attempt()))
        try:
            command(ctx, command=f"seq 5000; exit {code}", check=False, output_tail=20)
        finally:
            enter_run(None)
        assert output.excerpt(is_over=True).head.endswith("4998\n4999\n5000\n")


def test_a_command_killed_by_a_signal_says_which(ctx: Context) -> None:
    """A segmentation fault is no exit code."""
    with pytest.raises(CommandFailedError, match="was killed by SIGSEGV"):
        command(ctx, command="kill -SEGV $$")


def test_without_check_a_failure_is_a_result(ctx: Context) -> None:
    """For commands whose code is an answer."""
    assert command(ctx, command=["sh", "-c", "exit 7"], check=False)["exit_code"] == 7
    killed = command(ctx, command="kill -9 $$", check=False)
    assert (killed["exit_code"], killed["signal"]) == (None, "SIGKILL")


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"command": ["no-such-program"]}, r"cannot run 'no-such-program': No such file or directory \(PATH is "),
        ({"command": ["/no/such/program"]}, "cannot run '/no/such/program': No such file.*absolute path"),
        ({"command": ["/etc/passwd"]}, "Permission denied; make it executable"),
        ({"command": ["/"]}, "Permission denied"),
        ({"command": ["true"], "cwd": "/no/such/folder"}, "in cwd '/no/such/folder': No such file"),
        ({"command": ["true"], "cwd": "/etc/passwd"}, "in cwd '/etc/passwd': Not a directory"),
        ({"command": ["true", "x" * 200_000]}, "Argument list too long"),
        ({"command": "true", "shell": "/no/such/shell"}, "cannot run '/no/such/shell'"),
        ({"command": "true", "output_tail": 40_000}, "output_tail must be 0 to 32768 bytes, got 40000"),
        ({"command": "true", "output_tail": -1}, "got -1"),
    ],
)
def test_what_cannot_be_started_is_refused(ctx: Context, arguments: dict[str, object], message: str) -> None:
    """With the reason the system gives and what to do about it."""
    with pytest.raises(CommandRefusedError, match=message):
        command(ctx, **arguments)  # type: ignore[arg-type]


def test_a_script_without_interpreter_is_explained(ctx: Context, tmp_path: Path) -> None:
    """The usual cause of "Exec format error" in a job that works from a shell."""
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)

    with pytest.raises(CommandRefusedError, match="Exec format error; does its first line name the interpreter"):
        command(ctx, command=[str(script)])


def test_a_command_knows_which_run_it_is(ctx: Context) -> None:
    """So that it can make itself idempotent."""
    ctx = Context(
        run_id="nightly@1700000000000", job="shell.command", attempt=2, schedule="nightly",
        nominal_ms=1_700_000_000_000, maybe_duplicate=True,
    )  # fmt: skip
    result = command(ctx, command="env | grep ^TENURE_ | sort")

    assert result["output_tail"].splitlines() == [
        "TENURE_ATTEMPT=2",
        "TENURE_MAYBE_DUPLICATE=1",
        "TENURE_NOMINAL=2023-11-14T22:13:20.000Z",
        "TENURE_RUN_ID=nightly@1700000000000",
        "TENURE_SCHEDULE=nightly",
    ]


def test_a_commands_own_variables_win(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the inherited ones and over those that tell which run it is."""
    monkeypatch.setenv("COLOUR", "red")
    monkeypatch.setenv("TENURE_REDIS__PASSWORD", "secret")
    result = command(ctx, command="env", env={"COLOUR": "blue", "TENURE_RUN_ID": "mine"})

    assert "COLOUR=blue\n" in result["output_tail"]
    assert "TENURE_RUN_ID=mine\n" in result["output_tail"]
    assert "secret" not in result["output_tail"]


def test_a_command_runs_where_it_is_told(ctx: Context, tmp_path: Path) -> None:
    """A relative program is looked for there as well."""
    (tmp_path / "here").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "here").chmod(0o755)

    assert command(ctx, command=["./here"], cwd=str(tmp_path))["output_tail"].strip() == os.path.realpath(tmp_path)


def test_a_command_starts_with_a_clean_slate(ctx: Context) -> None:
    """A blocked or ignored signal is inherited through exec, and would make a command deaf."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    extra = os.dup2(0, 200, inheritable=True)
    try:
        result = command(ctx, command=["cat", "/proc/self/status"])
        descriptors = command(ctx, command=["ls", "/proc/self/fd"])["output_tail"].split()
    finally:
        os.close(extra)
        signal.signal(signal.SIGINT, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    status = dict(line.split(":\t", 1) for line in result["output_tail"].splitlines() if ":\t" in line)
    # libc keeps 32 and 33 to itself; GNU make 4.3 leaves them ignored in all it starts, and nobody can undo that.
    settable = sum(1 << number - 1 for number in signal.valid_signals())
    assert {int(status[name], 16) & settable for name in ("SigBlk", "SigIgn", "SigCgt")} == {0}
    assert descriptors == ["0", "1", "2", "3"], "3 is the folder that ls reads"


def test_input_is_read_from_stdin(ctx: Context) -> None:
    """The % of a crontab line becomes input; without any a command reads nothing rather than waits."""
    assert command(ctx, command=["cat"], stdin="grüße\n")["output_tail"] == "grüße\n"
    assert command(ctx, command=["cat"])["output_tail"] == ""


def test_a_mebibyte_of_input_blocks_nobody(ctx: Context) -> None:
    """Neither a command that reads none of it nor one that answers while it reads."""
    text = "x" * 1023 + "\n"
    assert command(ctx, command=["true"], stdin=text * 1024)["exit_code"] == 0
    echoed = command(ctx, command=["cat"], stdin=text * 1024, output_tail=1024)
    assert echoed["output_tail"] == text
    assert echoed["truncated"]


def test_a_command_that_closes_its_output_is_still_waited_for(ctx: Context, tmp_path: Path) -> None:
    """The end of the output is not the end of the command."""
    done = tmp_path / "done"
    result = command(
        ctx, command=f"exec >&- 2>&-; python3 -c 'import select; select.select([],[],[],0.3)'; touch {done}"
    )

    assert result["exit_code"] == 0
    assert done.exists()


def test_a_background_process_does_not_hold_the_run(ctx: Context, until: Until) -> None:
    """It inherited the pipe, so waiting for the end of the output would wait for it; it ends with the command."""
    result = command(ctx, command="sleep 600 & echo $!")

    assert result["exit_code"] == 0
    until(lambda: is_gone(int(result["output_tail"])), "the background process ended")


def test_a_process_that_left_the_group_is_left_alone(ctx: Context) -> None:
    """The documented limit: a daemon that a command starts goes on, and the run does not wait for it."""
    result = command(
        ctx, command="setsid sleep 600 > /dev/null 2>&1 & echo $!; until [ $(ps -o sid= $!) = $! ]; do :; done"
    )
    daemon = psutil.Process(int(result["output_tail"]))

    assert daemon.is_running()
    daemon.kill()


def test_the_group_is_the_commands_own(ctx: Context) -> None:
    """A `kill 0` in a script is common; it must reach the script and nobody else."""
    with pytest.raises(CommandFailedError, match="was killed by SIGTERM"):
        command(ctx, command="kill 0; sleep 600")


def test_a_command_that_kills_its_guard_dies_with_it(ctx: Context, until: Until, tmp_path: Path) -> None:
    """Nobody would watch over it any more."""
    with pytest.raises(CommandFailedError, match="the guard of /bin/sh was killed from outside"):
        command(ctx, command=f"sleep 600 & echo $$ $! > {tmp_path}/pids; kill -9 $PPID; sleep 600")

    for pid in (tmp_path / "pids").read_text().split():
        until(lambda pid=pid: is_gone(int(pid)), "the command and its child ended")  # type: ignore[misc]


@pytest.mark.parametrize("rounds", [8, pytest.param(24, marks=pytest.mark.long)])
def test_many_runs_leave_nothing_behind(ctx: Context, rounds: int) -> None:
    """No descriptor and no child, whether they end well, badly, or never start."""
    command(ctx, command=["true"])
    before = sorted(Path("/proc/self/fd").iterdir())
    children = psutil.Process().children()
    for round_ in range(rounds):
        if round_ % 4 == 1:
            command(ctx, command=["false"], check=False)
        elif round_ % 4 == 2:
            with pytest.raises(CommandRefusedError):
                command(ctx, command=["no-such-program"])
        else:
            command(ctx, command=["true"], stdin="x")

    assert sorted(Path("/proc/self/fd").iterdir()) == before
    assert psutil.Process().children() == children


def test_only_a_main_thread_may_run_a_command(ctx: Context) -> None:
    """The kernel ties PDEATHSIG to the thread that forked: in a pool of threads the guard would die with the thread."""
    caught: list[BaseException] = []

    def attempt() -> None:
        try:
            command(ctx, command=["true"])
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()

    assert "needs the main thread" in str(caught[0])
