"""The command as a user types it: what it refuses, what it says about itself, and which value wins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.version import __version__
from tests.kit.launcher import tenure

ROOT = Path(__file__).resolve().parents[3]
NOWHERE = {"TENURE_REDIS__URL": "redis://127.0.0.1:1/0", "TENURE_CONFIG": "/no/such/file.yaml"}


def test_stray_arguments_are_refused_before_anything_starts(tmp_path: Path) -> None:
    """As kube-scheduler "does not take any arguments, got [...]": usage on stderr, exit 2, nothing made."""
    done = tenure(tmp_path, "run", "everything", "now")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: tenure run [OPTIONS]\n")
    assert "unexpected extra arguments (everything now)" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("--version",), ("--version=true",), ("--version", "run", "--bogus")])
def test_the_version_comes_before_anything_else(tmp_path: Path, words: tuple[str, ...]) -> None:
    """No configuration is read, no Redis asked: it works on a machine where nothing else does."""
    done = tenure(tmp_path, *words, **NOWHERE)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"tenure {__version__}\n", "")


def test_the_raw_version_says_everything_about_what_is_installed(tmp_path: Path) -> None:
    """What a bug report needs, as lines and as JSON."""
    raw = tenure(tmp_path, "--version=raw", **NOWHERE)
    told = tenure(tmp_path, "version", "-o", "json", **NOWHERE)

    assert raw.returncode == told.returncode == 0
    info = json.loads(told.stdout)
    assert info["version"] == __version__
    assert {"python", "implementation", "platform", "executable", "libraries"} <= info.keys()
    assert {"redis", "click", "pydantic"} <= info["libraries"].keys()
    assert f"version: {__version__}\n" in raw.stdout
    assert f"redis: {info['libraries']['redis']}\n" in raw.stdout


def test_another_word_after_version_is_a_usage_error(tmp_path: Path) -> None:
    """true, false or raw."""
    assert tenure(tmp_path, "--version=short").returncode == 2


def test_what_is_no_id_of_an_event_is_a_usage_error(tmp_path: Path) -> None:
    """Told before Redis is asked, which would refuse it as if the configuration were wrong."""
    done = tenure(tmp_path, "events", "--after", "yesterday", **NOWHERE | {"TENURE_CONFIG": ""})

    assert (done.returncode, done.stdout) == (2, "")
    assert "--after: is no id of an event" in done.stderr


# kube-scheduler's own cases (cmd/kube-scheduler/app/server_test.go, "leader election …"), and two of the rule itself.
LEASE, PERIOD, TIMEOUT = "lease_duration", "renew_period", "renew_timeout"
DEFAULTS = {LEASE: "5s", PERIOD: "1s", TIMEOUT: "750ms"}
CASES = {
    "flags along with a file that is silent": ("{}", ["--leader-elect-lease-duration=9s"], {}, {LEASE: "9s"}),
    "flags without a file": (None, ["--leader-elect-lease-duration=9s"], {}, {LEASE: "9s"}),
    "the file alone": (f"election: {{{LEASE}: 1m}}", [], {}, {LEASE: "1m"}),
    "flags and file, for different settings": (
        f"election: {{{LEASE}: 1m}}",
        ["--election-renew-timeout=500ms", "--leader-elect-retry-period=2s"],
        {},
        {LEASE: "1m", TIMEOUT: "500ms", PERIOD: "2s"},
    ),
    "neither": (None, [], {}, {}),
    "a flag that gives the default, over file and variable": (
        f"election: {{{LEASE}: 1m}}",
        ["--election-lease-duration=5s"],
        {"TENURE_ELECTION__LEASE_DURATION": "30s"},
        {LEASE: "5s"},
    ),
    "a variable over the file, where no flag was given": (
        f"election: {{{LEASE}: 1m}}",
        [],
        {"TENURE_ELECTION__LEASE_DURATION": "30s"},
        {LEASE: "30s"},
    ),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("case", CASES)
def test_a_flag_that_was_given_wins_and_a_default_never_does(tmp_path: Path, case: str) -> None:
    """What counts is whether somebody wrote it, not what it says."""
    text, flags, variables, expected = CASES[case]
    words = ["config", "show", *flags]
    if text is not None:
        (tmp_path / "t.yaml").write_text(text)
        words += ["--config", "t.yaml"]

    done = tenure(tmp_path, *words, **variables)

    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)["election"]
    assert {name: shown[name] for name in DEFAULTS} == DEFAULTS | expected


def test_a_flag_of_a_setting_is_named_in_the_problem(tmp_path: Path) -> None:
    """Whoever typed it has to find it."""
    done = tenure(tmp_path, "config", "validate", "--election_lease_duration", "5", "--web-port=x")

    assert done.returncode == 78
    assert done.stderr.splitlines() == [
        "--election-lease-duration: election.lease_duration: is not a duration, got 5; write 5s if seconds are meant",
        "--web-port: web.port: must be a whole number, got 'x'",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--election-lease-duraton", "5s"), "Did you mean '--election-lease-duration'?"),
        (("--election-lease-duration",), "requires an argument"),
        (("--feature-gates", "FastCrashDetection"), "is not NAME=true or NAME=false"),
    ],
)
def test_a_mistyped_flag_is_a_usage_error_with_the_nearest_one(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    """Exit 2, and the remedy."""
    done = tenure(tmp_path, "run", "--port", "0", *words)

    assert done.returncode == 2
    assert message in done.stderr


def test_every_setting_flag_is_listed_with_its_meaning(tmp_path: Path) -> None:
    """One list to search; a section at a time if wanted. No two settings share a flag."""
    everything = json.loads(tenure(tmp_path, "config", "flags", "-o", "json").stdout)
    election = json.loads(tenure(tmp_path, "config", "flags", "election", "-o", "json").stdout)

    flags = [row["flag"] for row in everything]
    assert len(flags) == len(set(flags))
    assert all(row["meaning"] for row in everything)
    assert {"--election-lease-duration", "--web-port", "--cluster", "--redis-url", "--log-level"} <= set(flags)
    assert {row["section"] for row in election} == {"election"}
    assert tenure(tmp_path, "config", "flags", "elections").returncode == 2


def test_flags_of_kube_scheduler_are_told_by_validate_and_work(tmp_path: Path) -> None:
    """Deprecated is not refused: exit 0, one line each on stderr."""
    (tmp_path / "t.yaml").write_text("election: {renew_period: 900ms}\n")

    done = tenure(tmp_path, "config", "validate", "t.yaml", "--bind-address", "0.0.0.0")

    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "deprecated: command line: --bind-address: is the old name of --web-host; it will be refused from 1.0 on",
    ]


def test_features_are_written_back_as_they_were_given(tmp_path: Path) -> None:
    """--feature-gates over the file, in the configuration that --write-config-to completes."""
    (tmp_path / "t.yaml").write_text("features: {AllAlpha: true}\n")
    words = ("run", "--config", "t.yaml", "--feature-gates=FastCrashDetection=true", "--write-config-to", "-")

    done = tenure(tmp_path, *words, TENURE_REDIS__URL="redis://127.0.0.1:1/0")

    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["features"] == {"AllAlpha": True, "FastCrashDetection": True}


def test_a_configuration_that_cannot_be_looked_at_is_told_by_a_start(tmp_path: Path) -> None:
    """A name that is too long stands for what this user may not see: 78, upon which no unit starts it again."""
    done = tenure(tmp_path, "run", "-c", f"{'a' * 300}.yaml", "--write-config-to", "-")

    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.endswith("a.yaml: cannot be read: File name too long\n")


durations = st.integers(min_value=1000, max_value=300_000).map(lambda ms: f"{ms}ms")


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(lease=durations, port=st.integers(0, 65_535), level=st.sampled_from(["debug", "info", "error"]))
def test_what_is_written_loads_to_the_same_and_needs_no_redis(
    tmp_path: Path, lease: str, port: int, level: str
) -> None:
    """--write-config-to is complete: loaded again, nothing is left to the defaults of that day."""
    values: dict[str, Any] = {"renew-period": "200ms", "renew-timeout": "100ms", "lease-duration": lease}
    words = [f"--election-{name}={value}" for name, value in values.items()]
    first = tenure(
        tmp_path,
        *("run", "--port", str(port), "--log-level", level, *words, "--write-config-to", "full.yaml"),
        TENURE_REDIS__URL="redis://127.0.0.1:1/0",
    )
    assert first.returncode == 0, first.stderr

    again = tenure(tmp_path, "run", "--config", "full.yaml", "--write-config-to", "-")

    assert again.stdout == (tmp_path / "full.yaml").read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_learns_to_complete_from_the_command_itself(tmp_path: Path, shell: str) -> None:
    """The script asks the command at each Tab: commands, options, and nothing that has to be kept in step."""
    script = tenure(tmp_path, "completion", shell)
    assert script.returncode == 0, script.stderr
    assert "_TENURE_COMPLETE" in script.stdout

    variables = {"_TENURE_COMPLETE": f"{shell}_complete", "COMP_WORDS": "tenure sched", "COMP_CWORD": "1"}
    if shell == "fish":
        variables["COMP_CWORD"] = "sched"
    done = tenure(tmp_path, **variables)
    assert "schedule" in done.stdout
