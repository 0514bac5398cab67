"""Rules of profiles and webhooks, as far as they can be checked without importing anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from supervisor.settings.base import Path
from supervisor.settings.masking import MASK
from supervisor.settings.rules.webhook_rules import READABLE, is_credential, is_readable_on_the_way, secret_fault
from supervisor.settings.schedules.checks import faults_of_checks
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.pipeline import WebhookSettings
from supervisor.settings.sections.violation import Violation

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # a token of RFC 9110
_HEADER_VALUE = re.compile(r"[^\0\r\n]{1,4096}\Z")


def faults_of_pipeline(settings: Settings) -> Iterator[Violation]:
    """Yield every broken rule of profiles and webhooks."""
    for name, profile in settings.profiles.items():
        path: Path = ("profiles", name)
        if profile.retry.base_s > profile.retry.cap_s:
            yield Violation(((*path, "retry", "base"), (*path, "retry", "cap")), "is more than cap", "shorten it")
        hooks = profile.hooks
        for index, entry in enumerate(hooks.enabled):
            if entry.endswith("*"):
                yield Violation(((*path, "hooks", "enabled", index),), "enables no hook by its name", "list each one")
            elif entry in hooks.enabled[:index]:
                yield Violation(((*path, "hooks", "enabled", index),), f"{entry!r} is listed twice", "remove one")
        yield from faults_of_checks((*path, "hooks"), hooks)
    for name, webhook in settings.webhooks.items():
        yield from _webhook(("webhooks", name), webhook)


def _webhook(path: Path, webhook: WebhookSettings) -> Iterator[Violation]:
    url = webhook.url.get_secret_value()
    fault = _fault_of_url(url)
    if fault:
        yield Violation(((*path, "url"),), fault, "write http:// or https:// with a host; secrets go into headers")
    is_readable = not fault and is_readable_on_the_way(url)
    if wrong := secret_fault(webhook.secret):
        yield Violation(((*path, "secret"),), *wrong)
    for name, value in webhook.headers.items():
        place: Path = (*path, "headers", name)
        if not _HEADER_NAME.match(name):
            yield Violation((place,), "cannot be the name of a header", "use letters, digits and -")
        elif value.get_secret_value() == MASK:
            remedy = "put the secret back, or use ${file:…}"
            yield Violation((place,), "is the mask of a secret in printed settings", remedy)
        elif not _HEADER_VALUE.match(value.get_secret_value()):
            yield Violation((place,), "holds no value that a header can have", "write 1 to 4096 characters on one line")
        elif is_readable and is_credential(name):
            yield Violation((place, (*path, "url")), *READABLE)
    if (webhook.cert_file is None) != (webhook.key_file is None):
        paths = ((*path, "cert_file"), (*path, "key_file"))
        yield Violation(paths, "a client certificate needs both cert_file and key_file", "set the other one too")
    is_tls = url.startswith("https://")
    for key in ("ca_file", "cert_file"):
        if getattr(webhook, key) is not None and not is_tls:
            yield Violation(((*path, key), (*path, "url")), "is used by https:// only", "use https://")


def _fault_of_url(url: str) -> str:
    """Return the fault of ``url``, which is not quoted: a part that does not belong into it may be a secret."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is no URL"
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "is no http URL"
    if MASK in url:
        return "holds the mask of a secret in printed settings"
    return "holds a user or password" if parts.username is not None or parts.password is not None else ""
