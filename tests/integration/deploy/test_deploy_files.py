"""What deploy/ ships fits the program: its settings load, its times fit the stop, its metrics exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.app.configuration import load
from supervisor.core.supervision.health import HealthEndpoint
from supervisor.core.supervision.shutdown import BOUND_AFTER_GRACE_NS
from supervisor.settings.sections.models import SupervisionSettings

ROOT = Path(__file__).parents[3]
BASE = ROOT / "deploy/kustomize/base"
UNITS = [*(ROOT / "systemd").glob("*.service"), *(ROOT / "supervisor/cli/templates").rglob("*.service.tmpl")]
STOP_S = SupervisionSettings().grace_s + BOUND_AFTER_GRACE_NS / 1e9


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.fixture
def pod() -> dict[str, Any]:
    """The pod that the base asks for."""
    spec: dict[str, Any] = _read(BASE / "deployment.yaml")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("file", ["base/tenure.yaml", "overlays/dev/tenure.yaml", "overlays/replicas-dev/tenure.yaml"])
def test_the_configuration_of_the_replicas_loads(file: str, tmp_path: Path, pod: dict[str, Any]) -> None:
    """A file that the first pod refuses helps nobody, nor one that serves no health where the probes ask for it."""
    secret = tmp_path / "redis-password"
    secret.write_text("not-a-secret\n")
    written = (ROOT / "deploy/kustomize" / file).read_text()
    copy = tmp_path / "tenure.yaml"
    copy.write_text(written.replace("/run/secrets/tenure", str(tmp_path)))

    (container,) = pod["containers"]
    environ = {each["name"]: each["value"] for each in container["env"] if "value" in each}

    settings = load(files=[copy], environ=environ, flags={}).settings

    assert settings.web.host == "0.0.0.0"
    assert settings.web.health_port == {each["name"]: each["containerPort"] for each in container["ports"]}["health"]
    assert settings.schedules


def test_every_orchestrator_waits_until_the_stop_is_over(pod: dict[str, Any]) -> None:
    """The defaults of Docker and of some charts kill a tree that still drains."""
    compose = _read(ROOT / "deploy/compose.yaml")["services"]["tenure"]["stop_grace_period"]
    unit = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", (ROOT / "systemd/tenure.service").read_text())

    assert pod["terminationGracePeriodSeconds"] > STOP_S
    assert int(compose.removesuffix("s")) > STOP_S
    assert [int(seconds) > STOP_S for seconds in unit] == [True]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_no_unit_runs_anything_as_root(unit: Path) -> None:
    """A prefix of `Exec…=` takes a command out of the sandbox, beside files that jobs may write."""
    commands = re.findall(r"(?m)^Exec\w+=(\S)", unit.read_text())

    assert commands == ["/", "/"]


def test_every_replica_knows_how_long_its_orchestrator_waits(pod: dict[str, Any]) -> None:
    """A grace that grows beyond it is then refused at the start, and not found out by lost time at a deploy."""
    compose = _read(ROOT / "deploy/compose.yaml")["services"]["tenure"]
    (container,) = pod["containers"]
    told = {each["name"]: each.get("value") for each in container["env"]}["TENURE_SUPERVISION__STOP_TIMEOUT"]

    assert told == f"{pod['terminationGracePeriodSeconds']}s"
    assert compose["environment"]["TENURE_SUPERVISION__STOP_TIMEOUT"] == compose["stop_grace_period"]


def test_pods_need_no_privilege(pod: dict[str, Any]) -> None:
    """Non-root, read-only root file system, no capability, nothing of Kubernetes' own interface."""
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_probes_ask_what_exists_and_liveness_does_not_depend_on_redis(pod: dict[str, Any]) -> None:
    """Otherwise an outage of Redis restarts every replica at once."""
    (container,) = pod["containers"]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness", "startup")}

    assert paths == {"liveness": "/livez", "readiness": "/readyz", "startup": "/livez"}
    assert {path.removeprefix("/") for path in paths.values()} <= {endpoint.title for endpoint in HealthEndpoint}


def test_alerts_and_dashboard_name_metrics_that_exist() -> None:
    """A misspelt name makes an alert that never fires."""
    documented = set(re.findall(r"(?m)^\| `(tenure_\w+)`", (ROOT / "docs/metrics.md").read_text()))
    rules, panels = _expressions()
    used = {re.sub(r"_bucket$", "", name) for text in (*rules, *panels) for name in re.findall(r"\btenure_\w+", text)}

    assert len(used) > 15
    assert used <= documented


def test_alerts_and_dashboard_tell_clusters_apart() -> None:
    """An aggregation over all clusters of a Prometheus hides the one that nobody leads behind one that is well."""
    rules, panels = _expressions()
    for text in (*rules, *panels):
        aggregations = re.findall(r"\b(?:sum|max|min|avg|count)\b(?: by \(([^)]*)\))?", text)
        assert all("cluster" in labels.split(", ") for labels in aggregations), text
    for text in panels:
        assert text.count('cluster=~"$cluster"') == len(re.findall(r"\btenure_\w+", text)), text


def _expressions() -> tuple[list[str], list[str]]:
    """Return those of all alerts and of all panels."""
    groups = _read(ROOT / "deploy/prometheus/tenure.rules.yaml")["groups"]
    rules = [rule["expr"] for group in groups for rule in group["rules"]]
    board = json.loads((ROOT / "deploy/grafana/tenure.json").read_text())
    return rules, [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_no_container_of_compose_has_a_privilege_and_its_server_asks_for_a_password() -> None:
    """What is copied from here runs elsewhere."""
    services = _read(ROOT / "deploy/compose.yaml")["services"]

    for name, service in services.items():
        hardening = service["read_only"], service["cap_drop"], service["security_opt"]
        assert hardening == (True, ["ALL"], ["no-new-privileges:true"]), name
    assert "--requirepass" in services["valkey"]["command"]


def test_what_compose_mounts_is_there() -> None:
    """Docker makes a directory of a file that is missing, and the container then fails for another reason."""
    services = _read(ROOT / "deploy/compose.yaml")["services"]
    mounts = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())]
    files = [mount for mount in mounts if mount.startswith(".")]

    assert len(files) == 5
    assert all((ROOT / "deploy" / file).exists() for file in files)
