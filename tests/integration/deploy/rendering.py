"""Manifests of the chart, by values, and what is looked for in them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
EXAMPLES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((DEPLOY / "helm/examples").glob("*.yaml"))}
Docs = list[dict[str, Any]]


@cache
def _answer(request: str) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).with_name("charting.py"))]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=True, timeout=60)
    (answer,) = json.loads(done.stdout)
    return dict(answer)


def render(values: dict[str, Any]) -> Docs:
    """Return what the chart makes of ``values``; the linter finds nothing."""
    answer = _answer(json.dumps([values]))
    assert "error" not in answer, answer["error"]
    assert answer["lint"] == []
    texts = [text for name, text in answer["rendered"].items() if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def refusal(values: dict[str, Any]) -> str:
    """Return why the chart makes nothing of ``values``."""
    return str(_answer(json.dumps([values]))["error"])


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
