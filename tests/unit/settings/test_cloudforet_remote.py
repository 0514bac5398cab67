"""What an import over the network may decide, and what only a local file may."""

from __future__ import annotations

import hashlib

import pytest

from supervisor.importers.cloudforet import fetch
from supervisor.importers.cloudforet.fetch import FetchTarget
from supervisor.settings.document import Node
from tests.kit.tables import table
from tests.unit.settings.cloudforet_desk import QUEUES, CloudforetDesk

URL = "https://config.example/identity.yaml"
REMOTE = (
    "QUEUES: {q: {backend: spaceone.core.queue.redis_queue.RedisQueue, channel: c}}\n"
    "SCHEDULERS: {s: {backend: spaceone.identity.task.S, queue: q, interval: 60}}\n"
)
NO_HOST = REMOTE.partition("SCHEDULERS")[0]
HANDLER = "SCHEDULERS: {s: {handler: spaceone.identity.tool, interval: 60}}\n"
CODE = "came over the network, which may choose no code"
NO_REDIS = "came over the network, which may choose no Redis: what runs is decided there"


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Texts by their address, in place of the network."""
    texts: dict[str, str] = {}

    def read(target: FetchTarget) -> bytes:
        return texts[target.url].encode()

    monkeypatch.setattr(fetch, "_read_url", read)
    return texts


@pytest.mark.parametrize("rest", ["", ", optional: true"])
def test_plain_http_without_a_digest_is_refused(cloudforet: CloudforetDesk, remote: dict[str, str], rest: str) -> None:
    """Whoever stands on the way would decide what runs; it is not even asked for."""
    assert remote == {}
    (found,) = cloudforet.problems(f"GLOBAL: {{}}\nIMPORT: [{{url: 'http://config.example/a.yaml'{rest}}}]\n")

    assert "IMPORT[0]: is plain http: anybody on the way can change it" in found
    assert "use https://, or write {url: …, sha256: …}" in found


def test_https_does_not_lead_to_plain_http() -> None:
    """What is not pinned is fetched by an opener that has no plain HTTP, wherever a redirect points."""
    with pytest.raises(OSError, match="unknown url type: http; plain http needs sha256"):
        fetch.fetch(FetchTarget(Node("", "a:1"), (), "http://127.0.0.1:1/x", None))


@table(
    ("text", "problem"),
    [
        (f"packages: [spaceone.identity]\n{REMOTE}", f"packages: {CODE}"),
        (f"packages: [os]\nGLOBAL: {{TOKEN: abcd}}\n{REMOTE}", f"packages: {CODE}"),
        (HANDLER, f"SCHEDULERS.s.handler: {CODE}"),
        (f"GLOBAL:\n  {HANDLER}", f"GLOBAL.SCHEDULERS.s.handler: {CODE}"),
        (f"application_scheduler:\n  {HANDLER}", f"application_scheduler.SCHEDULERS.s.handler: {CODE}"),
        ("application_scheduler: {packages: [evil]}\n", f"application_scheduler.packages: {CODE}"),
        ("application_worker: {packages: [evil]}\n", f"application_worker.packages: {CODE}"),
        ("application_worker: {GLOBAL: {packages: [evil]}}\n", f"application_worker.GLOBAL.packages: {CODE}"),
        ("application_worker: {}\napplication: {packages: [evil]}\n", f"application.packages: {CODE}"),
        ("application_worker: {}\ndatabase: {packages: [evil]}\n", f"database.packages: {CODE}"),
        ("application_worker: {}\nglobal: {shared: {packages: [evil]}}\n", f"global.shared.packages: {CODE}"),
        ("IMPORT: [/etc/tenure/other.yaml]\n", "IMPORT[0]: came over the network, and may import no file"),
        (REMOTE, "'spaceone.identity.task.S' came over the network and lies in no package that a local file names"),
    ],
)
def test_what_comes_over_the_network_chooses_no_code(
    cloudforet: CloudforetDesk, remote: dict[str, str], text: str, problem: str
) -> None:
    """Its server may be anybody's; each refusal names the place in that document."""
    remote[URL] = text

    found = cloudforet.problems(f"GLOBAL: {{}}\nIMPORT: ['{URL}']\n")

    assert any(problem in each for each in found), found


def test_schedules_from_the_network_run_what_a_local_file_allows(
    cloudforet: CloudforetDesk, remote: dict[str, str]
) -> None:
    """The package is named here, its schedules there."""
    remote[URL] = REMOTE

    loaded = cloudforet.loads(f"packages: [spaceone.identity]\nIMPORT: ['{URL}']\n")

    assert list(loaded.settings.schedules) == ["s"]
    assert loaded.settings.cloudforet.packages == ("spaceone.identity",)


@pytest.mark.parametrize(
    "key", ["host: evil", "port: 1", "db: 1", "ssl: false", "password: p", "ssl_keyfile: /etc/key"]
)
def test_what_comes_over_the_network_chooses_no_redis(
    cloudforet: CloudforetDesk, remote: dict[str, str], key: str
) -> None:
    """Its server would be sent the password of a local file, and decide what runs. Where Redis is set, it is not used."""
    (cloudforet.directory / "password").write_text("hunter2")
    queues = QUEUES.replace("channel: c", "password: '${file:password}'")
    local = f"GLOBAL:\n  {queues}  {HANDLER}IMPORT: ['{URL}']\n"
    remote[URL] = f"QUEUES: {{q: {{{key}}}}}\n"

    (found,) = cloudforet.problems(local)
    assert found.startswith(f"{URL}:1: QUEUES.q.{key.partition(':')[0]}: {NO_REDIS}")
    assert "write it into a local file, set redis.url, or pin the import with sha256" in found

    loaded = cloudforet.loads(local, environ={"TENURE_REDIS__URL": "redis://redis/0"})
    assert loaded.settings.redis.url.get_secret_value() == "redis://redis/0"
    assert loaded.settings.redis.password is None


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["QUEUES: {q: {host: null, port: null}}\n"], f"QUEUES.q.host: {NO_REDIS}"),
        (["QUEUES: {q: null}\n", NO_HOST], f"QUEUES.q: {NO_REDIS}"),
        (["QUEUES: null\n", NO_HOST], f"QUEUES: {NO_REDIS}"),
        (["application_worker: {QUEUES: null}\n", NO_HOST], f"QUEUES: {NO_REDIS}"),
    ],
)
def test_what_comes_over_the_network_takes_no_redis_away(
    cloudforet: CloudforetDesk, remote: dict[str, str], texts: list[str], problem: str
) -> None:
    """Without the place of a local file each replica would use a server of its own, and all run every schedule."""
    remote |= {f"{URL}{number}": text for number, text in enumerate(texts)}
    local = f"GLOBAL:\n  {QUEUES}  {HANDLER}packages: [spaceone.identity]\nIMPORT: {list(remote)}\n"

    assert any(problem in each for each in cloudforet.problems(local))
    loaded = cloudforet.loads(local, environ={"TENURE_REDIS__URL": "redis://redis/0"})
    assert loaded.settings.redis.url.get_secret_value() == "redis://redis/0"


def test_a_text_whose_digest_is_in_a_file_counts_as_that_file(
    cloudforet: CloudforetDesk, remote: dict[str, str]
) -> None:
    """Even over plain http, and with handlers: nobody on the way can change it. What it imports is not pinned by that."""
    digest = hashlib.sha256(HANDLER.encode()).hexdigest()
    pinned = f"{{url: 'http://config.example/a.yaml', sha256: {digest}}}"
    remote["http://config.example/a.yaml"] = HANDLER
    remote[URL] = f"GLOBAL: {{}}\nIMPORT: [{pinned}]\n"

    loaded = cloudforet.loads(f"{QUEUES}IMPORT: [{pinned}]\n")
    assert loaded.settings.cloudforet.packages == ("spaceone.identity",)
    assert any(CODE in each for each in cloudforet.problems(f"{QUEUES}IMPORT: ['{URL}']\n"))


@pytest.mark.parametrize(
    "text",
    [
        f"packages: [os.path]\n{REMOTE}",
        f"packages: [a, pip]\n{REMOTE}",
        f"packages: [supervisor.plugins]\n{REMOTE}",
        "SCHEDULERS: {s: {handler: subprocess.Popen, interval: 1}}\n",
    ],
)
def test_a_package_that_is_no_services_is_refused(cloudforet: CloudforetDesk, text: str) -> None:
    """Given by hand, or taken from the handler: what Python brought along is not there to be called."""
    (found,) = cloudforet.problems(text)

    assert "is no package of a service, and a run may call what lies in these packages" in found
