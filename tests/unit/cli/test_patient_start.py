"""A start whose configuration imports what does not answer yet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from supervisor.app.configuration import load
from supervisor.cli.options import read_settings
from supervisor.cli.replica.run import PATIENCE_S, load_patiently
from supervisor.core.errors import EXIT_CONFIG, EXIT_RESTART, ConfigError, Problem
from supervisor.settings.loader import Loaded
from tests.kit.clock import FakeClock

AWAY = Problem("a.yaml:3", "IMPORT[0]", "https://config/x: cannot be reached", is_passing=True)
WRONG = Problem("a.yaml:4", "QUEUES", "must be a mapping")


class _Source:
    """A configuration that has these problems at one look after the other, the last of them for ever."""

    def __init__(self, *looks: tuple[Problem, ...]) -> None:
        self.looks = list(looks)
        self.count = 0

    def __call__(self) -> Loaded:
        self.count += 1
        problems = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if problems:
            raise ConfigError(problems)
        return load(files=[], environ={}, flags={})


def test_a_start_waits_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Problems that follow from the missing part are not told."""
    clock = FakeClock()
    source = _Source((AWAY, WRONG), (AWAY, WRONG), ())
    assert load_patiently(source, clock, pause=clock.advance).settings.schedules == {}
    told = capsys.readouterr().err
    assert told.count("cannot be reached") == 1
    assert "mapping" not in told
    assert source.count == 3


def test_a_start_gives_up_in_the_end_with_a_code_upon_which_it_is_started_again() -> None:
    """Five of these take longer than a service manager lets five failures take."""
    clock = FakeClock()
    source = _Source((AWAY, WRONG))
    began_ns = clock.elapsed_ns()
    with pytest.raises(ConfigError) as caught:
        load_patiently(source, clock, pause=clock.advance)
    assert caught.value.exit_code == EXIT_RESTART
    assert caught.value.problems == (AWAY, WRONG)
    assert clock.elapsed_ns() - began_ns == PATIENCE_S * 1_000_000_000


def test_a_wrong_configuration_ends_a_start_at_once() -> None:
    """Also where it shows only when the missing part is there."""
    for looks in [((WRONG,),), ((AWAY, WRONG), (WRONG,))]:
        clock = FakeClock()
        source = _Source(*looks)
        with pytest.raises(ConfigError) as caught:
            load_patiently(source, clock, pause=clock.advance)
        assert caught.value.exit_code == EXIT_CONFIG
        assert source.count == len(looks)


def test_a_start_that_waits_imports_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try would, and what a module opens as it is imported is looked for once the configuration is whole."""
    (tmp_path / "imported_too_early.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "application.yaml").write_text(f"IMPORT: [{{url: 'http://127.0.0.1:1/x', sha256: {'f' * 64}}}]\n")
    (tmp_path / "native.yaml").write_text("jobs: [imported_too_early]\n")
    with pytest.raises(ConfigError) as caught:
        read_settings([tmp_path / "application.yaml", tmp_path / "native.yaml"], compat="cloudforet", with_jobs=True)
    assert [each.is_passing for each in caught.value.problems] == [True]
    assert "imported_too_early" not in sys.modules
