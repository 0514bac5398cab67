"""What each path answers over a real socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from supervisor.core.supervision.states import Phase, SlotState
from supervisor.roles.web.access.auth import public
from supervisor.roles.web.handlers import Pages
from supervisor.telemetry import metrics


@pytest.mark.share(3)
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/readyz/redis", "/livez/ping"])
def test_a_healthy_replica_says_ok(web: Any, path: str) -> None:
    """The whole body is two letters, as probes and people expect."""
    code, headers, body = web.ask(path)

    assert (code, body) == (200, "ok")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_the_answer_can_be_verbose(web: Any) -> None:
    """Every check by name, the way kube-scheduler writes it."""
    *checks, verdict = web.ask("/readyz?verbose")[2].splitlines()

    assert verdict == "readyz check passed"
    assert checks[:6] == [f"[+]{name} ok" for name in ("startup", "shutdown", "agent", "scheduler", "workers", "redis")]
    assert "[+]election ok" in checks
    assert "[+]leaderElection ok\n" in web.ask("/healthz?verbose=1")[2]


def test_liveness_stays_when_readiness_goes(web: Any) -> None:
    """From the first signal on, traffic goes elsewhere, and nobody shoots a replica that is draining."""
    web.board.header.phase = Phase.DRAINING

    assert web.ask("/livez")[0] == 200
    code, _, body = web.ask("/readyz")
    assert code == 503
    assert "[-]shutdown failed: the tree is stopping" in body


def test_a_redis_outage_fails_readiness_alone(web: Any) -> None:
    """A probe that kills every replica because Redis is away has destroyed clusters."""
    web.board.rows[0].redis_ok_ns = 0

    assert (web.ask("/livez")[0], web.ask("/healthz")[0]) == (200, 200)
    assert web.ask("/readyz")[0] == 503
    assert web.ask("/readyz?exclude=redis")[0] == 200
    assert 'no matches for "nothing"' in web.ask("/readyz?verbose&exclude=redis&exclude=nothing")[2]
    assert web.ask("/readyz/redis")[0] == 503


def test_a_parent_that_stopped_beating_fails_liveness(web: Any) -> None:
    """Only this brings a hung parent down: the kubelet restarts the container."""
    web.board.header.parent_beat_ns = 1

    assert web.ask("/livez")[0] == 500
    assert web.ask("/healthz")[0] == 500


def test_check_says_readiness_in_one_word(web: Any) -> None:
    """What Cloudforet's probes ask; unlike there, the word is true."""
    assert (web.ask("/check")[0], json.loads(web.ask("/check")[2])) == (200, {"status": "SERVING"})
    web.board.rows[0].redis_ok_ns = 0

    assert (web.ask("/check")[0], json.loads(web.ask("/check")[2])) == (503, {"status": "NOT_SERVING"})


def test_checks_that_were_asked_for_are_counted(web: Any) -> None:
    """By name, type and status, as Kubernetes' components count theirs."""
    web.ask("/livez")
    web.board.rows[0].redis_ok_ns = 0
    web.ask("/readyz/redis")

    found = web.ask("/metrics")[2]
    assert 'tenure_healthchecks_total{cluster="c1",name="ping",status="success",type="livez"} 1.0' in found
    assert 'tenure_healthchecks_total{cluster="c1",name="redis",status="error",type="readyz"} 1.0' in found
    assert 'tenure_healthcheck{cluster="c1",name="redis",type="readyz"} 0.0' in found


def test_an_unknown_check_or_path_is_not_found(web: Any) -> None:
    """A misspelt probe must fail, not pass."""
    assert web.ask("/readyz/redsi")[0] == 404
    assert web.ask("/nothing")[0] == 404
    code, headers, body = web.ask("/nothing", Accept="application/json")
    assert (code, headers["Content-Type"]) == (404, "application/json")
    assert json.loads(body)["status"] == 404


@pytest.mark.share(3)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_allowed(web: Any, method: str) -> None:
    """These paths change nothing; whoever tries to is told what works."""
    code, headers, body = web.ask("/livez", method=method)

    assert code == 405
    assert headers["Allow"] == "GET,HEAD"
    assert "Traceback" not in body


def test_head_is_get_without_the_body(web: Any) -> None:
    """Load balancers probe with HEAD."""
    assert web.ask("/livez", method="HEAD")[::2] == (200, "")
    web.board.header.phase = Phase.KILLING
    assert web.ask("/readyz", method="HEAD")[::2] == (503, "")


def test_head_of_a_stream_is_its_header_alone(web: Any) -> None:
    """It was an answer with a body, heartbeats for an hour, in the place of a stream."""
    with (
        socket.create_connection(("127.0.0.1", web.port), timeout=20) as connection,
        connection.makefile("rb") as answer,
    ):
        connection.sendall(b"HEAD /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        told = list(iter(answer.readline, b"\r\n"))
        assert answer.read(1) == b""

    assert told[0] == b"HTTP/1.1 200 OK\r\n"
    assert b"Content-Type: text/event-stream; charset=utf-8\r\n" in told


def test_metrics_come_from_every_process_and_survive_them(web: Any) -> None:
    """A worker's counts are here although it is dead, and the child's own restart takes nothing away."""
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            metrics.claim_slot("worker-io-0")
            metrics.ACKS_STALE.inc(3)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
    web.stop(signal.SIGKILL)
    web.start()

    code, headers, body = web.ask("/metrics")

    assert code == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(body)}
    assert families["tenure_acks_stale"].samples[0].value == 6
    assert families["tenure_redis_up"].samples[0].value == 0
    rss = {s.labels["slot"]: s.value for s in families["tenure_slot_resident_memory_bytes"].samples}
    assert rss["web"] > 1_000_000
    assert rss["supervisor"] > 1_000_000


def test_a_scrape_keeps_the_rules_that_promtool_checks(web: Any) -> None:
    """Help and type before samples, one block per name, counters in _total; promtool itself where it is installed."""
    metrics.RUNS_FINISHED.labels("q", "j", "ok").inc()
    body = web.ask("/metrics")[2]
    seen: list[str] = []
    for family in text_string_to_metric_families(body):
        assert family.documentation, family.name
        assert family.type in {"counter", "gauge", "histogram"}, family.name
        assert family.name not in seen
        seen.append(family.name)
        samples = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(samples) == len(set(samples)), family.name
        if family.type == "counter":
            assert all(name.endswith("_total") for name, _ in samples)
    tool = shutil.which("promtool")
    if tool is not None:
        checked = subprocess.run([tool, "check", "metrics"], input=body.encode(), capture_output=True, check=False)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_statusz_is_text_for_people_and_json_for_programs(web: Any) -> None:
    """By Accept, or by ?format=json for a browser's address bar."""
    web.board.rows[3].state = SlotState.BACKOFF

    text = web.ask("/statusz")[2]
    by_query = json.loads(web.ask("/statusz?format=json")[2])
    by_accept = json.loads(web.ask("/statusz", Accept="application/json")[2])

    assert "worker-io-0" in text
    assert "backoff" in text
    assert by_query.keys() == by_accept.keys()
    assert [slot["state"] for slot in by_query["slots"]].count("backoff") == 1
    assert next(slot["pid"] for slot in by_query["slots"] if slot["slot"] == "web") == web.pid


def test_configz_and_version_are_json_and_hold_no_secret(web: Any) -> None:
    """What is in effect, for whoever wonders; the password stays inside."""
    code, headers, body = web.ask("/configz")

    assert (code, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["cluster"] == "c1"
    assert "hunter2" not in body
    assert json.loads(web.ask("/version")[2])["name"] == "tenure"


def test_flagz_is_text_and_holds_no_secret(web: Any) -> None:
    """The same as /configz, as somebody would write it on a command line."""
    code, headers, body = web.ask("/flagz")

    assert (code, headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "--cluster=c1\n" in body
    assert "--redis-password=***\n" in body
    assert "hunter2" not in body


def test_the_front_page_lists_the_paths(web: Any) -> None:
    """In text for curl, with links for a browser, and without anything that a browser would run."""
    assert web.ask("/")[2].startswith("/livez")
    _, headers, page = web.ask("/", Accept="text/html")

    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    for path in ("/livez", "/metrics", "/statusz"):
        assert f'<a href="{path}">' in page
        assert web.ask(path)[0] == 200


def test_a_mistake_of_ours_is_a_plain_500(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace belongs into the log; the client learns nothing about our insides, and the next request works."""

    @public
    async def broken(_self: Pages, _request: Any) -> Any:
        raise RuntimeError("redis://:hunter2@inside")

    monkeypatch.setattr(Pages, "version", broken)
    tree.start()

    code, _, body = tree.ask("/version")
    as_json = tree.ask("/version", Accept="application/json")

    assert (code, body) == (500, "internal error; the log says more\n")
    assert json.loads(as_json[2]) == {"error": "internal error; the log says more", "status": 500}
    assert tree.ask("/livez")[0] == 200
    log = tree.log.read_text()
    assert "request_failed" in log
    assert "RuntimeError: redis://***@inside" in log
    assert "hunter2" not in log


@pytest.mark.share(4)
@pytest.mark.parametrize("path", ["/livez", "/configz", "/nowhere", "/api/v1/leader"])
def test_every_answer_carries_its_headers_and_no_banner(web: Any, path: str) -> None:
    """What may not be stored, sniffed, framed or referred to; and nothing that says which library to attack."""
    _, headers, _ = web.ask(path)

    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert not {"Server", "Strict-Transport-Security"} & set(headers)
