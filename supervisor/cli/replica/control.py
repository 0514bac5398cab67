"""``tenure reload`` and ``tenure stop``: ask the process tree on this machine, or by Redis that of another replica."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from supervisor.cli.help import SectionedCommand as CliCommand
from supervisor.cli.options import DURATION, LoadSettings, config_options
from supervisor.cli.output import is_table, output_option, print_outcome, print_value, say
from supervisor.clock import SystemClock
from supervisor.core.errors import EXIT_FAILED, EXIT_OK, ConfigError, TenureError
from supervisor.core.units import SECOND_NS

if TYPE_CHECKING:
    from supervisor.process.run_file import Handle, RunningTree

POLL_S = 0.05
SAY_EVERY_S = 5.0
_DATA_DIR = "TENURE_DATA_DIR"


class Meant(NamedTuple):
    """The tree that a command means."""

    pid: int | None
    data_dir: Path | None
    replica: str | None


def _tree_options(command: Callable[..., Any]) -> Callable[..., Any]:

    @click.option("--pid", type=click.IntRange(1), help="The tree's own process; no configuration is read.")
    @click.option("--data-dir", type=click.Path(path_type=Path), help="Where the tree keeps its data.")
    @click.option("--replica", help="Its id or its name. One on another machine is asked through Redis.")
    @wraps(command)
    def chosen(*, pid: int | None, data_dir: Path | None, replica: str | None, **options: Any) -> Any:
        return command(meant=Meant(pid, data_dir, replica), **options)

    return chosen


@click.command("reload", cls=CliCommand)
@_tree_options
@click.option("--timeout", "timeout_s", type=DURATION, default="60s", show_default=True, help="How long to wait.")
@config_options
@output_option
def reload_(*, meant: Meant, timeout_s: float, load_settings: LoadSettings) -> int:
    """Make a running tree follow its changed configuration, and report the result.

    The tree reads the files that it was started with. Exits with 1 when it refuses them: then nothing has changed.

    \b
    Examples:
      tenure reload
      tenure reload --pid 4711
      tenure reload --replica web-2
    """
    found = _find(meant, load_settings)
    if found is None:
        return _remote(meant.replica, "reload", load_settings, done="reloaded", wait_s=timeout_s)
    return _reload(found, timeout_s)


@click.command(cls=CliCommand)
@_tree_options
@click.option(
    "--timeout", "timeout_s", type=DURATION, help="How long to wait until it is gone.  [default: as it takes]"
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_options
@output_option
def stop(*, meant: Meant, timeout_s: float | None, yes: bool, load_settings: LoadSettings) -> int:
    """Stop a tree as SIGTERM does: running jobs are finished within the grace. Waits until it is gone.

    Exits with 1 when not everything drained, or it is not gone in time.

    \b
    Examples:
      tenure stop --yes
      tenure stop --replica web-2 --yes
    """
    from supervisor.cli.cluster import confirm

    found = _find(meant, load_settings)
    if found is None:
        confirm(f"Stop replica {meant.replica}?", yes=yes)
        return _remote(meant.replica, "stop", load_settings, done="stops", wait_s=15.0)
    confirm(f"Stop {found.plate.replica} (pid {found.plate.pid})?", yes=yes)
    return _stop(found, timeout_s)


def _find(meant: Meant, load_settings: LoadSettings) -> RunningTree | None:
    """Return the tree of this machine that is meant; None when it can only be one of another machine."""
    from supervisor.process import run_file

    pid, data_dir, replica = meant

    if pid is not None:
        found = run_file.of_process(pid)
        if found is None:
            raise TenureError(f"pid {pid} is no tree of Tenure, or belongs to another user")
        return found
    directory, cluster = _directory(data_dir, load_settings)
    here = [each for each in run_file.living(directory) if cluster in {None, each.plate.cluster}]
    if replica is not None:
        here = [each for each in here if replica in {each.plate.replica, each.plate.replica.rpartition(".")[0]}]
    if len(here) > 1:
        shown = ", ".join(f"{each.plate.replica} (pid {each.plate.pid})" for each in here)
        raise click.UsageError(f"several trees run on {directory}: {shown}; name one: --replica or --pid")
    if not here and replica is None:
        raise TenureError(
            f"no tree runs on data_dir {directory}; name another by --data-dir, --config or TENURE_DATA_DIR, "
            f"its process by --pid, or a replica on another machine by --replica"
        )
    return here[0] if here else None


def _directory(data_dir: Path | None, load_settings: LoadSettings) -> tuple[Path, str | None]:
    """Return the data directory, also when the configuration that names it is the broken one, and the cluster."""
    if data_dir is not None:
        return data_dir, None
    from supervisor.settings.loader import UnusableError, load
    from supervisor.settings.overrides import DEFAULTS_VARIABLE

    try:
        settings = load_settings().settings
    except ConfigError as error:
        partial = error.partial if isinstance(error, UnusableError) else None
        if partial is None:
            told = {name: os.environ[name] for name in (DEFAULTS_VARIABLE, _DATA_DIR) if name in os.environ}
            return Path(load(files=(), environ=told, flags={}).settings.data_dir), None
        settings = partial.settings
    return Path(settings.data_dir), settings.cluster


def _reload(found: RunningTree, timeout_s: float) -> int:
    from supervisor.process import run_file

    plate = found.plate
    clock = SystemClock()
    asked_ns = clock.elapsed_ns()
    with _signalled(found, signal.SIGHUP) as handle:
        until_ns = asked_ns + int(timeout_s * SECOND_NS)
        while not handle.is_gone(POLL_S) and clock.elapsed_ns() < until_ns:
            now = run_file.read(found.place)
            # One that began before we asked may have read the files before they were changed.
            if now is not None and now.reload.outcome is not None and now.reload.began_ns >= asked_ns:
                return _tell_reload(plate.replica, now.reload)
        is_gone = handle.is_gone()
    why = f"no outcome within {timeout_s:g} s" if not is_gone else "the tree ended meanwhile"
    raise TenureError(f"{plate.replica} (pid {plate.pid}): {why}; its log has details")


def _tell_reload(replica: str, ending: Any) -> int:
    is_success = ending.outcome.is_success
    if not is_table():
        value = {
            "replica": replica,
            "outcome": ending.outcome.value,
            "changed": list(ending.changed),
            "reasons": list(ending.reasons),
            "stale": list(ending.stale),
        }
        print_value(value)
    elif is_success:
        changed = f": {', '.join(ending.changed)}" if ending.changed else ""
        say(f"{replica}: {ending.outcome.value}{changed}")
    if ending.stale:
        modules = ", ".join(ending.stale)
        say(f"note: changed code of {modules} runs after a restart; a reload imports nothing twice", err=True)
    if not is_success:
        say(f"tenure: {replica}: reload {ending.outcome.value}; the former configuration runs on", err=True)
        for reason in ending.reasons:
            say(reason, err=True)
    return EXIT_OK if is_success else EXIT_FAILED


def _stop(found: RunningTree, timeout_s: float | None) -> int:
    from supervisor.process import run_file
    from supervisor.process.system.linux import children_of

    plate, clock = found.plate, SystemClock()
    began_ns = clock.elapsed_ns()
    said_ns = began_ns
    with _signalled(found, signal.SIGTERM) as handle:
        while not handle.is_gone(POLL_S):
            now_ns = clock.elapsed_ns()
            if timeout_s is not None and now_ns - began_ns > timeout_s * SECOND_NS:
                raise TenureError(
                    f"{plate.replica} (pid {plate.pid}) is not gone after {timeout_s:g} s; it goes on stopping"
                )
            if now_ns - said_ns >= SAY_EVERY_S * SECOND_NS:
                said_ns = now_ns
                say(f"{plate.replica}: {len(children_of(plate.pid))} processes are left", err=True)
    took_s = round((clock.elapsed_ns() - began_ns) / SECOND_NS, 2)
    last = run_file.read(found.place)
    code = last.exit_code if last is not None and last.pid == plate.pid else None
    shown = "its exit code is not known" if code is None else f"exit code {code}"
    value = {"replica": plate.replica, "exit_code": code, "took_s": took_s}
    print_outcome(value, line=f"{plate.replica}: stopped after {took_s} s, {shown}")
    return EXIT_OK if code == EXIT_OK else EXIT_FAILED


def _remote(replica: str | None, word: str, load_settings: LoadSettings, *, done: str, wait_s: float) -> int:
    from supervisor.cli.cluster import command_replica
    from supervisor.cli.connection import connected
    from supervisor.operations import workers

    with connected(load_settings().settings) as connection:
        name = connection.ask(workers.chosen, replica)
        answer = command_replica(connection, workers.WorkerTarget(name), workers.Word(word), wait_s=wait_s)
    if answer is None:
        raise TenureError(f"{name} gave no answer within {wait_s:g} s; its log shows whether it took the command")
    if not answer.is_done:
        raise TenureError(f"{name}: {answer.reason}")
    print_outcome({"replica": name, "outcome": done}, line=f"{name}: {done}")
    return EXIT_OK


@contextmanager
def _signalled(found: RunningTree, number: signal.Signals) -> Iterator[Handle]:
    """Send a signal to a tree's process and yield the handle of it; errors are such as a person understands."""
    from supervisor.process.run_file import Handle

    plate = found.plate
    try:
        handle = Handle(found)
    except OSError as error:
        raise TenureError(f"{plate.replica} ended just now") from error
    with closing(handle):
        try:
            handle.send(number)
        except ProcessLookupError as error:
            raise TenureError(f"{plate.replica} ended just now") from error
        except PermissionError as error:
            raise TenureError(f"pid {plate.pid} belongs to another user; run this as that user") from error
        yield handle
