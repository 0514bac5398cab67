"""A directory with Cloudforet's files, and what they become."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.app.configuration import load
from supervisor.core.errors import ConfigError
from supervisor.core.jobs.registry import Registry, registry
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.triggers import trigger_of
from supervisor.settings.loader import Loaded
from supervisor.settings.schedules.complete import complete, import_jobs

DATA = Path(__file__).resolve().parent.parent.parent / "data" / "cloudforet"
QUEUES = "QUEUES: {q: {backend: spaceone.core.queue.redis_queue.RedisQueue, host: redis, port: 6379, channel: c}}\n"


class CloudforetDesk:
    """Writes files and loads them as `tenure run --compat cloudforet` does, from that directory."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        monkeypatch.chdir(directory)

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return Path(name)

    def copy(self, name: str) -> Path:
        """Copy the files of one variation here, Python sources without the suffix that keeps tools off them."""
        for source in (DATA / name).rglob("*"):
            if source.is_file():
                self.write(str(source.relative_to(DATA)).removesuffix(".txt"), source.read_text())
        return self.directory / name

    def load(self, *files: str | Path, compat: str | None = "cloudforet", **options: Any) -> Loaded:
        options = {"environ": {}, "flags": {}, **options}
        return load(files=[Path(file) for file in files], compat=compat, **options)

    def loads(self, text: str, **options: Any) -> Loaded:
        """Load one file with ``text``."""
        return self.load(self.write("application.yaml", text), **options)

    def schedules(self, text: str, **options: Any) -> Mapping[str, Any]:
        """Return the native schedules of one file, as plain data."""
        return native(self.loads(text, **options), "schedules")

    def entry(self, rest: str) -> Mapping[str, Any]:
        """Return the native schedule of one entry with a class that nobody has the source of."""
        body = "".join(f"    {line}\n" for line in rest.split("\n"))
        text = f"{QUEUES}SCHEDULERS:\n  s:\n    backend: pkg.mod.Scheduler\n    queue: q\n{body}"
        found: Mapping[str, Any] = self.schedules(text)["s"]
        return found

    def problems(self, text: str, **options: Any) -> list[str]:
        """Return every problem of one file, as a person reads it."""
        with pytest.raises(ConfigError) as caught:
            self.loads(text, **options)
        assert caught.value.exit_code == 78
        return [str(problem) for problem in caught.value.problems]

    def problems_of(self, *files: str | Path, **options: Any) -> list[str]:
        """Return every problem of files that were written before."""
        with pytest.raises(ConfigError) as caught:
            self.load(*files, **options)
        return [str(problem) for problem in caught.value.problems]

    def entry_problems(self, rest: str) -> list[str]:
        """Return the problems of one entry."""
        with pytest.raises(ConfigError) as caught:
            self.entry(rest)
        return [str(problem) for problem in caught.value.problems]


def native(loaded: Loaded, section: str) -> Any:
    """Return one section of what the files became."""
    assert loaded.conversion is not None
    node = loaded.conversion.root.child(section)
    return None if node is None else node.plain()


def notices(loaded: Loaded) -> tuple[str, ...]:
    """Return what was said about the conversion."""
    assert loaded.conversion is not None
    return loaded.conversion.notices


def completed(loaded: Loaded) -> tuple[ScheduleDef, ...]:
    """Return the schedules as Redis would keep them; jobs that other tests registered have no part in it."""
    assert import_jobs(loaded.settings.jobs) == []
    own = Registry()
    for name in registry.names():
        if name.startswith("cloudforet."):
            own.add(registry.get(name))
    return complete(loaded, own)


def due(loaded: Loaded, begin_ms: int, end_ms: int) -> dict[str, list[int]]:
    """Return when each schedule is due after ``begin_ms``, up to ``end_ms``."""
    return {each.id: list(trigger_of(each).nominals(begin_ms, end_ms)) for each in completed(loaded)}
