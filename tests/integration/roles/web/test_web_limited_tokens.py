"""Tokens that are limited by job, queue or label, against every route that changes something."""

from __future__ import annotations

from typing import Any

from supervisor.roles.web.api.routes import PATH, ROUTES
from supervisor.settings.web.tokens import Scope
from tests.integration.roles.web.api_client import ask, line
from tests.kit.waiting import wait_until

LIMITED = {
    "reporter": "jobs=report.*", "queuer": "queues=billing", "outsider": "labels=team=billing", "labelled": "labels=team=mail",
    "mailer": "jobs=mail.*",
}  # fmt: skip


def limit(api: Any) -> None:
    """Have the tokens of ``LIMITED`` in the place of the others."""
    text = "".join(line(name, "operate").rstrip() + f" {limits}\n" for name, limits in LIMITED.items())
    api.tokens.write_text(text)
    wait_until(lambda: ask(api, "GET", f"{PATH}/leader", "mailer")[0] == 200, "the file to be read")


def test_a_token_for_some_jobs_changes_nothing_of_others(api: Any) -> None:
    """By no route that changes something, whether it is limited by job, by queue or by label."""
    run = ask(api, "POST", f"{PATH}/schedules/team/nightly/trigger", "driver", {})[1]["run"]
    limit(api)

    for route in (each for each in ROUTES if each.scope > Scope.READ):
        path = PATH + route.path.format(schedule="team/nightly", job="mail.send", run=run)
        for name in ("reporter", "queuer", "outsider"):
            assert ask(api, route.method, path, name, {})[0] == 403, (name, path)
        if route.handler != "cancel":
            assert ask(api, route.method, path, "mailer", {})[0] in {200, 201}, path
        expected = {403} if route.handler == "enqueue" else {200, 201}  # a run by itself has no labels
        assert ask(api, route.method, path, "labelled", {})[0] in expected, path


def test_a_limited_token_ends_the_run_that_it_was_judged_by(api: Any) -> None:
    """Two queues can hold runs of the same id; one of them is another's."""
    for queue in ("billing", "default"):
        body = {"run_id": "r-9", "delay": "1h", "queue": queue, "force": True}
        assert ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "driver", body)[0] == 201
    limit(api)

    assert ask(api, "POST", f"{PATH}/runs/r-9/cancel", "queuer", {"queue": "default"})[0] == 403
    code, shown = ask(api, "POST", f"{PATH}/runs/r-9/cancel", "queuer", {})
    assert (code, shown["queue"]) == (200, "billing")
    assert ask(api, "POST", f"{PATH}/runs/r-9/cancel", "queuer", {"queue": "default"})[0] == 403


def test_a_limited_token_takes_no_id_that_a_schedule_or_another_run_gives(api: Any) -> None:
    """A fire whose id is there already does not happen, so the schedules of others could be silenced by their ids."""
    limit(api)

    for run_id in (
        "team/nightly@1795377650000",
        "nightly@1795377650000",
        "nightly!initial",
        "n!manual!k",
        "r-1/then",
        "n@1#2",
    ):
        body = {"run_id": run_id, "delay": "1h"}
        assert ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "mailer", body)[0] == 403, run_id
    assert (
        ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "mailer", {"run_id": "Mail_7.a:b-c", "delay": "1h"})[0] == 201
    )
