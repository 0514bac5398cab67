"""``tenure enqueue``: one run of a job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import click
import msgspec

from supervisor.cli.connection import connected
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import DURATION, LoadSettings, config_options
from supervisor.cli.output import print_value, say
from supervisor.core.durations import DELAY_S_MAX
from supervisor.core.effects import drive
from supervisor.core.errors import JobFailedError, ResultGoneError, ResultTypeError, RunTimeoutError
from supervisor.core.json_values import unrepeated
from supervisor.core.model import PRIORITIES
from supervisor.operations import Effect, jobs
from supervisor.operations.jobs import EnqueueEffect, EnqueueOptions, Producer
from supervisor.operations.queues import Served
from supervisor.telemetry.masking import mask_text


def enqueue_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a run that is enqueued by hand; ``put_run`` takes them under their names."""
    options = (
        click.option("--queue", help="Queue; default: the job's."),
        click.option("--priority", type=click.Choice(list(PRIORITIES)), help="Priority; default: the job's."),
        click.option("--delay", help="Run it no sooner than after this time, such as 30s or 2h."),
        click.option("--id", "run_id", help="Identity of the run; enqueued once in an hour."),
        click.option("--force", "is_forced", is_flag=True, help="Also into a --queue that no live worker serves."),
        click.option("--wait", "wait_s", type=DURATION, help="Wait so long for its end, and print its result."),
    )
    for option in reversed(options):
        function = option(function)
    return function


class RunOptions(EnqueueOptions, total=False):
    """Options of the command: those of the run, and how it is enqueued and awaited."""

    is_forced: bool
    wait_s: float | None


@click.command(cls=SectionedCommand)
@click.argument("job_name", metavar="JOB")
@click.argument("arguments", metavar="[NAME=VALUE]...", nargs=-1)
@enqueue_options
@config_options
def enqueue(
    *, job_name: str, arguments: Sequence[str], load_settings: LoadSettings, **options: Unpack[RunOptions]
) -> None:
    """Put one run of a job into its queue and print its id.

    A VALUE is read as JSON if it is JSON, else as text. A --queue that no live worker and no pool of this
    configuration serves is refused with exit code 3; a run in any other queue without workers waits, with a warning.

    With --wait the result follows as JSON on the next lines. The exit code is 1 when the run failed or was cancelled,
    and 3 when it has not ended in time; it goes on.

    \b
    Examples:
      tenure enqueue shell.command 'command=["make", "report"]'
      tenure enqueue identity.token_cleanup batch=100 --delay 5m
      tenure enqueue report.make month=7 --wait 30s
    """
    put_run(load_settings, job_name, arguments, **options)


def put_run(
    load_settings: LoadSettings,
    job_name: str,
    arguments: Sequence[str],
    *,
    is_forced: bool = False,
    wait_s: float | None = None,
    **options: Unpack[EnqueueOptions],
) -> None:
    """Put one run of a job into its queue, by the configuration, print its id, and if so asked its result.

    Raises:
        UnservedQueueError: no live worker takes runs from the queue that was named, and it is not forced.
        RunTimeoutError: the run has not ended after ``wait_s``.
        JobFailedError: it ended without success.
        RunCancelledError: it was ended on request.
    """
    from supervisor.app.jobs import prepare_jobs

    if wait_s is not None and wait_s > DELAY_S_MAX:
        raise click.UsageError("--wait must be at most 366 days")
    loaded = load_settings()
    settings = loaded.settings
    prepare_jobs(loaded)
    args = parse_arguments(arguments)
    check = QueueWarning(settings.cluster, is_configured=True)
    with connected(settings) as connection:
        producer = Producer(
            settings.redis, cluster=settings.cluster, open_store=connection.open_store, destination=check
        )

        def perform(effect: Effect | EnqueueEffect) -> Any:
            if isinstance(effect, EnqueueEffect):
                return producer.put(effect.job, effect.args, **effect.options)
            return connection.run(effect)

        remedy = "correct the name (`tenure queue list`), or give --force and start a worker for it"
        configured = connection.configured_queues
        request = jobs.enqueue(
            connection.keys, job_name, args, is_forced=is_forced, configured=configured, remedy=remedy, **options
        )
        try:
            run_id = drive(request, perform).run_id
            click.echo(run_id)
            if wait_s is not None:
                _print_result(producer, run_id, wait_s)
        finally:
            producer.close()


class QueueWarning(jobs.Destination):
    """Warning for a person where no live worker takes runs from the queue of one run."""

    def judge(self, queue: str, served: Served, others: Sequence[str], *, asked_ns: int) -> None:  # noqa: ARG002 - one run
        """Warn; see ``Destination.judge``."""
        if served is Served.YES:
            return
        if served is Served.NO_CLUSTER:
            shown = ", ".join(sorted(others)[: jobs.NAMES_SHOWN])
            holds = f" in this database, which holds {shown}" if others else ""
            found, remedy = f"no replica of cluster {self._cluster} was ever seen{holds}", "start one: `tenure run`"
        else:
            found = f"no live worker takes runs from queue {queue}"
            remedy = "start a replica whose `workers` have a pool for it"
        say(f"warning: {found}, so the run waits; {remedy}", err=True)


def _print_result(producer: Producer, run_id: str, wait_s: float) -> None:
    from supervisor.cli.runs.commands import stored_value
    from supervisor.clock import SystemClock
    from supervisor.operations.runs import RunPhase, result_of, status_of

    asking = producer.asking
    view, fault = asking.answer(asking.until_ended(run_id, "", wait_s, need="job"), run_id)
    status = status_of(run_id, view)
    if fault or not status.is_ended:
        raise RunTimeoutError(run_id, state="" if fault else status.state.value, waited_s=wait_s, fault=fault)
    try:
        result_of(run_id, view, job="", cluster=producer.keys.cluster, wall_ms=SystemClock().wall_ms())
    except JobFailedError as error:
        message = mask_text(error.message)
        raise JobFailedError(run_id, type=error.type, message=message, attempt=error.attempt) from None
    except ResultTypeError:
        pass  # what is printed is JSON, whatever the annotation is here
    except ResultGoneError as error:
        if status.state is not RunPhase.OK:
            raise
        say(f"note: {error}", err=True)
        return
    print_value(stored_value(view.result if view is not None else None), output="json")


def parse_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` words: a value is read as JSON if it is JSON, else as text.

    Raises:
        click.UsageError: a word that is none.
    """
    args: dict[str, Any] = {}
    for argument in arguments:
        name, sign, text = argument.partition("=")
        if not sign or not name.isidentifier():
            raise click.UsageError(f"{argument!r} is not NAME=VALUE, such as batch=100")
        if name in args:
            raise click.UsageError(f"{name} is given twice")
        try:
            args[name] = json.loads(text, object_pairs_hook=unrepeated)
        except msgspec.DecodeError as error:
            raise click.UsageError(f"{name}: {error}") from None
        except ValueError:
            args[name] = text
    return args
