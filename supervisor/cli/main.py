"""The ``tenure`` command: finds the subcommand, runs it, turns errors into one clear line and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import click

from supervisor.cli.help import CONTEXT, SectionedGroup
from supervisor.cli.options import print_problems
from supervisor.cli.output import say
from supervisor.core.errors import EXIT_FAILED, EXIT_USAGE, ConfigError, TenureError
from supervisor.version import __version__

_STRAY_SHOWN = 60
_OUTPUT_IS_LOST = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class LazyGroup(SectionedGroup):
    """A group whose commands are imported when they are used, so that ``--help`` and ``version`` stay fast."""

    sources: ClassVar[dict[str, tuple[str, str]]] = {
        "run": ("supervisor.cli.replica.run:run", "Start this replica: the whole tree of processes."),
        "status": ("supervisor.cli.replica.status:status", "Show the leader, running jobs and next fires."),
        "leader": ("supervisor.cli.leader:leader", "Show the election, follow it, ask for a hand-over."),
        "schedule": ("supervisor.cli.schedule.commands:schedule", "List, explain and control schedules."),
        "job": ("supervisor.cli.replica.status:job", "List the jobs that the configuration imports."),
        "runs": ("supervisor.cli.runs.commands:runs", "List, show, cancel and reorder runs."),
        "queue": ("supervisor.cli.queue.commands:queue", "List, control and check queues."),
        "dead": ("supervisor.cli.queue.dead:dead", "List, requeue and drop runs that were given up."),
        "enqueue": ("supervisor.cli.runs.enqueueing:enqueue", "Put one run of a job into its queue."),
        "worker": ("supervisor.cli.replica.worker:worker", "List and control worker processes."),
        "plugin": ("supervisor.cli.plugin:plugin", "List, check and try plugins."),
        "events": ("supervisor.cli.events:events", "Show past events, and follow new ones."),
        "reload": ("supervisor.cli.replica.control:reload_", "Make a running tree follow its changed configuration."),
        "stop": ("supervisor.cli.replica.control:stop", "Stop a running tree and wait until it is gone."),
        "config": ("supervisor.cli.config.commands:config_group", "Validate, show or describe the configuration."),
        "import": ("supervisor.cli.config.import_:import_group", "Turn other schedulers' files into a configuration."),
        "token": ("supervisor.cli.token:token_group", "Make tokens of the HTTP API."),
        "init": ("supervisor.cli.init:init", "Make a project to start from, tests included."),
        "doctor": ("supervisor.cli.doctor:doctor", "Check environment, Redis, permissions and clock."),
        "completion": ("supervisor.cli.completion:completion", "Print the completion script for a shell."),
        "version": ("supervisor.cli.build:version", "Print the version."),
    }

    sections: ClassVar[dict[str, tuple[str, ...]]] = {
        "Start and stop": ("run", "reload", "stop"),
        "Observe": ("status", "leader", "events", "job", "runs", "worker"),
        "Schedules and queues": ("schedule", "enqueue", "queue", "dead", "plugin"),
        "Set up": ("init", "config", "token", "import", "doctor", "completion", "version"),
    }
    """Commands by their section of the help; a test finds one that is missing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let ``--version`` be given without a value, and take none from the next word."""
        return super().parse_args(ctx, [f"{args[0]}=true", *args[1:]] if args[:1] == ["--version"] else args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which people meet them."""
        del ctx
        return list(self.sources)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        del ctx
        if cmd_name not in self.sources:
            return None
        module, _, attribute = self.sources[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing one."""
        del ctx
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.sources[name][1]) for name in names if name in self.sources])


def _print_version(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    """Before anything else: no configuration is read, and nothing is connected to."""
    if value is None or value == "false" or ctx.resilient_parsing:
        return
    from supervisor.cli import build

    click.echo(build.raw() if value == "raw" else f"tenure {__version__}")
    ctx.exit()


@click.command(cls=LazyGroup, context_settings=CONTEXT)
@click.option(
    "--version",
    type=click.Choice(["true", "false", "raw"]),
    metavar="[=raw]",
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit; --version=raw has all details of the installation.",
)
def cli() -> None:
    """Periodic and background jobs for replicated Python services.

    Start the same command on every machine: one scheduler is active, the others are on standby, workers everywhere
    run the jobs.

    \b
    Examples:
      tenure run                        everything on this machine, embedded server
      tenure run --config /etc/tenure   settings from a file or a directory
      tenure status                     leader, past runs, next runs
    """


def main(argv: list[str] | None = None, *, prog_name: str = "tenure", before: Callable[[], None] | None = None) -> Any:
    """Run the command and exit. Errors that Tenure raises on purpose never show a traceback.

    ``argv`` are the words after the program's name; None: those of this process. ``before`` prepares a program that
    embeds the command.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no … gets a ? instead of nothing at all
    words = sys.argv[1:] if argv is None else argv
    try:
        if before is not None:
            before()
        code = cli.main(args=argv, prog_name=prog_name, standalone_mode=False)
    except click.exceptions.Abort:
        _leave(EXIT_FAILED)
    except click.ClickException as error:
        shown = io.StringIO()  # names and words of others, made printable
        error.show(shown)
        say(shown.getvalue().rstrip("\n"), err=True)
        _leave(error.exit_code)
    except ConfigError as error:
        print_problems(error.problems)
        _leave(error.exit_code)
    except TenureError as error:
        say(f"tenure: {error}", err=True)
        _leave(error.exit_code)
    except UnicodeEncodeError:
        stray = next((word for word in words if _is_stray(word)), None)
        if stray is None:
            raise
        say(f"tenure: {stray[:_STRAY_SHOWN]!r} is no text in UTF-8, and only names of files may be that", err=True)
        _leave(EXIT_USAGE)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; there is nobody to tell
        sys.exit(EXIT_FAILED)
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT_IS_LOST:
            raise
        say(f"tenure: cannot write its output: {error.strerror}", err=True)
        os._exit(EXIT_FAILED)  # what was not written would be tried again at the end of the interpreter
    _leave(code if isinstance(code, int) else 0)


def _is_stray(word: str) -> bool:
    """Return whether a word of the command line has bytes that are no UTF-8, as Python shows them."""
    return any("\ud800" <= character <= "\udfff" for character in word)


def _leave(code: int) -> NoReturn:
    """Exit, without waiting for a thread that an imported job module started and that may never end."""
    if any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
