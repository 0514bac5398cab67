"""What a caller does between the question and the answer."""

from __future__ import annotations

import pytest

from supervisor.core.errors import StoreUnavailableError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import LeaseCode, Leases
from supervisor.store.keys import Keys
from tests.kit.servers import RealServer, Server

CALL = Leases(Keys("meanwhile")).view()


def test_it_is_done_once_and_the_answer_comes(server: Server) -> None:
    """Also when the server does not know the script yet, and it is sent a second time."""
    store, done = server.store(), []
    store.raw.script_flush()
    views = [store.run(CALL, meanwhile=lambda: done.append(1)) for _ in range(2)]

    assert [view.code for view in views] == [LeaseCode.VIEW] * 2
    assert len(done) == 2


@pytest.mark.server
def test_it_is_done_after_the_question_was_sent(real_server: RealServer) -> None:
    """That is what it is for: the server works at the same time."""
    store = Store.connect(real_server.url, settings=RedisSettings(), name="c:test", timeout_s=20)
    other = Store.connect(real_server.url, settings=RedisSettings(), name="c:other", timeout_s=20)
    store.run(CALL)
    own = int(store.command("CLIENT", "ID"))

    def last_command() -> None:
        # The other connection is served after this one: the server takes them in the order they came.
        line = next(each for each in other.command("CLIENT", "LIST", "ID", own).decode().splitlines())
        seen.append(line.split(" cmd=")[1].split(" ")[0])

    seen: list[str] = []
    store.run(CALL, meanwhile=last_command)
    assert seen == ["evalsha"]
    store.close()
    other.close()


@pytest.mark.server
def test_without_a_server_it_is_not_done(real_server: RealServer) -> None:
    """Nothing was asked, so there is nothing to wait for."""
    store = Store.connect(f"{real_server.url}.gone", settings=RedisSettings(), name="c:test", timeout_s=1)
    done: list[int] = []
    with pytest.raises(StoreUnavailableError):
        store.run(CALL, meanwhile=lambda: done.append(1))

    assert not done
