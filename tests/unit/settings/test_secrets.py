"""Secrets: ``${file:…}``, ``${env:…}``, passwords; and that nothing that speaks ever says one."""

from __future__ import annotations

import json
import os
import pickle
import pprint
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from supervisor.core.errors import ConfigError
from supervisor.settings.loader import Loaded
from supervisor.settings.masking import mask_url
from supervisor.settings.render import public_view, sources_text, to_json, to_yaml
from supervisor.settings.sections.models import Settings
from tests.kit.tables import table

SECRET = "hunter2"


def everything_shown(loaded: Loaded) -> str:
    """Return every text that any part of the program makes of settings."""
    settings: Settings = loaded.settings
    return "\n".join(
        [
            repr(settings), str(settings), f"{settings!r:>5}", pprint.pformat(settings), repr(settings.redis), str(settings.redis),
            *(repr(schedule) for schedule in settings.schedules.values()), repr(dict(settings.schedules)),
            to_yaml(settings), to_json(settings), sources_text(loaded), json.dumps(public_view(settings)), repr(loaded),
            settings.model_dump_json(), settings.model_dump_json(by_alias=True), repr(settings.model_dump()),
            repr(settings.model_dump(by_alias=True)), repr(settings.model_copy()), str(dict(loaded.origins)),
        ]
    )  # fmt: skip


def test_a_reference_brings_in_a_file_or_a_variable(desk: Any) -> None:
    """Alone, inside a text, and for settings that are no text; a file loses the newline at its end."""
    desk.write("secrets/pw", "p@ss\n")
    desk.write("secrets/crlf", "x\r\n")
    desk.add(
        "redis: {url: 'redis://h', password: '${file:secrets/pw}', username: 'u-${env:WHO}-${file:secrets/crlf}'}\n"
        "web: {port: '${env:PORT}'}\nsupervision: {grace: '${env:GRACE}'}\nreplica: ${env:WHO}\n"
        "schedules: {s: {job: x, every: 1m, args: {a: ['${env:WHO}'], n: '${env:PORT}', shell: 'echo ${HOME} $WHO $${env:WHO}'}}}\n"
    )
    settings = desk.load({"WHO": "me", "PORT": "81", "GRACE": "5s"}).settings
    assert settings.redis.password is not None
    assert settings.redis.password.get_secret_value() == "p@ss"
    assert settings.redis.username == "u-me-x"
    assert (settings.web.port, settings.supervision.grace_s, settings.replica) == (81, 5.0, "me")
    assert settings.schedules["s"].args == {"a": ["me"], "n": "81", "shell": "echo ${HOME} $WHO ${env:WHO}"}


def test_what_a_reference_brings_in_is_not_expanded_again(desk: Any) -> None:
    """Whoever controls a secret's content must not be able to read other files."""
    desk.add("replica: x\nredis: {url: 'redis://h', username: '${env:A}'}\n")
    assert desk.load({"A": "${env:B}", "B": "no"}).settings.redis.username == "${env:B}"


def test_an_overridden_reference_is_not_resolved(desk: Any) -> None:
    """A base file may name a secret that this machine does not have, if a later layer replaces it."""
    desk.add("redis: {url: 'redis://h', password: '${env:NOWHERE}'}\n")
    assert desk.load({"TENURE_REDIS__PASSWORD": "x"}).settings.redis.password is not None


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("${env:NO}", "the environment variable NO is not set"), ("${env:}", "does not name a variable"),
        ("${env:A:-b}", "does not name a variable"), ("${file:/no/such}", "the file /no/such cannot be read: No such file or directory"),
        ("${file:.}", "cannot be read: no regular file"), ("${file:binary}", "is not UTF-8"), ("${file:large}", "is larger than 64 KiB"),
        ("${file:pipe}", "pipe cannot be read: no regular file"), ("${file:/dev/zero}", "the file /dev/zero cannot be read: no regular file"),
        ("${file:loop}", "cannot be read: Too many levels of symbolic links"), ("${file:}", "cannot be read"), ("x ${file:binary} y", "is not UTF-8"),
    ],
)  # fmt: skip
def test_a_reference_to_nothing_is_a_problem(reference: str, message: str, desk: Any) -> None:
    """It names what is missing, and the line that wants it."""
    (desk.directory / "binary").write_bytes(b"hunter2\xff")
    os.mkfifo(desk.directory / "pipe")
    (desk.directory / "loop").symlink_to("loop")
    desk.write("large", "hunter2" * 10_000)
    desk.add(f"cluster: a\nredis: {{url: 'redis://h', password: '{reference}'}}\n")
    (problem,) = desk.problems({"A": "x"})
    assert (problem.where, problem.path) == ("tenure.yaml:2", "redis.password")
    assert message in problem.message
    assert SECRET not in str(problem)


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "text",
    [
        "redis: {url: 'redis://h', password: hunter2}",
        "redis: {url: 'redis://user:hunter2@h:1/0'}",
        "redis: {url: 'redis://:hunter2@h'}",
        "redis: {url: 'unix://user:hunter2@/run/redis.sock'}",
        "redis: {url: '${env:URL}'}",
        "redis: {url: 'redis://:${env:S}@h'}",
        "redis: {url: 'redis://h', username: '${env:S}', tls_ca_file: null}",
        "redis: {url: 'rediss://h', tls_ca_file: '${env:S}'}",
        "replica: ${env:S}",
        "cluster: a-${env:S}",
        "web: {host: '${env:S}'}",
        "jobs: ['${env:S}']",
        "workers: {w: {kind: sync, queues: ['${env:S}']}}",
        "schedules: {s: {job: '${env:S}', every: 1m, queue: '${env:S}'}}",
        "schedules: {s: {job: x, every: 1m, args: {t: '${env:S}', l: [{k: 'a ${env:S} b'}], u: 'http://u:${env:S}@h'}}}",
        "schedules: {'a.b': {job: x, every: 1m, args: {'odd key': '${file:secret}'}}}",
        "webhooks: {w: {url: 'https://h/services/hunter2'}}",
        "webhooks: {w: {url: 'https://h?key=hunter2'}}",
        "webhooks: {w: {url: '${env:URL_OF_HOOK}', headers: {X-A: hunter2}}}",
        "webhooks: {w: {url: 'https://h', secret: hunter2-hunter2-hunter2}}",
        "events: {webhook_url: 'https://h/hunter2', webhook_token: hunter2, webhook_secret: hunter2-hunter2-hunter2}",
        "plugins: {p: {command: [x], env: {REGION: hunter2, B: '${env:S}'}, secrets: {key: hunter2}}}",
    ],
)
def test_no_text_about_settings_holds_a_secret(text: str, desk: Any) -> None:
    """repr, str, dumps, show, sources: all of them, for every place that a secret can stand in."""
    desk.write("secret", f"{SECRET}\n")
    desk.add(text)
    loaded = desk.load({"S": SECRET, "URL": f"redis://u:{SECRET}@h/0", "URL_OF_HOOK": f"https://h/{SECRET}"})
    assert SECRET in repr(pickle.dumps(loaded.settings))  # it is in there
    assert SECRET not in everything_shown(loaded)


def test_what_describes_a_schedule_takes_no_reference(desk: Any) -> None:
    """Lists, logs, events and Redis show it as it is; arguments of such names, and ``$${``, are other matters."""
    desk.write("secret", f"{SECRET}\n")
    described = (
        "{owner: '${env:S}', description: 'a ${file:secret}', pause_reason: '${env:S}', labels: {team: '${env:S}'}"
    )
    desk.add(f"schedules: {{owner: {described}, job: x, every: 1m, args: {{owner: '${{env:S}}'}}}}}}\n")

    problems = desk.problems({"S": SECRET})

    assert {each.path for each in problems} == {
        "schedules.owner.owner", "schedules.owner.description", "schedules.owner.pause_reason", "schedules.owner.labels.team"
    }  # fmt: skip
    assert all("write the text itself" in each.message and SECRET not in str(each) for each in problems)
    desk.files.clear()
    desk.add("schedules: {labels: {job: x, every: 1m, owner: 'a $${env:S}', args: {labels: '${env:S}'}}}\n")
    assert desk.load({"S": SECRET}).settings.schedules["labels"].owner == "a ${env:S}"


def test_secrets_in_variables_and_flags_stay_secret(desk: Any) -> None:
    """The origin of a value is the variable's name, never its content."""
    loaded = desk.load({"TENURE_REDIS__URL": f"redis://:{SECRET}@h"}, {"redis.password": SECRET})
    assert SECRET not in everything_shown(loaded)


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "text",
    [
        "redis: {url: hunter2}", "redis: {url: 'redis:hunter2@h'}", "redis: {url: ['hunter2']}", "redis: {password: [hunter2]}",
        "redis: {pasword: hunter2}", "redis: {password: {hunter2x: 1}}", "redis: redis://:hunter2@h", "redis: [hunter2]",
        "password: hunter2", "web: {host: [x], port: 'redis://:hunter2@h'}", "web: {port: '${env:S}'}", "cluster: '! ${env:S}'",
        "supervision: {grace: '${env:S}'}", "log: {level: '${env:S}'}", "redis: {fsync: '${env:S}'}", "workers: {w: {kind: '${env:S}'}}",
        "jobs: ['- ${env:S}']", "schedules: {s: {job: x, cron: '${env:S}'}}", "schedules: {s: {job: x, every: '${env:S}'}}",
        "schedules: {s: {job: x, cron: '* * * * *', timezone: '${env:S}'}}", "redis: {allow_eviction: '${env:S}'}",
        "workers: {w: {kind: sync, queues: ['!${env:S}', '!${env:S}']}}", "jobs: ['${env:S}', '${env:S}']", "version: '${env:S}'",
        "redis: {password: hunter2, url: '${env:S}'}", "redis: {url: '${env:BAD}'}", "web: {port: '${env:N}'}", "redis: {password: 12_34}",
        "election: {lease_duration: '${env:D}'}", "redis: {password: !hunter2 x}", "redis: {password: *hunter2}", "redis: {url: 'http://a:hunter2@b'}",
        "webhooks: {w: {url: 'ftp://h/hunter2'}}", "webhooks: {w: {url: 'https://u:hunter2@h'}}", "webhooks: {w: {url: [hunter2]}}",
        "webhooks: {w: {url: 'https://h', secret: hunter2}}", "webhooks: {w: {url: 'https://h', secret: [hunter2]}}",
        "webhooks: {w: {url: 'http://h', headers: {X-Token: hunter2}}}", "events: {webhook_secret: [hunter2]}",
        "plugins: {p: {command: [x], env: {A: [hunter2]}}}", 'plugins: {p: {command: [x], env: {A: "hunter2\\0"}}}',
        "plugins: {p: {env: {A: hunter2}}}", f"webhooks: {{w: {{url: 'https://h/{'hunter2' * 400}'}}}}",
        "commands: {key: 0777123}", "commands: 0777123", "commands: {ke: x, key: 1e99999}", "cloudforet: {config: {DB: {pin: 0777123}}}",
        "plugins: {p: {command: [x], env: {A: 0777123}}}", "plugins: {p: {command: [x], env: 12_34}}",
        "webhooks: {w: {url: 'https://h', headers: {X-A: 0777123}}}", "webhooks: {w: 0777123}",
    ],
)  # fmt: skip
def test_no_problem_holds_a_secret(text: str, desk: Any) -> None:
    """A refused configuration is printed, logged and pasted into tickets; its traceback too."""
    desk.add(f"{text}\n")
    environ = {"S": SECRET, "BAD": f"http://:{SECRET}@h", "N": "99999", "D": "2321ms"}
    with pytest.raises(ConfigError) as caught:
        desk.load(environ)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(caught.value.problems)
    for secret in (SECRET, "99999", "12_34", "2321", "2.321", "0777123"):
        assert secret not in shown.replace(str(desk.directory), "")


@pytest.mark.parametrize("flag", ["redis.pasword", "redis.url", "redis", "password"])
def test_no_problem_about_a_flag_or_variable_holds_a_secret(flag: str, desk: Any) -> None:
    """`--set redis.pasword=…` is a typing error, not a reason to log the password."""
    name = f"TENURE_{flag.replace('.', '__').upper()}"
    for line in desk.lines({}, {flag: SECRET}) + desk.lines({name: SECRET}):
        assert SECRET not in line


@table(
    ("text", "masked"),
    [
        ("redis://user:pw@h/0", "redis://user:**********@h/0"), ("redis://:pw@h", "redis://:**********@h"), ("redis://token@h", "redis://**********@h"),
        ("redis://h:1/0?db=1", "redis://h:1/0?db=1"), ("redis://u:p@w:x@h", "redis://u:**********@h"), ("redis://u:p/w?x@h", "redis://u:**********@h"),
        ("https://h/?token=abc&x=1", "https://h/?token=**********&x=1"),
        ("https://h/?max=1&access_token=abc&X-Amz-Signature=d", "https://h/?max=1&access_token=**********&X-Amz-Signature=**********"),
        ("https://h/?api_key=abc&tokens=3&client_secret=d", "https://h/?api_key=**********&tokens=3&client_secret=**********"), ("redis://u:${env:P}@h", "redis://u:${env:P}@h"), ("plain", "plain"),
        ("redis://${env:U}:${file:/p}@h", "redis://${env:U}:${file:/p}@h"), ("redis://u:x${env:P}@h", "redis://u:**********@h"),
        ("see http://a:b@c now", "see http://a:**********@c now"), ("redis://u:@h", "redis://u:@h"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_its_password(text: str, masked: str) -> None:
    """Who and where are worth seeing; a password may hold any character, an @ included."""
    assert mask_url(text) == masked


def test_settings_with_and_without_references_are_told_apart(
    problems_of: Callable[[str], list[str]], desk: Any
) -> None:
    """Equal values from a reference are not equal settings: they are shown differently."""
    desk.add("replica: ${env:A}\n")
    assert desk.load({"A": "x"}).settings != Settings(replica="x")
    assert desk.load({"A": "x"}).settings == desk.load({"A": "x"}).settings


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis: {url: 'redis://h', password: 'hunter2-${env:PW}'}", "${env:PW}"),
        ("redis: {url: 'redis://h', password: '${env:PW}hunter2${env:PW}'}", "${env:PW}"),
        ("commands: {key: 'hunter2hunter2hunter2hunter2hunter2${env:PW}'}", "${env:PW}"),
        ("events: {webhook_url: 'https://chat.example/hunter2/${env:PW}?key=hunter2'}", "${env:PW}"),
        ("events: {webhook_url: 'https://${env:PW}.example/hunter2'}", "${env:PW}"),
        ("webhooks: {w: {url: 'https://chat.example/hunter2/${env:PW}'}}", "https://chat.example/"),
        ("webhooks: {w: {url: 'https://chat.example', headers: {x: 'hunter2 ${env:PW}'}}}", "${env:PW}"),
        ("plugins: {p: {command: [/bin/true, 'hunter2${env:PW}'], env: {A: 'hunter2${env:PW}'}}}", "${env:PW}"),
    ],
)
def test_what_stands_beside_a_reference_in_a_secret_is_not_shown(text: str, shown: str, desk: Any) -> None:
    """It is a part of the secret, wherever the rest comes from."""
    desk.add(text)

    found = everything_shown(desk.load({"PW": "part"}))

    assert SECRET not in found
    assert shown in found
