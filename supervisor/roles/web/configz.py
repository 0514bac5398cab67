"""The effective settings as /configz shows them: never a secret.

Secrets are typed (``SecretStr``) and shown as ``***``. The arguments of schedules are
shown by name only: any of them may have been interpolated from a file or a variable.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from supervisor.core import features
from supervisor.settings.models import Settings
from supervisor.telemetry.masking import MASK, mask

_PYDANTIC_MASK = "**********"


def masked_settings(settings: Settings) -> dict[str, Any]:
    """Return ``settings`` as people write them, with nothing in it that must not be read."""
    shown: dict[str, Any] = settings.model_dump(mode="json", by_alias=True)
    for schedule in shown["schedules"].values():
        schedule["args"] = sorted(schedule["args"])
    masked: dict[str, Any] = mask(_shorten(shown))
    masked["features"] = features.resolve(settings.features)  # all there are, not only those that were named
    masked["redis"]["url"] = where(settings.redis.url.get_secret_value())
    return masked


def where(url: str) -> str:
    """Return which server ``url`` means, without who we are there."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return MASK
    if not parts.scheme:
        return url if url == "embedded" else MASK
    user = f"{MASK}@" if "@" in parts.netloc else ""
    address = f"{host or ''}:{port}" if port is not None else host or ""
    return f"{parts.scheme}://{user}{address}{parts.path}"


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shorten(item) for item in value]
    return MASK if value == _PYDANTIC_MASK else value
