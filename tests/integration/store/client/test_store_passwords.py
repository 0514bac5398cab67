"""A password that is replaced while the program runs: the file is read again for each connection.

The file and the server learn of it one after the other, in either order; what runs follows without a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from supervisor.settings.loader import load
from tests.kit.clients import Clients, refused, works
from tests.kit.servers import RealServer

pytestmark = pytest.mark.server
USER = "rotated"


class RotatedUser:
    """A user of the server, and the file with its password."""

    def __init__(self, server: RealServer, admin: redis.Redis, place: Path) -> None:
        self._admin = admin
        self.file = place / "secret"
        self._config = place / "tenure.yaml"
        self._config.write_text(
            f"redis: {{url: 'unix://{server.socket}', username: {USER}, password: '${{file:secret}}'}}"
        )
        self.url = server.url
        self.file.write_text("first-s3cret\n")
        self.allow(">first-s3cret")

    @property
    def settings(self) -> Any:
        """What a process of the tree is given, read from files as at a start."""
        return load(files=[self._config], environ={}, flags={}).settings.redis

    def allow(self, *rules: str) -> None:
        """Change the user, and end its connections."""
        self._admin.execute_command("ACL", "SETUSER", USER, "on", "~*", "+@all", *rules)
        self._admin.client_kill_filter(user=USER)


@pytest.fixture
def world(real_server: RealServer, tmp_path: Path) -> Iterator[RotatedUser]:
    """A user with the password "first-s3cret"."""
    with redis.Redis(unix_socket_path=str(real_server.socket), protocol=2, driver_info=None) as admin:
        yield RotatedUser(real_server, admin, tmp_path)
        admin.execute_command("ACL", "DELUSER", USER)


@pytest.fixture(params=["blocking", "asynchronous", "uvloop"])
def connect(request: pytest.FixtureRequest) -> Iterator[Clients]:
    """Clients of one kind, then of the others."""
    clients = Clients(request.param)
    yield clients
    clients.close()


def reconnected(store: Any) -> None:
    """Fail unless the client works on a new connection."""
    store.close()
    works(store)


def test_a_password_that_the_server_learns_first_is_followed(connect: Clients, world: RotatedUser) -> None:
    """The usual order: both are valid, the file changes, the old one goes."""
    store = connect(world.url, redis=world.settings)
    works(store)
    world.allow(">second-s3cret")
    reconnected(store)
    world.file.write_text("second-s3cret\n")
    reconnected(store)
    world.allow("<first-s3cret")
    reconnected(store)


def test_a_password_that_the_file_learns_first_is_followed(connect: Clients, world: RotatedUser) -> None:
    """A secret store may write the file before anybody tells the server: what served last still serves."""
    store = connect(world.url, redis=world.settings)
    works(store)
    world.file.write_text("second-s3cret\n")
    reconnected(store)
    world.allow(">second-s3cret", "<first-s3cret")
    reconnected(store)


def test_a_password_that_was_replaced_too_early_is_refused_until_the_file_follows(
    connect: Clients, world: RotatedUser
) -> None:
    """Nothing restarts for it: the same client works again, and no message tells a password."""
    store = connect(world.url, redis=world.settings)
    works(store)
    world.allow(">second-s3cret", "<first-s3cret")
    store.close()
    refused(store, "wrong user name or password", where=str(store.where))
    world.file.unlink()
    refused(store, "wrong user name or password", where=str(store.where))
    world.file.write_text("second-s3cret\n")
    works(store)


def test_a_rotated_file_is_no_change_of_the_configuration(world: RotatedUser) -> None:
    """A reload would refuse it as one that needs a restart."""
    before = world.settings
    world.file.write_text("second-s3cret\n")
    after = world.settings
    assert before == after
    assert after.password.get_secret_value() == "second-s3cret"
    assert "s3cret" not in f"{after!r} {after.model_dump()} {after.password!r}"
