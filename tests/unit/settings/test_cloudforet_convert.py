"""`tenure config convert`: native YAML that means the same, without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from supervisor.app.configuration import load
from supervisor.cli.config.commands import config_group
from supervisor.core.errors import CannotCreateError
from supervisor.settings.loader import Loaded
from tests.kit.canary import CANARY
from tests.unit.settings.cloudforet_desk import DATA, QUEUES, CloudforetDesk, completed

FIXTURES = [
    ("identity-values.yaml",),
    ("inventory-values.yaml",),
    ("s00/scheduler.py",),
    ("s01/application.yaml",),
    ("s02/application.yaml",),
    ("s03/config.yaml", "s03/application.yaml"),
    ("s08/supervisor.yaml",),
    ("s10/config.yaml",),
    ("s11/conf/global_conf.py",),
    ("s12/application.yaml",),
]


def converted(*files: Path | str) -> str:
    result = CliRunner().invoke(config_group, ["convert", *map(str, files)])
    assert result.exit_code == 0, result.output
    return result.stdout


def facts(loaded: Loaded) -> tuple[object, ...]:
    settings = loaded.settings
    return completed(loaded), settings.workers, settings.redis, settings.cloudforet, settings.replica, settings.log


@pytest.mark.parametrize("names", FIXTURES, ids=lambda names: names[-1])
def test_what_is_written_loads_natively_and_means_the_same(cloudforet: CloudforetDesk, names: tuple[str, ...]) -> None:
    """Definitions, pools, Redis, packages and queues are equal; only secrets have to be given."""
    for directory in {name.partition("/")[0] for name in names if "/" in name}:
        cloudforet.copy(directory)
    files = [cloudforet.directory / name if "/" in name else DATA / name for name in names]
    native_file = cloudforet.write("tenure.yaml", converted(*files))
    native = load(files=[native_file], environ={"REDIS_PASSWORD": "s3cret-of-redis"}, flags={})
    for ours, theirs in zip(facts(native), facts(cloudforet.load(*files)), strict=True):
        assert ours == theirs
    assert native.conversion is None


def test_no_secret_is_written(cloudforet: CloudforetDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords and tokens become variables that the head of the file lists; references stay what they are."""
    cloudforet.write("secrets/token", "t0ken-in-a-file")
    cloudforet.write(
        "etc/application.yaml",
        f"{QUEUES.replace('channel: c', f'channel: c, password: {CANARY}-2')}"
        "TOKEN: ${file:../secrets/token}\n"
        f"KEYS: {{private_key: {CANARY}-6, ENCRYPTION_KEY_HEX: {CANARY}-7, x: '-----BEGIN RSA PRIVATE KEY-----{CANARY}-8'}}\n"
        f"INSIDE: {{private_key: [{CANARY}-l, {{pem: {CANARY}-m}}], password: '${{env:HOST}} {CANARY}-n'}}\n"
        f"AROUND: {{private_key: ['${{env:HOST}} {CANARY}-o', {{pem: '${{env:HOST}}{CANARY}-p'}}], dbpass: '${{env:HOST}}{CANARY}-q'}}\n"
        f"WITHIN: {{passwords: {{a: '${{env:HOST}} {CANARY}-r'}}, credentials: ['${{env:HOST}}{CANARY}-s'], hosts: ['${{env:HOST}}:80']}}\n"
        "PARTS: {password: '${env:HOST}${env:PW}', token: 'https://${env:HOST}/'}\n"
        "OTHER: {password: 71829304, password_length_min: 12, pin: 71829304, key: name}\n"
        "NUMBERS: {api_key: 71829304, tokens: {encryption_key: [71829304]}, max_tokens: 13}\n"
        f"ALIKE: {{a-b: {{password: {CANARY}-a}}, a_b: {{password: {CANARY}-b}}, empty: {{password: ''}}}}\n"
        f"BESIDE: {{uri: 'mongodb://me:{CANARY}-9@${{env:HOST}}/db', hook: 'https://${{env:HOST}}/?token={CANARY}-0'}}\n"
        f"QUERIES: {{a: 'https://h/?access_token={CANARY}-t', b: 'https://h/?x=1&api_key={CANARY}-u&sig={CANARY}-v'}}\n"
        "REFERENCES: {uri: 'mongodb://me:${env:PW}@mongo/db', hook: 'https://h/?token=${env:PW}', who: 'https://${env:PW}@h'}\n"
        f"DATABASES: {{default: {{host: mongo, password: {CANARY}-3, uri: 'mongodb://me:{CANARY}-4@mongo/db'}}}}\n"
        f"SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 60, options: {{api_key: {CANARY}-5}}}}}}\n",
    )
    monkeypatch.setenv("HOST", "mongo")
    monkeypatch.setenv("PW", "s3cret-of-a-variable")
    text = converted("etc/application.yaml")
    assert CANARY not in text
    assert "71829304" not in text
    assert "password_length_min: 12" in text
    assert "key: name" in text
    assert "max_tokens: 13" in text
    assert "set the variable CLOUDFORET_CONFIG_ALIKE_A_B_PASSWORD: cloudforet.config.ALIKE.a-b.password" in text
    assert "set the variable CLOUDFORET_CONFIG_ALIKE_A_B_PASSWORD_2: cloudforet.config.ALIKE.a_b.password" in text
    assert "password: ''" in text
    assert "password: ${env:HOST}${env:PW}" in text
    assert "token: https://${env:HOST}/" in text
    assert "- ${env:HOST}:80" in text
    assert "uri: mongodb://me:${env:PW}@mongo/db" in text
    assert "hook: https://h/?token=${env:PW}" in text
    assert "who: https://${env:PW}@h" in text
    assert "t0ken" not in text
    assert "password: ${env:REDIS_PASSWORD}" in text
    assert "SCHEDULERS.s.api_key: lies in Redis with every run" in text
    assert "# set the variable REDIS_PASSWORD: redis.password was a secret in the original" in text
    assert f"token: ${{file:{(cloudforet.directory / 'secrets/token').resolve()}}}" in text.replace("etc/../", "")


@pytest.mark.parametrize("token", ["${file:/run/secrets/nowhere/token}", "${env:TOKEN_OF_THE_SERVICE}"])
def test_a_token_that_cannot_be_read_here_is_written_as_the_reference_to_it(
    cloudforet: CloudforetDesk, token: str
) -> None:
    """Nor are schedules paused: whoever converts a file need not have the secrets of the service."""
    entries = "s: {backend: a.B, queue: q, interval: 60}, off: {handler: a.c, interval: 60, enabled: false}"
    cloudforet.write("application.yaml", f"{QUEUES}TOKEN: {token}\nSCHEDULERS: {{{entries}}}\n")
    text = converted("application.yaml")
    found = yaml.safe_load(text)
    assert found["cloudforet"]["token"] == token
    assert found["schedules"]["s"].keys() & {"paused", "pause_reason"} == set()
    assert found["schedules"]["off"]["paused"] is True
    assert "suspended" not in text


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028"])
def test_no_name_of_a_document_ends_a_comment(cloudforet: CloudforetDesk, end: str) -> None:
    """Documents come over the network, and may choose no code: a line of theirs would be a setting, such as a plugin."""
    name = f"x{end}plugins: {{evil: {{command: [id]}}}}{end}# \x1b password"
    cloudforet.write("far.yaml", json.dumps({"GLOBAL": {name: "s3cret", name + " length": 1}}))
    schedulers = "  SCHEDULERS: {s: {backend: a.B, queue: q, interval: 60}}\n"
    cloudforet.write("application.yaml", f"IMPORT: [far.yaml]\nGLOBAL:\n  {QUEUES}{schedulers}")
    text = converted("application.yaml")
    assert set(yaml.safe_load(text)) == {"version", "jobs", "workers", "schedules", "redis", "cloudforet"}
    assert "s3cret" not in text
    assert "\x1b" not in text


def test_a_problem_quotes_no_value_under_the_name_of_a_secret(cloudforet: CloudforetDesk) -> None:
    """What is told of a file that cannot be used is put into tickets; the name of a schedule around it hides nothing."""
    for name in ("password", "private_key"):
        (found,) = cloudforet.problems(f"{QUEUES.replace('{q:', f'{{{name}: {CANARY}, q:')}")
        assert f"QUEUES.{name}: must be a mapping, got a value that is not shown" in found
    entry = "{backend: a.B, queue: q, interval: 60, options: 3}"
    (found,) = cloudforet.problems(f"{QUEUES}SCHEDULERS: {{token-cleanup: {entry}}}\n")
    assert "SCHEDULERS.token-cleanup.options: must be a mapping, got 3" in found


def test_a_file_with_problems_writes_nothing_and_ends_with_78(cloudforet: CloudforetDesk) -> None:
    """Every problem on standard error."""
    cloudforet.write("application.yaml", f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 0}}}}\n")
    result = CliRunner().invoke(config_group, ["convert", "application.yaml", "-o", "tenure.yaml"])
    assert result.exit_code == 78
    assert "application.yaml:2: SCHEDULERS.s.interval: must be above 0" in result.output
    assert not Path("tenure.yaml").exists()


def test_a_file_that_is_there_is_replaced_only_when_asked_to_and_a_source_never(cloudforet: CloudforetDesk) -> None:
    """Secrets are not written, so in place, and through a link, the only file that had them would be lost."""
    text = f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 60}}}}\n"
    cloudforet.write("application.yaml", text)
    Path("tenure.yaml").write_text("mine")
    Path("link.yaml").symlink_to("application.yaml")

    def convert(*words: str) -> Result:
        return CliRunner().invoke(config_group, ["convert", "application.yaml", *words])

    for output in ("application.yaml", "link.yaml"):
        refused = convert("-o", output, "--force").exception
        assert isinstance(refused, CannotCreateError)
        assert f"{output} is one of the files that are read" in str(refused)
    assert Path("application.yaml").read_text() == text

    there = convert("-o", "tenure.yaml").exception
    assert isinstance(there, CannotCreateError)
    assert str(there) == "tenure.yaml exists; choose another name, or replace it with --force"
    assert Path("tenure.yaml").read_text() == "mine"
    assert convert("-o", "tenure.yaml", "--force").exit_code == 0
    assert "schedules:" in Path("tenure.yaml").read_text()


def test_a_variable_of_the_shell_does_not_end_up_in_the_file(
    cloudforet: CloudforetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TENURE_REDIS__URL decides for a run, not for what the files say."""
    monkeypatch.setenv("TENURE_REDIS__URL", "embedded")
    cloudforet.write("application.yaml", f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 60}}}}\n")
    assert "url: redis://redis:6379/0" in converted("application.yaml")


def test_every_command_that_reads_the_configuration_takes_the_format(
    cloudforet: CloudforetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By option, by variable, and by the variable with which the original was told its file."""
    cloudforet.write(
        "application.yaml", f"{QUEUES}SCHEDULERS: {{s: {{backend: a.B, queue: q, interval: 60}}}}\nODD: 1\n"
    )
    option = ["--compat", "cloudforet", "-c", "application.yaml"]
    validated = CliRunner().invoke(config_group, ["validate", "--no-jobs", *option])
    assert "ok: application.yaml (1 schedules, 1 pools)" in validated.output
    assert "note: not used by the supervisor, kept for jobs under cloudforet.config: ODD" in validated.output
    shown = CliRunner().invoke(config_group, ["show", "--sources", *option])
    assert "schedules.s.every: 1m" in shown.output
    assert "# application.yaml:2" in shown.output
    for name, value in (("TENURE_COMPAT", "cloudforet"), ("SPACEONE_CONFIG_FILE", "application.yaml")):
        monkeypatch.setenv(name, value)
    assert CliRunner().invoke(config_group, ["show", "--sources"]).output == shown.output
    assert CliRunner().invoke(config_group, ["validate", "--compat", "cronicle"]).exit_code == 2
