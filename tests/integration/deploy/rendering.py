"""Manifests of the chart, by values, and what is looked for in them."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
EXAMPLES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((DEPLOY / "helm/examples").glob("*.yaml"))}
METADATA = {
    "169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "fe80::1",
}  # fmt: skip
"""Where clouds answer with credentials and settings of the machine that asks."""
PRIVATE = {"10.0.0.1", "100.64.0.1", "172.16.0.1", "192.168.0.1", "fd12::1"}
INTERNET = {"93.184.216.34", "2606:2800:220:1::1"}
Docs = list[dict[str, Any]]


_engines: list[subprocess.Popen[str]] = []


@contextmanager
def helm_engine() -> Iterator[None]:
    """Keep one process with Helm's engine, which renders for every test that runs meanwhile."""
    command = [sys.executable, str(Path(__file__).with_name("charting.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        _engines.append(process)
        yield
        _engines.remove(process)
        process.communicate()


@cache
def _answer(request: str) -> dict[str, Any]:
    (engine,) = _engines
    assert engine.stdin
    assert engine.stdout
    engine.stdin.write(f"{request}\n")
    engine.stdin.flush()
    return dict(json.loads(engine.stdout.readline()))


def render(values: dict[str, Any]) -> Docs:
    """Return what the chart makes of ``values``; the linter finds nothing."""
    answer = _answer(json.dumps(values))
    assert "error" not in answer, answer["error"]
    assert answer["lint"] == []
    texts = [text for name, text in answer["rendered"].items() if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def refusal(values: dict[str, Any]) -> str:
    """Return why the chart makes nothing of ``values``."""
    return str(_answer(json.dumps(values))["error"])


def of_kind(docs: Docs, kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind by name."""
    return {each["metadata"]["name"]: each for each in docs if each["kind"] == kind}


def pods(docs: Docs) -> Iterator[dict[str, Any]]:
    """Yield the spec of each pod that something makes."""
    for each in docs:
        if each["kind"] in {"Deployment", "Job"}:
            yield each["spec"]["template"]["spec"]


def environ(pod: dict[str, Any]) -> dict[str, str]:
    """Return the settings that a pod has by its environment."""
    return {each["name"]: each["value"] for each in pod["containers"][0]["env"] if "value" in each}


def reached(peers: list[dict[str, Any]], addresses: set[str]) -> set[str]:
    """Return the addresses outside the cluster that the peers of a NetworkPolicy let through."""
    blocks = [each["ipBlock"] for each in peers if "ipBlock" in each]
    return {
        each
        for each in addresses
        if any(
            _is_in(each, block["cidr"]) and not any(_is_in(each, part) for part in block.get("except", ()))
            for block in blocks
        )
    }


def _is_in(address: str, network: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(network)
