"""Rules of webhooks of either kind: signing secrets, and credentials that nobody reads on the way."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pydantic import SecretStr

from supervisor.core.network.host_names import is_loopback
from supervisor.core.signing import WEBHOOK_SECRET_CHARS_MIN
from supervisor.settings.masking import MASK

READABLE = (
    "would be readable on the way to another machine",
    "write https://, or have requests signed by a secret instead, which is never sent",
)
MASKED = ("is the mask of a secret in printed settings", "put the secret back, or use ${file:…}")
_CREDENTIAL = re.compile(r"(?i)auth|cookie|token|key|secret|pass|credential")


def is_credential(header: str) -> bool:
    """Return whether a header of this name is meant to prove who sends it."""
    return _CREDENTIAL.search(header) is not None


def is_readable_on_the_way(url: str) -> bool:
    """Return whether data sent to ``url`` leave this machine without TLS."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def secret_fault(secret: SecretStr | None) -> tuple[str, str] | None:
    """Return the fault of a secret that signs, and the remedy; None without one."""
    if secret is None:
        return None
    if secret.get_secret_value() == MASK:
        return MASKED
    if len(secret.get_secret_value()) < WEBHOOK_SECRET_CHARS_MIN:
        return f"has fewer than {WEBHOOK_SECRET_CHARS_MIN} characters", "make it random: openssl rand -hex 32"
    return None
