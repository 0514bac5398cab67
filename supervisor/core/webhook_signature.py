"""The signature of webhooks: it distinguishes a request of Tenure's from a forgery, and a new one from a replay.

``Tenure-Signature: t=1767225600,v1=5257a8…``: ``v1`` is HMAC-SHA256, in hex, of ``t`` (when the request was made, in
seconds since 1970), a dot and the body, with the secret as its key. docs/events.md has the receiver's part.
"""

from __future__ import annotations

import hashlib
import hmac

HEADER = "Tenure-Signature"
SECRET_CHARS_MIN = 16


def signature(secret: str, body: bytes, *, wall_ms: int) -> str:
    """Return the value of ``HEADER`` for a request that is made now."""
    at_s = str(wall_ms // 1000)
    digest = hmac.new(secret.encode(), at_s.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"
