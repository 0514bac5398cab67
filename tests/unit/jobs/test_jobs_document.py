"""docs/jobs.md says what the jobs are: names, arguments and defaults, and its examples can be used."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.core.jobs.registry import JobSpec, registry
from supervisor.settings.schedules.settings import ScheduleSettings
from tenure.jobs import http, identity, maintenance, shell
from tests.kit.tables import table

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "jobs.md").read_text()
MODULES = (shell, http, identity, maintenance)
SHIPPED = [
    registry.get(name) for name in registry.names() if registry.get(name).function.__module__.startswith("tenure.jobs.")
]
EXAMPLES: dict[str, dict[str, Any]] = {}
for block in re.findall(r"^```yaml\n(schedules:.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL):
    EXAMPLES |= yaml.safe_load(block)["schedules"]


def section(spec: JobSpec) -> str:
    """Return what the document says about one job."""
    _, _, rest = DOCUMENT.partition(f"# {spec.name}\n")
    return re.split(r"^## |^### ", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("spec", SHIPPED, ids=lambda spec: spec.name)
def test_every_job_is_in_the_table_as_it_is(spec: JobSpec) -> None:
    """Pool, queue, timeout and attempts decide how it behaves before any argument does."""
    seconds = int(spec.base.timeout_s)
    timeout = f"{seconds // 3600} h" if seconds % 3600 == 0 else f"{seconds // 60} min"
    row = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| [`{spec.name}`]"))

    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:5] == [spec.kind.value, f"`{spec.base.queue}`", timeout, str(spec.base.retry.attempts)]


@pytest.mark.parametrize("spec", SHIPPED, ids=lambda spec: spec.name)
def test_every_argument_is_documented_with_its_default(spec: JobSpec) -> None:
    """An argument that nobody can find is not there; a wrong default is worse."""
    rows = {name: cell.strip() for name, cell in re.findall(r"^\| `(\w+)` \|([^|]*)\|", section(spec), re.MULTILINE)}
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(spec.function).parameters.items()
        if name != spec.context_parameter
    }

    assert list(rows) == list(parameters)
    for name, parameter in parameters.items():
        default = parameter.default
        if default is inspect.Parameter.empty:
            assert rows[name] == "", name
        elif default is not None:
            shown = (
                str(default).lower()
                if isinstance(default, bool)
                else f"{default:g}"
                if isinstance(default, float)
                else str(default)
            )
            assert rows[name] == f"`{shown}`", name


@table("name", EXAMPLES)
def test_every_example_can_be_used(name: str) -> None:
    """People copy examples before they read."""
    schedule = ScheduleSettings.model_validate(EXAMPLES[name])

    assert set(schedule.args) <= set(registry.get(schedule.job).check(schedule.args))


def test_every_job_has_an_example() -> None:
    """The shortest documentation that works."""
    assert {schedule["job"] for schedule in EXAMPLES.values()} == {spec.name for spec in SHIPPED}


def test_the_modules_to_list_are_those_that_exist() -> None:
    """The first line that a reader copies."""
    assert f"jobs: [{', '.join(module.__name__.rpartition('.')[2] for module in MODULES)}]" in DOCUMENT
