"""The ``tenure`` command: finds the subcommand, runs it, turns errors into one clear line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any, ClassVar, NoReturn

import click

from supervisor.cli.options import print_problems
from supervisor.core.errors import EXIT_FAILED, ConfigError, TenureError
from supervisor.version import __version__


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, so that ``--help`` and ``version`` stay fast."""

    sources: ClassVar[dict[str, tuple[str, str]]] = {
        "run": ("supervisor.cli.run:run", "Start this replica: the whole tree of processes."),
        "status": ("supervisor.cli.inspect:status", "Show who leads, what runs, what is next."),
        "leader": ("supervisor.cli.leader:leader", "Show the election, follow it, ask for a hand-over."),
        "schedule": ("supervisor.cli.schedule:schedule", "List, explain and control schedules."),
        "job": ("supervisor.cli.inspect:job", "List the jobs that the configuration imports."),
        "runs": ("supervisor.cli.runs:runs", "List and show runs, cancel them, change their turn."),
        "queue": ("supervisor.cli.queue:queue", "List and control queues, and check what they hold."),
        "dead": ("supervisor.cli.dead:dead", "List, requeue and drop runs that were given up."),
        "enqueue": ("supervisor.cli.runs:enqueue", "Put one run of a job into its queue."),
        "worker": ("supervisor.cli.worker:worker", "List and control worker processes."),
        "reload": ("supervisor.cli.control:reload_", "Make a running tree follow its changed configuration."),
        "stop": ("supervisor.cli.control:stop", "Stop a running tree and wait until it is gone."),
        "config": ("supervisor.cli.config:config_group", "Validate, show or describe the configuration."),
        "import": ("supervisor.cli.import_:import_group", "Turn other schedulers' files into a configuration."),
        "doctor": ("supervisor.cli.doctor:doctor", "Check environment, Redis, permissions and clock."),
        "version": ("supervisor.cli.run:version", "Print the version."),
    }

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
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.sources.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tenure", message="%(prog)s %(version)s")
def cli() -> None:
    """Periodic and background jobs for replicated Python services.

    Start the same command on every machine: one scheduler is active, the others stand by, workers everywhere
    run the jobs.

    \b
    Examples:
      tenure run                              everything on this machine, embedded server
      tenure run --config /etc/tenure         settings from a file or a directory
      tenure status                           who leads, what ran, what is next
    """


def main(argv: list[str] | None = None) -> Any:
    """Run the command and exit. Errors that Tenure raises on purpose never show a traceback."""
    try:
        code = cli.main(args=argv, prog_name="tenure", standalone_mode=False)
    except click.exceptions.Abort:
        _leave(EXIT_FAILED)
    except click.ClickException as error:
        error.show()
        _leave(error.exit_code)
    except ConfigError as error:
        print_problems(error.problems)
        _leave(error.exit_code)
    except TenureError as error:
        click.echo(f"tenure: {error}", err=True)
        _leave(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; there is nobody to tell
        sys.exit(EXIT_FAILED)
    _leave(code if isinstance(code, int) else 0)


def _leave(code: int) -> NoReturn:
    """Exit, without waiting for a thread that an imported job module started and that may never end."""
    if any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
