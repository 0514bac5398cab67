"""Loading configurations from texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from supervisor.app.configuration import load
from supervisor.core.errors import ConfigError, Problem
from supervisor.settings.loader import Loaded
from tests.unit.settings.cloudforet_desk import CloudforetDesk


class ConfigurationFiles:
    """A directory with configuration files, and what loading them says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: list[Path] = []

    def write(self, name: str, text: str) -> Path:
        """Write a file that is not loaded by itself, such as one in conf.d."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def add(self, text: str, name: str = "tenure.yaml") -> Path:
        """Write a file and load it from now on, after those added before."""
        path = self.write(name, text)
        self.files.append(path)
        return path

    def load(self, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None) -> Loaded:
        """Load what was added."""
        return load(files=self.files, environ=environ or {}, flags=flags or {})

    def problems(
        self, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
    ) -> list[Problem]:
        """Load what must not load; places are given relative to the directory."""
        with pytest.raises(ConfigError) as caught:
            self.load(environ, flags)
        prefix = f"{self.directory}/"
        return [
            Problem(
                problem.where.replace(prefix, ""), problem.path, problem.message.replace(prefix, ""), problem.remedy
            )
            for problem in caught.value.problems
        ]

    def lines(self, *args: Mapping[str, object]) -> list[str]:
        """Return the problems as they are printed."""
        return [str(problem) for problem in self.problems(*args)]


@pytest.fixture
def desk(tmp_path: Path) -> ConfigurationFiles:
    """An empty directory to write configurations in."""
    return ConfigurationFiles(tmp_path)


@pytest.fixture
def problems_of(desk: ConfigurationFiles) -> Callable[[str], list[str]]:
    """Return every problem of one file, as printed."""

    def problems(text: str) -> list[str]:
        desk.add(text)
        return desk.lines()

    return problems


@pytest.fixture
def cloudforet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CloudforetDesk:
    """A directory for files in Cloudforet's format."""
    return CloudforetDesk(tmp_path, monkeypatch)
