"""Every command of the tree of commands, in a cluster whose schedules and runs carry a secret in an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
import pytest

from supervisor.cli.main import cli
from supervisor.core.model import Outcome
from tests.integration.cli.conftest import ClusterWithJobs, Result
from tests.kit.builders import envelope
from tests.kit.canary import CANARY, show_nothing_secret

pytestmark = pytest.mark.server
S = "r.1/worker-io-0/1"
MODULE = """\
from tenure import job

@job("mail.send")
async def send(to: str, day: str = "") -> None: ...

@job("tests.noop")
async def noop(to: str = "") -> None: ...
"""
CONFIG = """\
jobs: [secret_jobs]
workers: {io: {kind: async, queues: [default]}}
schedules:
  static: {job: mail.send, every: 1h, args: {to: "${env:SECRET}"}}
"""
SCHEDULES = """\
nightly:
  {job: mail.send, every: 1h, args: {to: "TEXT", day: "{{ date }}"}, paused: true, pause_reason: "token=TEXT",
  description: "password=TEXT", owner: "redis://x:TEXT@host", labels: {token: TEXT, team: "secret=TEXT"}}
other: {job: mail.send, every: 1h, args: {to: "TEXT"}}
"""
FOREIGN = "0 3 * * * root /usr/bin/true\n"

# The words behind each command, once for each way that shows more.
WORDS: dict[str, tuple[str, ...]] = {
    "token new": ("grafana read", "grafana read --file tokens"),
    "status": ("", "-o json"),
    "leader clear-hold": ("--yes",),
    "leader history": ("", "-o json"),
    "leader resign": ("--yes --timeout 0s",),
    "leader show": ("", "-o json"),
    "leader watch": ("--timeout 10ms",),
    "schedule apply": ("-f s.yaml --dry-run", "-f changed.yaml --dry-run -o json", "-f changed.yaml", "-f bad.yaml"),
    "schedule backfill": (
        "nightly --from 2026-11-01 --to 2026-11-01 --dry-run",
        "nightly --from 2026-11-01 --to 2026-11-01 --no-wait --yes",
        "--list -o json",
    ),
    "schedule delete": ("other --yes",),
    "schedule explain": ("nightly",),
    "schedule list": ("", "-o json", "-o yaml", "--paused -o json"),
    "schedule next": ("nightly -o json",),
    "schedule pause": (f"nightly --reason password={CANARY}", f"other --reason password={CANARY}"),
    "schedule preview": ("nightly", "-f s.yaml -o json"),
    "schedule resume": ("nightly",),
    "schedule show": ("nightly", "nightly -o json", "nightly -o yaml"),
    "schedule trigger": (f"nightly to={CANARY}", f"nightly nothing={CANARY}"),
    "job list": ("", "-o json"),
    "job run": (f"mail.send --param to={CANARY}", f"mail.send --param too={CANARY}"),
    "job show": ("mail.send", "mail.send -o json"),
    "runs cancel": ("waiting --yes",),
    "runs list": ("", "-o json", "-o yaml"),
    "runs requeue": ("later",),
    "runs set-priority": ("high later",),
    "runs logs": ("running", "dead -o yaml"),
    "runs show": ("running", "later -o json", "dead -o yaml", "ended", "ended -o json"),
    "queue fsck": ("", "default"),
    "queue list": ("", "-o json"),
    "queue move": ("default elsewhere --yes",),
    "queue pause": (f"default --reason password={CANARY}",),
    "queue purge": ("elsewhere --yes",),
    "queue resume": ("default",),
    "queue show": ("default", "default -o json"),
    "dead drop": ("dead --yes",),
    "dead list": ("", "-o json", "-o yaml"),
    "dead requeue": ("dead --yes",),
    "dead show": ("dead", "dead -o json"),
    "enqueue": (f"mail.send to={CANARY}", f"mail.send to=[1,{CANARY}", f"mail.send too={CANARY}"),
    "worker list": ("", "-o json"),
    "worker quiet": ("--all --replica gone --yes",),
    "worker recycle": ("--all --replica gone --yes",),
    "worker resume": ("--all --replica gone",),
    "worker stacks": ("--all --replica gone",),
    "plugin list": ("", "-o json"),
    "plugin run": ("nothing",),
    "plugin show": ("nothing",),
    "plugin verify": ("nothing",),
    "events": ("", "-o json"),
    "reload": ("--timeout 0s",),
    "stop": ("--yes --timeout 0s",),
    "config convert": ("tenure.yaml",),
    "config default": ("",),
    "config flags": ("",),
    "config schema": ("",),
    "config show": ("", "-o json", "--sources"),
    "config validate": ("", "wrong.yaml"),
    "import crontab": ("crontab",),
    "init": ("project",),
    "doctor": ("",),
    "completion": ("bash",),
    "version": ("", "-o json"),
}
ELSEWHERE = {"run": "it starts a tree; what trees write and serve is searched by tests/e2e/trees.py"}
LAST = (  # they take away what others show
    "queue move",
    "queue purge",
    "dead drop",
    "dead requeue",
    "runs cancel",
    "schedule delete",
    "init",
)


def leaves(command: click.Command, *path: str) -> Iterator[str]:
    """Yield each command that does something, by its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, *path, name)
    else:
        yield " ".join(path)


@pytest.fixture
def secretive(desk: ClusterWithJobs, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterWithJobs]:
    """A cluster with schedules, and with runs in every state, whose arguments hold the canary."""
    monkeypatch.setenv("SECRET", CANARY)
    monkeypatch.syspath_prepend(str(desk.directory))
    desk.write("secret_jobs.py", MODULE)
    config = (desk.directory / "tenure.yaml").read_text()
    desk.write("tenure.yaml", config + CONFIG)
    desk.write("wrong.yaml", config + CONFIG.replace("to:", "too:"))
    desk.write("s.yaml", SCHEDULES.replace("TEXT", CANARY))
    desk.write("changed.yaml", SCHEDULES.replace("TEXT", CANARY + "x"))
    desk.write("bad.yaml", SCHEDULES.replace("to:", "too:").replace("TEXT", CANARY))
    desk.write("crontab", FOREIGN)
    assert desk.tenure("apply", "-f", "s.yaml").code == 0
    world, args = desk.world, {"to": CANARY}
    world.open(S)
    world.enqueue(*(envelope(name, args=args) for name in ("running", "dead", "ended")))
    world.fetch(S)
    error = {"type": "ValueError", "message": "no such tenant", "worker": S, "traceback": "File x"}
    world.ack(S, "dead", Outcome.DEAD, error=error, job="tests.noop", history_note="ValueError: no such tenant")
    world.ack(S, "ended", Outcome.OK, job="tests.noop")
    world.enqueue(envelope("waiting", args=args))
    world.enqueue(envelope("later", args=args), delays_ms=[60_000])
    yield desk
    world.raw.flushall()  # definitions have to hold their arguments; other tests are asked for what they leave


def test_no_command_shows_an_argument(secretive: ClusterWithJobs, invoke: Callable[..., Result]) -> None:
    """Values come from files and variables that are never printed, and a secret may stand in any text that people wrote.

    A new command has to be added here.
    """
    found = set(leaves(cli))
    assert found == WORDS.keys() | ELSEWHERE.keys()
    assert secretive.show("nightly").record is not None
    for command in sorted(found - ELSEWHERE.keys(), key=lambda name: (name in LAST, name)):
        for words in WORDS[command]:
            result = invoke(*command.split(), *words.split())
            show_nothing_secret(result.out, where=f"tenure {command}, standard output")
            show_nothing_secret(result.err, where=f"tenure {command}, standard error")
