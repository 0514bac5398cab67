"""Cloudforet's configurations, run as they are by the command."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.trees import Tree, tenure, wait_until
from tests.kit.canary import CANARY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DATA = Path(__file__).resolve().parent.parent / "data" / "cloudforet"
EMBEDDED = {"TENURE_REDIS__URL": "embedded"}
QUEUES = "QUEUES: {q: {backend: spaceone.core.queue.redis_queue.RedisQueue, host: redis, port: 6379, channel: c}}\n"
CLASS = """
from supervisor.compat.cloudforet import IntervalScheduler


class Ported(IntervalScheduler):
    def create_task(self):
        stage = {"locator": "MANAGER", "name": "NoteManager", "method": "note", "metadata": {}, "params": {}}
        return [{"name": "ported", "version": "v1", "executionEngine": "BaseWorker", "stages": [stage]}]
"""
MANAGER = """
import sqlite3
from contextlib import closing


class NoteManager:
    def note(self):
        with closing(sqlite3.connect("noted.db", timeout=30)) as db, db:
            db.execute("create table if not exists noted (at text)")
            db.execute("insert into noted values (datetime())")
"""


def noted(directory: Path) -> int:
    if not (directory / "noted.db").exists():
        return 0
    with closing(sqlite3.connect(directory / "noted.db", timeout=30)) as db:
        (found,) = db.execute("select count(*) from sqlite_master where name = 'noted'").fetchone()
        return int(db.execute("select count(*) from noted").fetchone()[0]) if found else 0


def listed(directory: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Return the schedules as `tenure schedule list` shows them."""
    rows = json.loads(tenure(directory, "schedule", "list", *options, "-o", "json", environ=EMBEDDED).stdout)
    return {row["schedule"]: row for row in rows}


@pytest.mark.parametrize(
    "name", [pytest.param("identity-values.yaml", marks=pytest.mark.long), "inventory-application.yaml"]
)
def test_a_published_file_runs_unchanged_in_a_directory_with_nothing_else(
    short_directory: Path, start: Callable[..., Tree], name: str
) -> None:
    """Whole, or its sections as the chart mounts them: ready, each schedule told once; a class that is not there ends its run with the reason, and the tree goes on."""
    shutil.copy(DATA / name, short_directory / "mounted.yaml")
    options = ("--compat", "cloudforet", "-c", "mounted.yaml")
    tree = start("tree", *options, "--port", "0", environ=EMBEDDED)
    tree.wait_for("tree_ready")
    registered = {each["name"]: each for each in tree.events("schedule_registered")}
    in_place = wait_until(lambda: listed(short_directory, *options), what="a leader to bring them in")
    assert registered.keys() == in_place.keys()
    assert all(each["timezone"] == "UTC" and each["next_fire"] for each in registered.values())
    (zone,) = [each["note"] for each in tree.events("compat_note") if "schedules are in" in each["note"]]
    assert zone.startswith("schedules are in UTC")
    first = next(iter(registered))
    assert tenure(short_directory, "schedule", "trigger", first, *options, environ=EMBEDDED).returncode == 0
    failed = tree.wait_for("run_dead", schedule=first)
    assert "cannot be imported: there is no module spaceone" in failed["error"]
    assert tree.get("/readyz")[0] == 200
    tree.terminate()
    assert tree.wait() == 0


def test_a_ported_service_fires_beside_one_without_its_token_and_a_reload_follows_the_file(
    short_directory: Path, start: Callable[..., Tree]
) -> None:
    """The token's absence suspends what needs it and nothing else; the token and a new schedule come by a reload."""
    source = short_directory / "src" / "ported"
    (source / "manager").mkdir(parents=True)
    (source / "__init__.py").touch()
    (source / "scheduler.py").write_text(CLASS)
    (source / "manager" / "__init__.py").write_text(MANAGER)
    (source / "handlers.py").write_text(
        "from supervisor.compat.cloudforet import schedule_handler\n\n\n@schedule_handler\ndef ping():\n    pass\n"
    )
    config = short_directory / "application.yaml"
    text = (
        f"compat: cloudforet\n{QUEUES}"
        "TOKEN: ${file:token}\n"
        "SCHEDULERS:\n"
        "  ported: {backend: ported.scheduler.Ported, queue: q, interval: 1}\n"
        "  pinging: {handler: ported.handlers.ping, interval: 1}\n"
        "WORKERS: {w: {backend: spaceone.core.scheduler.worker.BaseWorker, queue: q, pool: 1}}\n"
    )
    config.write_text(text)
    options = ("-c", "application.yaml", "-m", "src")
    tree = start("tree", *options, "--port", "0", environ=EMBEDDED)
    tree.wait_for("tree_ready")
    tree.wait_for("schedule_fired", schedule="pinging")
    assert "token cannot be read" in listed(short_directory, *options)["ported"]["status"]
    assert noted(short_directory) == 0

    (short_directory / "token").write_text(f"{CANARY}\n")
    config.write_text(text.replace("WORKERS:", "  second: {handler: ported.handlers.ping, interval: 3600}\nWORKERS:"))
    reloaded = tenure(short_directory, "reload", *options, environ=EMBEDDED)
    assert reloaded.returncode == 0, reloaded.stdout + reloaded.stderr
    wait_until(lambda: noted(short_directory) >= 2, what="two tasks of the ported service")
    assert "second" in listed(short_directory, *options)
    assert CANARY not in tree.log_path.read_text()

    config.write_text(text.replace("interval: 1}", "interval: 0}"))
    refused = tenure(short_directory, "reload", *options, environ=EMBEDDED)
    assert refused.returncode == 1
    assert "SCHEDULERS.ported.interval: must be above 0" in refused.stdout + refused.stderr
    tree.terminate()
    assert tree.wait() == 0


class _Late(BaseHTTPRequestHandler):
    """Refuses two requests, as a server that starts, and then hands out a configuration."""

    text = f"{QUEUES}SCHEDULERS: {{late: {{handler: a.b.Late, interval: 3600}}}}\n".encode()
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(503 if self.asked <= 2 else 200)
        self.send_header("Content-Length", str(len(self.text)))
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


def test_a_start_waits_for_a_server_of_configurations_that_is_away(
    short_directory: Path, start: Callable[..., Tree]
) -> None:
    """It is told once, and what the server says then is what runs."""
    _Late.asked = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), _Late) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        pin = hashlib.sha256(_Late.text).hexdigest()
        entry = f"{{url: 'http://127.0.0.1:{server.server_port}/x', sha256: {pin}, timeout: 20s}}"
        (short_directory / "application.yaml").write_text(f"GLOBAL: {{packages: [a]}}\nIMPORT: [{entry}]\n")
        tree = start("tree", "--compat", "cloudforet", "-c", "application.yaml", "--port", "0", environ=EMBEDDED)
        tree.wait_for("tree_ready")
        server.shutdown()
    assert [each["name"] for each in tree.events("schedule_registered")] == ["late"]
    assert tree.log_path.read_text().count("answered 503") == 1
    tree.terminate()
    assert tree.wait() == 0
