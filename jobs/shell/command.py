"""``shell.command``: run a program or a shell line as a job.

Guarantees
    Nothing of the command's process group outlives the run: not its end, not the soft timeout
    (SIGTERM, a short wait, SIGKILL), not the death of the worker (see supervisor/process/command/guard.py).
    Memory is bounded whatever the command writes; the end of it is kept with the run.

Does not guarantee
    That the command ran once: a run whose worker died is run again. Make it idempotent.
"""

from __future__ import annotations

import os
import signal
from typing import TypedDict

from supervisor.core.jobs.confinement import Confinement
from supervisor.process.command.confinement import confined, home_of
from supervisor.process.command.guard import AT_CWD, AT_EXEC, PLACES
from supervisor.process.command.spec import CommandRefusedError, Launch, inherited_environment, prepare
from supervisor.telemetry.run_context import add_output
from tenure import Context, Retry, job
from tenure.jobs.shell.guard import CommandEnd, Guard, Tail

OUTPUT_TAIL_MAX = 32 * 1024
MESSAGE_BYTES_MAX = 768  # with the sentence before it, within what a run's record keeps of a message
PATIENCE_S_MAX = 1.5  # a worker that must go is killed 2 s after it was told
PATIENCE_S_MIN = 0.1
RESERVE_S = 0.5  # of the time left before the hard timeout, to kill and to report


class CommandResult(TypedDict):
    """Result of a command, as its run records it."""

    exit_code: int | None  # None when a signal ended it
    signal: str | None
    duration_s: float
    output_tail: str
    truncated: bool


class CommandFailedError(RuntimeError):
    """The command ended with a code other than 0, or by a signal."""


@job("shell.command", queue="shell", timeout=3600.0, retry=Retry(attempts=1))
def command(
    ctx: Context,
    *,
    command: list[str] | str,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    shell: str = "/bin/sh",
    stdin: str | None = None,
    check: bool = True,
    output_tail: int = 8192,
    output_in_error: bool = False,
) -> CommandResult:
    """Run ``command`` and wait for it: a list is a program with its arguments, a string a line for ``shell``.

    Args:
        ctx: the run's context.
        command: the program to run.
        env: variables beside those that ``shell.env`` of the configuration lists; they win.
        cwd: directory to run it in; default: the tree's.
        shell: which shell reads a line.
        stdin: its input; default: nothing.
        check: whether an exit code other than 0, or a signal, fails the run.
        output_tail: how many bytes of its output (stdout and stderr together) to keep, at most 32768: in the result,
            or in the log when it failed.
        output_in_error: whether an error ends with the last of the output, which whoever may read runs sees.

    Raises:
        CommandFailedError: it failed, and ``check`` is true.
        CommandRefusedError: it could not be started.
    """
    if not 0 <= output_tail <= OUTPUT_TAIL_MAX:
        raise CommandRefusedError(f"output_tail must be 0 to {OUTPUT_TAIL_MAX} bytes, got {output_tail}")
    confinement = Confinement.current
    inherited = inherited_environment(os.environ, confinement.env) | home_of(confinement)
    environment = {**inherited, **_run_variables(ctx), **(env or {})}
    launch = confined(prepare(command=command, shell=shell, env=environment, cwd=cwd, stdin=stdin), confinement)
    tail = Tail(output_tail)
    started_ns = ctx.clock.elapsed_ns()
    ending = _run(ctx, launch, tail, is_told=output_in_error)
    result = _result(launch, ending, tail, duration_s=(ctx.clock.elapsed_ns() - started_ns) / 1e9)
    if check and result["exit_code"] != 0:
        kept = {name: result[name] for name in ("exit_code", "signal", "output_tail", "truncated")}
        ctx.log.warning("command_failed", command=launch.name, **kept)
        raise CommandFailedError(_failure(launch, result) + (_said(result["output_tail"]) if output_in_error else ""))
    return result


def _run(ctx: Context, launch: Launch, tail: Tail, *, is_told: bool) -> CommandEnd:
    guard = Guard(ctx.clock)
    try:
        guard.start(launch)
        ending = guard.follow(tail)
    except BaseException as error:
        guard.stop(tail, patience_s=_patience_s(ctx.remaining_s()))
        if text := tail.text():
            ctx.log.warning("command_stopped", command=launch.name, output_tail=text, truncated=tail.is_truncated)
        error.add_note(f"{launch.name} was stopped" + (_said(tail.text()) if is_told else ""))
        raise
    finally:
        guard.close()
        add_output(tail.text())
    assert ending is not None
    return ending


def _patience_s(remaining_s: float) -> float:
    """Return how long a command that was asked to end may take: within the rest of the run."""
    return min(PATIENCE_S_MAX, max(PATIENCE_S_MIN, remaining_s - RESERVE_S))


def _run_variables(ctx: Context) -> dict[str, str]:
    """Return the environment variables that identify the run to its command."""
    variables = {"TENURE_RUN_ID": ctx.run_id, "TENURE_ATTEMPT": str(ctx.attempt)}
    if ctx.maybe_duplicate:
        variables["TENURE_MAYBE_DUPLICATE"] = "1"
    if ctx.schedule is not None:
        variables["TENURE_SCHEDULE"] = ctx.schedule
    if ctx.nominal is not None:
        variables["TENURE_NOMINAL"] = ctx.nominal.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return variables


def _result(launch: Launch, ending: CommandEnd, tail: Tail, *, duration_s: float) -> CommandResult:
    if ending.failed_at is not None:
        raise CommandRefusedError(_refusal(launch, *ending.failed_at))
    if ending.wait_status is None:
        raise CommandFailedError(f"the guard of {launch.name} was killed from outside, and the command with it")
    code = os.waitstatus_to_exitcode(ending.wait_status)
    return CommandResult(
        exit_code=code if code >= 0 else None,
        signal=_signal_name(-code) if code < 0 else None,
        duration_s=round(duration_s, 6),
        output_tail=tail.text(),
        truncated=tail.is_truncated,
    )


def _refusal(launch: Launch, where: bytes, number: int) -> str:
    reason = os.strerror(number)
    if where == AT_CWD:
        return f"cannot run {launch.name} in cwd {launch.cwd!r}: {reason}"
    if where == AT_EXEC:
        return f"cannot run {launch.name!r}: {reason}{_remedy(launch, number)}"
    if where in PLACES:
        return f"cannot run {launch.name} with {PLACES[where]} of the configuration: {reason}"
    return f"cannot start a guard for {launch.name}: {reason}"


def _remedy(launch: Launch, number: int) -> str:
    if isinstance(OSError(number, ""), FileNotFoundError):
        path = os.fsdecode(launch.env.get(b"PATH", b""))
        searched = "" if "/" in launch.name else f" (PATH is {path!r})"
        return f"{searched}; install it, or give its absolute path"
    if isinstance(OSError(number, ""), PermissionError):
        return "; make it executable for the user that the tree runs as"
    return "; does its first line name the interpreter (#!)?" if os.strerror(number) == "Exec format error" else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"  # a real-time signal has a number only


def _failure(launch: Launch, result: CommandResult) -> str:
    how = f"exited with {result['exit_code']}" if result["signal"] is None else f"was killed by {result['signal']}"
    return f"{launch.name} {how} after {result['duration_s']:.3g} s"


def _said(text: str) -> str:
    output = _last(text)
    return f"; its last output:\n{output}" if output else "; it wrote nothing"


def _last(output: str) -> str:
    """Return the last lines of ``output``, as many as an error message may hold."""
    kept = output.rstrip().encode()[-MESSAGE_BYTES_MAX:].decode(errors="ignore")
    return kept if len(kept) == len(output.rstrip()) else kept.partition("\n")[2] or kept
