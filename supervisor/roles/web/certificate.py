"""The certificate of HTTPS, read again when its files change.

Guarantees
    New connections get the new certificate within two beats of the web child; those that stand are not touched.
    A pair that does not fit, as in the middle of a rotation, changes nothing: it is tried again, and the log says so.
"""

from __future__ import annotations

import ssl
from typing import Self

import structlog

from supervisor.roles.web.guard import WatchedFile
from supervisor.settings.web_check import tls_context
from supervisor.settings.web_settings import WebSettings

log = structlog.get_logger()


class Certificate:
    """One pair of files, and the context that serves with it."""

    def __init__(self, cert_file: str, key_file: str) -> None:
        self._files = WatchedFile(cert_file), WatchedFile(key_file)
        self._is_stale = False
        self._is_told = False
        self.context = tls_context(cert_file, key_file)

    @classmethod
    def of(cls, settings: WebSettings) -> Self | None:
        """Return the one that is set, if any."""
        if settings.tls_cert_file is None or settings.tls_key_file is None:
            return None
        return cls(settings.tls_cert_file, settings.tls_key_file)

    def look(self) -> None:
        """Serve with what the files hold now, if that changed."""
        changes = [file.has_changed() for file in self._files]  # each is asked: none may be left for the next look
        if not (any(changes) or self._is_stale):
            return
        cert_file, key_file = (file.path for file in self._files)
        try:
            tls_context(cert_file, key_file)  # aside first: a context that took half a pair serves nobody
            self.context.load_cert_chain(cert_file, key_file, password="")
        except (OSError, ssl.SSLError) as error:
            if not self._is_told:
                log.warning("certificate_refused", reason=error.strerror or type(error).__name__)
            self._is_stale = self._is_told = True
        else:
            self._is_stale = self._is_told = False
            log.info("certificate_read", file=cert_file)
