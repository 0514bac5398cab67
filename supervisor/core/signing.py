"""Signatures by a shared key: of operators' requests to agents through Redis, and of webhooks.

Guarantees
    A proof is of these very words, for one cluster, and of one moment. It is compared in constant time.

Does not guarantee
    That it is used once: the receiver remembers obeyed requests for ``FRESH_MS``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass, field

FRESH_MS = 300_000
"""How far the clocks of signer and agent may be apart, and how long a proof is good."""

KEY_CHARS_MIN = 32
WEBHOOK_HEADER = "Tenure-Signature"
WEBHOOK_SECRET_CHARS_MIN = 16
_MARK = re.compile(r"\A(?P<by>.*) \[signed (?P<at_ms>[0-9]{1,15}) (?P<proof>[0-9a-f]{64})\]\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs and verifies for one cluster."""

    cluster: str
    key: str = field(repr=False)

    def sign(self, at_ms: int, *words: str) -> str:
        """Return the proof that whoever has the key wrote ``words`` at ``at_ms`` by its clock: 64 hex digits."""
        # A list as JSON: no two lists of words have the same text.
        text = json.dumps([self.cluster, at_ms, *words])
        return hmac.new(self.key.encode(), text.encode(), hashlib.sha256).hexdigest()

    def fault(self, proof: str, at_ms: int, now_ms: int, *words: str) -> str:
        """Return why a proof is not believed at ``now_ms``; empty when it is."""
        if not proof:
            return "it is not signed, and this cluster has a commands.key; use a configuration that names it"
        if not hmac.compare_digest(self.sign(at_ms, *words).encode(), proof.encode()):
            return "its signature is of another commands.key, or of another command"
        if abs(now_ms - at_ms) > FRESH_MS:
            return f"its signature is of {at_ms}, and the clock here says {now_ms}; set the clocks, or send it again"
        return ""

    def mark(self, by: str, at_ms: int, *words: str) -> str:
        """Return ``by`` with a proof behind it, for a record that has no other place for one."""
        return f"{by} [signed {at_ms} {self.sign(at_ms, by, *words)}]"

    def fault_of_mark(self, marked: str, now_ms: int, *words: str) -> str:
        """Return why a signature of ``mark`` is not believed; empty when it is."""
        match = _MARK.match(marked)
        if match is None:
            return self.fault("", 0, now_ms)
        return self.fault(match["proof"], int(match["at_ms"]), now_ms, match["by"], *words)


def without_mark(marked: str) -> str:
    """Return who asked, without the proof."""
    match = _MARK.match(marked)
    return marked if match is None else match["by"]


def signature(secret: str, body: bytes, *, wall_ms: int) -> str:
    """Return the value of ``WEBHOOK_HEADER`` for a request that is made now.

    ``t=1767225600,v1=5257a8…``: ``v1`` is HMAC-SHA256, in hex, of ``t`` (seconds since 1970), a dot and the body, with
    the secret as its key. docs/events.md has the receiver's part.
    """
    at_s = str(wall_ms // 1000)
    digest = hmac.new(secret.encode(), at_s.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"
