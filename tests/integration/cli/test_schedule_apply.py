"""``tenure schedule apply``: everything is checked first, what is equal is left alone, and nothing is half done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.core.effects import drive
from supervisor.operations import Delay
from supervisor.operations.apply import ApplyResult, carry_out, compare, plan, write
from supervisor.store.schedules.definitions import Change, Definitions
from tests.integration.cli.conftest import ClusterWithJobs
from tests.kit.builders import schedule

pytestmark = [pytest.mark.server]

YAML = """\
mail-kim:
  job: mail.send
  cron: "30 2 * * *"
  timezone: Europe/Berlin
  args: {to: kim}
  labels: {team: mail}
report:
  job: report.make
  every: 1h
"""


def entry(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": f"tenant-{number:05}", "job": "report.make", "every": "1h", "labels": {"source": "tenants"}, **fields}


def test_a_yaml_file_is_applied_and_again_changes_nothing(desk: ClusterWithJobs) -> None:
    """Idempotent: run it from a deploy as often as you like."""
    file = desk.write("s.yaml", YAML)
    first = desk.tenure("apply", "-f", file)
    assert (first.code, first.out) == (0, "2 created, 0 changed, 0 unchanged\n")
    before = desk.world.raw.hgetall(desk.world.keys.schedule_def)
    again = desk.tenure("apply", "-f", file, "-o", "json").json()

    assert again == {"created": 0, "changed": 0, "unchanged": 2, "deleted": 0, "refused": []}
    assert desk.world.raw.hgetall(desk.world.keys.schedule_def) == before
    stored = desk.world.stored()["mail-kim"].definition
    assert (stored.cron, stored.timezone, stored.template.args) == ("30 2 * * *", "Europe/Berlin", {"to": "kim"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.json", '{"schedules": {"report": {"job": "report.make", "every": "1h"}}}'),
        ("s.json", '[{"id": "report", "job": "report.make", "every": "1h"}]'),
        ("s.ndjson", '{"id": "report", "job": "report.make", "every": "1h"}\n\n'),
        ("s.yml", "schedules:\n  report: {job: report.make, every: 1h}\n"),
        ("s.yaml", "- {id: report, job: report.make, every: 1h}\n"),
    ],
)
def test_all_forms_of_a_file_mean_the_same(desk: ClusterWithJobs, name: str, text: str) -> None:
    """As a file, and on standard input, where its beginning tells."""
    assert desk.tenure("apply", "-f", desk.write(name, text)).code == 0
    again = desk.tenure("apply", "-f", "-", "-o", "json", stdin=text).json()

    assert (again["created"], again["unchanged"]) == (0, 1)
    assert desk.world.stored()["report"].definition.every_ms == 3_600_000


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_schedules_with_fifty_mistakes_list_the_fifty(desk: ClusterWithJobs, count: int) -> None:
    """All at once, each with its line, and nothing is applied."""
    wrong = {"cron": "61 * * * *", "every": None}
    entries = [entry(number, **(wrong if number % (count // 50) == 7 else {})) for number in range(count)]
    lines = "\n".join(json.dumps({key: value for key, value in each.items() if value}) for each in entries)
    result = desk.tenure("apply", "-f", desk.write("many.ndjson", lines))

    told = [line for line in result.err.splitlines() if line.startswith("many.ndjson:")]
    assert result.code == 78
    assert len(told) == 50
    assert told[0].startswith("many.ndjson:8: schedules.tenant-00007.cron: ")
    assert "61 is not within 0-59" in told[0]
    assert result.err.splitlines()[-1] == "50 problems; nothing was applied"
    assert desk.world.raw.hlen(desk.world.keys.schedule_def) == 0


@pytest.mark.parametrize("count", [1500, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_schedules_are_applied_and_one_edit_changes_one(desk: ClusterWithJobs, count: int) -> None:
    """In batches; the second time only what differs is written."""
    entries = [entry(number) for number in range(count)]
    file = desk.write("many.ndjson", "\n".join(map(json.dumps, entries)))
    assert desk.tenure("apply", "-f", file).out == f"{count} created, 0 changed, 0 unchanged\n"
    entries[count // 2]["every"] = "2h"
    desk.write("many.ndjson", "\n".join(map(json.dumps, entries)))
    changes = desk.tenure("apply", "-f", file, "--dry-run", "-o", "json").json()
    assert [each for each in changes if each["difference"] != "unchanged"] == [
        {"schedule": entries[count // 2]["id"], "difference": "changed", "fields": "every_ms: 3600000 → 7200000"}
    ]
    assert desk.tenure("apply", "-f", file).out == f"0 created, 1 changed, {count - 1} unchanged\n"


def test_an_interrupted_apply_goes_on_where_it_was(desk: ClusterWithJobs) -> None:
    """What was written is equal by then."""
    file = desk.write("many.ndjson", "\n".join(json.dumps(entry(number)) for number in range(600)))
    desk.tenure("apply", "-f", desk.write("half.ndjson", "\n".join(json.dumps(entry(n)) for n in range(250))))

    assert desk.tenure("apply", "-f", file).out == "350 created, 0 changed, 250 unchanged\n"


def test_a_dry_run_shows_every_field_that_would_change_and_writes_nothing(desk: ClusterWithJobs) -> None:
    """Down to an argument of the job."""
    desk.tenure("apply", "-f", desk.write("s.yaml", YAML))
    before = desk.world.raw.hgetall(desk.world.keys.schedule_def)
    edited = YAML.replace("30 2", "30 3").replace("to: kim", "to: lee").replace("every: 1h", "every: 1h\n  jitter: 5m")
    result = desk.tenure("apply", "-f", desk.write("s.yaml", edited), "--dry-run", "-o", "json").json()

    assert {each["schedule"]: each["fields"] for each in result} == {
        "mail-kim": "template.args.to: changed, cron: '30 2 * * *' → '30 3 * * *'",
        "report": "jitter_ms: None → 300000",
    }
    assert desk.world.raw.hgetall(desk.world.keys.schedule_def) == before
    assert "changed" in desk.tenure("apply", "-f", "s.yaml", "--dry-run").out


def test_an_edit_keeps_what_waits_unless_it_is_told_to_drop_it(desk: ClusterWithJobs) -> None:
    """A buffered run is owed; only who says so gives it up."""
    desk.tenure("apply", "-f", desk.write("s.yaml", YAML))
    desk.world.raw.rpush(desk.world.keys.schedule_buffer("report"), 7, 8)
    edited = desk.write("s.yaml", YAML.replace("every: 1h", "every: 1h\n  owner: kim"))
    desk.tenure("apply", "-f", edited)
    assert desk.show("report").buffered == 2
    desk.write("s.yaml", YAML)
    assert "2 waiting due times dropped" in desk.tenure("apply", "-f", edited, "--drop-buffered").err
    assert desk.show("report").buffered == 0


def test_prune_deletes_what_the_file_no_longer_names_and_nothing_else(desk: ClusterWithJobs) -> None:
    """Of those with the label, dynamic ones only; after a question."""
    file = desk.write("t.ndjson", "\n".join(json.dumps(entry(number)) for number in range(3)))
    desk.tenure("apply", "-f", file)
    desk.tenure("apply", "-f", desk.write("s.yaml", YAML))
    desk.write("t.ndjson", json.dumps(entry(1)))
    assert desk.tenure("apply", "-f", file, "--prune").code == 2
    refused = desk.tenure("apply", "-f", file, "--prune", "--label", "source=tenants", stdin="n\n")
    assert (refused.code, len(desk.world.stored())) == (1, 5)
    pruned = desk.tenure("apply", "-f", file, "--prune", "--label", "source=tenants", "--yes")

    assert pruned.out == "0 created, 0 changed, 1 unchanged, 2 deleted\n"
    assert sorted(desk.world.stored()) == ["mail-kim", "report", "tenant-00001"]


@pytest.mark.parametrize("name", ["t.ndjson", "t.yaml"])
def test_prune_by_an_empty_file_is_refused_and_by_an_empty_list_deletes_all(desk: ClusterWithJobs, name: str) -> None:
    """An empty file is what is left when the program that writes it fails."""
    desk.tenure("apply", "-f", desk.write("t.ndjson", json.dumps(entry(1))))
    options = ("--prune", "--label", "source=tenants", "--yes")
    refused = desk.tenure("apply", "-f", desk.write(name, "\n"), *options)

    assert (refused.code, sorted(desk.world.stored())) == (78, ["tenant-00001"])
    assert "is empty, so --prune would delete all" in refused.err
    assert desk.tenure("apply", "-f", desk.write("none.json", "[]"), *options).code == 0
    assert desk.world.stored() == {}


def test_a_static_schedule_is_not_overwritten_and_nothing_else_is_applied(desk: ClusterWithJobs) -> None:
    """A clash is a mistake like any other."""
    desk.world.raw.hset(desk.world.keys.schedule_def, "report", b"4\nab\nsomedigest\n{}")
    result = desk.tenure("apply", "-f", desk.write("s.yaml", YAML))

    assert result.code == 78
    assert "report: a configuration defines a schedule of this id; change it there" in result.err.replace(": : ", ": ")
    assert desk.world.raw.hkeys(desk.world.keys.schedule_def) == [b"report"]


def test_an_edit_of_somebody_else_in_between_is_refused_by_name(desk: ClusterWithJobs) -> None:
    """Compare-and-set: theirs is not lost."""
    keys = desk.world.keys
    found = drive(compare(keys, [schedule("a"), schedule("b")]), desk.world.run)
    desk.world.run(Definitions(keys).upsert([Change(definition=schedule("a", description="theirs"))], wall_ms=1))
    outcome, told = ApplyResult(), list[int]()
    drive(write(keys, found, outcome, wall_ms=1, tell=told.append), desk.world.run)
    assert told == [0, 2]

    assert (outcome.created, [name for name, _ in outcome.refused]) == (1, ["a"])
    assert "somebody else changed it: it is at revision 1" in outcome.refused[0][1]


def test_while_a_leader_brings_in_its_configuration_an_apply_waits(desk: ClusterWithJobs) -> None:
    """And goes on when it is done."""
    term = desk.world.lead(duration_ms=600_000)  # while it lasts, and no longer, an apply waits
    definitions, keys = Definitions(desk.world.keys), desk.world.keys
    begun = desk.world.run(definitions.begin(term, digest="d", lease_ms=5000))
    waits: list[int] = []

    def execute(effect: Any) -> Any:
        if not isinstance(effect, Delay):
            return desk.world.run(effect)
        waits.append(1)
        if len(waits) == 3:
            desk.world.run(definitions.end(term, digest="d", is_applied=True, part=f"{begun.now_ms} 0"))
        return None

    outcome = ApplyResult()
    found = drive(compare(keys, [schedule("a"), schedule("b")]), execute)
    drive(write(keys, found, outcome, wall_ms=1), execute)
    assert (outcome.created, len(waits)) == (2, 3)


def test_a_schedule_whose_new_name_is_refused_is_not_pruned(desk: ClusterWithJobs) -> None:
    """It was deleted where a leader brought in its configuration for ten seconds, and nothing took its place."""
    keys, team = desk.world.keys, {"team": "mail"}
    before = [schedule("old", labels=team), schedule("gone", labels=team)]
    desk.world.run(Definitions(keys).upsert([Change(definition=each) for each in before], wall_ms=1))
    desk.world.run(Definitions(keys).begin(desk.world.lead(duration_ms=600_000), digest="d", lease_ms=5000))

    def execute(effect: Any) -> Any:
        return None if isinstance(effect, Delay) else desk.world.run(effect)

    planned = drive(plan(keys, [schedule("new", labels=team, renamed_from="old")], labels=team), execute)
    outcome = drive(carry_out(keys, planned, wall_ms=1), execute)
    assert ([name for name, _ in outcome.refused], outcome.deleted) == (["new"], 1)
    assert sorted(desk.world.stored()) == ["old"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("s.yaml", "a: {job: report.make, every: 1h}\na: {job: report.make, every: 2h}\n", "s.yaml:2: a"),
        ("s.yaml", "cluster: x\nschedules: {a: {job: report.make, every: 1h}}\n", "is not a schedule"),
        (
            "s.ndjson",
            '{"id": "a", "job": "report.make", "every": "1h"}\n{"id": "a"}\n',
            "s.ndjson:2: id: 'a' is there already",
        ),
        (
            "s.ndjson",
            '{"id": "a", "job": "report.make", "every": "1h"}\n{"job": 1}\n',
            "s.ndjson:2: is not a JSON object",
        ),
        ("s.json", "{", "s.json: is not JSON"),
        ("s.json", '[{"job": "report.make"}]', "has no id"),
        ("s.yaml", "just text\n", "must be a mapping"),
        ("s.yaml", "a: {job: report.mke, every: 1h}\n", "did you mean report.make?"),
        ("s.yaml", "a: {job: mail.send, every: 1h}\n", "needs 'to'"),
        ("s.yaml", "a: {job: report.make, every: 1h, jiter: 1m}\n", "did you mean jitter?"),
        ("s.yaml", "a: {job: report.make}\n", "schedules.a"),
        ("s.yaml", 'a: {job: mail.send, every: 1h, args: {to: "{{ dat }}"}}\n', "schedules.a.args"),
    ],
)
def test_mistakes_are_told_with_their_place_and_nothing_is_applied(
    desk: ClusterWithJobs, name: str, text: str, told: str
) -> None:
    """From a file as from a configuration, by the same checks."""
    result = desk.tenure("apply", "-f", desk.write(name, text))

    assert (result.code, told in result.err) == (78, True), result.err
    assert desk.world.raw.hlen(desk.world.keys.schedule_def) == 0
    assert "Traceback" not in result.err


def test_a_file_that_is_not_there_is_one_line(desk: ClusterWithJobs) -> None:
    """With the reason."""
    result = desk.tenure("apply", "-f", "nowhere.yaml")
    assert result.code == 78
    assert "nowhere.yaml: cannot be read: No such file or directory" in result.err


def test_it_says_which_schedule_will_never_be_due(desk: ClusterWithJobs) -> None:
    """A year that was mistyped is allowed, and told."""
    text = 'past: {job: report.make, at: "2020-01-01T00:00Z"}\nlater: {job: report.make, at: "2999-01-01T00:00Z"}\n'
    result = desk.tenure("apply", "-f", desk.write("s.yaml", text))
    assert result.code == 0
    assert "note: past is not due any more: every time that it names has passed" in result.err
    assert "later" not in result.err


def test_it_says_which_new_schedule_would_run_all_its_runs_again(desk: ClusterWithJobs) -> None:
    """Each deploy applies the file, and seven days after the runs nothing is known of them."""
    text = "trial: {job: report.make, every: 1d, max_runs: 5}\nkept: {job: report.make, every: 1d, max_runs: 5, "
    file = desk.write("s.yaml", text + "retain_completed: 3660d}\n")
    told = "note: trial is deleted 7d after the last run of max_runs, and runs as often again when applied after"
    for words in (["--dry-run"], []):
        result = desk.tenure("apply", "-f", file, *words)
        assert (result.code, told in result.err, "kept" in result.err) == (0, True, False)
    assert told not in desk.tenure("apply", "-f", file).err


def test_it_says_what_jobs_were_checked_against(desk: ClusterWithJobs) -> None:
    """Without job modules only names can be checked."""
    result = desk.tenure("apply", "-f", desk.write("s.yaml", YAML))
    assert "against the 2 that the replicas published; types are not checked" in result.err


@pytest.mark.parametrize("words", [("show", "\udcff"), ("pause", "mail-kim", "--reason", "\udcff")])
def test_a_word_that_is_no_text_is_a_usage_error(applied: ClusterWithJobs, words: tuple[str, ...]) -> None:
    """Bytes that are no UTF-8 may name a file, and cannot be sent to Redis."""
    refused = applied.tenure(*words)

    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "tenure: '\\udcff' is no text in UTF-8, and only names of files may be that\n"


@pytest.mark.share(2)
@pytest.mark.parametrize("command", ["apply", "preview"])
@pytest.mark.parametrize("name", ["/dev/zero", "x" * 300])
def test_what_is_no_file_of_schedules_is_a_problem(desk: ClusterWithJobs, command: str, name: str) -> None:
    """Nothing is read without an end, and a name that no file can have is told as one that no file has."""
    refused = desk.tenure(command, "-f", name)

    assert (refused.code, refused.out) == (78, "")
    assert f"{name}: {'is larger than' if name == '/dev/zero' else 'cannot be read: File name too long'}" in refused.err
