"""Files over files: imports, contradictions between them, native files beside them, variables and flags over all."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.settings.cloudforet_desk import DATA, QUEUES, CloudforetDesk, native, notices

SCHEDULER = "SCHEDULERS: {s: {backend: a.B, queue: q, interval: 60}}\n"


def test_x12_flags_and_variables_win_over_files(cloudforet: CloudforetDesk) -> None:
    """The original laid its files over the command line."""
    loaded = cloudforet.loads(
        f"{QUEUES}{SCHEDULER}LOG: {{loggers: {{spaceone: {{level: DEBUG}}}}}}\n",
        environ={"TENURE_REDIS__URL": "redis://elsewhere:6379/4", "SPACEONE_PORT": "9001", "SPACEONE_HOST": "0.0.0.0"},
        flags={"log.level": "warning"},
    )
    assert loaded.settings.redis.url.get_secret_value() == "redis://elsewhere:6379/4"
    assert loaded.settings.log.level == "warning"
    assert (loaded.settings.web.host, loaded.settings.web.port) == ("0.0.0.0", 9001)
    environ = {"SPACEONE_PORT": "9001", "TENURE_WEB__PORT": "9002", "SPACEONE_WORKER": "100"}
    over = cloudforet.loads(f"{QUEUES}{SCHEDULER}", environ=environ)
    assert "SPACEONE_WORKER: counted threads of the gRPC server, and is not used" in notices(over)
    assert over.settings.web.port == 9002


def test_a_mapping_with_nothing_in_it_says_nothing(cloudforet: CloudforetDesk) -> None:
    """In a later file of the service, in one that it imports, and in a native one beside it."""
    cloudforet.write("imported.yaml", "QUEUES:\n  q:\nSCHEDULERS:\n")
    first = f"{QUEUES}IMPORT: [imported.yaml]\nSCHEDULERS: {{s: {{backend: pkg.mod.S, queue: q, interval: 60}}}}\n"
    files = [
        cloudforet.write("application.yaml", first),
        cloudforet.write("later.yaml", "QUEUES:\nSCHEDULERS:\n  s:\n"),
        cloudforet.write("native.yaml", "redis:\n  # url: x\nschedules:\n  s:\n"),
    ]
    alone, settings = cloudforet.loads(first.replace("IMPORT", "x-i")).settings, cloudforet.load(*files).settings

    assert set(settings.schedules) == set(alone.schedules) == {"s"}
    assert settings.redis == alone.redis


def test_x12_unknown_keys_are_kept_and_listed_once(cloudforet: CloudforetDesk) -> None:
    """The original dropped what it did not know, in silence; the service's code may want it."""
    loaded = cloudforet.loads(f"{QUEUES}{SCHEDULER}CONNECTORS: {{A: {{}}}}\nDATABASES: {{}}\nODD: 1\n")
    said = [notice for notice in notices(loaded) if "CONNECTORS" in notice]
    assert said == ["not used by the supervisor, kept for jobs under cloudforet.config: CONNECTORS, DATABASES, ODD"]
    assert loaded.settings.cloudforet.config == {"CONNECTORS": {"A": {}}, "DATABASES": {}, "ODD": 1}


def test_a_service_link_of_kubernetes_is_no_port(cloudforet: CloudforetDesk) -> None:
    """A Service called spaceone sets SPACEONE_PORT to a URL in every pod."""
    loaded = cloudforet.loads(f"{QUEUES}{SCHEDULER}", environ={"SPACEONE_PORT": "tcp://10.0.0.1:50051"})
    assert loaded.settings.web.port == 8080


def test_a_file_can_say_itself_that_it_is_cloudforets(cloudforet: CloudforetDesk) -> None:
    """`compat: cloudforet` at the top of the file serves every command that reads it."""
    loaded = cloudforet.loads(f"compat: cloudforet\n{QUEUES}{SCHEDULER}", compat=None)
    assert list(native(loaded, "schedules")) == ["s"]
    assert "compat" not in loaded.settings.cloudforet.config
    (problem, *_) = cloudforet.problems(f"compat: cloudforest\n{QUEUES}{SCHEDULER}", compat=None)
    assert problem == (
        "application.yaml:1: compat: is not a known format, got 'cloudforest'; write cloudforet, or remove it"
    )


def test_native_files_beside_it_lie_over_it(cloudforet: CloudforetDesk) -> None:
    """A drop-in with native settings says where Redis is, adds a pool and jobs, and edits a schedule."""
    cloudforet.write(
        "conf.d/50-local.yaml",
        "redis: {url: 'redis://other:6379/2'}\njobs: [jobs.shell]\nworkers: {io: {kind: async}}\n"
        "schedules: {s: {paused: true}}\n",
    )
    loaded = cloudforet.loads(f"{QUEUES}{SCHEDULER}")
    assert loaded.settings.redis.url.get_secret_value() == "redis://other:6379/2"
    assert loaded.settings.jobs == ("supervisor.compat.cloudforet.jobs", "jobs.shell")
    assert set(loaded.settings.workers) == {"planners", "io"}
    assert loaded.settings.schedules["s"].paused
    assert any("redis.url is set, so the host" in notice for notice in notices(loaded))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("IMPORT: [nowhere.yaml]\n", "application.yaml:1: IMPORT[0]: nowhere.yaml: there is no such file; correct it, or write {url: …, optional: true}"),
        ("IMPORT: [application.yaml]\n", "application.yaml:1: IMPORT[0]: imports application.yaml, which imports this file; break the circle"),
        ("IMPORT: [a.yaml]\n", "a.yaml:1: IMPORT[0]: imports application.yaml, which imports this file; break the circle"),
        ("IMPORT: ['consul://consul:8500/config']\n", "application.yaml:1: IMPORT[0]: consul is not read; write the value into a file"),
        ("IMPORT: ['s3://bucket/key']\n", "application.yaml:1: IMPORT[0]: cannot be read over s3://; use file://, a path, http:// or https://"),
        ("IMPORT: [{path: x}]\n", "application.yaml:1: IMPORT[0].path: is not known here; known: url, optional, sha256, timeout"),
        ("IMPORT: [{url: b.yaml, sha256: abc}]\n", "application.yaml:1: IMPORT[0].sha256: must be 64 hexadecimal digits; take them from sha256sum FILE"),
        ("IMPORT: [5]\n", "application.yaml:1: IMPORT[0]: must be a path or URL, got 5"),
        ("GLOBAL: [1]\n", "application.yaml:1: GLOBAL: must be a mapping, got a list"),
        ("GLOBAL: {A: 1}\nQUEUES: {}\n", "application.yaml:2: QUEUES: stands beside GLOBAL, where python-core reads nothing; move it under GLOBAL"),
        ("GLOBAL: {DB: {host: a}}\nIMPORT: [c.yaml]\n", "c.yaml:1: DB: is a mapping at application.yaml:1, and 'text' here; make both the same type"),
        ("SCHEDULERS: [a]\n", "application.yaml:1: SCHEDULERS: must be a mapping from names to settings, got a list"),
        ("SCHEDULERS: {s: 5}\n", "application.yaml:1: SCHEDULERS.s: must be a mapping, got 5"),
        ("application_scheduler: {}\nSCHEDULERS: {}\n", "application.yaml:2: SCHEDULERS: stands beside application_scheduler/_worker"),
    ],
)  # fmt: skip
def test_what_cannot_be_laid_over_one_another_is_a_problem(cloudforet: CloudforetDesk, text: str, problem: str) -> None:
    """Missing files, circles, other schemes, changed types: each with its place and remedy."""
    cloudforet.write("a.yaml", "IMPORT: [application.yaml]\n")
    cloudforet.write("b.yaml", "A: 1\n")
    cloudforet.write("c.yaml", "DB: text\n")
    assert any(found.startswith(problem) for found in cloudforet.problems(text))


def test_a_checksum_admits_the_very_text_only(cloudforet: CloudforetDesk) -> None:
    """`sha256` beside an import: another text is refused."""
    text = f"{QUEUES}{SCHEDULER}"
    cloudforet.write("shared.yaml", text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    loaded = cloudforet.loads(f"IMPORT: [{{url: shared.yaml, sha256: {digest}}}]\n")
    assert list(native(loaded, "schedules")) == ["s"]
    cloudforet.write("shared.yaml", text + "A: 1\n")
    (problem, *_) = cloudforet.problems(f"IMPORT: [{{url: shared.yaml, sha256: {digest}}}]\n")
    assert f"shared.yaml: has another sha256 than the {digest[:12]}… that is demanded" in problem


def test_more_imports_than_allowed_are_one_problem(cloudforet: CloudforetDesk) -> None:
    """101 entries end the reading, once."""
    cloudforet.write("b.yaml", "A: 1\n")
    found = cloudforet.problems(f"IMPORT: [{', '.join(['b.yaml'] * 150)}]\n")
    assert [problem for problem in found if "more than 100 imports" in problem] == [
        "application.yaml:1: IMPORT[100]: is one of more than 100 imports; merge some files"
    ]


def test_queues_in_two_redises_are_a_problem_unless_redis_is_said(cloudforet: CloudforetDesk) -> None:
    """One tree has one Redis; a password that differs is named and not shown."""
    text = (
        "QUEUES:\n"
        "  a: {backend: x.RedisQueue, host: redis, db: 1, password: hunter2}\n"
        "  b: {backend: x.RedisQueue, host: redis-2, db: 1, password: hunter3}\n"
        "SCHEDULERS: {s: {backend: a.B, queue: a, interval: 60}}\n"
    )
    found = cloudforet.problems(text)
    remedy = "one tree has one Redis: make them equal, run two trees, or say which with TENURE_REDIS__URL"
    assert found == [
        "application.yaml:3: QUEUES.b.host: differs from QUEUES.a.host, at application.yaml:2 ('redis-2', not 'redis'); "
        + remedy,
        "application.yaml:3: QUEUES.b.password: differs from QUEUES.a.password, at application.yaml:2; " + remedy,
    ]
    loaded = cloudforet.loads(text, environ={"TENURE_REDIS__URL": "redis://one:6379/0"})
    assert loaded.settings.redis.password is None


def test_a_queue_may_take_its_place_from_variables(cloudforet: CloudforetDesk) -> None:
    """`${env:…}` and `${file:…}` work in these files as in ours."""
    text = "QUEUES: {q: {backend: x.RedisQueue, host: '${env:REDIS}', port: '${env:PORT}', password: '${env:PW}'}}\n"
    environ = {"REDIS": "redis-7", "PORT": "6390", "PW": "p@ss"}
    redis = cloudforet.loads(f"{text}{SCHEDULER}", environ=environ).settings.redis
    assert redis.url.get_secret_value() == "redis://redis-7:6390/0"
    assert redis.password is not None
    assert redis.password.get_secret_value() == "p@ss"


def test_two_services_may_share_a_tree(cloudforet: CloudforetDesk) -> None:
    """The published files of identity and inventory together: all schedules, both queues, one Redis."""
    loaded = cloudforet.load(DATA / "identity-values.yaml", DATA / "inventory-values.yaml")
    assert len(loaded.settings.schedules) == 7
    assert set(loaded.settings.workers) == {"identity_worker", "collector_worker", "planners"}
    assert loaded.settings.cloudforet.packages == ("spaceone.identity", "spaceone.inventory")


def test_ambiguous_scalars_elsewhere_mean_what_they_meant_to_the_original(cloudforet: CloudforetDesk) -> None:
    """`on`, `0644` and `12:30` in keys that nothing here depends on do not keep a file from loading."""
    loaded = cloudforet.loads(f"{QUEUES}{SCHEDULER}X: {{a: on, b: 0644, c: 12:30, d: 2020-01-01}}\n")
    assert loaded.settings.cloudforet.config["X"] == {"a": True, "b": 420, "c": 750, "d": "2020-01-01"}
    (problem,) = cloudforet.problems(f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 060}}}}\n")
    assert "is octal to some YAML parsers" in problem


def test_problems_without_end_are_not_looked_for(cloudforet: CloudforetDesk) -> None:
    """Of a document of the network: each was compared with all before it, for minutes."""
    entries = "".join(f"  s{number}: {{backend: a.B, queue: q, interval: 60, wrong: 1}}\n" for number in range(1500))

    assert len(cloudforet.problems(f"{QUEUES}SCHEDULERS:\n{entries}")) == 1000


@pytest.mark.parametrize("text", ["0b_", "0x_", "9" * 5000, "1" + ":59" * 20_000, "0b" + "1" * 201])
def test_what_is_no_number_in_any_version_of_yaml_is_text(cloudforet: CloudforetDesk, text: str) -> None:
    """A document of the network ended the reader with an error of Python, or kept it busy for hours."""
    loaded = cloudforet.loads(f"ODD: {text}\nGROUPED: 1_000\n{QUEUES}{SCHEDULER}")

    assert loaded.settings.cloudforet.config == {"ODD": text, "GROUPED": 1000}


def test_x13_an_empty_token_suspends_the_schedules_that_need_one(cloudforet: CloudforetDesk) -> None:
    """Five pods crash-looped until a token was copied in by hand; here the tree runs and says why one waits."""
    both = (
        f"{QUEUES}SCHEDULERS:\n  s: {{backend: a.B, queue: q, interval: 60}}\n  own: {{handler: a.c, interval: 60}}\n"
    )
    empty = native(cloudforet.loads(f"{both}TOKEN: ''\n"), "schedules")
    assert empty["s"]["paused"] is True
    assert empty["s"]["pause_reason"].startswith("TOKEN is empty; set TOKEN: ")
    assert "paused" not in empty["own"]
    missing = cloudforet.loads(f"{both}TOKEN: ${{file:/nowhere/token}}\n")
    assert "the file /nowhere/token cannot be read" in native(missing, "schedules")["s"]["pause_reason"]
    assert missing.settings.cloudforet.token is None
    cloudforet.write("token", "t0ken\n")
    there = cloudforet.loads(f"{both}TOKEN: ${{file:token}}\nTOKEN_INFO: {{protocol: consul}}\n")
    assert "paused" not in native(there, "schedules")["s"]
    assert there.settings.cloudforet.token is not None
    assert there.settings.cloudforet.token.get_secret_value() == "t0ken"
    assert "paused" not in native(cloudforet.loads(both), "schedules")["s"]  # never mentioned, never needed


@pytest.mark.parametrize("written", ["TOKEN: ''", "TOKEN: ${file:/nowhere/token}", "TOKEN_INFO: {protocol: consul}"])
@pytest.mark.parametrize("by", ["variable", "flag", "native file"])
def test_a_token_that_is_given_over_the_file_suspends_nothing(
    cloudforet: CloudforetDesk, written: str, by: str
) -> None:
    """Variables, flags and native files win over all of it, as an operator who sets one there expects."""
    file = cloudforet.write("app.yaml", f"{QUEUES}{SCHEDULER}{written}\n")
    over = cloudforet.write("native.yaml", "cloudforet: {token: t0ken}\n")
    loaded = cloudforet.load(
        file,
        *([over] if by == "native file" else []),
        environ={"TENURE_CLOUDFORET__TOKEN": "t0ken"} if by == "variable" else {},
        flags={"cloudforet.token": "t0ken"} if by == "flag" else {},
    )

    assert "paused" not in native(loaded, "schedules")["s"]
    assert loaded.settings.cloudforet.token.get_secret_value() == "t0ken"
    assert loaded.conversion is not None
    assert not [notice for notice in loaded.conversion.notices if "suspended" in notice]


def test_all_problems_are_told_at_once_in_reading_order(cloudforet: CloudforetDesk) -> None:
    """Schedulers, queues, workers and native rules in one list."""
    found = cloudforet.problems(
        "QUEUES:\n"
        "  q: {backend: x.RedisQueue, host: redis, port: 99999}\n"
        "SCHEDULERS:\n"
        "  a: {backend: a.B, queue: q, interval: 0}\n"
        "  b: {backend: a.B, queue: q, rule: '61 * * * *'}\n"
        "WORKERS:\n"
        "  w: {queue: q, pool: 0}\n"
    )
    assert [problem.partition(": ")[0] for problem in found] == [f"application.yaml:{line}" for line in (2, 4, 5, 7, 7)]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SCHEDULRES: {s: {handler: a.b, interval: 1}}\nWORKERS: {w: {queue: q, pool: 1}}\n", "SCHEDULERS"),
        ("schedulers: {s: {handler: a.b, interval: 1}}\nWORKERS: {w: {queue: q, pool: 1}}\n", "SCHEDULERS"),
        ("GLOBAL: {WORKER: {w: {queue: q}}, SCHEDULERS: {s: {handler: a.b, interval: 1}}}\n", "WORKERS"),
        ("GLOBLA: {SCHEDULERS: {s: {handler: a.b, interval: 1}}}\n", "GLOBAL"),
        ("GLOBAL: {SCHEDULERS: {s: {handler: a.b, interval: 1}}}\nIMPROT: [shared.yaml]\n", "IMPORT"),
        ("REMOTE_URLS: [shared.yaml]\nSCHEDULERS: {s: {handler: a.b, interval: 1}}\n", "REMOTE_URL"),
    ],
)
def test_a_section_that_is_nearly_called_as_one_that_is_absent_is_a_problem(
    cloudforet: CloudforetDesk, text: str, meant: str
) -> None:
    """Nothing of it would run, and the original told nobody."""
    found = cloudforet.problems(f"{QUEUES}{text}" if not text.startswith("GLOBAL") else text)

    assert any(f"is not a section that is read; did you mean {meant}? else rename it" in each for each in found), found


def test_a_key_of_the_service_may_be_near_to_a_section_that_is_there(cloudforet: CloudforetDesk) -> None:
    """Then it is meant."""
    loaded = cloudforet.loads(
        f"{QUEUES}QUEUE: {{a: 1}}\nWORKER: small\nREPORTS: [a]\nSCHEDULERS: {{s: {{handler: a.b, interval: 1}}}}\n"
    )

    assert {"QUEUE", "WORKER", "REPORTS"} <= set(loaded.settings.cloudforet.config)


def test_a_service_that_names_no_cluster_is_told_that_others_on_its_redis_are_of_the_same(
    cloudforet: CloudforetDesk,
) -> None:
    """Files of two services say nothing of it, and the schedules of one would replace those of the other."""

    def is_told(*files: Path, **options: Any) -> bool:
        return any("no cluster is named" in each for each in notices(cloudforet.load(*files, **options)))

    theirs = cloudforet.write("application.yaml", f"{QUEUES}{SCHEDULER}")
    named = cloudforet.write("native.yaml", "cluster: identity\n")

    assert is_told(theirs)
    assert not is_told(theirs, named)
    assert not is_told(theirs, environ={"TENURE_CLUSTER": "identity"})
    assert not is_told(theirs, flags={"cluster": "identity"})
