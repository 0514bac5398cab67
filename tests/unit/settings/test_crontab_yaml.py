"""The configuration that a crontab becomes: loadable, faithful, readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.model import Kind, Template
from supervisor.core.schedules.catchup import Owed, owed
from supervisor.core.schedules.triggers import trigger_of
from supervisor.importers.crontab.reader import Entry, Host, Source, read_crontabs
from supervisor.importers.crontab.yaml_output import to_yaml
from supervisor.settings.loader import load
from supervisor.settings.schedules.definitions import definition_of
from supervisor.settings.schedules.settings import ScheduleSettings
from supervisor.settings.sections.models import Settings

CRONTABS = Path(__file__).parents[2] / "data" / "crontabs"
HOST = Host(timezone="Europe/Berlin", user="root")


def loaded(entries: tuple[Entry, ...], folder: Path) -> dict[str, ScheduleSettings]:
    """Read what was written, as ``tenure run`` would."""
    path = folder / "tenure.yaml"
    path.write_text(to_yaml(entries, ["tab"]), encoding="utf-8")
    found = load(files=[path], environ={}, flags={}).settings
    assert (found.jobs, found.shell.umask) == (("shell",), "022")
    return found.schedules


def entries_of(name: str, *, has_user: bool = False) -> tuple[Entry, ...]:
    found = read_crontabs([Source(name, name, (CRONTABS / name).read_text(), has_user=has_user)], HOST)
    assert not found.problems
    return found.entries


def arguments(entry: Entry) -> dict[str, Any]:
    """What the job must receive; an argument with its default need not be written."""
    return {
        "command": entry.command,
        "shell": entry.shell,
        "cwd": entry.cwd,
        "env": dict(entry.env),
        "stdin": entry.stdin,
    }


DEFAULTS: dict[str, Any] = {"shell": "/bin/sh", "cwd": None, "env": {}, "stdin": None}


@pytest.mark.parametrize(("name", "has_user"), [("system", True), ("user", False)])
def test_our_own_loader_reads_back_every_entry(name: str, has_user: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """The output is a configuration, not a sketch of one."""
    entries = entries_of(name, has_user=has_user)
    schedules = loaded(entries, tmp_path)
    assert list(schedules) == [entry.id for entry in entries]
    for entry in entries:
        schedule = schedules[entry.id]
        assert (schedule.job, schedule.cron, schedule.timezone) == ("shell.command", entry.cron, entry.timezone)
        assert (schedule.overlap, schedule.missed, schedule.timeout_s) == ("allow", "skip", 86_400)
        assert schedule.description == entry.description
        assert (schedule.paused, schedule.pause_reason) == (bool(entry.pause_reason), entry.pause_reason)
        assert {**DEFAULTS, **schedule.args} == arguments(entry)


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("cron", "down_hours", "missed"), [("0 3 * * *", 5, 1), ("0 * * * *", 5, 5), ("0 3 * * *", 53, 3)]
)
def test_what_was_due_while_no_tree_ran_is_not_made_up_for(
    cron: str, down_hours: int, missed: int, tmp_path: Path
) -> None:
    """As in cron: neither one time nor several; what an ordinary hand-over delays is run."""
    found = read_crontabs([Source("tab", "tab", f"{cron} backup", has_user=False)], Host(timezone="UTC", user="root"))
    ((name, schedule),) = loaded(found.entries, tmp_path).items()
    definition = definition_of(name, schedule, Template(job="shell.command", kind=Kind.SYNC))
    mark_ms = HOUR_MS  # 01:00

    def ask(now_ms: int) -> Owed | None:
        return owed(definition, trigger_of(definition), mark_ms=mark_ms, now_ms=now_ms, on_time_grace_ms=10_000)

    late = ask(mark_ms + down_hours * HOUR_MS + 660_000)
    assert late is not None
    assert (late.nominals, sum(late.missed.values())) == ((), missed)
    soon = ask(3 * HOUR_MS + 9_000)
    assert soon is not None
    assert soon.nominals == (3 * HOUR_MS,)


def test_the_text_is_what_a_person_would_write() -> None:
    """Times in quotes, input as a block, the place of origin above each entry."""
    text = to_yaml(entries_of("user"), ["user"])
    assert text.startswith("# Made by `tenure import crontab` from user.")
    assert '\nversion: 1\njobs: [shell]\nshell: {umask: "022"}\nworkers:  #' in text
    assert "\n  # user:12\n  # MAILTO=ops@example.org\n  user.report" in text
    assert '    cron: "30 2 * * MON-FRI"\n' in text
    assert "    description: Nightly report for the finance team, kept for ninety days.\n" in text
    assert "      stdin: |\n        Dear team,\n        it is %100\n        Bye\n" in text
    assert 'RATIO: "1e3"' in text


@pytest.mark.parametrize(("count", "at_once"), [(0, 2), (1, 2), (3, 3), (16, 16), (40, 16)])
def test_every_command_has_a_place_of_its_own_up_to_a_bound(count: int, at_once: int, tmp_path: Path) -> None:
    """As in cron, a long command holds up no other; the pools of Python jobs are those of the defaults."""
    crontab = "".join(f"* * * * * /opt/job{number}\n" for number in range(count))
    entries = read_crontabs([Source("tab", "tab", crontab, has_user=False)], HOST).entries
    path = tmp_path / "tenure.yaml"
    path.write_text(to_yaml(entries, ["tab"]), encoding="utf-8")
    workers = load(files=[path], environ={}, flags={}).settings.workers
    assert f"# - At most {at_once} commands run at once" in path.read_text(encoding="utf-8")
    assert (workers["shell"].processes, workers["shell"].queues) == (at_once, ("shell",))
    assert {name: (pool.kind, pool.processes) for name, pool in workers.items() if name != "shell"} == {
        name: (pool.kind, pool.processes) for name, pool in Settings().workers.items()
    }


def test_no_entries_are_a_configuration_without_schedules(tmp_path: Path) -> None:
    """An empty crontab is no mistake."""
    assert loaded((), tmp_path) == {}


PRINTABLE = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
TRICKY_TEXTS = (
    "yes", "12:30:00", "0777", "1e3", "~", "", "null", "${env:HOME}", "$${x}", "$$${env:A}", "${file:/etc/passwd}", "- a",
     "a: b", "# c", "'", '"', " lead", "tail ", "\tx", "a\n b\n", "\n", "a\n\n", "\u2028", "é", "a\n\nb\n", "a \nb\n", "a\r\nb\n", "x" * 300 + " y", "\x07", "\ufeff", "\x85"
)  # fmt: skip
VALUE = st.one_of(st.sampled_from(TRICKY_TEXTS), PRINTABLE)


texts = st.fixed_dictionaries(dict.fromkeys(("command", "stdin", "cwd", "value", "description", "comment"), VALUE))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(texts, min_size=1, max_size=10))
def test_any_text_survives_the_way_through_yaml(tmp_path: Path, drawn: list[dict[str, str]]) -> None:
    """Texts that look like numbers, references, markup or control characters reach the job unchanged."""
    entries = tuple(
        Entry(
            where="tab:1", id=f"tab.{number}", cron="0 0 * * *", timezone="UTC", command=text["command"], stdin=text["stdin"],
            shell="/bin/sh", cwd=text["cwd"], env={"A": text["value"]}, user=None, description=text["description"],
            comments=(text["comment"],),
        )
        for number, text in enumerate(drawn)
    )  # fmt: skip
    schedules = loaded(entries, tmp_path)
    for entry in entries:
        assert {**DEFAULTS, **schedules[entry.id].args} == arguments(entry)
        assert schedules[entry.id].description == entry.description


def test_every_tricky_text_survives_the_way_through_yaml(tmp_path: Path) -> None:
    """Those that were found by accident or malice, each of them in each run."""
    entries = tuple(
        Entry(
            where="tab:1", id=f"tab.{number}", cron="0 0 * * *", timezone="UTC", command=text, stdin=text, shell=text, cwd=text,
            env={"A": text, "B": "b"}, user=None, description=text, comments=(text,),
        )
        for number, text in enumerate(TRICKY_TEXTS)
    )  # fmt: skip
    schedules = loaded(entries, tmp_path)
    for entry in entries:
        assert {**DEFAULTS, **schedules[entry.id].args} == arguments(entry)
        assert schedules[entry.id].description == entry.description
