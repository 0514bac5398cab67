"""The chart, rendered by Helm's own engine: what it promises holds for each example and each switch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.app.configuration import load
from supervisor.core.durations import parse_duration
from supervisor.core.supervision.shutdown import BOUND_AFTER_GRACE_NS
from tests.integration.deploy.rendering import (
    DEPLOY,
    EXAMPLES,
    INTERNET,
    METADATA,
    PRIVATE,
    environ,
    of_kind,
    pods,
    reached,
    refusal,
    render,
)

SPLIT = {"mode": "split", "api": {"enabled": True}}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {}, "split": SPLIT, "no global": {"global": None}, "long drain": {"drainTimeout": 600}, "grace": {"gracePeriod": 5},
    **EXAMPLES,
}  # fmt: skip
NATIVE = {name: values for name, values in CASES.items() if "compat" not in values}
Docs = list[dict[str, Any]]
pytestmark = [
    pytest.mark.xdist_group("chart"),
    pytest.mark.usefixtures("engine"),
]  # what one process has rendered is rendered once


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_no_pod_has_a_privilege_or_anything_of_the_host(values: dict[str, Any]) -> None:
    """Non-root, read-only, no capability, no token, whatever is switched on."""
    for pod in pods(render(values)):
        container = pod["containers"][0]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert not [each for each in pod["volumes"] if "hostPath" in each]
        assert not [each for each in container["volumeMounts"] if "subPath" in each]
        assert "lifecycle" not in container


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_every_pod_may_drain_and_says_how_it_is(values: dict[str, Any]) -> None:
    """The kubelet waits ten seconds longer than the drain; probes as in the base; updates one by one."""
    for each in of_kind(render(values), "Deployment").values():
        pod = each["spec"]["template"]["spec"]
        container, told = pod["containers"][0], environ(pod)
        drain_s = parse_duration(told["TENURE_SUPERVISION__GRACE"])
        assert pod["terminationGracePeriodSeconds"] == drain_s + 10 > drain_s + BOUND_AFTER_GRACE_NS / 1e9
        assert told["TENURE_SUPERVISION__STOP_TIMEOUT"] == f"{pod['terminationGracePeriodSeconds']}s"
        paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness", "startup")}
        assert paths == {"liveness": "/livez", "readiness": "/readyz", "startup": "/livez"}
        assert each["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.share(3)
@pytest.mark.parametrize("values", NATIVE.values(), ids=NATIVE)
def test_the_configuration_of_every_pod_loads(values: dict[str, Any], tmp_path: Path) -> None:
    """Files of the ConfigMap, variables of the pod: what the first pod would refuse helps nobody."""
    docs = render(values)
    maps = of_kind(docs, "ConfigMap")
    for key in ("redis-password", "password"):
        (tmp_path / key).write_text("not-a-secret")
    for number, deployment in enumerate(of_kind(docs, "Deployment").values()):
        pod = deployment["spec"]["template"]["spec"]
        (name,) = (each["configMap"]["name"] for each in pod["volumes"] if each["name"] == "config")
        (directory := tmp_path / str(number)).mkdir()
        for file, text in maps[name]["data"].items():
            (directory / file).write_text(text.replace("/run/secrets/tenure", str(tmp_path)))
        settings = load(files=[directory], environ=environ(pod), flags={}).settings
        assert settings.web.host == "0.0.0.0"
        assert pod["containers"][0]["args"] == ["run"]
        assert environ(pod)["TENURE_CONFIG"] == "/etc/tenure"


def test_by_default_two_replicas_do_everything() -> None:
    """One leads, one stands by, on two nodes if there are two, and a drain of nodes takes one after the other."""
    docs = render({})
    (deployment,) = of_kind(docs, "Deployment").values()

    assert deployment["spec"]["replicas"] == 2
    assert of_kind(docs, "PodDisruptionBudget")["jobs"]["spec"]["minAvailable"] == 1
    (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["nodeTaintsPolicy"] == "Honor"  # else a control plane counts as a node without a replica
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()
    assert of_kind(docs, "Service")["jobs"]["spec"]["selector"].items() <= labels.items()


def test_split_roles_elect_work_or_only_serve() -> None:
    """Each role is one deployment of the same image; what it does not do is switched off by its environment."""
    docs = render({**SPLIT, "scheduler": {"replicas": 3}})
    told = {name: environ(each["spec"]["template"]["spec"]) for name, each in of_kind(docs, "Deployment").items()}
    off = {
        name: {key for key in ("TENURE_WORKERS", "TENURE_ELECTION__PARTICIPATE") if key in each}
        for name, each in told.items()
    }

    assert off == {
        "jobs-scheduler": {"TENURE_WORKERS"},
        "jobs-worker": {"TENURE_ELECTION__PARTICIPATE"},
        "jobs-api": {"TENURE_WORKERS", "TENURE_ELECTION__PARTICIPATE"},
    }
    assert of_kind(docs, "Deployment")["jobs-scheduler"]["spec"]["replicas"] == 3
    assert set(of_kind(docs, "PodDisruptionBudget")) == {"jobs-scheduler", "jobs-worker"}
    assert set(of_kind(render({"mode": "split", "scheduler": {"enabled": False}}), "Deployment")) == {"jobs-worker"}


def test_a_developer_gets_one_pod_that_needs_nothing() -> None:
    """The bundled server, debug logs, no budget that a drain would wait for."""
    docs = render({"developer": True})
    config = yaml.safe_load(of_kind(docs, "ConfigMap")["jobs-config"]["data"]["00-tenure.yaml"])

    assert of_kind(docs, "Deployment")["jobs"]["spec"]["replicas"] == 1
    assert (config["redis"]["url"], config["log"]["level"]) == ("embedded", "debug")
    assert not of_kind(docs, "PodDisruptionBudget")


def test_nothing_is_made_when_it_is_not_enabled() -> None:
    """An umbrella chart switches its children off by this."""
    assert render({"enabled": False}) == []


@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_a_change_of_the_configuration_replaces_the_pods_of_its_role_only(role: str) -> None:
    """By a checksum; without it pods keep their configuration until they are told to reload."""

    def checksums(**values: Any) -> dict[str, str | None]:
        deployments = of_kind(render({"mode": "split", **values}), "Deployment").values()
        return {
            each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["metadata"][
                "annotations"
            ].get("checksum/config")
            for each in deployments
        }

    before, after = checksums(), checksums(**{f"application_{role}": {"log": {"level": "debug"}}})

    assert {each for each in before if before[each] != after[each]} == {role}
    assert set(checksums(rolloutOnConfigChange=False).values()) == {None}


@pytest.mark.parametrize(
    ("redis", "url", "secret"),
    [
        ({}, "redis://redis:6379/0", None),
        ({"host": "r.example.org", "port": 6380, "db": 2, "tls": True}, "rediss://r.example.org:6380/2", None),
        ({"url": "redis+sentinel://a:26379,b:26379/m/0"}, "redis+sentinel://a:26379,b:26379/m/0", None),
        ({"password": "s3cret"}, "redis://redis:6379/0", ("jobs-redis", "redis-password")),
        ({"existingSecret": "mine", "existingSecretKey": "pw"}, "redis://redis:6379/0", ("mine", "pw")),
    ],
)
def test_where_redis_is_and_who_holds_its_password(
    redis: dict[str, Any], url: str, secret: tuple[str, str] | None
) -> None:
    """A password is in a secret and nowhere else; the configuration holds a reference to the file."""
    docs = render({"redis": redis})
    text = of_kind(docs, "ConfigMap")["jobs-config"]["data"]["00-tenure.yaml"]
    (pod,) = pods(docs)
    mounted = [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each]

    assert yaml.safe_load(text)["redis"]["url"] == url
    assert mounted == ([secret[0]] if secret else [])
    assert (f"${{file:/run/secrets/tenure/{secret[1]}}}" in text) if secret else ("password" not in text)
    assert "s3cret" not in json.dumps([each for each in docs if each["kind"] != "Secret"])
    assert bool(of_kind(docs, "Secret")) == ("password" in redis)


def test_what_an_umbrella_chart_shares_reaches_every_pod() -> None:
    """Namespace, account, environment, configuration, side-cars and volumes; all of it may be missing."""
    shared = {
        "namespace": "batch", "serviceAccountName": "services", "common_env": [{"name": "A", "value": "b"}],
        "shared": {"log": {"level": "warning"}},
        "backend": {"sidecar": [{"name": "proxy", "image": "p:1"}], "volumes": [{"name": "v", "emptyDir": {}}]},
    }  # fmt: skip
    docs = render({"global": shared})
    (pod,) = pods(docs)

    assert {each["metadata"]["namespace"] for each in docs} == {"batch"}
    assert pod["serviceAccountName"] == "services"
    assert not of_kind(docs, "ServiceAccount")
    assert environ(pod)["A"] == "b"
    assert [each["name"] for each in pod["containers"]] == ["tenure", "proxy"]
    assert {"name": "v", "emptyDir": {}} in pod["volumes"]
    assert "20-shared.yaml" in of_kind(docs, "ConfigMap")["jobs-config"]["data"]


def test_pods_take_what_their_owner_adds() -> None:
    """Containers, volumes and places as such; podSpec over everything, last."""
    volume, mount = {"name": "v", "emptyDir": {}}, {"name": "v", "mountPath": "/v"}
    docs = render({
        "extraContainers": [{"name": "a"}], "initContainers": [{"name": "i"}], "worker": {"extraContainers": [{"name": "w"}]},
        "extraVolumes": [volume], "extraVolumeMounts": [mount], "extraEnv": [{"name": "X", "value": "y"}],
        "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "imagePullSecrets": [{"name": "s"}],
        "mode": "split", "podSpec": {"priorityClassName": "high", "nodeSelector": {"c": "d"}},
    })  # fmt: skip
    found = {name: each["spec"]["template"]["spec"] for name, each in of_kind(docs, "Deployment").items()}
    worker = found["jobs-worker"]

    assert [each["name"] for each in worker["containers"]] == ["tenure", "a", "w"]
    assert [each["name"] for each in found["jobs-scheduler"]["containers"]] == ["tenure", "a"]
    assert (worker["nodeSelector"], worker["priorityClassName"]) == ({"a": "b", "c": "d"}, "high")
    assert volume in worker["volumes"]
    assert mount in worker["containers"][0]["volumeMounts"]
    assert worker["initContainers"] == [{"name": "i"}]
    assert environ(worker)["X"] == "y"


def test_what_can_be_added_around_the_pods() -> None:
    """Scaling, ingress, metrics, alerts, dashboard: each off until it is asked for."""
    assert {each["kind"] for each in render({})} == {
        "ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount",
    }  # fmt: skip
    split, around = render(EXAMPLES["production"]), render(EXAMPLES["monitoring"])
    target = of_kind(split, "HorizontalPodAutoscaler")["jobs-worker"]["spec"]
    assert (target["minReplicas"], target["maxReplicas"]) == (3, 20)
    assert "replicas" not in of_kind(split, "Deployment")["jobs-worker"]["spec"]
    ingress = of_kind(around, "Ingress")["jobs"]["spec"]
    assert (ingress["ingressClassName"], ingress["rules"][0]["host"]) == ("nginx", "tenure.example.org")
    assert of_kind(around, "ServiceMonitor")["jobs"]["spec"]["endpoints"][0]["path"] == "/metrics"
    rules = yaml.safe_load((DEPLOY / "prometheus/tenure.rules.yaml").read_text())
    assert of_kind(around, "PrometheusRule")["jobs"]["spec"] == rules
    board = of_kind(around, "ConfigMap")["jobs-dashboard"]["data"]["tenure.json"]
    assert json.loads(board) == json.loads((DEPLOY / "grafana/tenure.json").read_text())


def policy(**values: Any) -> dict[str, Any]:
    """Return the NetworkPolicy that the chart makes of values."""
    spec: dict[str, Any] = of_kind(render(values), "NetworkPolicy")["jobs"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["ports"] for rule in spec["ingress"]] == [[{"protocol": "TCP", "port": "http"}]]
    return spec


@pytest.mark.parametrize("is_private", [True, False])
def test_the_chart_lets_in_neighbours_and_keeps_jobs_from_metadata_services(is_private: bool) -> None:  # noqa: FBT001
    """By default jobs reach the databases of their owner; the rest is a value away."""
    spec = policy(
        networkPolicy={"privateNetworks": is_private, "namespaces": ["shop"], "egress": [{"ports": [{"port": 7}]}]}
    )
    (others,) = (rule["to"] for rule in spec["egress"] if "to" in rule)

    assert spec["ingress"][0]["from"] == [
        {"podSelector": {}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}},
    ]
    assert not reached(others, METADATA)
    assert reached(others, PRIVATE | INTERNET) == (PRIVATE | INTERNET if is_private else INTERNET)
    assert ({"namespaceSelector": {}} in others) == is_private
    assert spec["egress"][-1] == {"ports": [{"port": 7}]}


def test_every_pod_of_the_chart_is_under_its_policy() -> None:
    """The one that applies schedules at an install imports the modules of jobs, and was under none."""
    manifests = render(EXAMPLES["apply"])
    spec = of_kind(manifests, "NetworkPolicy")["jobs"]["spec"]["podSelector"]
    (names,) = spec["matchExpressions"]
    pods = [each["spec"]["template"]["metadata"] for each in manifests if each["kind"] in {"Deployment", "Job"}]

    assert len(pods) == 2
    assert (names["key"], names["operator"]) == ("app.kubernetes.io/name", "In")
    for pod in pods:
        assert pod["labels"].items() >= spec["matchLabels"].items()
        assert pod["labels"][names["key"]] in names["values"]


@pytest.mark.parametrize("asked", [{"ingress": {"enabled": True}}, {"service": {"type": "NodePort"}}])
def test_what_is_asked_to_be_reached_from_outside_is_reached(asked: dict[str, Any]) -> None:
    """An ingress in front of pods that let nobody in answers 504, and nobody thinks of the policy; a list narrows it."""
    controller = {"namespaceSelector": {"matchLabels": {"name": "ingress"}}}
    everybody, listed = policy(**asked), policy(**asked, networkPolicy={"from": [controller]})

    assert reached(everybody["ingress"][0]["from"], INTERNET | PRIVATE) == INTERNET | PRIVATE
    assert {"namespaceSelector": {}} in everybody["ingress"][0]["from"]
    assert listed["ingress"][0]["from"][-1] == controller
    assert not reached(listed["ingress"][0]["from"], INTERNET | PRIVATE)


def test_services_are_for_one_address_or_for_each_replica() -> None:
    """Placeholders of Cloudforet's annotations are no annotations."""
    service = {"type": "NodePort", "port": 80, "headless": True, "annotations": {"nil": None, "a": "b"}}
    found = of_kind(render({"service": service}), "Service")

    assert (found["jobs"]["spec"]["type"], found["jobs"]["spec"]["ports"][0]["port"]) == ("NodePort", 80)
    assert found["jobs"]["metadata"]["annotations"] == {"a": "b"}
    assert found["jobs-headless"]["spec"]["clusterIP"] == "None"


def test_schedules_are_applied_after_each_installation() -> None:
    """By the command that people use; applying twice changes nothing."""
    docs = render(EXAMPLES["apply"])
    job = of_kind(docs, "Job")["jobs-apply"]
    (container,) = job["spec"]["template"]["spec"]["containers"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    assert container["args"] == ["schedule", "apply", "--file", "/etc/tenure-apply"]
    assert {"name": "TENURE_CONFIG", "value": "/etc/tenure"} in container["env"]
    assert "livenessProbe" not in container
    applied = yaml.safe_load(of_kind(docs, "ConfigMap")["jobs-apply"]["data"]["schedules.yaml"])
    assert applied == EXAMPLES["apply"]["apply"]["schedules"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"imagePulPolicy": "Always"}, "'imagePulPolicy' not allowed"),
        ({"mode": "both"}, "/mode"),
        ({"replicas": "two"}, "/replicas"),
        ({"redis": {"hots": "x"}}, "'hots' not allowed"),
        ({"compat": "kubernetes"}, "/compat"),
        ({"compat": "cloudforet"}, "compat: cloudforet needs application_scheduler or application_worker"),
        ({"extraVolumes": [{"name": "tz", "hostPath": {"path": "/"}}]}, "extraVolumes: tz is a hostPath"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(values: dict[str, Any], why: str) -> None:
    """A misspelt name must not become a default."""
    assert why in refusal(values)
