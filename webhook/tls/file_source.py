"""The certificate source that reads a `CertificateDirectory`, and reloads it when it changes."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

from webhook.tasks import supervise
from webhook.tls.authority import fingerprint
from webhook.tls.certificate_directory import (
    CertificateDirectory,
    CertificateError,
    CertificateFiles,
)
from webhook.tls.context import server_context

log = logging.getLogger(__name__)


class FileSource:
    """A source that serves the certificate of a directory and reloads it when it changes.

    The component that writes the files also registers their CA with the API server. Examples are
    cert-manager and OpenShift's service CA, which write a Secret that is mounted as the directory.
    """

    bundle: bytes | None = None

    def __init__(self, directory: CertificateDirectory) -> None:
        """Load the certificate. Raises CertificateError."""
        self.directory = directory
        self.context = server_context()
        self._load_error = ""
        self._serve(directory.read())

    @property
    def ready(self) -> bool:
        """Whether the served certificate has not expired."""
        return datetime.now(UTC) < self.expires

    @property
    def problem(self) -> str:
        """The error of the current files, and of an expired certificate, or an empty text."""
        expired = "" if self.ready else f"{self.directory.certificate}: expired at {self.expires}"
        return "; ".join(filter(None, (self._load_error, expired)))

    def running(self) -> AbstractAsyncContextManager[None]:
        """Check for new files each second while the block runs, and serve them.

        Files whose key does not match the certificate are not loaded. The next check reads them
        again, because another component may just be writing them.
        """
        return supervise(self._watch)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1)
            self._reload()

    def _reload(self) -> None:
        """Serve the files if they differ from those that are served."""
        try:
            files = self.directory.read()
            if files != self._served:
                self._serve(files)
                log.info("%s: changed; the new certificate is served", self.directory.certificate)
            self._load_error = ""
        except (CertificateError, OSError) as error:
            self._load_error = f"{error} (the previous certificate is still served)"

    def _serve(self, files: CertificateFiles) -> None:
        """Serve files that were read. Raises CertificateError, and OSError."""
        # Load them into another context first. A key that does not match would break the context in
        # use.
        self.directory.load_into(server_context(), files)
        certificate = self.directory.load_into(self.context, files)
        self.expires = certificate.not_valid_after_utc
        self.fingerprint = fingerprint(certificate)
        self._served = files
