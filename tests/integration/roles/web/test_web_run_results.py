"""Results over HTTP: waited for in a bounded place, and shown to nobody but tokens with that scope."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from supervisor.core.model import Kind, Outcome
from supervisor.roles.web.api.base import WAITING_PER_ASKER_MAX
from supervisor.roles.web.api.routes import PATH
from supervisor.store.client.sync_client import Store
from supervisor.store.queues.run_records import AttemptLog, LogItem
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import Ack
from tests.integration.roles.web.api_client import KEYS, ask, line
from tests.kit.builders import envelope
from tests.kit.waiting import wait_until

S = "r.1/worker-io-0/1"


@pytest.fixture
def more_tokens() -> str:
    """Tokens that may see results."""
    lines = [line("viewer", "read,results"), line("mailer", "read,results jobs=mail.*")]
    lines += [line("stranger", "read,results jobs=other.*"), line("labelled", "read,results labels=team=mail")]
    return "".join([*lines, line("neighbour", "read,results queues=another")])


@pytest.fixture
def shop(api: Any, store: Store) -> Store:
    """A server with one run that waits."""
    del api
    store.run(Sessions(KEYS).open(S, {"pid": 1}))
    enqueue(store, "r1")
    return store


def enqueue(store: Store, run_id: str, *, queue: str = "mail", job: str = "mail.send") -> None:
    """Enqueue a run."""
    run = envelope(run_id, job=job, queue=queue, args={"to": "x"})
    store.run(Queues(KEYS).enqueue(nonce=f"{queue}{run_id}{job}", envelopes=[run]))


def execute(
    store: Store,
    result: bytes | None,
    *,
    queue: str = "mail",
    job: str = "mail.send",
    outcome: Outcome = Outcome.OK,
    turn_number: int = 1,
    log: bytes | None = None,
) -> None:
    """Execute the run that waits, as a worker does."""
    queues = Queues(KEYS)
    turn: dict[str, Any] = {"session": S, "kind": Kind.ASYNC, "queues": [queue], "want_suspect": False}
    (run,) = store.run(queues.turn(seq=2 * turn_number, want=1, **turn)).runs
    times = {"fetched_ms": run.fetched_ms, "started_ms": 5, "ended_ms": run.fetched_ms + 60_000 * turn_number}
    ack = Ack(
        run_id="r1", queue=queue, attempt=1, outcome=outcome, result=result, result_ttl_ms=60_000, job=job, log=log,
        **times,
    )  # fmt: skip
    store.run(queues.turn(seq=2 * turn_number + 1, want=0, acks=[ack], **turn))


def test_a_request_waits_for_the_end_and_sees_the_result(api: Any, shop: Store) -> None:
    """The answer comes with the end, not after the time it may take."""
    answers: list[Any] = []
    path = f"{PATH}/runs/r1?wait=60s"
    waiting = threading.Thread(target=lambda: answers.append(ask(api, "GET", path, "viewer")))
    waiting.start()
    wait_until(lambda: shop.command("HEXISTS", KEYS.awaited, "r1"), what="the request to wait")
    execute(shop, b'{"sent":true}')
    waiting.join()

    code, shown = answers[0]
    assert code == 200
    assert (shown["result"], shown["outcome"], shown["job"], shown["args"]) == (
        {"sent": True}, "ok", "mail.send", ["to"],
    )  # fmt: skip
    assert shown["attempts"] == 1


@pytest.mark.share(3)
@pytest.mark.parametrize(("scopes", "code"), [(None, 401), ("read", 200), ("read,results jobs=other.*", 200)])
def test_a_token_that_is_taken_away_or_narrowed_sees_no_result_that_it_waited_for(
    api: Any, shop: Store, scopes: str | None, code: int
) -> None:
    """A request waits up to a minute: it is judged again by the token as it is then."""
    answers: list[Any] = []
    path = f"{PATH}/runs/r1?wait=60s"
    waiting = threading.Thread(target=lambda: answers.append(ask(api, "GET", path, "viewer")))
    waiting.start()
    wait_until(lambda: shop.command("HEXISTS", KEYS.awaited, "r1"), what="the request to wait")
    api.tokens.write_text(line("other", "read") + (line("viewer", scopes) if scopes else ""))
    wait_until(lambda: ask(api, "GET", f"{PATH}/leader", "other")[0] == 200, what="the file to be read again")
    execute(shop, b'"secret"')
    waiting.join()

    assert answers[0][0] == code
    assert "secret" not in str(answers)


def test_only_tokens_with_that_scope_see_results_of_jobs_that_they_reach(api: Any, shop: Store) -> None:
    """Neither a wider scope nor an open read shows one."""
    execute(shop, b'"secret"')
    seen = {who: ask(api, "GET", f"{PATH}/runs/r1", who)[1] for who in ("reader", "owner", "stranger", "labelled")}
    assert [who for who, shown in seen.items() if "result" in shown] == []
    assert all(shown["has_result"] for shown in seen.values())
    assert [ask(api, "GET", f"{PATH}/runs/r1", who)[1]["result"] for who in ("viewer", "mailer")] == ["secret"] * 2


def test_a_wait_that_is_over_shows_the_run_as_it_stands(api: Any, shop: Store) -> None:
    """A client asks again; a run that is not known is not waited for."""
    del shop
    code, shown = ask(api, "GET", f"{PATH}/runs/r1?wait=10ms", "viewer")
    assert (code, shown["state"], "result" in shown) == (200, "queued", False)
    assert ask(api, "GET", f"{PATH}/runs/nobody?wait=60s", "viewer")[0] == 404
    for wrong in ("61s", "soon", "-1s"):
        code, shown = ask(api, "GET", f"{PATH}/runs/r1?wait={wrong}", "viewer")
        assert code == 400
        assert wrong in shown["error"]


def test_requests_that_wait_are_bounded_for_each_asker(api: Any, shop: Store) -> None:
    """One client cannot take the places of all others."""
    path = f"{PATH}/runs/r1?wait=60s"

    def wait_for_the_end() -> None:
        wait_until(lambda: ask(api, "GET", path, "viewer")[0] == 200, what="a place, and the end")

    askers = [threading.Thread(target=wait_for_the_end) for _ in range(WAITING_PER_ASKER_MAX)]
    for each in askers:
        each.start()
    wait_until(lambda: ask(api, "GET", f"{PATH}/runs/r1?wait=1ms", "viewer")[0] == 503, what="all places to be taken")
    assert ask(api, "GET", f"{PATH}/runs/r1?wait=1ms", "mailer")[0] == 200
    waiting = [each for each in shop.raw.client_list() if each["name"] == "tenure:c1:web"]
    assert len([each for each in waiting if each["cmd"] == "blpop"]) <= 1, "all of them wait by one connection"
    execute(shop, b"1")
    for each in askers:
        each.join()
    assert ask(api, "GET", path, "viewer")[1]["result"] == 1


def test_a_result_is_shown_to_those_alone_who_reach_the_run_that_left_it(api: Any, shop: Store) -> None:
    """Not to who took its id in another queue, before or after, nor where nothing tells its queue any more."""

    def see() -> tuple[dict[str, Any], list[str]]:
        shown = {who: ask(api, "GET", f"{PATH}/runs/r1", who)[1] for who in ("neighbour", "stranger", "viewer")}
        return shown["viewer"], [who for who, each in shown.items() if each.get("result") is not None]

    enqueue(shop, "r1", queue="another", job="other.task")
    execute(shop, None, queue="another", job="other.task")
    execute(shop, b'"secret"', turn_number=2)
    shown, seers = see()
    assert (shown["queue"], shown["job"], seers) == ("mail", "mail.send", ["viewer"])

    shop.command("DEL", KEYS.queue("mail").hist, KEYS.queue("another").hist)
    shown, seers = see()
    assert (shown["queue"], shown["job"], seers) == ("", None, ["viewer"])

    enqueue(shop, "r1", queue="another", job="other.dead")
    execute(shop, None, queue="another", job="other.dead", outcome=Outcome.DEAD, turn_number=3)
    shown, seers = see()
    assert (shown["state"], shown["queue"], seers) == ("dead", "another", [])


@pytest.mark.parametrize("who_is_awaited", ["nobody", "the namesake"])
def test_a_namesake_that_ended_beside_a_run_shows_its_result_to_nobody_else(
    api: Any, shop: Store, who_is_awaited: str
) -> None:
    """Both existed at once, in two queues, and only one of them left a result."""
    enqueue(shop, "r1", queue="another", job="other.task")
    if who_is_awaited == "nobody":
        execute(shop, b'"secret"')
        execute(shop, None, queue="another", job="other.task", turn_number=2)
    else:
        shop.command("HSET", KEYS.awaited, "r1", "bell")
        execute(shop, None, queue="another", job="other.task")
        execute(shop, b'"secret"', turn_number=2)

    seen = {who: ask(api, "GET", f"{PATH}/runs/r1", who)[1] for who in ("neighbour", "stranger", "viewer")}
    assert [who for who, shown in seen.items() if shown.get("result") is not None] == ["viewer"]


def test_output_is_shown_to_tokens_with_that_scope_that_reach_its_run(api: Any, shop: Store) -> None:
    """Prints may hold what results hold; each output is judged by the job and the queue that it is of."""
    log = AttemptLog(1, 1, "mail.send", "mail", S, 1, 2, head="sent to x\n")
    execute(shop, None, outcome=Outcome.DEAD, log=LogItem("r1", 1, 1, msgspec.json.encode(log)).packed)
    path = f"{PATH}/runs/r1/log"
    codes = {who: ask(api, "GET", path, who)[0] for who in ("reader", "owner", "stranger", "labelled", "neighbour")}
    assert set(codes.values()) == {403}
    assert ask(api, "GET", path, "mailer") == (200, {"run": "r1", "logs": [msgspec.to_builtins(log)]})
    assert ask(api, "GET", f"{path}?attempt=2", "viewer")[1]["logs"] == []
    assert ask(api, "GET", f"{path}?attempt=0", "viewer")[0] == 400
    assert ask(api, "GET", f"{PATH}/runs/nobody/log", "viewer")[0] == 404
    enqueue(shop, "r1/log")
    assert ask(api, "GET", f"{PATH}/runs/r1%2Flog", "viewer")[1]["run"] == "r1/log"
