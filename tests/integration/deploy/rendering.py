"""Manifests of the chart, by values, and what is looked for in them."""

from __future__ import annotations

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
