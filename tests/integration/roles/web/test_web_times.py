"""Due times over HTTP: the next ones, explanations, previews, and the dry run of a backfill."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.web.api.reads import PAGE_MAX
from supervisor.roles.web.api.routes import PATH
from supervisor.store.schedules.definitions import Change, Definitions
from tests.integration.roles.web.api_client import KEYS, ask, line
from tests.kit.builders import StoreCalls
from tests.kit.tables import table

NIGHT = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "from": "2027-03-27T00:00Z", "limit": "2"}
TIMES = [
    {"nominal_ms": 1_806_111_000_000, "local": "2027-03-27T02:30:00+01:00", "fire_ms": 1_806_111_000_000},
    {"nominal_ms": 1_806_195_600_000, "local": "2027-03-28T03:00:00+02:00", "fire_ms": 1_806_195_600_000},
]
"""The second falls into a gap of the clock."""


@pytest.fixture
def more_tokens() -> str:
    """A token for another job."""
    return line("reporter", "operate").rstrip() + " jobs=report.*\n"


def define(world: StoreCalls, name: str, **fields: Any) -> None:
    """Define a dynamic schedule."""
    definition = ScheduleDef(id=name, template=Template(job="mail.send", kind=Kind.ASYNC), **fields)
    world.run(Definitions(KEYS).upsert([Change(definition=definition)], wall_ms=1))


def read(api: Any, path: str, who: str | None = "reader", **query: str) -> tuple[int, Any]:
    """Return status and answer."""
    return ask(api, "GET", f"{PATH}{path}?{urlencode(query)}", who)


def test_the_next_due_times_are_those_of_the_command(api: Any, world: StoreCalls) -> None:
    """By the operation of ``tenure schedule next``; a name that ends like the path is written with %2F."""
    define(world, "team/next", cron="30 2 * * *", timezone="Europe/Berlin")

    shown = {"schedule": "team/next", "paused": False, "times": TIMES}
    assert read(api, "/schedules/team/next/next", **{name: NIGHT[name] for name in ("from", "limit")}) == (200, shown)
    assert read(api, f"/schedules/{quote('team/next', safe='')}")[1]["schedule"] == "team/next"
    assert len(read(api, "/schedules/team/nightly/next", limit=str(PAGE_MAX))[1]["times"]) == PAGE_MAX
    ask(api, "POST", f"{PATH}/schedules/team/nightly/pause", "driver", {})
    assert read(api, "/schedules/team/nightly/next")[1]["paused"] is True


def test_a_schedule_and_an_expression_are_explained(api: Any, world: StoreCalls) -> None:
    """As ``tenure schedule explain`` does, with the pitfalls."""
    define(world, "a", cron="0 3 1 * MON")

    code, said = read(api, "/schedules/a/explain")
    assert (code, said["schedule"], "day-of-month 1 OR day-of-week MON" in said["notes"][0]) == (200, "a", True)
    code, shown = read(api, "/preview", cron="0 3 1 * MON", limit="1")
    assert (code, len(shown["times"])) == (200, 1)
    assert (shown["sentences"], shown["notes"]) == (said["sentences"], said["notes"])
    assert read(api, "/preview", **NIGHT)[1]["times"] == TIMES
    every = read(api, "/preview", every="90m", **{"from": "2026-11-01"})[1]["times"]
    assert (every[0]["local"], len(every)) == ("2026-11-01T01:30:00Z", 100)


@table(
    ("path", "query", "code"),
    [
        ("/schedules/none/next", {}, 404),
        ("/schedules/none/explain", {}, 404),
        ("/schedules/team/nightly/next", {"limit": "251"}, 400),
        ("/schedules/team/nightly/next", {"from": "yesterday"}, 400),
        ("/preview", {}, 400),
        ("/preview", {"cron": "* * * * *", "every": "1m"}, 400),
        ("/preview", {"cron": "61 * * * *"}, 400),
        ("/preview", {"cron": "* * * * *", "timezone": "Europe/Bonn"}, 400),
        ("/preview", {"every": "0s"}, 400),
        ("/schedules/wrong/next", {"from": "2027-01-01"}, 409),
        ("/schedules/wrong/explain", {}, 409),
    ],
)
def test_what_cannot_be_computed_is_refused(
    api: Any, world: StoreCalls, path: str, query: dict[str, str], code: int
) -> None:
    """With the reason; also for a schedule that no configuration would have let in."""
    define(world, "wrong", cron="61 * * * *")
    assert read(api, path, **query)[0] == code
    assert read(api, path, None, **query)[0] == 401


def test_a_dry_run_of_a_backfill_lists_its_runs(api: Any, world: StoreCalls) -> None:
    """The first of them, and how many there are; nothing is asked of the leader, and rights are those of the backfill."""
    define(world, "hourly", every_ms=3_600_000)
    body = {"from": "2020-01-01T00:00Z", "to": "2020-01-01T02:00Z", "dry_run": True}
    path = f"{PATH}/schedules/hourly/backfill"

    code, shown = ask(api, "POST", path, "driver", body | {"force": True})
    assert (code, shown["count"], shown["skipped"]) == (200, 3, 0), shown
    assert [each["does"] for each in shown["runs"]] == ["run", "run", "run"]
    assert shown["runs"][0] == {"run": "hourly@1577836800000", "nominal_ms": 1_577_836_800_000, "does": "run"}
    many = ask(api, "POST", path, "driver", body | {"to": "2021-01-01", "limit": 1000})[1]
    assert (many["count"], len(many["runs"])) == (1000, PAGE_MAX)
    assert ask(api, "POST", path, "reporter", body)[0] == 403
    assert ask(api, "POST", path, "reader", body)[0] == 403
    assert ask(api, "POST", f"{PATH}/schedules/none/backfill", "driver", body)[0] == 404
    assert read(api, "/backfills")[1] == {"backfills": []}
