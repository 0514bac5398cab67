"""``tenure plugin list``, ``show``, ``verify`` and ``run``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.cluster import who
from supervisor.cli.connection import Connection, connected
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import (
    is_table,
    list_options,
    moment,
    output_option,
    print_record,
    print_rows,
    print_section,
    print_value,
    say,
)
from supervisor.core.errors import TenureError
from supervisor.core.json_values import read_unrepeated
from supervisor.operations import jobs

if TYPE_CHECKING:
    from supervisor.operations.jobs import PluginRecord
    from supervisor.plugins.host import ReadyPlugin
    from supervisor.plugins.registration import Registered
    from supervisor.plugins.status import PluginStatus, Subject
    from supervisor.settings.loader import Loaded

PARAMS_BYTES_MAX = 8 * 1024 * 1024
COLUMNS = ("plugin", "state", "version", "kind", "origin", "suspended", "until", "reason")
STANDING = ("options", "state", "version", "failures", "suspended", "until", "since", "by", "reason")


@click.group(cls=SectionedGroup)
def plugin() -> None:
    """List, check and try plugins."""


@plugin.command("list")
@config_options
@list_options
def plugin_list(*, load_settings: LoadSettings) -> None:
    """List the plugins and their state.

    They come from the configuration, from installed distributions and from this program. Their state was found by the
    workers of the cluster; when nobody answers, it is shown as unknown.

    \b
    Examples:
      tenure plugin list
      tenure plugin list -o json
    """
    loaded = _loaded(load_settings)
    with _cluster(loaded) as connection:
        known = None if connection is None else connection.ask(jobs.plugin_records)
    from supervisor.plugins.registry import registry

    rows = [_row(name, None if known is None else known.get(name, [])) for name in registry.names()]
    print_rows(rows, columns=COLUMNS, empty="no plugins: name some under plugins: in the configuration")


@plugin.command("show")
@click.argument("name")
@config_options
@output_option
def plugin_show(*, name: str, load_settings: LoadSettings) -> None:
    """Show one plugin: settings, standing, schedules.

    \b
    Examples:
      tenure plugin show aws-ec2
      tenure plugin show aws-ec2 -o yaml
    """
    loaded = _loaded(load_settings)
    _registered(name)
    records: list[PluginRecord] | None = None
    schedules: list[str] = []
    with _cluster(loaded) as connection:
        if connection is not None:
            records = connection.ask(jobs.plugin_records).get(name, [])
            schedules = _standing(connection).schedules_running(name)
    value = {
        **_row(name, records),
        "settings": _settings(loaded, name),
        "schedules": schedules,
        "standing": [_standing_row(record) for record in records or ()],
        "metadata": next((record.metadata for record in records or () if record.metadata), {}),
    }
    if not is_table():
        print_value(value)
        return
    print_rows([value], columns=COLUMNS)
    print_section("Standing", value["standing"], columns=STANDING, empty="no run has needed it yet")
    rows = [{"schedule": each} for each in schedules]
    print_section("Schedules", rows, columns=("schedule",), empty="none runs it")


@plugin.command("verify")
@click.argument("name")
@click.option("--params", type=click.Path(path_type=Path), metavar="FILE", help='JSON: {"options": …, "secrets": …}.')
@config_options
@output_option
def plugin_verify(*, name: str, params: Path | None, load_settings: LoadSettings) -> None:
    """Call init and verify of a plugin, here.

    Exits with 1 when it cannot be used. If it can, and the cluster had it in ERROR with these options, its
    schedules go on at once.

    \b
    Examples:
      tenure plugin verify aws-ec2
      tenure plugin verify aws-ec2 --params other-account.json
    """
    loaded = _loaded(load_settings)
    given = _params(params)
    with _ready(name, given) as ready:
        row: dict[str, Any] = {
            "plugin": name,
            "result": "it can be used",
            "version": ready.instance.version,
            "methods": ", ".join(ready.instance.methods),
            "metadata": ready.metadata,
            "released": 0,
        }
        with _cluster(loaded) as connection:
            if connection is not None and "secrets" not in given:
                row["released"] = _tell(connection, ready)
    print_rows([row], columns=("plugin", "result", "version", "methods", "released"))


@plugin.command("run")
@click.argument("name")
@click.option("--method", default="run", show_default=True, help="tasks, run, or another one that the plugin names.")
@click.option(
    "--params", type=click.Path(path_type=Path), metavar="FILE", help='JSON: {"options": …, "task": …, "secrets": …}.'
)
@click.option("--limit", type=click.IntRange(min=1), help="Stop after this many results.")
@config_options
@output_option
def plugin_run(*, name: str, method: str, params: Path | None, limit: int | None, load_settings: LoadSettings) -> None:
    """Call a plugin here, and print its results as they come.

    No tree, no queue, no sink takes part. A class runs where breakpoints work; a program is started as a worker
    would. Secrets are those of the configuration, unless the file gives some.

    \b
    Examples:
      tenure plugin run aws-ec2 --method tasks
      tenure plugin run aws-ec2 --method collect --params task.json --limit 10
    """
    _loaded(load_settings)
    given = _params(params)
    with _ready(name, given) as ready:
        arguments = {"options": ready.options, "secrets": ready.secrets, "task": given.get("task", {})}
        if method == "tasks":
            del arguments["task"]
        elif method not in ready.instance.methods:
            raise click.UsageError(
                f"plugin {name} has no method {method!r}; it has: {', '.join(ready.instance.methods)}"
            )
        count = 0
        with closing(ready.instance.call(method, arguments)) as results:
            for result in results:
                print_record(_mapping(result), line=_line(result))
                count += 1
                if count == limit:
                    break
    say(f"{count} result(s)", err=True)


def _loaded(load_settings: LoadSettings) -> Loaded:
    from supervisor.plugins.registry import registry
    from supervisor.settings.schedules.complete import import_jobs

    loaded = load_settings()
    import_jobs(())  # nothing but: look for modules where the tree does
    registry.configure(loaded.settings.plugins, loaded.settings.references)
    return loaded


def _settings(loaded: Loaded, name: str) -> dict[str, Any]:
    """Return the settings of a plugin that are not the default, with references in the place of what came from them."""
    shown = loaded.settings.model_dump(mode="json", by_alias=True, exclude_defaults=True, include={"plugins"})
    found: dict[str, Any] = shown.get("plugins", {}).get(name, {})
    return found


def _registered(name: str) -> Registered:
    from supervisor.plugins.registry import registry

    return registry.get(name)


@contextmanager
def _ready(name: str, given: dict[str, Any]) -> Iterator[ReadyPlugin]:
    """Return a plugin that can be called, in this process; nothing of it is left afterwards."""
    from pydantic import SecretStr

    from supervisor.plugins.host import PluginHost
    from supervisor.plugins.registry import registry

    if "secrets" in given:
        settings = registry.get(name).settings
        secrets = {key: SecretStr(str(value)) for key, value in given["secrets"].items()}
        registry.configure({name: settings.model_copy(update={"secrets": secrets})}, registry.references)
    host = PluginHost(tell=lambda *_, **__: None)
    try:
        yield host.ready(name, given.get("options", {}))
    finally:
        host.close()


@contextmanager
def _cluster(loaded: Loaded) -> Iterator[Connection | None]:
    """Connect, if somebody answers; print a warning when nobody does."""
    with ExitStack() as stack:
        connection = None
        try:
            connection = stack.enter_context(connected(loaded.settings))
            connection.ask(jobs.plugin_records)
        except TenureError as error:
            connection = None
            say(f"tenure: the state of the cluster is not known: {error}", err=True)
        yield connection


def _standing(connection: Connection) -> PluginStatus:
    from supervisor.clock import SystemClock
    from supervisor.plugins.status import PluginStatus

    return PluginStatus(connection, SystemClock(), by=who())


def _tell(connection: Connection, ready: ReadyPlugin) -> int:
    """Publish to the cluster that a plugin can be used; return how many schedules go on."""
    from supervisor.plugins.status import Subject

    subject: Subject = Subject(ready.registered, ready.options)
    standing = _standing(connection)
    return standing.vouched(subject, version=ready.instance.version, metadata=ready.metadata)


def _row(name: str, records: list[PluginRecord] | None) -> dict[str, Any]:
    """Return the row of a plugin in the list; of several options the worst counts."""
    row: dict[str, Any] = {"plugin": name, "state": "unknown" if records is None else "REGISTERED"}
    try:
        registered = _registered(name)
        row |= {"kind": "program" if registered.is_isolated else "class", "origin": registered.origin}
        if registered.kind is not None:
            row["version"] = registered.kind.version
    except TenureError as error:
        row |= {"state": "BROKEN", "reason": str(error)}
    worst = max(records or (), key=lambda record: (record.state == "ERROR", record.at_ms), default=None)
    if worst is not None:
        row |= {
            "state": worst.state,
            "version": worst.version or row.get("version"),
            "suspended": sum(record.suspended for record in records or ()) or None,
            "until": moment(worst.until_ms),
            "reason": worst.reason if worst.state == "ERROR" else None,
        }
    return row


def _standing_row(record: PluginRecord) -> dict[str, Any]:
    return {
        "options": record.digest,
        "state": record.state,
        "version": record.version,
        "phase": record.phase,
        "failures": record.failures,
        "suspended": record.suspended or None,
        "until": moment(record.until_ms),
        "since": moment(record.at_ms),
        "by": record.by,
        "reason": record.reason,
    }


def _params(path: Path | None) -> dict[str, Any]:
    """Return the mapping in a file; a usage error names the fault, and quotes nothing."""
    import msgspec

    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            body = file.read(PARAMS_BYTES_MAX + 1)
    except OSError as error:
        raise click.UsageError(f"--params {path} cannot be read: {error.strerror}") from None
    if len(body) > PARAMS_BYTES_MAX:
        raise click.UsageError(f"--params {path} is larger than {PARAMS_BYTES_MAX >> 20} MiB")
    found: Any = None
    with suppress(msgspec.DecodeError):
        found = read_unrepeated(body)
    known = {"options", "task", "secrets"}
    if not isinstance(found, dict) or not set(found) <= known or not all(isinstance(v, dict) for v in found.values()):
        raise click.UsageError(f"--params {path} must hold a JSON object of {', '.join(sorted(known))}, each an object")
    return found


def _mapping(result: Any) -> dict[str, Any]:
    return result if isinstance(result, dict) else {"value": result}


def _line(result: Any) -> str:
    import msgspec

    return msgspec.json.encode(result, enc_hook=repr).decode()
