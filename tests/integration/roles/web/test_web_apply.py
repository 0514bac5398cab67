"""Schedules that are applied over HTTP: by the operation of ``tenure schedule apply``, with its answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from supervisor.roles.web import handlers
from supervisor.roles.web.api import schedules as apply_module
from supervisor.roles.web.api.routes import PATH
from supervisor.roles.web.api.schedules import SCHEDULES_MAX
from supervisor.settings.schedules.definitions import validate_schedules
from tests.integration.roles.web.api_client import ask
from tests.kit.builders import StoreCalls, envelope
from tests.kit.tables import table
from tests.kit.waiting import wait_until

DAILY = {"job": "mail.send", "every": "1d", "labels": {"source": "web"}}


def apply(api: Any, schedules: Any, who: str = "driver", **more: Any) -> tuple[int, Any]:
    """Apply schedules; return status and answer."""
    return ask(api, "POST", f"{PATH}/schedules", who, {"schedules": schedules, **more})


def test_schedules_are_created_changed_and_left_alone(api: Any, world: StoreCalls) -> None:
    """Sent again it changes nothing, as the command does."""
    unchanged = {"created": 0, "changed": 0, "unchanged": 2, "deleted": 0, "refused": []}
    assert apply(api, {"a": DAILY, "b": DAILY}) == (200, unchanged | {"created": 2, "unchanged": 0})
    assert apply(api, [{"id": "a", **DAILY}, {"id": "b", **DAILY}]) == (200, unchanged)
    assert apply(api, {"a": DAILY | {"every": "2d"}}) == (200, unchanged | {"changed": 1, "unchanged": 0})
    assert world.stored()["a"].definition.every_ms == 2 * 86_400_000


def test_a_dry_run_answers_with_the_changes_alone(api: Any, world: StoreCalls) -> None:
    """Of arguments it shows that they change, and no value."""
    assert apply(api, {"a": DAILY | {"args": {"secret_word": "one"}}})[0] == 200
    wanted = {"a": DAILY | {"args": {"secret_word": "two"}}, "b": DAILY}
    code, shown = apply(api, wanted, dry_run=True, prune={"team": "mail"})

    assert (code, [(each["schedule"], each["difference"]) for each in shown["changes"]]) == (
        200,
        [("a", "changed"), ("b", "created"), ("team/nightly", "deleted")],
    )
    assert shown["changes"][0]["fields"] == "template.args.secret_word: changed"
    assert sorted(world.stored()) == ["a", "team/nightly"]


def test_what_is_not_named_is_deleted_by_its_labels(api: Any, world: StoreCalls) -> None:
    """Schedules without the labels stay."""
    apply(api, {"a": DAILY, "b": DAILY})
    done = apply(api, {"b": DAILY}, prune={"source": "web"}, drop_buffered=True)[1]

    assert (done["deleted"], done["unchanged"], done["dropped"]) == (1, 1, 0)
    assert sorted(world.stored()) == ["b", "team/nightly"]


@table(
    ("schedules", "why"),
    [
        ({"a": DAILY, "b": {"job": "mail.send", "cron": "61 * * * *"}}, "61 is not within 0-59"),
        ({"a": DAILY, "b": DAILY | {"job": "mail.sent"}}, "mail.sent"),
        ({"a": DAILY, "b": {"job": "mail.send", "after": {"schedule": "none"}}}, "no schedule of this cluster"),
        ([DAILY], "has no id"),
        ({f"s{n}": DAILY for n in range(SCHEDULES_MAX + 1)}, f"give at most {SCHEDULES_MAX} at a time"),
        ({"schedules": {f"s{n}": DAILY for n in range(SCHEDULES_MAX + 1)}}, f"give at most {SCHEDULES_MAX} at a time"),
        (
            {"a": DAILY | {"args": {"secret_word": functools.reduce(lambda at, _: [at], range(400), 1)}}},
            "nested deeper",
        ),
    ],
)
def test_when_anything_is_wrong_nothing_is_applied(api: Any, world: StoreCalls, schedules: Any, why: str) -> None:
    """All of it is checked before the first write."""
    code, shown = apply(api, schedules)

    assert (code, why in shown["error"]) == (400, True), shown
    assert list(world.stored()) == ["team/nightly"]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """A check of schedules, in children forked from now on, that begins and ends with files of these names."""

    def check(*args: Any, **options: Any) -> Any:
        (tmp_path / "begun").touch()
        wait_until((tmp_path / "go").exists, "the test to let it go on")
        return validate_schedules(*args, **options)

    monkeypatch.setattr(apply_module, "validate_schedules", check)
    return tmp_path.joinpath


def test_a_check_that_takes_long_keeps_no_probe_waiting(held: Callable[[str], Path], api: Any) -> None:
    """Two hundred schedules whose exclusions leave no due time took 13 s, in which health did not answer."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(apply, api, {"a": DAILY})
        try:
            wait_until(held("begun").exists, "the check to begin")
            assert api.ask("/livez")[0] == 200
            assert not asked.done()
        finally:
            held("go").touch()
        assert asked.result()[0] in {200, 503}  # by the time that the machine took


def test_the_log_says_who_asked_for_what_was_cut_off(
    held: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A part of it may have been done, and the line of what is done comes at the end alone."""
    monkeypatch.setattr(handlers, "PAGE_S", 1.0)  # the body must come before, on a busy machine
    api = request.getfixturevalue("api")
    try:
        assert apply(api, {"a": DAILY})[0] == 503
    finally:
        held("go").touch()
    lines = [json.loads(each) for each in api.log.read_text().splitlines()]
    (cut,) = [each for each in lines if each["event"] == "api_change_unfinished"]
    assert (cut["by"], cut["path"], cut["status"]) == ("driver", f"{PATH}/schedules", 503)


def test_a_schedule_of_a_powerful_job_is_for_admin(api: Any, world: StoreCalls) -> None:
    """Its arguments are as good as code, whether they are enqueued at once or by a schedule."""
    world.run(world.sessions.publish_jobs({"shell.command": CARD}))
    shell = {"job": "shell.command", "every": "1d", "args": {"command": ["true"]}}

    code, shown = apply(api, {"a": shell})
    assert (code, "may not choose arguments of a, of job shell.command" in shown["error"]) == (403, True), shown
    assert apply(api, {"a": shell}, who="owner")[1]["created"] == 1
    assert apply(api, {"a": shell}, who="reader")[0] == 403


def test_a_trigger_replaces_arguments_as_an_enqueue_chooses_them(api: Any, world: StoreCalls) -> None:
    """Checked against the job, and for powerful jobs by admin alone."""
    world.run(world.sessions.publish_jobs({"shell.command": CARD}))
    apply(api, {"a": {"job": "shell.command", "every": "1d", "args": {"command": ["true"]}}}, who="owner")
    path, args = f"{PATH}/schedules/a/trigger", {"command": ["false"]}

    assert ask(api, "POST", path, "driver", {"args": args})[0] == 403
    assert ask(api, "POST", path, "driver", {})[0] == 201
    assert ask(api, "POST", path, "owner", {"args": {"wrong": 1}})[0] == 400
    code, made = ask(api, "POST", path, "owner", {"args": args})
    shown = world.run(world.queues.show(made["run"]))
    assert (code, shown.envelope.template.args) == (201, args)


def test_a_pause_ends_at_an_instant_that_lies_ahead(api: Any) -> None:
    """One that has passed is refused, since it would be no pause."""
    path = f"{PATH}/schedules/team/nightly/pause"

    assert ask(api, "POST", path, "driver", {"until": "2027-01-02T08:00:00+01:00"})[1]["until_ms"] == 1_798_873_200_000
    assert ask(api, "POST", path, "driver", {"until": "2020-01-01"})[0] == 400
    assert ask(api, "POST", path, "driver", {"until": "2027-01-02", "for": "1h"})[0] == 400


def test_a_run_that_does_not_end_is_killed(api: Any, world: StoreCalls) -> None:
    """The duration is asked for with the cancellation, as by `tenure runs cancel --kill --grace`."""
    world.enqueue(envelope("a"))
    assert ask(api, "POST", f"{PATH}/runs/a/cancel", "driver", {"kill": "soon"})[0] == 400
    assert ask(api, "POST", f"{PATH}/runs/a/cancel", "driver", {"kill": "5s"})[1]["result"] == "cancelled"


CARD = '{"template": {"job": "shell.command", "kind": "sync"}, "required": ["command"]}'
