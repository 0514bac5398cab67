"""Changes over HTTP to many schedules or dead runs at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.core.model import Kind, Outcome, ScheduleDef, Template
from supervisor.roles.web.api import changes
from supervisor.roles.web.api.routes import PATH
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.reads import Views
from tests.integration.roles.web.api_client import KEYS, SESSION, ask, line
from tests.kit.builders import StoreCalls, envelope
from tests.kit.tables import table

NOT_MAIL = "the token mailer is not for job report.make in queue default"


@pytest.fixture
def more_tokens() -> str:
    """A token for the runs and schedules of one job."""
    return line("mailer", "operate").rstrip() + " jobs=mail.*\n"


def change(api: Any, path: str, body: Any, who: str = "driver") -> tuple[int, Any]:
    """Ask for a change; return status and JSON."""
    return ask(api, "POST", f"{PATH}{path}", who, body)


def results(shown: Any, *, of: str = "schedules") -> dict[str, str]:
    """Return what became of each item of an answer."""
    return {row[of[:-1]]: row["result"] for row in shown[of]}


def define(world: StoreCalls, *names: str, job: str = "report.make", team: str = "billing") -> None:
    """Define dynamic schedules that are due each hour."""
    template = Template(job=job, kind=Kind.ASYNC)
    made = [ScheduleDef(id=name, template=template, every_ms=3_600_000, labels={"team": team}) for name in names]
    world.run(Definitions(KEYS).upsert([Change(definition=each) for each in made], wall_ms=2))


def paused(world: StoreCalls) -> set[str]:
    """Return the schedules that are paused."""
    return {each.id for each in world.run(Views(KEYS).browse(count=250)).items if each.pause is not None}


def give_up(world: StoreCalls, *run_ids: str, job: str = "report.make") -> None:
    """Let runs be executed and given up."""
    world.enqueue(*(envelope(run_id, job=job) for run_id in run_ids))
    world.fetch(SESSION)
    for run_id in run_ids:
        error = {"type": "ValueError", "message": "no tenant", "traceback": "password=hunter2"}
        world.ack(SESSION, run_id, Outcome.DEAD, error=error, job=job)


def events(api: Any, name: str) -> list[dict[str, Any]]:
    """Return the lines of the log with one event."""
    return [each for each in map(json.loads, api.log.read_text().splitlines()) if each["event"] == name]


def test_schedules_are_paused_and_resumed_by_label(api: Any, world: StoreCalls) -> None:
    """As by ``tenure schedule pause --label``; a dry run changes nothing, and each change is in the log."""
    define(world, "a", "b")
    define(world, "c", team="mail")
    billing = {"labels": {"team": "billing"}}

    selected = {"schedules": [{"schedule": each, "result": "selected"} for each in "ab"], "cursor": None}
    assert change(api, "/schedules/pause", billing | {"dry_run": True}) == (200, selected)
    assert paused(world) == set()
    assert results(change(api, "/schedules/pause", billing | {"reason": "moving"})[1]) == {"a": "paused", "b": "paused"}
    assert paused(world) == {"a", "b"}
    assert [(each["schedule"], each["by"]) for each in events(api, "api_paused")] == [("a", "driver"), ("b", "driver")]
    every = results(change(api, "/schedules/resume", {"all": True})[1])
    assert every == {"a": "resumed", "b": "resumed", "c": "running", "team/nightly": "running"}
    assert results(change(api, "/schedules/pause", {"schedules": ["a", "x"]})[1]) == {"a": "paused", "x": "unknown"}
    hour = {"for": "1h"}
    assert results(change(api, "/schedules/pause", billing | hour)[1]) == {"a": "kept", "b": "paused"}
    assert results(change(api, "/schedules/pause", {"schedules": ["a"]} | hour)[1]) == {"a": "paused"}


def test_pages_of_schedules_are_changed_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A request reads a bounded number of them; its cursor is where the next one goes on."""
    monkeypatch.setattr(changes, "PAGES_MAX", 1)
    api, world = request.getfixturevalue("api"), request.getfixturevalue("world")
    for start in range(0, 1000, 200):
        define(world, *(f"s{number}" for number in range(start, start + 200)))

    cursor, seen, answers = "0", set[str](), 0
    while cursor is not None:
        code, shown = change(api, "/schedules/pause", {"labels": {"team": "billing"}, "cursor": cursor})
        assert code == 200, shown
        cursor, seen, answers = shown["cursor"], seen | results(shown).keys(), answers + 1
    assert (len(seen), len(paused(world)) > 200, answers > 1) == (1000, True, True)


def test_a_page_is_smaller_where_each_schedule_is_judged(api: Any, world: StoreCalls) -> None:
    """A thousand by one token with limits took longer than an answer may, and the next request began anew."""
    for start in range(0, 600, 200):
        define(world, *(f"s{number}" for number in range(start, start + 200)), job="mail.send")

    assert change(api, "/schedules/pause", {"all": True})[1]["cursor"] is None
    shown = change(api, "/schedules/pause", {"all": True}, "mailer")[1]
    assert (len(shown["schedules"]) < 150, shown["cursor"] is None) == (True, False)


def test_a_limited_token_pauses_of_a_selection_what_it_reaches(api: Any, world: StoreCalls) -> None:
    """Each is judged by itself, in a dry run too; the answer tells why the others stay."""
    define(world, "a")
    define(world, "b", job="mail.send")

    for dry_run, done in ((True, "selected"), (False, "paused")):
        body = {"labels": {"team": "billing"}, "dry_run": dry_run}
        assert results(change(api, "/schedules/pause", body, "mailer")[1]) == {"a": NOT_MAIL, "b": done}
    assert paused(world) == {"b"}
    shown = change(api, "/schedules/resume", {"schedules": ["a", "b", "x"]}, "mailer")[1]
    assert results(shown) == {"a": NOT_MAIL, "b": "resumed", "x": "there is no schedule 'x'"}


@table(
    "wrong",
    [
        {},
        {"all": True, "schedules": ["a"]},
        {"labels": {"team": "billing"}, "all": True},
        {"schedules": ["a"] * 251},
        {"all": True, "cursor": "x"},
        {"all": True, "cursor": "0\n"},
        {"all": True, "cursor": "1" * 20},
        {"all": True, "for": "soon"},
        {"all": True, "for": "1h", "until": "2027-01-02"},
        {"all": True, "reason": "x" * 501},
    ],
)
def test_a_selection_that_means_nothing_or_too_much_is_refused(api: Any, world: StoreCalls, wrong: Any) -> None:
    """Nothing is paused then."""
    assert change(api, "/schedules/pause", wrong)[0] == 400
    assert change(api, "/schedules/pause", {"all": True}, "reader")[0] == 403
    assert paused(world) == set()


def test_dead_runs_are_requeued_and_dropped_by_filter(api: Any, world: StoreCalls) -> None:
    """As by ``tenure dead requeue --job``, newest first, a page at a time; asked again it goes on."""
    give_up(world, "a", "b", "c")
    give_up(world, "m", job="mail.send")

    shown = change(api, "/dead/requeue", {"reason": "NO TENANT", "limit": 2, "dry_run": True})[1]
    assert results(shown, of="runs") == {"m": "selected", "c": "selected"}
    assert {world.state(each) for each in "abcm"} == {"dead"}
    body = {"job": "report.make", "limit": 2, "delay": "1h"}
    shown = change(api, "/dead/requeue", body)[1]
    assert (results(shown, of="runs"), shown["before_ms"] is None) == ({"c": "requeued", "b": "requeued"}, False)
    shown = change(api, "/dead/requeue", body | {"before_ms": shown["before_ms"]})[1]
    assert (results(shown, of="runs"), shown["before_ms"]) == ({"a": "requeued"}, None)
    assert {world.state(each) for each in "abc"} == {"later"}
    assert [each["run"] for each in events(api, "api_dead_requeued")] == ["c", "b", "a"]
    shown = change(api, "/dead/drop", {"runs": ["a", "m"], "note": "old"})[1]
    assert results(shown, of="runs") == {"a": "is not dead", "m": "dropped"}
    assert change(api, "/dead/drop", {"all": True}) == (200, {"runs": [], "before_ms": None})


def test_a_queue_that_cannot_be_read_hides_no_runs_of_others(api: Any, world: StoreCalls) -> None:
    """The answer names it; of one that was asked for by name the refusal is the answer."""
    give_up(world, "a")
    world.raw.sadd(KEYS.queues, "broken")
    for key in ("hist", "run", "dead"):
        world.raw.set(getattr(KEYS.queue("broken"), key), "another program's")

    for path, runs in (("/runs", ["a"]), ("/runs?state=running", []), ("/dead", ["a"])):
        code, shown = ask(api, "GET", PATH + path, "driver")
        assert (code, [each["run"] for each in shown[path[1:5]]], shown["refused_queues"]) == (200, runs, ["broken"])
        assert ask(api, "GET", f"{PATH}{path}{'&' if '?' in path else '?'}queue=broken", "driver")[0] == 503
    code, shown = change(api, "/dead/requeue", {"all": True})
    assert (code, results(shown, of="runs"), shown["refused_queues"]) == (200, {"a": "requeued"}, ["broken"])


def test_a_dead_run_that_no_version_names_so_holds_up_no_other(api: Any, world: StoreCalls) -> None:
    """Whoever may enqueue by Redis can lay one, and the others are to be requeued or dropped all the same."""
    give_up(world, "a", "b")
    world.raw.zadd(KEYS.queue("default").dead, {"two words": 1})

    foreign = "no run can have this id: another program or a hand wrote it"
    code, shown = change(api, "/dead/requeue", {"all": True, "limit": 2})
    assert (code, results(shown, of="runs")) == (200, {"b": "requeued", "a": "requeued"})
    give_up(world, "c")
    code, shown = change(api, "/dead/drop", {"all": True})
    assert (code, results(shown, of="runs")) == (200, {"c": "dropped", "two words": foreign})


def test_a_limited_token_requeues_of_a_selection_what_it_reaches(api: Any, world: StoreCalls) -> None:
    """The others stay dead, and a dry run tells the same."""
    give_up(world, "a")
    give_up(world, "m", job="mail.send")

    for dry_run, done in ((True, "selected"), (False, "requeued")):
        shown = change(api, "/dead/requeue", {"all": True, "dry_run": dry_run}, "mailer")[1]
        assert results(shown, of="runs") == {"a": NOT_MAIL, "m": done}
    assert (world.state("a"), world.state("m")) == ("dead", "queued")


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({}, 400),
        ({"queue": "default"}, 400),
        ({"all": True, "limit": 251}, 400),
        ({"all": True, "delay": "soon"}, 400),
        ({"error": "hunter2"}, 400),
        ({"all": True, "queue": "defualt"}, 404),
    ],
)
def test_dead_runs_that_nobody_selected_stay(api: Any, world: StoreCalls, wrong: Any, code: int) -> None:
    """A queue alone selects nothing, and no filter looks into tracebacks: it would tell what they hide."""
    give_up(world, "a")
    assert change(api, "/dead/requeue", wrong)[0] == code
    assert change(api, "/dead/requeue", {"all": True}, "reader")[0] == 403
    assert world.state("a") == "dead"
