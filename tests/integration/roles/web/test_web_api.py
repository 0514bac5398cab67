"""The API over a real socket and a real server: what it shows, what it changes, and for whom."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.web.api.routes import PATH, ROUTES, openapi
from supervisor.settings.sections.models import Settings
from supervisor.settings.web.tokens import Scope
from supervisor.store.client.sync_client import Store
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.reads import Views
from tests.integration.roles.web.api_client import KEYS, TOKENS, ask, line
from tests.kit.canary import CANARY, show_nothing_secret
from tests.kit.servers import RealServer
from tests.kit.tables import table
from tests.kit.waiting import wait_until

ROOT = Path(__file__).parents[4]


def filled(path: str) -> str:
    """Return a path of the API with names that exist in it."""
    return PATH + path.format(
        schedule="team/nightly",
        job="mail.send",
        run="no-such-run",
        queue="default",
        worker="r2/w-0",
        replica="r2",
        backfill="0011aabb",
    )


OPEN = ("/livez", "/readyz", "/healthz", "/check", "/version")
READS = ("/", "/metrics", "/statusz", "/configz", "/flagz", f"{PATH}/openapi.json")
MATRIX = [
    *((("GET", path), None) for path in OPEN),
    *((("GET", path), Scope.READ) for path in READS),
    *(((route.method, filled(route.path)), route.scope) for route in ROUTES),
]


@pytest.mark.parametrize("who", [None, "stranger", *TOKENS])
def test_the_matrix_of_tokens_and_routes(api: Any, who: str | None) -> None:
    """Nobody and a stranger are asked who they are; a token with too little is refused; the rest is let in."""
    given = None if who not in TOKENS else Scope[TOKENS[who].upper()]
    for (method, path), needed in MATRIX:
        code, _ = ask(api, method, path, who)
        if needed is None or (given is not None and given >= needed):
            assert code not in {401, 403, 429}, (path, code)
        else:
            # A stranger who goes on asking is slowed down.
            assert code in ({403} if given is not None else {401, 429} if who else {401}), (path, code)


def test_without_a_file_nobody_changes_anything_and_reads_are_open(
    tree: Any, real_server: RealServer, store: Store
) -> None:
    """As it comes: on loopback, to look at."""
    del store
    tree.redis_url, tree.settings = real_server.url, Settings.model_validate({"cluster": "c1"})
    tree.start()

    assert ask(tree, "GET", f"{PATH}/schedules")[0] == 200
    code, body = ask(tree, "POST", f"{PATH}/schedules/team/nightly/pause", "driver")
    assert code == 403
    assert "web.tokens_file" in body["error"]


def test_a_check_that_fails_withholds_its_reason_from_strangers(api: Any) -> None:
    """A probe needs the status; the reason names addresses."""
    api.board.rows[0].redis_ok_ns = 0

    _, stranger = ask(api, "GET", "/readyz")
    _, reader = ask(api, "GET", "/readyz", "reader")
    assert "[-]redis failed: reason withheld" in stranger
    assert "[-]redis failed: Redis' last answer" in reader


def test_a_run_is_enqueued_once_under_its_id(api: Any) -> None:
    """A client that got no answer asks again."""
    path, body = f"{PATH}/jobs/mail.send/runs", {"args": {"secret_word": "hunter2"}, "run_id": "r-1", "delay": "1h"}

    assert ask(api, "POST", path, "driver", body) == (201, {"run": "r-1", "new": True})
    assert ask(api, "POST", path, "driver", body) == (200, {"run": "r-1", "new": False})
    code, shown = ask(api, "GET", f"{PATH}/runs/r-1", "reader")
    assert (code, shown["state"], shown["job"], shown["args"]) == (200, "later", "mail.send", ["secret_word"])
    assert "hunter2" not in json.dumps(shown)
    assert {"queue": "default", "later": 1}.items() <= ask(api, "GET", f"{PATH}/queues", "reader")[1]["queues"][
        0
    ].items()


def test_a_run_is_in_the_trace_of_the_request_that_asked_for_it(api: Any, store: Store) -> None:
    """By the header that services pass on; a malformed one is no reason to refuse the run."""
    path, trace = f"{PATH}/jobs/mail.send/runs", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    assert ask(api, "POST", path, "driver", {"run_id": "traced"}, traceparent=trace)[0] == 201
    assert ask(api, "POST", path, "driver", {"run_id": "bare"}, traceparent="no")[0] == 201

    traced, bare = (store.run(Queues(KEYS).show(run_id)) for run_id in ("traced", "bare"))
    assert (traced.envelope.traceparent, bare.envelope.traceparent) == (trace, "")


@table(
    ("job", "body", "code"),
    [
        ("no.such", {}, 404),
        ("mail.send", {"args": {"other": 1}}, 400),
        ("mail.send", {"arguments": {}}, 400),
        ("mail.send", {"delay": "soon"}, 400),
        ("mail.send", {"priority": "urgent"}, 400),
        ("mail.send", {"queue": "bad name"}, 400),
        ("mail.send", b"not json", 400),
        ("mail.send", b"[" * 100_000, 400),
        ("mail.send", {"args": {"secret_word": "x" * 100_000}}, 413),
        ("mail.send", {"args": {"secret_word": "x" * 200_000}}, 413),
    ],
)
def test_what_cannot_be_enqueued_is_refused_and_changes_nothing(api: Any, job: str, body: Any, code: int) -> None:
    """Each with its status, and words."""
    found, shown = ask(api, "POST", f"{PATH}/jobs/{job}/runs", "driver", body)

    assert found == code
    assert shown["error"]
    assert ask(api, "GET", f"{PATH}/queues", "reader")[1] == {"queues": []}


def test_a_queue_that_nobody_serves_is_refused_unless_it_is_forced(api: Any, store: Store) -> None:
    """A run there would wait for ever, and names that somebody invents are found by nobody."""

    def code(queue: str, **more: Any) -> int:
        return ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "driver", {"queue": queue, "delay": "1h"} | more)[0]

    assert [code("shell"), code("gpu"), code("junk")] == [201, 409, 409]  # the first is of this replica's pools
    store.run(Sessions(KEYS).open("r2.1/w-0/1", {"kind": "async", "queues": "mail,gpu"}))
    assert [code("gpu"), code("junk"), code("junk", force=True), code("../x")] == [201, 409, 201, 400]
    listed = ask(api, "GET", f"{PATH}/queues", "reader")[1]["queues"]
    assert {each["queue"]: each["served"] for each in listed} == {"gpu": ["async"], "junk": [], "shell": []}


def test_a_schedule_is_paused_shown_and_resumed(api: Any, store: Store) -> None:
    """What the command can do, by the name of the token."""
    path = f"{PATH}/schedules/team/nightly"
    store.command("ZADD", KEYS.schedule_next, 4_000_000_000_000, "team/nightly")  # as its leader does: nothing is owed
    code, paused = ask(api, "POST", f"{path}/pause", "driver", {"reason": "moving", "for": "1h"})
    assert (code, paused["result"]) == (200, "paused")
    assert paused["until_ms"] > 0

    (found,) = store.run(Views(KEYS).inspect(["team/nightly"]))
    assert found.record.pause.by == "driver@http"
    assert ask(api, "GET", path, "reader")[1]["paused"]["reason"] == "moving"
    assert ask(api, "POST", f"{path}/resume", "driver")[1]["result"] == "resumed"
    assert ask(api, "POST", f"{path}/resume", "driver")[1]["result"] == "running"
    assert ask(api, "POST", f"{PATH}/schedules/none/pause", "driver")[0] == 404
    assert ask(api, "POST", f"{path}/pause", "driver", {"for": "long"})[0] == 400
    assert '"by":"driver"' in api.log.read_text()


def test_a_trigger_with_a_key_runs_once(api: Any) -> None:
    """And its run can be cancelled, once."""
    path = f"{PATH}/schedules/team/nightly/trigger"
    code, made = ask(api, "POST", path, "driver", {"key": "k1"})
    assert (code, made["result"]) == (201, "triggered")
    assert ask(api, "POST", path, "driver", {"key": "k1"}) == (200, made | {"result": "duplicate"})
    assert ask(api, "POST", path, "driver", {"overlap": "maybe"})[0] == 400

    cancel = f"{PATH}/runs/{made['run']}/cancel"
    assert ask(api, "POST", cancel, "driver", {"reason": "wrong"})[1]["result"] == "cancelled"
    assert ask(api, "POST", cancel, "driver")[0] == 404


def test_a_run_is_shown_with_its_steps_and_the_sums_below_it(api: Any, store: Store) -> None:
    """Also when newer runs have pushed its own line out of the history."""
    code, absent = ask(api, "GET", f"{PATH}/runs/plan", "reader")
    assert (code, bool(absent["error"])) == (404, True)
    assert ask(api, "GET", f"{PATH}/runs/no%20id", "reader")[0] == 404

    error = '{"run":"plan/1","code":"quota","message":"password=hunter2"}'
    store.command("HSET", KEYS.tally("plan"), "total", 3, "left", 1, "ok", 1, "dead", 1, "errors", 1, "e:1", error)
    step = '{"status":"done","number":1,"attempt":1,"ended_ms":1000,"duration_ms":7,"result":{"word":"hunter2"}}'
    store.command("HSET", KEYS.steps("plan"), "fetch", step)
    code, shown = ask(api, "GET", f"{PATH}/runs/plan", "reader")

    assert (code, shown["run"], shown["state"]) == (200, "plan", "forgotten")
    assert {key: shown["below"][key] for key in ("total", "remaining", "ok", "dead")} == {
        "total": 3, "remaining": 1, "ok": 1, "dead": 1,
    }  # fmt: skip
    assert shown["below"]["first_errors"] == [{"run": "plan/1", "code": "quota", "message": "password=***"}]
    assert [(each["step"], each["status"], each["duration_ms"]) for each in shown["steps"]] == [("fetch", "done", 7)]
    assert "hunter2" not in json.dumps(shown)


def test_lists_come_in_pages(api: Any, store: Store) -> None:
    """With a cursor until the last; nothing is missing."""
    changes = [
        Change(definition=ScheduleDef(id=f"s{n}", template=Template(job="j", kind=Kind.ASYNC), every_ms=60_000))
        for n in range(50)
    ]
    store.run(Definitions(KEYS).upsert(changes, wall_ms=1))
    store.run(Sessions(KEYS).publish_jobs({f"job{n}": "{}" for n in range(5)}))

    def walk(what: str, name: str) -> list[str]:
        found: list[str] = []
        cursor = ""
        for _ in range(100):
            page = ask(api, "GET", f"{PATH}/{what}?limit=2{cursor}", "reader")[1]
            found += [each[name] for each in page[what]]
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        return found

    assert set(walk("schedules", "schedule")) == {"team/nightly", *(f"s{n}" for n in range(50))}
    assert walk("jobs", "job") == ["job0", "job1", "job2", "job3", "job4", "mail.send"]
    assert ask(api, "GET", f"{PATH}/schedules?cursor=x", "reader")[0] == 400
    assert ask(api, "GET", f"{PATH}/jobs?limit=251", "reader")[0] == 400


def test_nobody_leads_an_empty_cluster(api: Any) -> None:
    """And the answer says so, without an error."""
    code, shown = ask(api, "GET", f"{PATH}/leader", "reader")
    assert (code, shown["replica"]) == (200, None)


def test_without_redis_the_api_says_so(api: Any, tree: Any) -> None:
    """503 for reads and changes; where Redis is stands in the log alone, in a line a minute."""
    tree.stop()
    tree.redis_url = f"{tree.redis_url}.absent"
    tree.start()

    for method, path in (("GET", "/leader"), ("GET", "/runs/x"), ("POST", "/schedules/team/nightly/pause")):
        code, shown = ask(api, method, f"{PATH}{path}", "driver")
        assert (code, shown["error"]) == (503, "Redis does not answer; the log of this replica says why")
    assert api.log.read_text().count("redis_failed_request") == 1  # of three requests: the others are counted
    assert ".absent" in api.log.read_text()


def test_a_changed_file_of_tokens_is_followed_and_a_broken_one_is_not(api: Any) -> None:
    """Without a restart; a slip of the pen locks nobody out, and does not let anybody in."""
    wait: Callable[[Callable[[], Any], str], Any] = wait_until
    api.tokens.write_text(line("reader", "read") + "owner sha256:short admin\n")
    wait(lambda: "tokens_refused" in api.log.read_text(), "the log to say so")
    assert "short" not in api.log.read_text()
    assert ask(api, "GET", "/configz", "owner")[0] == 401
    assert ask(api, "GET", "/readyz/tokens")[0] == 503

    api.tokens.write_text(line("reader", "read"))
    wait(lambda: ask(api, "GET", "/readyz/tokens")[0] == 200, "the file to be read again")
    assert ask(api, "GET", "/configz", "reader")[0] == 200
    assert ask(api, "GET", "/configz", "owner")[0] == 401


@pytest.mark.parametrize("limit", [None, "jobs=report.*"])
def test_a_body_that_comes_late_is_judged_by_the_token_as_it_is_then(api: Any, store: Store, limit: str | None) -> None:
    """A token that was taken away or narrowed went on to change things, for as long as a body may take."""
    body = b'{"run_id": "late", "queue": "default", "force": true}'
    header = f"POST {PATH}/jobs/mail.send/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer DRIVER\r\n"
    with (
        socket.create_connection(("127.0.0.1", api.port), timeout=20) as connection,
        connection.makefile("rb") as answer,
    ):
        connection.sendall(f"{header}Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        assert [answer.readline(), answer.readline()] == [b"HTTP/1.1 100 Continue\r\n", b"\r\n"]
        api.tokens.write_text(line("other", "read") + (line("driver", f"operate {limit}") if limit else ""))
        wait_until(lambda: ask(api, "GET", f"{PATH}/leader", "reader")[0] == 401, "the file to be read again")
        connection.sendall(body)
        assert answer.readline().split()[1] == (b"403" if limit else b"401")

    assert store.run(Queues(KEYS).show("late")) is None


def test_no_page_sends_a_control_that_redis_holds(api: Any, store: Store) -> None:
    """As text of /statusz the name of a schedule in the plan steered the terminal of whoever looked by curl."""
    plan = b"\x1b]0;mine\x07\x1b[31m\xc2\x9b7m\xe2\x80\xae"
    store.command("ZADD", KEYS.schedule_next, 4_000_000_000_000, plan.decode())

    for path in (*READS, "/readyz?verbose", *(filled(each.path) for each in ROUTES if each.method == "GET")):
        for accept in ("*/*", "text/html"):
            _, _, body = api.ask(path, Authorization="Bearer OWNER", Accept=accept)
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", body), (path, accept)
    for path, accept in (("/statusz", "*/*"), ("/", "text/html")):
        assert r"\x1b[31m" in api.ask(path, Authorization="Bearer OWNER", Accept=accept)[2]


def test_the_document_is_the_one_that_is_checked_in(api: Any) -> None:
    """docs/openapi.json is what clients are made from; it says what is served."""
    stored = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))

    assert stored == openapi()
    assert ask(api, "GET", f"{PATH}/openapi.json", "reader") == (200, stored)


def test_every_route_answers_as_the_document_says(api: Any) -> None:
    """Route and document agree: there is such a path, and it answers with one of its statuses."""
    paths, wrong = openapi()["paths"], []
    for route in ROUTES:
        operation = paths[PATH + route.path][route.method.lower()]
        code, _ = ask(api, route.method, filled(route.path), "owner", {} if route.body else None)
        refused, _ = ask(api, "DELETE", filled(route.path), "owner")
        if str(code) not in operation["responses"] or refused != 405:
            wrong.append((route.method, route.path, code, refused))

    assert wrong == []


def test_no_endpoint_shows_an_argument(api: Any, store: Store) -> None:
    """Arguments may be secrets that were read for them, and one may stand in a text: names are shown, values nowhere."""
    args = {"secret_word": CANARY}
    template = Template(job="mail.send", kind=Kind.ASYNC, args=args)
    definition = ScheduleDef(
        id="team/nightly",
        template=template,
        every_ms=60_000,
        owner=f"token={CANARY}",
        description=f"password={CANARY}",
        labels={"team": f"secret={CANARY}"},
    )
    store.run(Definitions(KEYS).upsert([Change(definition=definition)], wall_ms=2))
    ask(api, "POST", f"{PATH}/schedules/team/nightly/pause", "driver", {"reason": f"password={CANARY}"})
    assert ask(api, "GET", f"{PATH}/schedules/team/nightly", "driver")[1]["paused"]["reason"] == "password=***"
    run = ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "driver", {"args": args, "delay": "1h"})[1]["run"]

    bodies = {"/jobs/mail.send/runs": {"args": {"wrong": CANARY}}, "/schedules/team/nightly/trigger": {"args": args}}
    for (method, path), _ in MATRIX:
        asked = path.replace("no-such-run", run)
        for accept in ("application/json", "text/html", "text/plain"):
            body = bodies.get(path.removeprefix(PATH), {}) if method == "POST" else None
            _, shown = ask(api, method, asked, "owner", body, Accept=accept)
            show_nothing_secret(json.dumps(shown), where=f"{method} {path}")
    show_nothing_secret(api.log.read_text(), where="the log of the web child")
