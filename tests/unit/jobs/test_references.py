"""References in arguments: which variables and files of a worker a run may name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.core.jobs.references import ReferenceRule
from supervisor.roles.worker.entry import reference_rule
from supervisor.settings.base import Section
from supervisor.settings.sections.models import Settings
from tenure.jobs.references import UnresolvedReferenceError, resolve


def allow(monkeypatch: pytest.MonkeyPatch, **rule: list[str]) -> None:
    """Make this the rule of the process until the test ends."""
    monkeypatch.setattr(ReferenceRule, "current", ReferenceRule(**rule))


@pytest.mark.parametrize("name", ["HOME", "TENURE_REDIS__PASSWORD", "AWS_SECRET_ACCESS_KEY", "XJOB_A", "job_a"])
def test_other_variables_than_those_of_jobs_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may enqueue would otherwise have every password of the worker."""
    monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("JOB_A", "one")

    assert resolve("token", "env:JOB_A") == "one"
    with pytest.raises(
        UnresolvedReferenceError, match=f"token: variable {name} is not among job_references.env"
    ) as caught:
        resolve("token", f"env:{name}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["TENURE_A", "Tenure_A"])
def test_settings_of_the_tree_are_refused_whatever_is_allowed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A star is easily written."""
    allow(monkeypatch, env=["*"])
    monkeypatch.setenv(name, "hunter2")
    with pytest.raises(UnresolvedReferenceError, match="those never are"):
        resolve("token", f"env:{name}")


def test_files_are_judged_by_where_they_really_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link, or two dots, out of the directory is another file."""
    inside, outside, tokens = tmp_path / "in", tmp_path / "out", tmp_path / "in" / "tokens"
    inside.mkdir()
    (tmp_path / "in2").write_text("neighbour")
    outside.write_text("hunter2")
    tokens.write_text("hunter2")
    (inside / "good").write_text("one\n")
    (inside / "link").symlink_to(outside)
    (inside / "current").symlink_to("good")
    allow(monkeypatch, files=[str(inside)], withheld=[str(tokens)])

    assert resolve("token", f"file:{inside}/good") == "one"
    assert resolve("token", f"file:{inside}/current") == "one"  # as Kubernetes mounts secrets
    for place in (outside, inside / "link", f"{inside}/../out", f"{inside}2", tokens):
        with pytest.raises(UnresolvedReferenceError, match=r"is not among job_references\.files"):
            resolve("token", f"file:{place}")


def test_a_withheld_file_stays_withheld_when_it_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes mounts a secret as a link to a link, and puts a renewed one into another directory."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text("hunter2")
    (tmp_path / "data").symlink_to("old")
    (tmp_path / "key").symlink_to("data/key")
    allow(monkeypatch, files=[str(tmp_path)], withheld=[str(tmp_path / "key")])
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").rename(tmp_path / "data")

    for place in ("key", "data/key", "new/key"):
        with pytest.raises(UnresolvedReferenceError, match=r"is not among job_references\.files"):
            resolve("token", f"file:{tmp_path}/{place}")


def test_every_key_of_tls_and_the_tokens_file_are_withheld() -> None:
    """Whatever directory is allowed: a new section with a key of its own is found by its name."""
    sections = {"web": {"tokens_file": "/s/tokens", "tls_cert_file": "/s/c", "tls_key_file": "/s/web"}}
    hook = {"url": "https://hook.example", "cert_file": "/s/c", "key_file": "/s/hook"}
    redis = {"url": "rediss://r", "tls_cert_file": "/s/c", "tls_key_file": "/s/redis"}
    settings = Settings.model_validate(sections | {"redis": redis, "webhooks": {"hook": hook}})
    kinds = Section.__subclasses__()
    keys = sorted(f"{kind.__name__}.{name}" for kind in kinds for name in kind.model_fields if "key_file" in name)

    assert keys == ["RedisSettings.tls_key_file", "WebSettings.tls_key_file", "WebhookSettings.key_file"]
    assert sorted(reference_rule(settings).withheld) == ["/s/hook", "/s/redis", "/s/tokens", "/s/web"]


@pytest.mark.parametrize("place", ["/proc/self/environ", "/proc/1/environ", "/dev/stdin", "/sys/kernel/notes"])
def test_the_kernel_is_no_file(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of any process of this user stands there."""
    allow(monkeypatch, files=["/"])
    with pytest.raises(UnresolvedReferenceError, match=r"is not among job_references\.files"):
        resolve("token", f"file:{place}")


def test_a_pipe_a_device_and_a_link_out_of_what_is_allowed_hold_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """None of them keeps the worker waiting, and none is read without a bound."""
    allow(monkeypatch, files=[str(tmp_path / "jobs")])
    (tmp_path / "jobs").mkdir()
    (tmp_path / "outside").write_text("hunter2")
    os.mkfifo(tmp_path / "jobs/pipe")
    (tmp_path / "jobs/link").symlink_to(tmp_path / "outside")
    (tmp_path / "jobs/device").symlink_to("/dev/zero")

    for name in ("pipe", "link", "device", "."):
        with pytest.raises(UnresolvedReferenceError) as caught:
            resolve("token", f"file:{tmp_path}/jobs/{name}")
        assert "hunter2" not in str(caught.value)
