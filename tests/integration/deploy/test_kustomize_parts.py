"""Bases, components and overlays of kustomize fit together; `make deploy-check` renders them with kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.deploy.rendering import INTERNET, METADATA, PRIVATE, reached

ROOT = Path(__file__).parents[3] / "deploy/kustomize"
KUSTOMIZATIONS = sorted(ROOT.rglob("kustomization.yaml"))
MANIFESTS = sorted(path for path in ROOT.rglob("*.yaml") if path.name not in {"kustomization.yaml", "tenure.yaml"})


def objects() -> Iterator[dict[str, Any]]:
    """Yield every object that a file here holds; a patch is none."""
    for path in MANIFESTS:
        yield from (each for each in yaml.safe_load_all(path.read_text()) if isinstance(each, dict))


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_what_a_kustomization_names_is_there(path: Path) -> None:
    """And what is a component says so: kustomize takes it for something else otherwise."""
    told = yaml.safe_load(path.read_text())
    named = [*told.get("resources", ()), *told.get("components", ())]
    named += [each["path"] for each in told.get("patches", ()) if "path" in each]
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
    assert spread["nodeTaintsPolicy"] == "Honor"  # else a control plane counts as a node without a replica


def test_only_the_http_port_can_be_reached_from_outside() -> None:
    """From the namespace and from Prometheus, in every overlay; replicas never speak to each other."""
    (policy,) = (each["spec"] for each in objects() if each["kind"] == "NetworkPolicy")

    (ingress,) = policy["ingress"]
    assert ingress["ports"] == [{"protocol": "TCP", "port": "http"}]
    assert ingress["from"]
    base = yaml.safe_load((ROOT / "base/kustomization.yaml").read_text())
    assert base["components"] == ["../components/network-policy"]


def test_no_pod_reaches_a_metadata_service() -> None:
    """A job that is led to one reads credentials of the machine."""
    (policy,) = (each["spec"] for each in objects() if each["kind"] == "NetworkPolicy")

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [each["port"] for rule in policy["egress"] if "to" not in rule for each in rule["ports"]] == [
        53, 53, 6379, 6380, 26379,
    ]  # fmt: skip
    (others,) = (rule["to"] for rule in policy["egress"] if "to" in rule)
    assert not reached(others, METADATA)
    assert reached(others, PRIVATE) == PRIVATE


def test_jobs_of_production_reach_neither_the_cluster_nor_private_networks() -> None:
    """Names, Redis and the internet; what is private is added by whoever needs it."""
    production = ROOT / "overlays/production"
    patches = yaml.safe_load((production / "kustomization.yaml").read_text())["patches"]
    (file,) = (each["path"] for each in patches if each["target"]["kind"] == "NetworkPolicy")
    patch = yaml.safe_load((production / file).read_text())
    (policy,) = (each["spec"] for each in objects() if each["kind"] == "NetworkPolicy")

    assert [(each["op"], each["path"]) for each in patch] == [("replace", "/spec/egress/2/to")]
    assert list(policy["egress"][2]) == ["to"]
    assert not reached(patch[0]["value"], METADATA | PRIVATE)
    assert reached(patch[0]["value"], INTERNET) == INTERNET


def test_no_pod_fills_its_node() -> None:
    """Every scratch directory has a limit."""
    pods = [each["spec"]["template"]["spec"] for each in objects() if each["kind"] == "Deployment"]
    scratch = [volume["emptyDir"] for pod in pods for volume in pod["volumes"] if "emptyDir" in volume]

    assert scratch
    assert all("sizeLimit" in each for each in scratch)
