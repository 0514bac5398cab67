"""A service of Cloudforet's, moved over by changing its imports, in a whole tree."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests import oldservice
from tests.e2e.trees import Tree, tenure
from tests.kit.canary import CANARY
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DOMAINS = ["domain-1", "domain-2", "domain-3"]
MESSAGES = 400
STAGES = ["update_job_state", "delete_resources", "terminate_jobs", "report"]
CONFIG = """
version: 1
cluster: e2e
web: {{port: 0}}
log: {{format: json, level: debug}}
workers:
  planners: {{kind: sync, processes: 1, queues: [planners, default]}}
  cleanup: {{kind: sync, processes: 1, queues: [cleanup_q]}}
jobs: [supervisor.compat.cloudforet.jobs]
cloudforet:
  packages: [oldservice, spaceone.gone]
  token: "${{env:OLD_TOKEN}}"
  queues: {{cleanup_q: {{channel: cleanup_job, bridge: {bridge}}}}}
  config: {{DIRECTORY: "{directory}", DOMAINS: {domains}}}
schedules:
  cleanup:
    job: cloudforet.plan
    queue: planners
    cron: "0 0 1 1 *"
    args:
      backend: oldservice.interface.task.v1.cleanup_scheduler.CleanupScheduler
      queue: cleanup_q
      options: {{interval: 1, minute: ":10"}}
  gone:
    job: cloudforet.plan
    queue: planners
    cron: "0 0 1 1 *"
    args: {{backend: spaceone.gone.task.GoneScheduler, queue: cleanup_q, options: {{}}}}
redis: {{url: "{url}"}}
"""


class Site:
    """The moved service, a tree that runs it, and what it wrote down."""

    def __init__(self, start: Callable[..., Tree], directory: Path, url: str, store: Store) -> None:
        oldservice.move(directory)
        self.directory, self.store, self.start, self.url = directory, store, start, url
        self.queues = Queues(Keys("e2e"))

    def tree(self, *, bridge: str = "none") -> Tree:
        """Start the tree."""
        text = CONFIG.format(directory=self.directory, domains=json.dumps(DOMAINS), url=self.url, bridge=bridge)
        (self.directory / "tenure.yaml").write_text(text)
        tree = self.start("old", "--config", "tenure.yaml", environ={"OLD_TOKEN": CANARY})
        tree.wait_for("tree_ready")
        tree.wait_for("schedules_declared", applied=True)
        return tree

    def ask(self, *arguments: str) -> str:
        """Return what a command of a person prints."""
        done = tenure(self.directory, *arguments, "--config", "tenure.yaml", environ={"OLD_TOKEN": CANARY})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ledger(self) -> Counter[str]:
        """Return what the service did, each with how often."""
        file = self.directory / "ledger"
        return Counter(file.read_text().splitlines()) if file.exists() else Counter()

    def ended(self, outcome: str, queue: str = "cleanup_q") -> Counter[str]:
        """Return how often each run ended so."""
        return Counter(
            each.run_id for each in self.store.run(self.queues.recent(queue, 1000)) if each.outcome == outcome
        )

    def everything(self, tree: Tree) -> str:
        """Return all that a person can read: log, pages, commands."""
        pages = [tree.get(path)[1] for path in ("/statusz", "/configz", "/metrics")]
        shown = [
            self.ask("schedule", "show", "cleanup"),
            self.ask("config", "show"),
            self.ask("dead", "list", "-o", "json"),
        ]
        runs = json.loads(self.ask("runs", "list", "--count", "100", "-o", "json"))
        one_of_each = {(row["job"], row["outcome"]): row["run"] for row in runs}
        shown += [self.ask("runs", "show", run_id) for run_id in set(one_of_each.values())]
        return "\n".join([tree.log_path.read_text(), *pages, *shown])

    def in_redis(self) -> str:
        """Return every value that lies in Redis."""
        raw = self.store.raw
        texts: list[Any] = []
        for key in raw.scan_iter(count=1000):
            kind = raw.type(key)
            read = {b"string": raw.get, b"hash": raw.hgetall, b"list": lambda k: raw.lrange(k, 0, -1)}.get(kind)
            texts.append(read(key) if read else "")
        return str(texts)


@pytest.fixture
def site(start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store) -> Site:
    """A place for the service."""
    return Site(start, short_directory, redis_url, store)


def test_a_service_moves_by_its_imports_and_a_killed_worker_leaves_each_task_once_on_record(site: Site) -> None:
    """Planned on a worker, executed stage by stage; killed in mid-stage, it goes on; the token is nowhere to be read."""
    (site.directory / "hold-domain-2").touch()
    tree = site.tree()
    site.ask("schedule", "trigger", "cleanup")
    wait_until((site.directory / "held-domain-2").exists, what="the second task to be in its second stage")
    assert CANARY not in site.in_redis(), "the payload of a task that is planned here holds a reference"
    tree.kill("worker-cleanup-0")
    wait_until(lambda: len(site.ended("ok")) == len(DOMAINS), what="all tasks to end")

    assert set(site.ended("ok").values()) == {1}
    done = site.ledger()
    assert {line for line in done if "undo" not in line} == {f"{d} {stage}" for d in DOMAINS for stage in STAGES}
    assert {count for line, count in done.items() if "domain-2" not in line} == {1}
    run_id = next(iter(site.ended("ok")))
    record = json.loads(site.ask("runs", "show", run_id, "-o", "json"))["result"]
    assert [stage["status"] for stage in record["stages"]] == ["done"] * 4
    assert record["stages"][2]["result"] == {"token": "***", "terminated": 3}
    assert (record["name"], record["executionEngine"]) == ("cleanup_schedule", "BaseWorker")
    assert CANARY not in site.everything(tree)
    assert CANARY not in site.in_redis()
    tree.terminate()
    assert tree.wait() == 0


@pytest.mark.long
def test_a_failed_stage_and_a_missing_class_end_as_they_should_and_tell_no_secret(site: Site) -> None:
    """The stage is named, the rest is not tried, rollbacks ran; a class that is nowhere is dead at the first attempt."""
    (site.directory / "fail-domain-1").touch()
    tree = site.tree()
    site.ask("schedule", "trigger", "cleanup")
    site.ask("schedule", "trigger", "gone")
    wait_until(lambda: len(site.ended("dead")) == 1, what="the failing task to be dead", bound_s=90)
    wait_until(lambda: len(site.ended("dead", "planners")) == 1, what="the plan without a class to be dead")

    (failed,) = site.ended("dead")
    told = json.loads(site.ask("dead", "show", failed, "-o", "json"))
    assert "stage 2 of 4 (CleanupService.delete_resources) failed: ValueError: cannot delete domain-1 with ***" in str(
        told
    )
    assert "2 not tried" in str(told)
    assert site.ledger()["domain-1 undo_delete"] == site.ended("retry")[failed] + 1
    assert site.ledger()["domain-1 terminate_jobs"] == 0
    (gone,) = site.ended("dead", "planners")
    assert site.ended("retry", "planners") == Counter()
    why = site.ask("dead", "show", gone)
    assert "spaceone.gone.task.GoneScheduler cannot be imported" in " ".join(why.split())
    assert CANARY not in site.everything(tree)


@pytest.mark.long
def test_messages_of_running_schedulers_are_taken_in(site: Site) -> None:
    """SpaceONE's scheduler goes on pushing to its list; each message is one run here, whoever is killed meanwhile."""
    stage = {"locator": "MANAGER", "name": "ResourceManager", "metadata": {"token": CANARY}, "method": "report"}
    good = [{"stages": [{**stage, "params": {"params": {"domain_id": f"d{n}"}}}]} for n in range(MESSAGES)]
    bad = {"stages": [{**stage, "locator": "CONNECTOR", "params": {}}]}
    site.store.raw.rpush("cleanup_job", *(json.dumps(task) for task in [*good, bad]), "no json " + CANARY)
    tree = site.tree(bridge="ingest")
    former = tree.kill("agent")  # before, while or after messages are moved and executed, as it happens
    tree.kill("worker-cleanup-0")
    wait_until(lambda: tree.slot_pid("agent") != former, what="the next agent")
    tree.kill("agent")
    wait_until(lambda: len(site.ended("ok")) == MESSAGES, what="all messages to end")
    wait_until(lambda: len(site.ended("dead")) == 2, what="the malformed ones to be dead")

    assert set(site.ended("ok").values()) == {1}
    assert set(site.ledger()) == {f"d{n} report" for n in range(MESSAGES)}
    assert site.store.raw.exists("cleanup_job") == 0
    shown = site.everything(tree)
    assert "stages[0].locator must be one of SERVICE, MANAGER, got 'CONNECTOR'" in shown
    assert "it is no JSON at character" in shown
    assert CANARY not in shown


@pytest.mark.long
def test_tasks_are_given_to_workers_that_still_run_elsewhere(site: Site) -> None:
    """Planned here, pushed to their list as plain messages, with the token that they need."""
    tree = site.tree(bridge="emit")
    site.ask("schedule", "trigger", "cleanup")
    wait_until(lambda: site.store.raw.llen("cleanup_job") == len(DOMAINS), what="the tasks to be in their list")

    tasks = [json.loads(each) for each in site.store.raw.lrange("cleanup_job", 0, -1)]
    assert [task["stages"][0]["params"]["params"]["domain_id"] for task in tasks] == DOMAINS
    assert {stage["metadata"]["token"] for task in tasks for stage in task["stages"]} == {CANARY}
    assert CANARY not in site.everything(tree)


FILE = """
GLOBAL:
  TOKEN: "{token}"
  DIRECTORY: "{directory}"
  DOMAINS: {domains}
  QUEUES:
    cleanup_q: {{backend: spaceone.core.queue.redis_queue.RedisQueue, host: redis, port: 6379, channel: cleanup_job}}
  SCHEDULERS:
    cleanup:
      backend: oldservice.interface.task.v1.cleanup_scheduler.CleanupScheduler
      queue: cleanup_q
      interval: 1
      minute: ":10"
  WORKERS:
    worker: {{backend: spaceone.core.scheduler.worker.BaseWorker, queue: cleanup_q, pool: 2}}
"""


@pytest.mark.long
def test_a_service_runs_with_its_own_configuration_file(site: Site) -> None:
    """Its file unchanged, its imports changed: `tenure run --compat cloudforet`, and the tasks are done."""
    domains = json.dumps(DOMAINS)
    (site.directory / "app.yaml").write_text(FILE.format(token=CANARY, directory=site.directory, domains=domains))
    options = ("--compat", "cloudforet", "-c", "app.yaml", "--set", "cluster=e2e", "--set", f"redis.url={site.url}")
    tree = site.start("old", *options, "--set", "web.port=0", "--set", "log.format=json")
    tree.wait_for("schedule_planned", schedule="cleanup")
    done = tenure(site.directory, "schedule", "trigger", "cleanup", *options)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: len(site.ended("ok")) == len(DOMAINS), what="all tasks to end")

    assert site.ledger() == Counter({f"{domain} {stage}": 1 for domain in DOMAINS for stage in STAGES})
    assert CANARY not in tree.log_path.read_text() + tree.get("/configz")[1] + site.in_redis()
