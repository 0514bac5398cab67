"""The unix socket of the web child: private, never over a living server, gone when its tree has gone."""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.app.replica import listening
from supervisor.core.errors import CannotBindError
from supervisor.process.system.unix_listening import bound
from supervisor.settings.sections.web import WebSettings


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A path in a private directory."""
    tmp_path.chmod(0o700)
    return tmp_path / "http.sock"


def answers(path: Path) -> bool:
    """Return whether somebody listens at ``path``."""
    with socket.socket(socket.AF_UNIX) as link:
        return link.connect_ex(str(path)) == 0


@pytest.mark.parametrize(("users", "mode"), [([], 0o600), (["root"], 0o666)])
def test_a_socket_is_private_unless_users_are_named_and_goes_with_its_tree(
    path: Path, users: list[str], mode: int
) -> None:
    """The mode is the first defence, and a path that stays would look like a tree that runs."""
    told: list[object] = []
    web = WebSettings(host=f"unix:{path}", socket_users=users)
    with listening(web, lambda event, **fields: told.append((event, fields["address"]))) as listeners:
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert stat.S_IMODE(path.with_name("http.sock.lock").stat().st_mode) == 0o600
        assert answers(path)
        assert (listeners.health, listeners.grpc, told) == (None, None, [("http_listening", f"unix:{path}")])

    assert not path.exists()


def test_a_socket_that_a_dead_tree_left_is_replaced(path: Path) -> None:
    """After kill -9 nobody is there to remove it, and the next start must not need a person."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()

    with bound(path):
        assert answers(path)


def _living(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(0)
    return server


def _full(path: Path) -> tuple[socket.socket, ...]:
    server, client, other = _living(path), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    client.settimeout(0)
    client.connect_ex(str(path))
    other.settimeout(0)
    other.connect_ex(str(path))
    return server, client, other


def _file(path: Path) -> tuple[()]:
    path.write_text("of somebody's")
    return ()


def _link(path: Path) -> tuple[socket.socket, ...]:
    target = path.with_name("target.sock")
    server = _living(target)
    path.symlink_to(target)
    return (server,)


def _open_directory(path: Path) -> tuple[()]:
    path.parent.chmod(0o777)
    return ()


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda path: (_living(path),), "somebody listens there; stop what uses it, or set web.host"),
        (_full, "somebody listens there"),
        (_file, "something that is no socket lies there; remove it"),
        (_link, "something that is no socket lies there"),
        (_open_directory, "its directory is not trusted: everybody may write to it"),
        (lambda path: path.parent.rmdir() or (), "its directory: No such file or directory; make the directory"),
        (lambda path: path.with_name("http.sock.lock").symlink_to("/etc/passwd") or (), "http.sock.lock"),
    ],
    ids=["living", "busy", "file", "link", "open-directory", "no-directory", "lock-is-a-link"],
)
def test_what_is_not_a_left_socket_is_neither_used_nor_removed(
    path: Path, prepare: Callable[[Path], tuple[socket.socket, ...]], said: str
) -> None:
    """A server that answers slowly is alive, and a file of somebody's is not ours to remove."""
    held = prepare(path)
    was_there = path.is_symlink() or path.exists()
    with pytest.raises(CannotBindError) as error, bound(path):
        pass
    for each in held:
        each.close()

    assert f"cannot listen on unix:{path}: " in str(error.value)
    assert said in str(error.value)
    assert (path.is_symlink() or path.exists()) is was_there


def test_a_start_beside_another_start_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that find the same stale socket would remove each other's new one."""
    inner: list[str] = []

    def second(_path: Path) -> bool:
        monkeypatch.undo()
        with pytest.raises(CannotBindError) as error, bound(path):
            pass
        inner.append(str(error.value))
        return False

    monkeypatch.setattr("supervisor.process.system.unix_listening.is_stale", second)
    with bound(path):
        assert answers(path)
    assert "another start is using it" in inner[0]


def test_the_socket_of_a_successor_is_not_removed(path: Path) -> None:
    """Somebody may have moved the old one away and started anew: the end of the old tree leaves the new one alone."""

    def successor() -> Iterator[socket.socket]:
        with bound(path):
            path.unlink()
            yield _living(path)

    life = successor()
    server = next(life)
    next(life, None)
    assert answers(path)
    server.close()
