"""Versions agree everywhere, and the workflows run nothing that a person cannot run."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from supervisor.version import __version__
from tests.kit.tables import table
from tests.releasing import chart_version, refusal

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))
MAKEFILE = (ROOT / "Makefile").read_text()


def jobs(workflow: Path) -> dict[str, dict[str, Any]]:
    """Return the jobs of a workflow by name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(workflow.read_text())["jobs"]
    return found


def before(name: str, found: dict[str, dict[str, Any]]) -> set[str]:
    """Return a job and all that it waits for."""
    needs = found[name].get("needs", [])
    named = [needs] if isinstance(needs, str) else needs
    return {name}.union(*(before(each, found) for each in named))


def steps(workflow: Path) -> list[dict[str, Any]]:
    """Return the steps of all jobs of a workflow."""
    return [step for job in jobs(workflow).values() for step in job.get("steps", ())]


@pytest.mark.parametrize(
    ("version", "of_chart"),
    [
        ("1.2.3", "1.2.3"),
        ("1.2.3.dev1", "1.2.3-dev.1"),
        ("1.2.3rc1", "1.2.3-rc.1"),
        ("1.2.3.1", "1.2.3+hotfix.1"),
        ("0.10.0", "0.10.0"),
    ],
)
def test_a_version_is_pep_440_and_gives_one_of_the_chart(version: str, of_chart: str) -> None:
    """The first is read by pip, the second by Helm; pip must not write ours in another way."""
    assert str(Version(version)) == version
    assert chart_version(version) == of_chart
    assert refusal(f"v{version}", version) is None


@table(
    "version", ["", "1.2", "1.2.3dev1", "1.2.3-rc1", "01.2.3", "1.2.3.0", "1.2.3rc0", "1.2.3a1", "1.2.3.dev1+local", "v1.2.3", "1.2.3\n"]
)  # fmt: skip
def test_another_version_is_not_released(version: str) -> None:
    """Spellings that mean the same to pip are two files to a person."""
    assert "is no version of ours" in str(refusal(f"v{version}", version))


def test_versions_are_in_the_order_of_their_making() -> None:
    """Development before candidates, candidates before the release, its repair after it."""
    order = ["1.2.2", "1.2.3.dev1", "1.2.3.dev2", "1.2.3rc1", "1.2.3rc2", "1.2.3", "1.2.3.1", "1.2.4.dev1"]

    assert all(Version(earlier) < Version(later) for earlier, later in itertools.pairwise(order))


@pytest.mark.parametrize("tag", ["v9.9.9", __version__, f"v{__version__}.1", ""])
def test_a_tag_that_is_not_the_version_is_not_released(tag: str) -> None:
    """Otherwise the wheel of a release has another version than its name."""
    assert f"supervisor/version.py says {__version__}" in str(refusal(tag, __version__))


def test_every_place_has_the_version_of_one_file() -> None:
    """supervisor/version.py; whoever releases changes it and the chart, and this names what was forgotten."""
    assert chart_version(__version__)
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"] == {
        "path": "supervisor/version.py"
    }
    chart = yaml.safe_load((ROOT / "deploy/helm/tenure/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (chart_version(__version__), __version__)
    written = [ROOT / "Dockerfile", *(ROOT / "deploy/kustomize").rglob("*.yaml"), ROOT / "deploy/compose.yaml"]
    pinned = {each for path in written for each in re.findall(r"\btenure:(\d[\w.]*)", path.read_text())}
    assert pinned <= {__version__}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_the_least_rights_and_pinned_actions(workflow: Path) -> None:
    """A token that may write is given to the one job that needs it, and never left in the checkout."""
    whole = yaml.safe_load(workflow.read_text())

    assert whole["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
            assert f"{step['uses']} # v" in workflow.read_text(), "what renews it reads the version"
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    assert all("timeout-minutes" in job for job in jobs(workflow).values() if "steps" in job)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_targets_that_exist_and_takes_nothing_from_outside_into_a_shell(workflow: Path) -> None:
    """What fails there can be repeated at home; a branch name must not become a command."""
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    targets = [each.split()[1] for each in commands if each.startswith("make ")]

    assert targets
    assert all("${{" not in each for each in commands)
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def test_a_release_says_where_it_was_built_and_is_let_go_by_a_person() -> None:
    """Attestations for files and image, a signature of the image, and an environment that has reviewers."""
    found = jobs(ROOT / ".github/workflows/release.yaml")

    for name in ("files", "image"):
        used = {step["uses"].partition("@")[0] for step in found[name]["steps"] if "uses" in step}
        assert {"actions/attest-build-provenance", "actions/attest-sbom"} <= used
        assert found[name]["permissions"]["attestations"] == found[name]["permissions"]["id-token"] == "write"
    assert any(step.get("run", "").startswith("cosign sign") for step in found["image"]["steps"])
    for name in found:
        if "write" in {found[name].get("permissions", {}).get(each) for each in ("contents", "packages")}:
            assert "release" in {found[each].get("environment") for each in before(name, found)}, f"{name} asks nobody"


def test_what_is_built_and_tested_is_what_the_locks_name() -> None:
    """Every file by its digest, from no index by name; the lock satisfies each floor of pyproject.toml."""
    for path in (ROOT / "requirements").glob("*.txt"):
        entries = re.findall(r"(?m)^([a-z0-9][\w.-]*)==\S+(?: ; [^\\]*)? \\\n    --hash=sha256:", path.read_text())
        assert entries, path.name
        assert len(entries) == len(re.findall(r"(?m)^[a-z]", path.read_text())), path.name
        assert "://" not in path.read_text(), path.name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = dict(re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", (ROOT / "requirements/image.txt").read_text()))
    for name, floor in (each.partition(";")[0].strip().split(">=") for each in project["dependencies"]):
        assert Version(locked[name]) >= Version(floor), name
    for text in (MAKEFILE, (ROOT / "Dockerfile").read_text()):
        assert "--require-hashes" in text


def test_every_image_of_others_stands_by_version_and_digest() -> None:
    """A tag alone may mean other content tomorrow, a digest alone is renewed by nobody; one image has one version everywhere."""
    named = {
        path: re.findall(r"(?m)^(?:FROM|[ \t-]*image:)[ \t]+([^\s{]+)", path.read_text())
        for path in (ROOT / "Dockerfile", *(each for each in (ROOT / "deploy").rglob("*") if each.is_file()))
    }
    foreign = {
        path: found
        for path, images in named.items()
        if (found := {each for each in images if each.partition(":")[0] != "tenure"})
    }
    images = set().union(*foreign.values())

    assert {path.name for path in foreign} == {"Dockerfile", "compose.yaml", "valkey.yaml"}
    assert [
        each for each in images if not re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+[a-z-]*@sha256:[0-9a-f]{64}", each)
    ] == []
    assert len({each.partition(":")[0] for each in images}) == len(images)


def test_renovate_finds_every_image_of_others() -> None:
    """It looks at a Dockerfile and at compose.yaml by itself, and at manifests where it is told to."""
    told = json.loads((ROOT / "renovate.json").read_text())
    patterns = [each.removeprefix("/").removesuffix("/") for each in told["kubernetes"]["managerFilePatterns"]]
    manifests = [each.relative_to(ROOT).as_posix() for each in (ROOT / "deploy/kustomize").rglob("*.yaml")]

    assert "docker:pinDigests" in told["extends"]
    assert all(any(re.search(pattern, each) for pattern in patterns) for each in manifests)


def test_the_floors_are_the_versions_that_are_tested() -> None:
    """A floor that nobody tried is a guess."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = dict(re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", (ROOT / "requirements/lowest.txt").read_text()))
    extras = [each for name, extra in project["optional-dependencies"].items() if name != "testing" for each in extra]
    floors = [each.partition(";")[0].strip().split(">=") for each in [*project["dependencies"], *extras]]

    assert [name for name, floor in floors if Version(lowest[re.sub(r"\[.*", "", name)]) != Version(floor)] == []


def test_every_python_that_is_promised_is_tested() -> None:
    """The classifiers are what people choose by."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    promised = [each.rpartition(" ")[2] for each in classifiers if re.search(r"Python :: 3\.\d+$", each)]

    assert jobs(ROOT / ".github/workflows/test.yaml")["test"]["strategy"]["matrix"]["python"] == promised
