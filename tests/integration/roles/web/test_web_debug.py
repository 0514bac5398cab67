"""/debug, which is off unless it was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from supervisor.roles.web.debug import PATH
from supervisor.settings.sections.models import Settings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.commands import Command, Commands, Word
from supervisor.store.keys import Keys
from tests.integration.roles.web.api_client import ask, line
from tests.kit.servers import RealServer

SCOPES = {"reader": "read", "driver": "operate", "owner": "admin", "tenant": "admin jobs=tenant.*"}


@pytest.fixture
def start(patient_tree: Any, real_server: RealServer, tmp_path: Path) -> Any:
    """Return what starts a web child with these settings of ``web``, on loopback, with three tokens."""
    tree = patient_tree
    with redis.Redis(unix_socket_path=str(real_server.socket), protocol=2) as raw:
        raw.flushall()
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(line(name, scope) for name, scope in SCOPES.items()))

    def started(**settings: Any) -> Any:
        tree.redis_url = real_server.url
        shown = {"tokens_file": str(tokens), "reads": "open"} | settings
        tree.settings = Settings.model_validate({"cluster": "debugged", "web": shown})
        tree.start()
        return tree

    return started


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_it_is_not_there_unless_it_was_asked_for(start: Any, method: str) -> None:
    """Not even for the owner."""
    assert ask(start(), method, PATH, "owner")[0] == 404


@pytest.mark.share(2)
@pytest.mark.parametrize(("who", "code"), [(None, 401), ("stranger", 401), ("reader", 403), ("driver", 403)])
def test_it_asks_for_admin_also_where_reads_are_open(start: Any, who: str | None, code: int) -> None:
    """On loopback too: who may read may not look inside."""
    tree = start(debug=True)

    assert [ask(tree, method, PATH, who)[0] for method in ("GET", "POST")] == [code, code]


def test_a_limited_token_commands_no_workers(start: Any) -> None:
    """They run jobs that it does not reach; what the web child does it may see."""
    tree = start(debug=True)

    assert [ask(tree, method, PATH, "tenant")[0] for method in ("GET", "POST")] == [200, 403]


def test_without_a_file_of_tokens_nobody_sees_it(start: Any) -> None:
    """The setting alone opens nothing."""
    assert ask(start(debug=True, tokens_file=None), "GET", PATH, "owner")[0] == 403


def test_the_stacks_of_the_web_child_are_shown(start: Any) -> None:
    """Of threads, and of tasks as deep as they wait; who looked stands in the log."""
    tree = start(debug=True)

    code, shown = ask(tree, "GET", PATH, "owner")

    assert code == 200
    assert shown.startswith("thread MainThread")
    assert "task " in shown
    assert "in _serve\n" in shown
    assert "await stopping" in shown
    assert "more tasks" not in shown  # none is left out
    assert '"by":"owner"' in tree.log.read_text()


def test_workers_are_asked_as_the_command_does(start: Any, real_server: RealServer) -> None:
    """The agent of this replica finds the request, with the name of who asked."""
    tree = start(debug=True)

    code, said = ask(tree, "POST", PATH, "owner")

    assert (code, said.startswith("asked:")) == (202, True)
    store = Store.connect(real_server.url, settings=Settings().redis, name="test", timeout_s=20)
    try:
        ((_, body),) = store.run(Commands(Keys("debugged")).take(tree.child().replica))
    finally:
        store.close()
    assert Command(word=Word.STACKS, by="owner@http") == msgspec.json.decode(body, type=Command)


def test_without_redis_nobody_can_be_asked(start: Any, tree: Any) -> None:
    """And the answer says so; the own stacks are shown all the same."""
    start(debug=True)
    tree.stop()
    tree.redis_url = f"{tree.redis_url}.absent"
    tree.start()

    code, shown = ask(tree, "POST", PATH, "owner")
    assert (code, ".absent" in str(shown)) == (503, False)
    assert ask(tree, "GET", PATH, "owner")[0] == 200
