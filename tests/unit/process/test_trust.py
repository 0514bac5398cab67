"""Who else may write to what a tree acts upon."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from supervisor import trust
from supervisor.core.errors import CannotCreateError, StoreUnavailableError
from supervisor.embedded.valkey import EmbeddedServer
from supervisor.settings.sections.models import RedisSettings
from supervisor.settings.web.tokens import TokenFileError, read_tokens
from supervisor.store.client import connections
from supervisor.store.client.async_client import AsyncStore
from supervisor.store.client.sync_client import Store
from supervisor.trust import distrust_path, make_private_directory, open_regular

NOBODY = 65534


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``path`` belong to another user; only root can, others become another one themselves."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory with a path that is short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="tenure-"))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_data_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """What lies in it may be theirs: a socket, a nameplate, a file of data."""
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(mode)

    with pytest.raises(CannotCreateError, match=r"everybody may write.*chmod 700"):
        make_private_directory(path)


def test_a_data_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That user could serve a Redis of his own in it, and have this one run what he enqueues."""
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    give_away(path, monkeypatch)

    with pytest.raises(CannotCreateError, match=r"belongs to uid .*chown"):
        make_private_directory(path)
    with pytest.raises(CannotCreateError, match="not trusted"):
        EmbeddedServer(path, "always").prepare()


def test_a_data_directory_that_others_may_read_becomes_private(tmp_path: Path) -> None:
    """Payloads and results lie in it."""
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(0o755)

    make_private_directory(path)

    assert path.stat().st_mode & 0o777 == 0o700


def test_a_link_of_another_user_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would choose which directory of this user is changed; links of this user and of root are normal."""
    (tmp_path / "real").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    assert distrust_path(link) == ""

    give_away(link, monkeypatch)

    assert "link of uid" in distrust_path(link)


def test_a_group_of_nobody_else_may_write(tmp_path: Path) -> None:
    """Systems that give each user a group of his own have a umask of 002."""
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o664)
    is_private = trust._is_private_group(path.stat())

    assert bool(distrust_path(path)) is not is_private
    assert distrust_path(Path("/")) == ""


def test_only_a_regular_file_is_opened_and_nothing_waits(tmp_path: Path) -> None:
    """A FIFO in place of a file would hold the reader for ever, a link lead to a device."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")

    for name in ("fifo", "link", "."):
        with pytest.raises(OSError, match=r"regular|symbolic"):
            open_regular(tmp_path / name)


def test_a_tokens_file_that_others_may_write_makes_no_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who adds a line to it is an administrator."""
    path = tmp_path / "tokens"
    path.write_text(f"deploys sha256:{'0' * 64} operate\n")
    path.chmod(0o600)
    assert len(read_tokens(str(path))) == 1

    path.chmod(0o666)
    with pytest.raises(TokenFileError, match=r"writable by others.*chmod 600"):
        read_tokens(str(path))
    path.chmod(0o600)
    give_away(path, monkeypatch)
    with pytest.raises(TokenFileError, match="belongs to uid"):
        read_tokens(str(path))


def test_nothing_is_sent_to_an_embedded_server_of_another_user(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket's path may have come to lead elsewhere since the start; the kernel says who listens."""
    server = EmbeddedServer(directory, "always")
    settings = RedisSettings(url=SecretStr("embedded"))
    for module in ("supervisor.store.client.connections", "supervisor.embedded.valkey"):
        monkeypatch.setattr(f"{module}.peer_uid", lambda _link: NOBODY)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(server.socket_path))
        listener.listen()
        assert not server.is_ready()
        store = Store.connect(server.url, settings=settings, name="test")
        with pytest.raises(StoreUnavailableError, match=f"served by uid {NOBODY}"):
            store.ping()
        store.close()

        async def ask() -> None:
            other = AsyncStore.connect(server.url, settings=settings, name="test")
            with pytest.raises(StoreUnavailableError, match=f"served by uid {NOBODY}"):
                await other.ping()
            await other.close()

        asyncio.run(ask())
        for _ in range(3):
            link, _ = listener.accept()
            with link:
                assert link.recv(100) == b""


def test_the_user_who_listens_on_a_socket_is_known(directory: Path) -> None:
    """By the kernel, before anything is sent."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as link:
        listener.bind(str(directory / "s"))
        listener.listen()
        link.connect(str(directory / "s"))

        assert connections.peer_uid(link) == os.geteuid()
