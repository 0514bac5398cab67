"""Features and flags of kube-scheduler in a configuration: from files, variables and flags, with the place of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor.core.errors import ConfigError
from supervisor.settings.document import parse_path
from supervisor.settings.loader import Loaded, load
from supervisor.settings.overrides import OLD_FLAGS, Flag
from supervisor.settings.schema import settings_shape


def loaded(
    path: Path, text: str = "", *, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> Loaded:
    """Load one file, variables and flags."""
    file = path / "t.yaml"
    file.write_text(text)
    return load(files=[file], environ=environ or {}, flags=flags or {})


@pytest.mark.parametrize("flag", OLD_FLAGS)
def test_a_flag_of_kube_scheduler_is_told_with_the_one_here(tmp_path: Path, flag: str) -> None:
    """Flags that kube-scheduler's command lines have: they work, and the new one is named."""
    new = OLD_FLAGS[flag]
    value = "0.0.0.0" if new == "web.host" else "6s"
    if new == "election.renew_period":
        value = "800ms"
    found = loaded(tmp_path, flags={new: Flag(flag, value)})

    (notice,) = found.notices
    assert (notice.where, notice.name) == ("command line", flag)
    assert f"--{new.replace('.', '-').replace('_', '-')}" in notice.text


def test_names_of_settings_that_kubernetes_has_get_the_one_here(tmp_path: Path) -> None:
    """A file that was copied by hand: the remedy has the setting."""
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, "election:\n  retry_period: 900ms\nweb: {bind_address: 0.0.0.0}\n")

    assert [problem.remedy for problem in raised.value.problems] == ["did you mean renew_period?", "did you mean host?"]


def test_every_flag_that_still_works_has_a_setting() -> None:
    """The new one exists."""
    for flag, new in OLD_FLAGS.items():
        assert settings_shape().at(parse_path(new) or ()) is not None, flag


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
