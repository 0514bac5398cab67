"""What an error from Redis means to a caller, and what goes into a connection."""

from __future__ import annotations

import socket

import pytest
import redis.exceptions as wire
from redis.connection import SSLConnection, UnixDomainSocketConnection

from supervisor.core.election.lease import Term
from supervisor.core.errors import NotReplicatedError, StoreRefusedError, StoreUnavailableError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client import base, replies
from supervisor.store.client.base import address, options, topology, wait_ms
from supervisor.store.client.replies import (
    DURABLE,
    answered,
    durably,
    entries,
    fenced,
    is_stale_master,
    replicated,
    translate,
)
from supervisor.store.client.sync_client import AsyncStore, Store
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.scripts import script_names
from tests.kit.tables import table

UNAVAILABLE = [
    wire.ConnectionError("Error 111 connecting"),
    wire.TimeoutError("Timeout reading"),
    TimeoutError(),
    ConnectionResetError("reset"),
    wire.BusyLoadingError("Redis is loading the dataset in memory", status_code="LOADING"),
    wire.ReadOnlyError("You can't write against a read only replica.", status_code="READONLY"),
    wire.MasterDownError("Link with MASTER is down", status_code="MASTERDOWN"),
    wire.ClusterDownError("The cluster is down", status_code="CLUSTERDOWN"),
    wire.TryAgainError("Multiple keys request during rehashing of slot", status_code="TRYAGAIN"),
    wire.OutOfMemoryError("command not allowed when used memory > 'maxmemory'.", status_code="OOM"),
    wire.ResponseError("NOREPLICAS Not enough good replicas to write."),
    wire.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
    wire.ResponseError("BUSY Redis is busy running a script."),
    wire.ResponseError("ERR Error running script (call to f_0): @user_script:7: -READONLY You can't write"),
    wire.ResponseError("ERR Error running script (call to f_0): @user_script: 7: -OOM command not allowed"),
    wire.InvalidResponse("Protocol error"),
    wire.ConnectionError("max number of clients reached"),
    wire.ResponseError("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"),
    wire.ResponseError(
        "ERR Error running script: @user_script:1: Script attempted to access a non local key in a cluster"
    ),
]
WORDS = [
    ("lost", wire.ConnectionError(""), "ConnectionError"),
    ("LOADING", UNAVAILABLE[4], "loading its data"),
    ("READONLY", UNAVAILABLE[5], "read-only replica"),
    ("MASTERDOWN", UNAVAILABLE[6], "its master is down"),
    ("CLUSTERDOWN", UNAVAILABLE[7], "see CLUSTER INFO"),
    ("TRYAGAIN", UNAVAILABLE[8], "slot is migrating"),
    ("OOM", UNAVAILABLE[9], "raise maxmemory"),
    ("NOREPLICAS", UNAVAILABLE[10], "min-replicas-to-write"),
    ("MISCONF", UNAVAILABLE[11], "cannot save to disk; make room"),
    ("BUSY", UNAVAILABLE[12], "SCRIPT KILL"),
    ("maxclients", UNAVAILABLE[16], "raise maxclients"),
    ("UNBLOCKED", UNAVAILABLE[17], "has become a replica"),
    ("non local", UNAVAILABLE[18], "slot of these keys is being moved"),
    ("WRONGPASS", wire.AuthenticationError("x", status_code="WRONGPASS"), "check redis.username and redis.password"),
    (
        "WRONGPASS, told as an outage",
        wire.ConnectionError("invalid username-password pair or user is disabled."),
        "redis.password",
    ),
    ("NOAUTH", wire.AuthenticationError("x", status_code="NOAUTH"), "set redis.password"),
    ("NOPERM", wire.NoPermissionError("this user has no permissions to run the 'eval' command"), "docs/redis-acl.md"),
    ("WRONGTYPE", wire.ResponseError("WRONGTYPE Operation against a key"), "another program may use the same prefix"),
    ("certificate", wire.ConnectionError("CERTIFICATE_VERIFY_FAILED"), "check redis.tls_ca_file"),
    ("MOVED", wire.MovedError("1 h:1"), "redis+cluster://"),
    ("DENIED", wire.ResponseError("DENIED Redis is running in protected mode"), "give the server a password"),
]
REFUSED = [
    wire.AuthenticationError("invalid username-password pair or user is disabled.", status_code="WRONGPASS"),
    wire.AuthenticationError("Authentication required.", status_code="NOAUTH"),
    wire.NoPermissionError("this user has no permissions to run the 'eval' command", status_code="NOPERM"),
    wire.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value script: x"),
    wire.ResponseError("ERR Error running script: @user_script:1: WRONGTYPE Operation against a key"),
    wire.ResponseError("ERR unknown command 'EVALSHA'"),
    wire.MovedError("3999 127.0.0.1:6381"),
    wire.ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
    wire.ResponseError("DENIED Redis is running in protected mode"),
]


@table("error", UNAVAILABLE)
def test_what_may_pass_is_worth_a_retry(error: Exception) -> None:
    """A role goes on; nothing exits because a server restarts."""
    meant = translate(error, where="r:1", operation="turn")
    assert isinstance(meant, StoreUnavailableError)
    assert str(meant).startswith("Redis at r:1 is not available for turn: ")


@table("error", REFUSED)
def test_what_a_person_must_mend_is_refused(error: Exception) -> None:
    """Trying again would hide it."""
    meant = translate(error, where="r:1", operation="turn")
    assert isinstance(meant, StoreRefusedError)
    assert "r:1 refused turn: " in str(meant)


@table(("error", "what"), [pytest.param(error, what, id=name) for name, error, what in WORDS])
def test_every_fault_is_told_in_words_a_person_can_act_on(error: Exception, what: str) -> None:
    """What it is, and what to do where somebody can do something."""
    assert what in str(translate(error, where="r:1", operation="turn"))


def test_every_code_that_is_known_has_its_words_tested() -> None:
    """A new one needs a line in the table above."""
    assert {*replies._UNAVAILABLE, *replies._REFUSED} <= {name for name, _, _ in WORDS}


@pytest.mark.parametrize("error", [wire.MovedError("1 h:1"), wire.AskError("1 h:1")], ids=["MOVED", "ASK"])
def test_a_slot_that_is_elsewhere_is_an_outage_to_a_client_that_searches(error: Exception) -> None:
    """Its next call finds the new node; only a client of one server needs a person."""
    meant = translate(error, where="r:1", operation="turn", is_routed=True)
    assert isinstance(meant, StoreUnavailableError)
    assert ("is being moved" in str(meant)) == (type(error) is wire.AskError)
    assert isinstance(translate(error, where="r:1", operation="turn"), StoreRefusedError)
    assert is_stale_master(error)


def test_a_durable_call_is_followed_by_a_write_of_its_own_and_a_wait() -> None:
    """In the cluster's slot, and gone by itself."""
    parts = ("EVALSHA", "ab", 2, "{tenure:c}:lease", "{tenure:c}:fence", "x")
    assert durably(parts, 100) == [parts, ("SET", "{tenure:c}:copied", 1, "PX", 60_000), ("WAIT", 1, 100)]
    assert wait_ms(RedisSettings(durability="replica", durability_timeout=0.25)) == 250
    assert wait_ms(RedisSettings()) == 0


def test_a_reply_counts_when_a_replica_has_it() -> None:
    """Without a wait, always; with one, from the first replica on."""
    assert replicated([b"x"], where="r", operation="fire", bound_ms=0) == b"x"
    assert replicated([b"x", b"OK", 1], where="r", operation="fire", bound_ms=100) == b"x"
    with pytest.raises(NotReplicatedError, match="r did fire, but no replica had it within 100 ms"):
        replicated([b"x", b"OK", 0], where="r", operation="fire", bound_ms=100)
    with pytest.raises(wire.NoPermissionError):
        answered([b"x", b"OK", wire.NoPermissionError("wait")])


def test_durable_scripts_exist() -> None:
    """A name that is none would never wait."""
    assert set(script_names()) >= DURABLE


def test_a_mistake_of_the_program_is_not_dressed_up() -> None:
    """A TypeError is no outage."""
    with pytest.raises(TypeError):
        translate(TypeError("x"), where="r", operation="turn")


def test_only_the_leading_word_makes_a_fence() -> None:
    """A schedule may be called FENCED; fakeredis and servers word the rest differently."""
    call = Leases(Keys("c")).renew(Term(7, "n", 0), duration_ms=5)
    found = fenced(wire.ResponseError("FENCED 9 script: abc, on @user_script:1."), call)
    assert found is not None
    assert (found.epoch, found.current_epoch, found.operation) == (7, 9, "lease_renew")
    assert fenced(wire.ResponseError("BADARG FENCED 9"), call) is None


def test_a_replaced_master_is_recognised() -> None:
    """The connection to it must be given up: the name may lead elsewhere by now."""
    assert is_stale_master(UNAVAILABLE[5])
    assert is_stale_master(UNAVAILABLE[13])
    assert not is_stale_master(REFUSED[3])


def test_a_connection_never_sends_twice_and_keeps_its_handshake_small() -> None:
    """redis-py's defaults would retry ten times and introduce themselves with four commands."""
    found = options("redis://h:7/2", RedisSettings(), client_name="tenure:x", timeout_s=0.5)
    assert (found["host"], found["port"], found["db"], found["client_name"]) == ("h", 7, 2, "tenure:x")
    assert (found["retry"].get_retries(), found["protocol"], found["driver_info"]) == (0, 2, None)
    assert (found["socket_timeout"], found["socket_connect_timeout"]) == (0.5, 0.5)


def test_settings_override_the_url_and_tls_verifies() -> None:
    """Credentials from a secret file win; a certificate is always checked."""
    settings = RedisSettings(username="u", password="p", tls_ca_file="/ca", tls_cert_file="/c", tls_key_file="/k")
    found = options("rediss://a:b@h/0", settings, client_name="x", timeout_s=1)
    assert found["connection_class"] is SSLConnection
    assert (found["username"], found["password"]) == ("u", "p")
    assert (found["ssl_cert_reqs"], found["ssl_check_hostname"]) == ("required", True)
    assert (found["ssl_ca_certs"], found["ssl_certfile"], found["ssl_keyfile"]) == ("/ca", "/c", "/k")
    local = options("unix:///run/a%20b.sock?db=3", RedisSettings(), client_name="x", timeout_s=1)
    assert (local["connection_class"], local["path"], local["db"]) == (UnixDomainSocketConnection, "/run/a b.sock", 3)


def test_a_silent_peer_is_noticed_by_the_kernel() -> None:
    """Idle: 5 s, then two probes at 2 s; with something unacknowledged: the time-out of the call."""
    found = options("redis://h", RedisSettings(), client_name="x", timeout_s=0.75)
    named = {
        name: found["socket_keepalive_options"][getattr(socket, name)] for name in (*base.KEEPALIVE, "TCP_USER_TIMEOUT")
    }
    assert named == {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 750}
    assert found["socket_keepalive"]
    assert "socket_keepalive" not in options("unix:///s", RedisSettings(), client_name="x", timeout_s=1)


@pytest.mark.parametrize(
    ("url", "kind"),
    [("redis://h", "standalone"), ("unix:///s", "standalone"), ("redis+sentinel://h/m", "sentinel"), ("REDISS+CLUSTER://h", "cluster")],
)  # fmt: skip
def test_the_topology_stands_in_the_scheme(url: str, kind: str) -> None:
    """Nothing has to be asked to know it."""
    assert topology(url).value == kind
    found = options(url, RedisSettings(), client_name="x", timeout_s=1)
    assert (found.get("connection_class") is SSLConnection) == url.startswith("REDISS")


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:s3cret@h",
        "redis+cluster://:s3cret@h/3",
        "http://:s3cret@h/",
        "redis://:s3cret/x@h:1",
        "redis://u:s3cret@h:port/0",
        "s3cret",
        "",
    ],
)
def test_a_url_that_cannot_be_read_is_not_quoted(url: str) -> None:
    """Half of a password often ends up where the port should be."""
    with pytest.raises(StoreRefusedError, match=r"redis\.url cannot be read") as caught:
        options(url, RedisSettings(), client_name="x", timeout_s=1)
    assert "s3cret" not in f"{caught.value}{caught.value.__cause__}"
    assert caught.value.__suppress_context__


def test_clients_show_their_address_and_no_credential() -> None:
    """In logs, tracebacks and debuggers."""
    settings = RedisSettings(username="u", password="s3cret")
    for kind in (Store, AsyncStore):
        store = kind.connect("redis://:s3cret2@h:7/0", settings=settings, name="x")
        assert (repr(store), store.where) == (f"<{kind.__name__} h:7>", "h:7")
    assert address({"path": "/run/r.sock", "password": "p"}) == "/run/r.sock"


def test_stream_entries_are_read_from_either_protocol() -> None:
    """A client that was handed in may speak protocol 3."""
    listed = [[b"1-0", [b"kind", b"released", b"who", b"a"]], [b"2-0", None]]
    expected = [("1-0", {"kind": "released", "who": "a"}), ("2-0", {})]
    assert entries([[b"key", listed]]) == entries({b"key": listed}) == expected
    assert entries(None) == entries([]) == entries({}) == []
