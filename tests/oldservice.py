"""The service in tests/data/oldservice, moved over: its imports changed by the rules of docs/cloudforet-services.md."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parent / "data" / "oldservice"
RULES = (
    (re.compile(r"\bspaceone\.core\.error\b"), "supervisor.compat.cloudforet.error"),
    (re.compile(r"\bspaceone\.core(?:\.[a-z_.]+)?(?= import)"), "supervisor.compat.cloudforet"),
)


def move(directory: Path) -> None:
    """Write the package ``oldservice`` into ``directory``, with other imports and nothing else changed."""
    for source in SOURCE.rglob("*.txt"):
        text = source.read_text()
        for pattern, ours in RULES:
            text = pattern.sub(ours, text)
        target = directory / "oldservice" / source.relative_to(SOURCE).with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
