"""``tenure run``."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from supervisor.cli.config.setting_flags import features_option, gate_flags
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options, print_problems
from supervisor.cli.output import say
from supervisor.clock import Clock, SystemClock
from supervisor.core.errors import EXIT_FAILED, EXIT_OK, ConfigError
from supervisor.core.units import SECOND_NS

if TYPE_CHECKING:
    from supervisor.settings.loader import Loaded

PATIENCE_S = 30  # a service manager gives up what fails five times in two minutes (StartLimitBurst= of the unit)
PAUSE_S = 1.0
_STDERR = 2
_PATHS = {
    "host": "web.host", "port": "web.port", "data_dir": "data_dir", "redis_url": "redis.url", "log_format": "log.format"
}  # fmt: skip
"""Settings by the option that gives them."""


@click.command(cls=SectionedCommand)
@config_options
@click.option("--host", help="Address of the HTTP endpoint, or unix:/path (web.host).")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the HTTP endpoint (web.port); 0: the kernel's choice."
)
@click.option("--data-dir", help="Directory of the embedded server's data (data_dir).")
@click.option(
    "--redis-url",
    help="embedded, redis://, rediss:// or unix:// (redis.url). Others can see a command line: "
    "give a password by TENURE_REDIS__PASSWORD or a file.",
)
@click.option("--log-format", type=click.Choice(["auto", "json", "console"]), help="How the log looks (log.format).")
@features_option
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="MODULE:CLASS",
    help="A plugin class beside those of the configuration (plugins); may be repeated.",
)
@click.option("--write-config-to", metavar="FILE|-", help="Write the effective configuration and exit.")
def run(
    *,
    feature_gates: str | None,
    plugins: tuple[str, ...],
    write_config_to: str | None,
    load_settings: LoadSettings,
    **given: str | int | None,
) -> None:
    """Start this replica: supervisor, agent, scheduler, web, workers and, by default, an embedded server.

    SIGTERM or SIGINT drains and stops it; a second one stops it at once.

    \b
    Examples:
      tenure run
      tenure run --config /etc/tenure --port 9090
      TENURE_REDIS__URL=redis://redis:6379/0 tenure run
    """
    _end_by_signal_until_the_tree_starts()
    _fill_standard_descriptors()
    gc.disable()  # until the fork everything stays; walks through all of it are a tenth of the time to start
    from supervisor.telemetry.log_lines.import_structlog import import_structlog

    import_structlog()
    from supervisor.settings.overrides import Flag

    named = {path: Flag(f"--{name.replace('_', '-')}", given[name]) for name, path in _PATHS.items()}
    flags = {path: flag for path, flag in named.items() if flag.value is not None} | gate_flags(feature_gates)
    if plugins:
        _register(plugins)
    load = partial(load_settings, flags=flags, with_jobs=True)
    is_piped = any(map(_is_pipe, click.get_current_context().params["config_files"]))  # it is empty the second time
    loaded = load_patiently(load, SystemClock(), patience_s=0 if is_piped else PATIENCE_S)
    if write_config_to is not None:
        from supervisor.cli.config.commands import write_config

        write_config(loaded, write_config_to)
        return
    from supervisor.app import replica

    _leave(replica.run(loaded, load))


def _is_pipe(file: Path) -> bool:
    try:
        return file.is_fifo()
    except OSError:  # a directory above that may not be entered, a name too long: whoever reads it is told
        return False


def load_patiently(
    load: Callable[[], Loaded],
    clock: Clock,
    *,
    patience_s: int = PATIENCE_S,
    pause: Callable[[float], object] = lambda seconds: select.select([], [], [], seconds),
) -> Loaded:
    """Return the configuration; wait for a while until what it imports over the network answers.

    Raises:
        ConfigError: it cannot be used, or still does not answer.
    """
    until_ns = 0
    while True:
        try:
            return load()
        except ConfigError as error:
            now_ns = clock.elapsed_ns()
            if not error.is_passing or not patience_s or (until_ns and now_ns >= until_ns):
                raise
            if not until_ns:
                print_problems(problem for problem in error.problems if problem.is_passing)
                say(f"it is asked again for {patience_s} s", err=True)
                until_ns = now_ns + patience_s * SECOND_NS
        pause(PAUSE_S)


def _register(plugins: Iterable[str]) -> None:
    """Make classes known that the command line names; they stay, whatever a reload brings."""
    from supervisor.plugins.registry import load_class, registry
    from supervisor.settings.schedules.search_path import search_here

    search_here()
    for reference in plugins:
        registry.register(load_class(reference))


def _end_by_signal_until_the_tree_starts() -> None:
    """Let TERM, INT and QUIT end the start; the parent blocks them before its first fork, and takes them from then on.

    The kernel drops a signal without a handler when it is meant for process 1, as is this
    process in most containers: a stop during the start would be lost. One that came before waits, blocked
    (``supervisor.__main__``), and is let through here. SIGHUP waits on, for the parent.
    """
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
    for number in numbers:
        signal.signal(number, _end_the_start)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def _fill_standard_descriptors() -> None:
    """Open closed descriptors of 0 to 2: else a socket of ours gets a number that stacks and warnings go to."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)


def _end_the_start(number: int, _frame: FrameType | None) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, f"tenure: received {signal.Signals(number).name} before anything was started\n".encode())
    os._exit(EXIT_FAILED if number == signal.SIGQUIT else EXIT_OK)  # as the parent would say


def _leave(code: int) -> NoReturn:
    # Not sys.exit: interpreter shutdown runs what libraries registered, and the tree is already gone.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, broken, or never there
            stream.flush()
    os._exit(code)
