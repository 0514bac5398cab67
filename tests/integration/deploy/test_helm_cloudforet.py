"""Values of Cloudforet's charts in ours: taken as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.app.configuration import load
from supervisor.settings.sections.models import Settings
from tests.integration.deploy.rendering import EXAMPLES, environ, of_kind, render
from tests.kit.launcher import tenure

pytestmark = [pytest.mark.xdist_group("chart"), pytest.mark.usefixtures("engine")]


def test_values_of_cloudforet_are_taken_as_they_are() -> None:
    """Flat switches, names and sections of theirs; the mount of the host's time zone is left out."""
    docs = render(EXAMPLES["cloudforet"])
    found = of_kind(docs, "Deployment")
    worker = found["identity-worker"]["spec"]["template"]["spec"]
    given = of_kind(docs, "ConfigMap")["identity-scheduler-config"]["data"]["30-application-scheduler.yaml"]

    assert set(found) == {"identity-scheduler", "identity-worker"}
    assert found["identity-worker"]["spec"]["replicas"] == 3
    assert worker["containers"][0]["image"] == "example.org/identity:2.0.1"
    assert worker["containers"][0]["args"] == ["run"]
    assert environ(worker)["TENURE_COMPAT"] == "cloudforet"
    files = ("00-tenure", "30-application-scheduler", "30-application-worker")
    assert environ(worker)["TENURE_CONFIG"] == ":".join(f"/etc/tenure/{file}.yaml" for file in files)
    assert yaml.safe_load(given) == EXAMPLES["cloudforet"]["application_scheduler"]
    assert {"name": "log-volume", "mountPath": "/var/log/spaceone"} in worker["containers"][0]["volumeMounts"]
    assert "TENURE_WORKERS" not in environ(found["identity-scheduler"]["spec"]["template"]["spec"])
    flat = render({**EXAMPLES["cloudforet"], "scheduler": False})
    assert set(of_kind(flat, "Deployment")) == {"identity-worker"}


@pytest.mark.parametrize("file", ["identity-values.yaml", "inventory-values.yaml"])
def test_real_values_of_cloudforet_give_configurations_that_load(file: str, tmp_path: Path) -> None:
    """The files of two of its services, unchanged, but for the values that say what they are and what is wanted."""
    values = yaml.safe_load((Path(__file__).parents[2] / "data/cloudforet" / file).read_text())
    docs = render({**values, "mode": "split", "compat": "cloudforet", "scheduler": True, "worker": True})
    maps, deployments = of_kind(docs, "ConfigMap"), of_kind(docs, "Deployment")
    assert len(deployments) == 2
    for name, deployment in deployments.items():
        told = environ(deployment["spec"]["template"]["spec"])
        (directory := tmp_path / name).mkdir()
        for path, text in maps[f"{name}-config"]["data"].items():
            (directory / path).write_text(text)
        told["TENURE_CONFIG"] = told["TENURE_CONFIG"].replace("/etc/tenure", str(directory))
        done = tenure(directory, "config", "validate", "--no-jobs", **told)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_every_pod_that_executes_code_of_a_service_knows_its_package(role: str, tmp_path: Path) -> None:
    """Of Cloudforet's two sections that of the schedulers alone names it; without one all tasks end dead."""
    settings = settings_of(role, EXAMPLES["cloudforet"], tmp_path)

    assert settings.cloudforet.packages == ("spaceone.identity",)
    assert ("identity_worker" in settings.workers) == (role == "worker")
    assert settings.election.participate == (role == "scheduler")


def settings_of(role: str, values: dict[str, Any], directory: Path) -> Settings:
    docs = render(values)
    told = environ(of_kind(docs, "Deployment")[f"identity-{role}"]["spec"]["template"]["spec"])
    for file, text in of_kind(docs, "ConfigMap")[f"identity-{role}-config"]["data"].items():
        (directory / file).write_text(text)
    files = [directory / Path(each).name for each in told["TENURE_CONFIG"].split(":")]
    return load(files=files, environ=told, flags={}, compat=told["TENURE_COMPAT"]).settings


@pytest.mark.parametrize("own", [{}, {"application_rest": {"LOG": {"loggers": {"spaceone": {"level": "DEBUG"}}}}}])
def test_a_pod_that_only_serves_http_is_at_the_redis_of_the_service(own: dict[str, Any], tmp_path: Path) -> None:
    """Only the other sections say where that is: with a server of its own it took runs that nobody executes."""
    settings = settings_of("api", {**EXAMPLES["cloudforet"], "api": {"enabled": True}, **own}, tmp_path)

    assert settings.redis.url.get_secret_value() == "redis://redis:6379/0"
    assert settings.log.level == ("debug" if own else "info")
    assert (settings.workers, settings.election.participate) == ({}, False)


@pytest.mark.parametrize("role", ["scheduler", "worker", "api"])
def test_what_both_roles_share_reaches_every_pod(role: str, tmp_path: Path) -> None:
    """The section was accepted, and was in no pod: tasks looked for their connectors in vain."""
    shared = {"CONNECTORS": {"SpaceConnector": {"endpoints": {"identity": "a"}}}, "SET": "both"}
    values = {**EXAMPLES["cloudforet"], "api": {"enabled": True}, "application": shared}
    own = {"application_worker": {**values["application_worker"], "SET": "worker"}}
    config = settings_of(role, {**values, **own}, tmp_path).cloudforet.config

    assert config["CONNECTORS"] == shared["CONNECTORS"]
    assert config["SET"] == ("both" if role == "scheduler" else "worker")


@pytest.mark.parametrize("mode", ["split", "allInOne"])
def test_every_pod_has_the_files_that_sections_it_reads_may_name(mode: str) -> None:
    """Without its mount, a ``${file:…}`` of the scheduler's section was refused at the start of every worker."""
    mounts = {
        role: [{"name": role, "mountPath": f"/opt/{role}"}, {"name": role, "mountPath": "/opt/both"}]
        for role in ("application_scheduler", "application_worker")
    }
    values = {**EXAMPLES["cloudforet"], "mode": mode, "api": {"enabled": mode == "split"}, "volumeMounts": mounts}
    for name, each in of_kind(render(values), "Deployment").items():
        given = {m["mountPath"]: m["name"] for m in each["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
        is_scheduler = name.endswith("-scheduler")
        assert "/opt/application_scheduler" in given
        assert ("/opt/application_worker" in given) != is_scheduler
        assert given["/opt/both"] == ("application_scheduler" if is_scheduler else "application_worker")


def test_a_pod_has_the_mounts_that_bear_the_name_of_its_role() -> None:
    """Of a section that has another name in Cloudforet's values, or of none: nothing else gives one role a mount."""
    mounts = {f"application_{role}": [{"name": role, "mountPath": f"/opt/{role}"}] for role in ("api", "allInOne")}
    for mode, role in (("split", "api"), ("allInOne", "allInOne")):
        values = {"mode": mode, "api": {"enabled": mode == "split"}, "volumeMounts": mounts}
        redis = {"redis": {"url": "redis://redis:6379/0"}}
        deployments = of_kind(render({**values, **redis}), "Deployment").values()
        pods = [each["spec"]["template"] for each in deployments]
        (pod,) = (each for each in pods if each["metadata"]["labels"]["app.kubernetes.io/component"] == role)
        assert mounts[f"application_{role}"][0] in pod["spec"]["containers"][0]["volumeMounts"]
