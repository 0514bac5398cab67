"""What a start tells: one event with everything that was chosen, and a warning for what is on its way out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from supervisor.app import announce as announcing
from supervisor.app.announce import CHANGED_MAX, VALUE_CHARS_MAX, announce, limit_metrics
from supervisor.core.jobs.registry import Registry
from supervisor.settings.loader import Loaded, load
from supervisor.settings.overrides import Flag
from supervisor.settings.schedules.complete import unserved
from supervisor.telemetry import metrics
from supervisor.version import __version__
from tests.kit.canary import CANARY

SLOTS = ("embedded", "agent", "scheduler", "web", "worker-io-0", "worker-io-1", "worker-cpu-0")


@pytest.fixture(autouse=True)
def _no_rules_left_behind() -> Iterator[None]:
    yield
    metrics.limit()


@pytest.fixture(autouse=True)
def _no_jobs_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start warns of queues that no pool of this replica serves, among them those of every job that is registered."""
    monkeypatch.setattr(announcing, "unserved", partial(unserved, known=Registry()))


def configured(directory: Path, text: str, **flags: object) -> Loaded:
    """Load a file and flags."""
    (directory / "t.yaml").write_text(text)
    return load(files=[directory / "t.yaml"], environ={"SECRET": CANARY}, flags=flags)


def told(loaded: Loaded) -> list[tuple[str, dict[str, Any]]]:
    """Return the log lines of a start."""
    lines: list[tuple[str, dict[str, Any]]] = []
    announce(loaded, (), SLOTS, lambda event, **fields: lines.append((event, fields)))
    return lines


def test_one_event_says_version_roles_digest_and_what_is_not_by_default(tmp_path: Path) -> None:
    """As kube's PrintFlags, but in one line, and only what differs."""
    ((event, fields),) = told(configured(tmp_path, "web: {port: 9000}\nfeatures: {AllBeta: true}\n"))

    assert (event, fields["version"]) == ("startup", __version__)
    assert fields["roles"] == ["embedded", "agent", "scheduler", "web", "worker-io*1", "worker-cpu*2"]
    assert fields["changed"] == {"web.port": 9000, "features.AllBeta": True}
    assert fields["changed_count"] == 2
    assert fields["features"] == ["FastCrashDetection"]
    assert len(fields["config_digest"]) == 16


def test_a_secret_is_not_in_it(tmp_path: Path) -> None:
    """Neither one that was written, nor one that a reference brought."""
    text = (
        f"redis:\n  url: redis://user:{CANARY}@h/0\n  password: ${{env:SECRET}}\n"
        "log: {file: '${env:SECRET}'}\nschedules: {a: {job: b, every: 1h, args: {t: '${env:SECRET}'}}}\n"
    )

    assert CANARY not in str(told(configured(tmp_path, text)))


def test_what_people_fill_as_they_like_is_counted_and_not_shown(tmp_path: Path) -> None:
    """A plugin's options and environment may hold anything under any name."""
    plugin = f"{{command: [run, {CANARY}], options: {{x: {CANARY}, y: 1}}, env: {{DSN: {CANARY}}}, secrets: {{k: {CANARY}}}}}"
    ((_, fields),) = told(configured(tmp_path, f"plugins: {{p: {plugin}}}\n"))

    assert CANARY not in str(fields)
    assert fields["changed"]["plugins.p.options"] == 2
    assert fields["changed"]["plugins.p.env"] == 1
    assert fields["changed"]["plugins.p.command"] == ["run", "**********"]


def test_equal_configurations_have_equal_digests(tmp_path: Path) -> None:
    """Two replicas that log different digests do not run the same."""

    def digest(text: str) -> str:
        return str(told(configured(tmp_path, text))[0][1]["config_digest"])

    assert digest("web: {port: 8080}\n") == digest("{}\n") == digest("cluster: default\n")
    assert digest("web: {port: 8081}\n") != digest("{}\n")


def test_the_event_is_bounded(tmp_path: Path) -> None:
    """A line of the log has 4 KiB: what is too much is counted, and what is too long is cut."""
    pools = "".join(
        f"  p{number}: {{kind: sync, prefetch: 2, processes: 1, recycle_age: 1h}}\n" for number in range(32)
    )
    fields = told(configured(tmp_path, f"workers:\n{pools}"))[0][1]

    assert len(fields["changed"]) == CHANGED_MAX
    assert fields["changed_count"] == 32 * 4
    long = {f"q{number}": 0.5 for number in range(32)}
    fields = told(configured(tmp_path, f"workers: {{io: {{kind: async, queues: [{', '.join(long)}]}}}}\n"))[0][1]
    assert len(fields["changed"]["workers.io.queues"]) == VALUE_CHARS_MAX + 1


def test_what_will_not_work_for_ever_is_warned_of_once_each(tmp_path: Path) -> None:
    """Flags of kube-scheduler with the version that refuses them, and rules that do nothing."""
    loaded = configured(
        tmp_path,
        "metrics: {label_allow: {tenure_enqeued_total: {job: [a]}}}\n",
        **{"web.host": Flag("--bind-address", "0.0.0.0")},
    )
    limit_metrics(loaded)
    lines = told(loaded)[1:]

    assert [(event, fields["level"]) for event, fields in lines] == [
        ("deprecated_setting", "warning"),
        ("metric_rule_unused", "warning"),
    ]
    assert (lines[0][1]["where"], lines[0][1]["name"]) == ("command line", "--bind-address")
    assert lines[1][1]["rule"] == "tenure_enqeued_total"


def test_a_start_without_any_pool_says_that_it_runs_no_jobs(tmp_path: Path) -> None:
    """Pools that are written take the place of the default ones, so who takes one away may be left without any."""
    warning = {"level": "warning", "where": f"{tmp_path / 't.yaml'}:1", "consequence": "this replica runs no jobs"}
    assert told(configured(tmp_path, "workers: {cpu: null}\n"))[1:] == [("no_workers", warning)]
    assert told(configured(tmp_path, "workers: {io: {kind: async}}\n"))[1:] == []
