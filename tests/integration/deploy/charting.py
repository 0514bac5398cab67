"""Helm's own engine on our chart: ``python charting.py`` reads requests, a line each, and answers each with a line.

``python charting.py render VALUES`` prints manifests, ``python charting.py package DIRECTORY`` makes the archive.

A process of its own, because the engine is a Go library: its threads and signal handlers have no place in a process
that forks. Requests and answers are JSON; a request names values, and an answer holds manifests or the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart, HelmError
from helm_python.chart import lint, package

CHART = Path(__file__).parents[3] / "deploy/helm/tenure"


def answer(chart: Chart, values: dict[str, Any]) -> dict[str, Any]:
    """Return what the chart makes of ``values``, and what the linter says."""
    try:
        rendered = chart.render(values=values, name="jobs", namespace="here")
        found = lint(CHART, values, strict=True, quiet=True)
    except HelmError as error:
        return {"error": str(error)}
    said = [each["error"] for each in found["messages"] if each["severity"] >= 2]
    return {"rendered": {path.partition("templates/")[2]: text for path, text in rendered.items()}, "lint": said}


def as_yaml(file: Path) -> str:
    """Return the manifests that the values in ``file`` give, as a stream that ``kubectl apply`` takes."""
    with Chart.load(CHART) as chart:
        rendered = chart.render(values=yaml.safe_load(file.read_text()), name="jobs", namespace="here")
    return "\n---\n".join(text for name, text in rendered.items() if name.endswith(".yaml") and text.strip())


def main(arguments: list[str]) -> None:
    """Answer requests, ``render FILE`` or ``package DIRECTORY``."""
    if arguments[:1] == ["render"]:
        sys.stdout.write(as_yaml(Path(arguments[1])))
    elif arguments[:1] == ["package"]:
        sys.stdout.write(package(CHART, destination=arguments[1]) + "\n")
    else:
        with Chart.load(CHART) as chart:
            for line in sys.stdin:
                print(json.dumps(answer(chart, json.loads(line))), flush=True)  # noqa: T201 - this is its answer


if __name__ == "__main__":
    main(sys.argv[1:])
