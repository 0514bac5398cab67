"""The certificate of HTTPS, read again when its files change.

Guarantees
    New connections get the new certificate within two beats of the web child; existing ones are not touched.
    Where clients need one, authorities that were taken out of the file vouch for nobody from then on.
    A pair that does not fit, as in the middle of a rotation, changes nothing: it is tried again, and logged.
"""

from __future__ import annotations

import ssl
from typing import Self

import structlog

from supervisor.roles.web.access.auth import WatchedFile
from supervisor.settings.sections.web import WebSettings
from supervisor.settings.web.check import tls_context

log = structlog.get_logger()


class Certificate:
    """One pair of files, perhaps with one of authorities, and the context that serves with them."""

    def __init__(self, cert_file: str, key_file: str, client_ca_file: str | None = None) -> None:
        self._paths = cert_file, key_file, client_ca_file
        self._files = [WatchedFile(path) for path in self._paths if path is not None]
        self._is_stale = False
        self._is_told = False
        self._context = tls_context(*self._paths)

    @classmethod
    def of(cls, settings: WebSettings) -> Self | None:
        """Return the one that is set, if any."""
        if settings.tls_cert_file is None or settings.tls_key_file is None:
            return None
        return cls(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)

    def current(self) -> ssl.SSLContext:
        """Return the TLS context for new connections."""
        return self._context

    def look(self) -> None:
        """Serve with the new content of the files, if that changed."""
        changes = [file.has_changed() for file in self._files]  # each is asked: none may be left for the next look
        if not (any(changes) or self._is_stale):
            return
        try:
            self._context = tls_context(*self._paths)
        except (OSError, ssl.SSLError) as error:
            if not self._is_told:
                log.warning("certificate_refused", reason=error.strerror or type(error).__name__)
            self._is_stale = self._is_told = True
        else:
            self._is_stale = self._is_told = False
            log.info("certificate_read", file=self._paths[0])
