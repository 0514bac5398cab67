"""Signatures of webhooks, judged by the code that docs/events.md gives to receivers."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.signing import signature
from tests.kit.tables import table

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "events.md"
SECRET = "0123456789abcdef"
NOW_MS = 1_767_225_600_123


def receiver() -> Any:
    """Return what the document tells receivers to write."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["is_genuine"]


is_genuine = receiver()


@given(secret=st.text(st.characters(codec="utf-8"), min_size=1), body=st.binary())
def test_a_receiver_takes_what_was_signed_with_its_secret(secret: str, body: bytes) -> None:
    """Whatever is in them, as bytes."""
    assert is_genuine(secret, signature(secret, body, wall_ms=NOW_MS), body, NOW_MS / 1000)


@table(
    ("header", "body", "now_s"),
    [
        (signature("another-secret-x", b"{}", wall_ms=NOW_MS), b"{}", NOW_MS / 1000),
        (signature(SECRET, b"{}", wall_ms=NOW_MS), b'{"a":1}', NOW_MS / 1000),
        (signature(SECRET, b"{}", wall_ms=NOW_MS), b"{}", NOW_MS / 1000 + 302),
        (signature(SECRET, b"{}", wall_ms=NOW_MS), b"{}", NOW_MS / 1000 - 302),
        (re.sub(r"t=\d+", "t=1767225700", signature(SECRET, b"{}", wall_ms=NOW_MS)), b"{}", 1767225700),
        ("", b"{}", NOW_MS / 1000),
        ("t=,v1=", b"{}", NOW_MS / 1000),
        ("t=x,v1=\udcff", b"{}", NOW_MS / 1000),
        ("garbage", b"{}", NOW_MS / 1000),
    ],
)
def test_a_forgery_and_a_replay_are_told_apart_from_a_request(header: str, body: bytes, now_s: float) -> None:
    """Another secret, another body, another time, too late, or nothing that is a signature."""
    assert not is_genuine(SECRET, header, body, now_s)


def test_the_form_of_a_signature_does_not_change() -> None:
    """Receivers are written once."""
    expected = hmac.new(b"secret", b"1000.body", hashlib.sha256).hexdigest()

    assert signature("secret", b"body", wall_ms=1_000_999) == f"t=1000,v1={expected}"
