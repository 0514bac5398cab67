"""The dashboard, asked of a real web child: with its policy for those who may read, and not for others."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from supervisor.roles.web import dashboard
from supervisor.settings.sections.models import Settings

HTML = {"Accept": "text/html,application/xhtml+xml"}


def test_a_browser_gets_the_dashboard_with_its_own_policy(tree: Any) -> None:
    """Also while Redis is away, which is when people look; everybody else gets the list as text."""
    tree.start()
    code, headers, page = tree.ask("/", **HTML)

    assert code == 200
    assert headers["Content-Security-Policy"] == dashboard.POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Redis does not answer" in page
    assert "worker-io-0" in page
    assert tree.ask("/")[2].startswith("/livez")


def test_who_may_not_read_is_asked_for_a_token(tree: Any, tmp_path: Path) -> None:
    """What the dashboard shows is behind the same token as /statusz, and so is the list of paths."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"reader  sha256:{hashlib.sha256(b'READER').hexdigest()}  read\n")
    tree.settings = Settings.model_validate({"cluster": "c1", "web": {"tokens_file": str(tokens)}})
    tree.start()
    shown, closed = tree.ask("/", **HTML, Authorization="Bearer READER")[2], tree.ask("/", **HTML)

    assert "worker-io-0" in shown
    assert closed[0] == 401
    assert "/livez" not in closed[2]
