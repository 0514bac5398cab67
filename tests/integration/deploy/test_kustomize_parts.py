"""Bases, components and overlays of kustomize fit together; `make deploy-check` renders them with kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3] / "deploy/kustomize"
KUSTOMIZATIONS = sorted(ROOT.rglob("kustomization.yaml"))
MANIFESTS = sorted(path for path in ROOT.rglob("*.yaml") if path.name not in {"kustomization.yaml", "tenure.yaml"})


def objects() -> Iterator[dict[str, Any]]:
    """Yield every object that a file here holds."""
    for path in MANIFESTS:
        yield from (each for each in yaml.safe_load_all(path.read_text()) if each)


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_what_a_kustomization_names_is_there(path: Path) -> None:
    """And what is a component says so: kustomize takes it for something else otherwise."""
    told = yaml.safe_load(path.read_text())
    named = [*told.get("resources", ()), *told.get("components", ())]
    named += [file for each in told.get("configMapGenerator", ()) for file in each["files"]]

    assert named
    assert all((path.parent / each).exists() for each in named)
    assert told["kind"] == ("Component" if "components" in path.parts else "Kustomization")
    for each in told.get("components", ()):
        assert yaml.safe_load((path.parent / each / "kustomization.yaml").read_text())["kind"] == "Component"


def test_no_pod_has_a_privilege_or_anything_of_the_host() -> None:
    """The Valkey for development neither."""
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in objects() if each["kind"] == "Deployment"
    }

    assert set(pods) == {"tenure", "redis"}
    for pod in pods.values():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
        assert not [mount for mount in container["volumeMounts"] if "subPath" in mount]


def test_updates_lose_no_replica_and_a_drain_takes_one_after_the_other() -> None:
    """There is always somebody to hand over to."""
    found = {
        each["kind"]: each["spec"] for each in objects() if each["metadata"]["name"] == "tenure" and "spec" in each
    }

    assert found["Deployment"]["replicas"] >= 2
    assert found["Deployment"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert found["PodDisruptionBudget"]["maxUnavailable"] == 1
    (spread,) = found["Deployment"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"


def test_only_the_http_port_can_be_reached_from_outside() -> None:
    """From the namespace and from Prometheus; replicas never speak to each other."""
    (policy,) = (each["spec"] for each in objects() if each["kind"] == "NetworkPolicy")

    (ingress,) = policy["ingress"]
    assert ingress["ports"] == [{"protocol": "TCP", "port": "http"}]
    assert ingress["from"]
    assert (
        "../../components/network-policy"
        in yaml.safe_load((ROOT / "overlays/production/kustomization.yaml").read_text())["components"]
    )


def test_jobs_reach_neither_the_cluster_nor_a_metadata_service() -> None:
    """Names, Redis and the internet; what is private is added by whoever needs it."""
    (policy,) = (each["spec"] for each in objects() if each["kind"] == "NetworkPolicy")

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    private = {"10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"}
    for rule in policy["egress"]:
        for to in rule.get("to", ()):
            assert private <= set(to["ipBlock"]["except"])
        assert rule.get("to") or {each["port"] for each in rule["ports"]} <= {53, 6379, 6380, 26379}


def test_no_pod_fills_its_node() -> None:
    """Every scratch directory has a limit."""
    pods = [each["spec"]["template"]["spec"] for each in objects() if each["kind"] == "Deployment"]
    scratch = [volume["emptyDir"] for pod in pods for volume in pod["volumes"] if "emptyDir" in volume]

    assert scratch
    assert all("sizeLimit" in each for each in scratch)
