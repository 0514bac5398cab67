"""Features and old names in a configuration: from files, variables and flags, with the place of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor.core.errors import ConfigError
from supervisor.settings.deprecations import OLD_FLAGS, OLD_SETTINGS
from supervisor.settings.document import parse_path
from supervisor.settings.loader import Loaded, load
from supervisor.settings.overrides import Flag
from supervisor.settings.schema import settings_shape

VALUES = {"election.retry_period": "900ms", "web.bind_address": "0.0.0.0"}
SEEN = {"election.renew_period": 0.9, "web.host": "0.0.0.0"}


def loaded(
    path: Path, text: str = "", *, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> Loaded:
    """Load one file, variables and flags."""
    file = path / "t.yaml"
    file.write_text(text)
    return load(files=[file], environ=environ or {}, flags=flags or {})


def value_at(found: Loaded, path: str) -> object:
    """Return one setting as the program sees it."""
    section, _, key = path.partition(".")
    part = getattr(found.settings, section)
    return getattr(part, key, None) if hasattr(part, key) else getattr(part, f"{key}_s")


@pytest.mark.parametrize("name", OLD_SETTINGS)
def test_an_old_name_in_a_file_still_works_and_is_told_once(tmp_path: Path, name: str) -> None:
    """The configuration of yesterday starts today, and its owner knows until when."""
    section, _, key = name.partition(".")
    found = loaded(tmp_path, f"{section}: {{{key}: {VALUES[name]}}}\n")

    new = OLD_SETTINGS[name].new
    assert value_at(found, new) == SEEN[new]
    (notice,) = found.notices
    assert str(notice) == (
        f"{tmp_path / 't.yaml'}:1: {name}: is the old name of {new}; "
        f"it will be refused from {OLD_SETTINGS[name].removed_in} on"
    )
    assert found.settings.deprecated == 1
    assert found.origins[new] == f"{tmp_path / 't.yaml'}:1"


@pytest.mark.parametrize("name", OLD_SETTINGS)
def test_an_old_name_in_a_variable_or_set_still_works(tmp_path: Path, name: str) -> None:
    """Every layer knows the same names."""
    variable = f"TENURE_{name.upper().replace('.', '__')}"
    new = OLD_SETTINGS[name].new

    by_variable = loaded(tmp_path, environ={variable: VALUES[name]})
    by_set = loaded(tmp_path, flags={name: VALUES[name]})

    assert value_at(by_variable, new) == value_at(by_set, new) == SEEN[new]
    assert [notice.name for notice in by_variable.notices] == [variable]
    assert [notice.name for notice in by_set.notices] == [f"--set {name}"]


@pytest.mark.parametrize("flag", OLD_FLAGS)
def test_an_old_flag_is_told_with_the_new_one(tmp_path: Path, flag: str) -> None:
    """Flags that kube-scheduler's command lines have: they work, and the new one is named."""
    new = OLD_FLAGS[flag].new
    value = "0.0.0.0" if new == "web.host" else "6s"
    if new == "election.renew_period":
        value = "800ms"
    found = loaded(tmp_path, flags={new: Flag(flag, value)})

    (notice,) = found.notices
    assert (notice.where, notice.name) == ("command line", flag)
    assert f"--{new.replace('.', '-').replace('_', '-')}" in notice.text


def test_both_names_in_one_file_are_a_problem(tmp_path: Path) -> None:
    """One of the two would be ignored, and nobody would know which."""
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, "election:\n  renew_period: 1s\n  retry_period: 900ms\n")

    (problem,) = raised.value.problems
    assert problem.where.endswith("t.yaml:3")
    assert problem.path == "election.retry_period"
    assert "is set in the same file" in problem.message


def test_layers_count_as_if_the_new_name_were_written(tmp_path: Path) -> None:
    """A variable with the old name goes over a file with the new one, as variables do."""
    found = loaded(tmp_path, "web: {host: 127.0.0.2}\n", environ={"TENURE_WEB__BIND_ADDRESS": "0.0.0.0"})

    assert found.settings.web.host == "0.0.0.0"
    assert found.origins["web.host"] == "TENURE_WEB__BIND_ADDRESS"


def test_the_table_of_old_names_holds() -> None:
    """What is new exists, and what is old does not."""
    shape = settings_shape()
    for name, old in [*OLD_SETTINGS.items(), *OLD_FLAGS.items()]:
        assert shape.at(parse_path(old.new) or ()) is not None, name
    for name in OLD_SETTINGS:
        assert shape.at(parse_path(name) or ()) is None, name


def test_a_feature_decides_where_its_setting_is_silent(tmp_path: Path) -> None:
    """FastCrashDetection switches election.presence on, unless that says otherwise itself."""
    assert loaded(tmp_path).settings.has_presence is False
    assert loaded(tmp_path, "features: {FastCrashDetection: true}\n").settings.has_presence is True
    assert loaded(tmp_path, environ={"TENURE_FEATURES__FASTCRASHDETECTION": "true"}).settings.has_presence is True
    assert loaded(tmp_path, "features: {AllBeta: true}\nelection: {presence: false}\n").settings.has_presence is False
    assert loaded(tmp_path, "election: {presence: true}\n").settings.has_presence is True


def test_features_of_a_flag_are_laid_over_those_of_files(tmp_path: Path) -> None:
    """One gate of many is changed on the command line; the others stay."""
    flags = {"features": Flag("--feature-gates", {"FastCrashDetection": False})}
    found = loaded(tmp_path, "features: {AllBeta: true}\n", flags=flags)

    assert found.settings.features == {"AllBeta": True, "FastCrashDetection": False}
    assert found.settings.has_presence is False


def test_an_unknown_feature_is_a_problem_with_its_place(tmp_path: Path) -> None:
    """A typing mistake in a gate would otherwise be a feature that is silently off."""
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, "version: 1\nfeatures:\n  FastCrashDetektion: true\n  AllAlpha: 1\n")

    told = [str(problem) for problem in raised.value.problems]
    assert told == [
        (
            f"{tmp_path / 't.yaml'}:3: features.FastCrashDetektion: is not a feature of this version; "
            "did you mean FastCrashDetection?"
        ),
        f"{tmp_path / 't.yaml'}:4: features.AllAlpha: must be true or false, got 1",
    ]
