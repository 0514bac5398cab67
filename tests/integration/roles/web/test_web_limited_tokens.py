"""Tokens that are limited by job, queue or label, against every route that changes something."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.model import Kind, Outcome, Template
from supervisor.operations import schedules
from supervisor.roles.web.api.routes import PATH, ROUTES, ApiRoute
from supervisor.settings.web.tokens import Scope
from supervisor.store.client.sync_client import Store
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.definitions import Change, Definitions
from tests.integration.roles.web.api_client import KEYS, NIGHTLY, SESSION, ask, line
from tests.kit.builders import StoreCalls

LIMITED = {
    "reporter": "jobs=report.*", "queuer": "queues=billing", "outsider": "labels=team=billing", "labelled": "labels=team=mail",
    "mailer": "jobs=mail.*", "namer": "queues=billing jobs=mail.newest",
}  # fmt: skip
CHIEFS = {"chief": "jobs=mail.*", "queue-chief": "queues=default"}


BODIES = {
    "set_priority": {"priority": "high"},
    "purge_queue": {"job": "mail.send"},
    "move_queue": {"to": "billing"},
    "add_backfill": {"from": "2026-11-01", "limit": 1},
}
OF_MANY = {"pause_schedules", "resume_schedules", "requeue_dead_runs", "drop_dead_runs"}
"""Each schedule or run is judged by itself: see test_web_many.py."""

OF_QUEUES = {"pause_queue", "resume_queue", "purge_queue", "move_queue"}


@pytest.fixture
def more_tokens() -> str:
    """Tokens that are limited, of two scopes."""
    scopes = {"operate": LIMITED, "admin": CHIEFS}
    return "".join(
        line(name, scope).rstrip() + f" {words}\n" for scope, names in scopes.items() for name, words in names.items()
    )


def ask_route(api: Any, route: ApiRoute, token: str, run: str, backfill: str = "b") -> int:
    """Ask for a change with names that exist; return the status."""
    path = route.path.format(
        schedule="team/nightly",
        job="mail.send",
        run=run,
        queue="default",
        worker="r2/w-0/1",
        replica="r2",
        backfill=backfill,
    )
    return ask(api, route.method, PATH + path, token, BODIES.get(route.handler, {}))[0]


def test_a_token_for_some_jobs_changes_nothing_of_others(api: Any, world: StoreCalls) -> None:
    """By no route that changes something, whether it is limited by job, by queue or by label."""
    for route in (each for each in ROUTES if each.scope > Scope.READ and each.handler not in OF_MANY):

        def answer(name: str, route: ApiRoute = route) -> int:
            world.run(Definitions(KEYS).upsert([Change(definition=NIGHTLY)], wall_ms=1))  # it may be deleted
            run = ask(api, "POST", f"{PATH}/schedules/team/nightly/trigger", "mailer", {})[1]["run"]
            if "/dead/" in route.path:
                world.fetch(SESSION)
                world.ack(SESSION, run, Outcome.DEAD)
            backfill = ""
            if "/backfills/" in route.path:
                add = f"{PATH}/schedules/team/nightly/backfill"
                backfill = ask(api, "POST", add, "mailer", BODIES["add_backfill"])[1]["backfill"]
            return ask_route(api, route, name, run, backfill)

        assert {answer(name) for name in ("reporter", "queuer", "outsider")} == {403}, route.path
        is_others = route.scope > Scope.OPERATE or route.handler in {*OF_QUEUES, "apply"}
        may_mailer = not is_others or route.handler == "purge_queue"
        assert answer("mailer") in ({200, 201, 202} if may_mailer else {403}), route.path
        may_labelled = not is_others and route.handler != "enqueue"  # a run by itself has no labels, nor has a queue
        assert answer("labelled") in ({200, 201, 202} if may_labelled else {403}), route.path


def test_a_limited_token_commands_no_process_and_no_leader_and_changes_its_queues_alone(api: Any) -> None:
    """A worker runs what the token does not reach; all runs of a queue are within a limit by queue."""
    for route in (each for each in ROUTES if each.scope is Scope.ADMIN):
        assert {ask_route(api, route, name, "r") for name in ("chief", "queue-chief")} == {403}, route.path

    ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "queue-chief", {"queue": "default", "delay": "1h"})
    for verb in ("pause", "resume", "purge"):
        assert ask(api, "POST", f"{PATH}/queues/default/{verb}", "queue-chief", {})[0] == 200, verb
        assert ask(api, "POST", f"{PATH}/queues/default/{verb}", "chief", {})[0] == 403, verb
        assert ask(api, "POST", f"{PATH}/queues/billing/{verb}", "queue-chief", {})[0] == 403, verb


def test_a_limited_token_ends_the_run_that_it_was_judged_by(api: Any) -> None:
    """Two queues can hold runs of the same id; one of them is another's."""
    for queue in ("billing", "default"):
        body = {"run_id": "r-9", "delay": "1h", "queue": queue, "force": True}
        assert ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "driver", body)[0] == 201

    assert ask(api, "POST", f"{PATH}/runs/r-9/cancel", "queuer", {"queue": "default"})[0] == 403
    code, shown = ask(api, "POST", f"{PATH}/runs/r-9/cancel", "queuer", {})
    assert (code, shown["queue"]) == (200, "billing")
    assert ask(api, "POST", f"{PATH}/runs/r-9/cancel", "queuer", {"queue": "default"})[0] == 403


def test_a_token_for_queues_or_labels_replaces_no_run_of_others(api: Any, store: Store, world: StoreCalls) -> None:
    """A newer run ends the oldest that has its key, of whatever queue and schedule that is."""
    newest = Template(
        job="mail.newest", kind=Kind.ASYNC, concurrency="mail", concurrency_max=1, concurrency_replaces=True
    )
    card = JobCard(template=newest, optional=["to"])
    store.run(Sessions(KEYS).publish_jobs({"mail.newest": msgspec.json.encode(card)}))
    of_schedule = structs.replace(NIGHTLY, id="newest", template=structs.replace(newest, queue="billing"))
    world.run(Definitions(KEYS).upsert([Change(definition=of_schedule)], wall_ms=1))
    path, body = f"{PATH}/jobs/mail.newest/runs", {"queue": "billing", "force": True}
    run = ask(api, "POST", path, "driver", {})[1]["run"]
    assert world.fetch(SESSION) == [run]

    chosen = f"{PATH}/schedules/newest/trigger", {"args": {"to": "x"}}
    for token, asked in ("queuer", (path, body)), ("queuer", chosen), ("labelled", chosen):
        code, said = ask(api, "POST", asked[0], token, asked[1])
        assert (code, "needs jobs=mail.newest in the token's line" in said.get("error", "")) == (403, True), said
    assert _giving_way(world) == []

    assert ask(api, "POST", path, "namer", body)[0] == 201, "its line says so"
    assert _giving_way(world) == [run]


def _giving_way(world: StoreCalls) -> list[str]:
    world.fetch(SESSION, queues=["billing"])
    return [each.run_id for each in world.run(world.queues.unwanted([SESSION]))]


@pytest.fixture
def changed_once_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let schedules get a job of others as soon as the API, which is forked later, has looked at them."""
    inspect = schedules.inspect

    def inspect_and_change(*args: Any) -> Any:
        found = yield from inspect(*args)
        others = structs.replace(NIGHTLY, template=structs.replace(NIGHTLY.template, job="billing.send"))
        yield Definitions(KEYS).upsert([Change(definition=others)], wall_ms=1)
        return found

    monkeypatch.setattr(schedules, "inspect", inspect_and_change)


@pytest.mark.share(3)
@pytest.mark.usefixtures("changed_once_judged")
@pytest.mark.parametrize("body", [{}, {"revision": 1}, {"revision": 2}])
def test_a_limited_token_deletes_what_it_was_judged_by(api: Any, world: StoreCalls, body: dict[str, int]) -> None:
    """Not the revision that its body foretells, which may be of a job that it does not reach."""
    world.run(Definitions(KEYS).upsert([Change(definition=NIGHTLY)], wall_ms=1))
    assert ask(api, "POST", f"{PATH}/schedules/team/nightly/delete", "mailer", body)[0] == 409


def test_a_limited_token_takes_no_id_that_a_schedule_or_another_run_gives(api: Any) -> None:
    """A fire whose id is there does not happen, and a result goes with the next run of its id: both are others'."""
    for run_id in (
        "team/nightly@1795377650000",
        "nightly@1795377650000",
        "nightly!initial",
        "n!manual!k",
        "r-1/then",
        "n@1#2",
        "mailer:nightly@1795377650000",
        "invoice-8",
        "mailer",
    ):
        body = {"run_id": run_id, "delay": "1h"}
        assert ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "mailer", body)[0] == 403, run_id
    assert (
        ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "mailer", {"run_id": "mailer:Mail_7.a:b-c", "delay": "1h"})[0]
        == 201
    )
