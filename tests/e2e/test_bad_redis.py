"""A Redis that cannot carry the cluster is told at the start: the reason, the remedy, exit 78, no secret."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.store.client.preflight import acl_rules
from tests.e2e.trees import tenure
from tests.kit.scripted_server import ScriptedServer, handshake
from tests.kit.topologies import Node, Sentinels

pytestmark = [pytest.mark.e2e, pytest.mark.server]


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A server on a port."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-bad-"))
    node = Node(directory)
    yield node
    node.kill()
    shutil.rmtree(directory)


def by_reference(directory: Path, setting: str) -> str:
    """Return ``setting`` as a flag may have it: a secret is read from a file."""
    name, _, value = setting.partition("=")
    if "s3cret" not in value:
        return setting
    (directory / name).write_text(value)
    return f"{name}=${{file:{directory / name}}}"


def refusal(directory: Path, url: str, *settings: str, command: tuple[str, ...] = ("run", "--port", "0")) -> str:
    """Start a replica that must not start; return what it said."""
    given = [by_reference(directory, each) for each in (f"redis.url={url}", *settings)]
    options = [part for each in given for part in ("--set", each)]
    done = tenure(directory, *command, *options)
    assert done.returncode == 78, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stderr + done.stdout
    assert "tree_starting" not in done.stderr
    return done.stderr


def test_a_server_older_than_6_2_is_refused(short_directory: Path) -> None:
    """No such server is at hand, so its answers are given."""
    info = b"redis_version:6.0.16\r\n"

    def answer(command: list[str]) -> bytes:
        if command[0] == "INFO":
            return b"$%d\r\n%b\r\n" % (len(info), info)
        return handshake(command) or {"PING": b"+PONG\r\n", "CONFIG": b"*0\r\n", "EVALSHA": b"*0\r\n"}.get(
            command[0], b"*-1\r\n"
        )

    old = ScriptedServer(answer)
    said = refusal(short_directory, old.url)
    assert "version 6.0.16" in said
    assert "use Redis 6.2 or newer, or Valkey" in said
    old.close()


@pytest.mark.parametrize("missing", ["zadd", "blpop"])
def test_a_right_that_the_user_lacks_is_named(short_directory: Path, node: Node, missing: str) -> None:
    """With the rule to copy; also for what is sent beside scripts."""
    node.ask("ACL", "SETUSER", "small", "reset", "on", ">s3cret", *acl_rules("default"), f"-{missing}")
    said = refusal(short_directory, f"redis://{node.address}", "redis.username=small", "redis.password=s3cret")
    assert missing in said
    assert f"+{missing}" in said
    assert "~{tenure:default}:*" in said


def test_an_evicting_server_is_refused(short_directory: Path, node: Node) -> None:
    """It would drop runs when its memory is full."""
    node.ask("CONFIG", "SET", "maxmemory", 10**9, "maxmemory-policy", "allkeys-lru")
    said = refusal(short_directory, f"redis://{node.address}")
    node.ask("CONFIG", "SET", "maxmemory", 0, "maxmemory-policy", "noeviction")
    assert "maxmemory-policy is allkeys-lru" in said
    assert "set maxmemory-policy noeviction" in said


def test_a_wrong_password_is_refused(short_directory: Path, node: Node) -> None:
    """Without a word of it."""
    said = refusal(short_directory, f"redis://nobody:s3cret@{node.address}")
    assert "wrong user name or password" in said


def test_a_name_that_no_sentinel_knows_is_refused(short_directory: Path) -> None:
    """The sentinels answer, so waiting would not help."""
    sentinel = ScriptedServer(lambda _: b"*-1\r\n")
    said = refusal(short_directory, Sentinels.url_of(sentinel.where, master="mymastr"))
    assert "watches no master called mymastr" in said
    assert "correct redis.url" in said
    sentinel.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("cluster={a}",), ("cluster", "{a}")),
        (("redis.url=redis+sentinel://u:s3cret@a",), ("redis.url", "does not name the master")),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    short_directory: Path, settings: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """Before anybody is asked anything."""
    said = refusal(short_directory, "redis://127.0.0.1:1", *settings)
    assert all(word in said for word in words), said


def test_a_node_of_a_cluster_is_not_taken_for_a_server(short_directory: Path) -> None:
    """The remedy is another URL."""
    node = ScriptedServer(
        lambda command: handshake(command) or (b"+PONG\r\n" if command[0] == "PING" else b"-MOVED 7 10.0.0.9:6379\r\n")
    )
    said = refusal(short_directory, node.url)
    assert "redis+cluster://" in said
    node.close()
