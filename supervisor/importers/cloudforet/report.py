"""Report of a conversion: problems that stop it, notices that do not, each once and with its place."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from supervisor.core.errors import Problem
from supervisor.settings.base import Path
from supervisor.settings.document import Node, format_path
from supervisor.settings.masking import echo, looks_secret

NOTICES_MAX = 100
PROBLEMS_MAX = 1000


@dataclass(slots=True)
class ImportReport:
    """Collects problems and notices."""

    problems: list[Problem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def problem(self, node: Node, path: Path, message: str, remedy: str, *, is_passing: bool = False) -> None:
        """Note a problem that keeps the configuration from being used, where ``node`` was written."""
        self.problems.append(Problem(node.origin, format_path(path), message, remedy, is_passing))

    def wrong(self, node: Node, path: Path, message: str, remedy: str = "correct it") -> None:
        """Note a problem of the value of ``node``, which the message ends with."""
        self.problem(node, path, f"{message}, got {shown(node, path[-1:])}", remedy)

    def remark(self, node: Node, path: Path, text: str) -> None:
        """Note a remark about a value, with its place."""
        self.notice(f"{node.origin}: {'.'.join(map(str, path))}: {text}")

    def is_about(self, path: Path) -> bool:
        """Return whether something below ``path`` is a problem already, or so much else that no more is looked for."""
        if len(self.problems) >= PROBLEMS_MAX:
            return True
        inside = f"{format_path(path)}."
        return any(inside in f"{problem.path}." for problem in self.problems)

    def notice(self, text: str) -> None:
        """Note a remark for people; the same text counts once."""
        if text not in self.notices and len(self.notices) < NOTICES_MAX:
            self.notices.append(text)


def shown(node: Node, path: Path = ()) -> str:
    """Return a value as a message may quote it: short, and not at all where its key looks like a secret's."""
    if any(looks_secret(step) for step in path):
        return "a value that is not shown"
    if isinstance(node.value, dict):
        return "a mapping"
    if isinstance(node.value, list):
        return "a list"
    if isinstance(node.value, str):
        return echo(node.value)
    return json.dumps(node.value)
