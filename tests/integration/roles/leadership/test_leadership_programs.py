"""Leaderships against a real server: the end of an interpreter, and the user of a program."""

from __future__ import annotations

import subprocess
import sys

import pytest
import redis

import tenure
from supervisor.core.election.lease import Term
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.preflight import acl_rules
from supervisor.store.election.leases import Leases
from supervisor.store.producer import connection as producing
from supervisor.store.producer.producer import Producer
from tenure.errors import StoreRefusedError
from tests.kit.servers import RealServer

pytestmark = pytest.mark.server


def test_a_program_that_ends_without_a_word_gives_its_lease_back(real_server: RealServer) -> None:
    """The end of the interpreter is an end like any other."""
    code = (
        f"import tenure; tenure.connect({real_server.url!r}, cluster='ends'); "
        "import sys, threading; begun = threading.Event(); "
        "tenure.leadership('billing', on_started=lambda e: begun.set(), on_stopped=lambda e: print('stopped')).start(); "
        "assert begun.wait(30); assert 'pydantic' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
    producer = Producer(RedisSettings.model_validate({"url": real_server.url}), cluster="ends")
    found = producer.run(Leases(producer.keys.leadership("billing")).view())
    producer.close()
    assert (found.holder, found.transitions) == ("", 1)


def test_the_role_producer_may_lead_programs_and_not_replicas(real_server: RealServer) -> None:
    """The rules that Tenure prints let a program contend, and keep it from the scheduler's lease."""
    admin = redis.Redis(unix_socket_path=str(real_server.socket), protocol=2)
    admin.execute_command("ACL", "SETUSER", "program", "reset", "on", ">pw", *acl_rules("roles", "producer"))
    settings = RedisSettings.model_validate({"url": real_server.url, "username": "program", "password": "pw"})
    program = Producer(settings, cluster="roles")
    producing.use(program)
    try:
        with tenure.leadership("billing") as lead, tenure.leadership() as of_replicas:
            assert lead.wait("30s")
            assert lead.confirm() == lead.epoch
            assert of_replicas.leader is None
        with pytest.raises(StoreRefusedError, match=r"(?i)permission|NOPERM|ACL"):
            program.run(Leases(program.keys).release(Term(1, "1" * 32, 0), reason="mine"))
    finally:
        program.close()
        producing.use(None)
        admin.execute_command("ACL", "DELUSER", "program")
        admin.close()
