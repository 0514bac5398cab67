"""``tenure enqueue``: one run of a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Unpack

import click

from supervisor.cli.connection import connected
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options
from supervisor.store.producer.options import EnqueueOptions


@click.command(cls=SectionedCommand)
@click.argument("job_name", metavar="JOB")
@click.argument("arguments", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--queue", "queue_name", help="Queue; default: the job's.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Priority; default: the job's.")
@click.option("--delay", help="Run it no sooner than after this time, such as 30s or 2h.")
@click.option("--id", "run_id", help="Identity of the run; enqueued once in an hour.")
@config_options
def enqueue(
    *,
    job_name: str,
    arguments: Sequence[str],
    queue_name: str | None,
    priority: str | None,
    delay: str | None,
    run_id: str | None,
    load_settings: LoadSettings,
) -> None:
    """Put one run of a job into its queue and print its id.

    A VALUE is read as JSON if it is JSON, else as text.

    \b
    Examples:
      tenure enqueue shell.command 'command=["make", "report"]'
      tenure enqueue identity.token_cleanup batch=100 --delay 5m
    """
    put_run(load_settings, job_name, arguments, queue=queue_name, priority=priority, delay=delay, run_id=run_id)


def put_run(
    load_settings: LoadSettings, job_name: str, arguments: Sequence[str], **options: Unpack[EnqueueOptions]
) -> None:
    """Put one run of a job into its queue, by the configuration, and print its id."""
    from supervisor.app.jobs import prepare_jobs
    from supervisor.store.producer.producer import Producer

    loaded = load_settings()
    prepare_jobs(loaded)
    args = parse_arguments(arguments)
    with connected(loaded.settings) as connection:
        producer = Producer(loaded.settings.redis, cluster=loaded.settings.cluster, open_store=lambda: connection.store)
        click.echo(producer.enqueue(job_name, args, **options))


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
        try:
            args[name] = json.loads(text)
        except ValueError:
            args[name] = text
    return args
