"""The certificate source that reads a directory: `ca.crt`, `tls.crt` and `tls.key`.

The file names are those of a mounted Kubernetes TLS Secret.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from webhook.tasks import supervise
from webhook.tls.certificates import issue_ca, issue_leaf
from webhook.tls.context import server_context

log = logging.getLogger(__name__)

DEVELOPMENT_NAMES = ("localhost", "127.0.0.1", "::1")
_DEVELOPMENT_LIFETIME = timedelta(days=90)


class CertificateError(Exception):
    """A certificate directory cannot be used; the message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class CertificateDirectory:
    """The paths of the three files, which need not exist."""

    path: Path

    @property
    def ca(self) -> Path:
        """The CA that a client has to trust."""
        return self.path / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The certificate that the server presents."""
        return self.path / "tls.crt"

    @property
    def key(self) -> Path:
        """The private key of the certificate."""
        return self.path / "tls.key"

    def load(self) -> x509.Certificate:
        """Return the server's certificate. Raises CertificateError."""
        try:
            return x509.load_pem_x509_certificate(self.certificate.read_bytes())
        except OSError as error:
            raise CertificateError(
                f"{self.certificate}: {error.strerror}; "
                f"create one with: podsettle certs --certs-dir {self.path}"
            ) from None
        except ValueError as error:
            raise CertificateError(f"{self.certificate}: not a PEM certificate: {error}") from None

    def ssl_context(self) -> ssl.SSLContext:
        """Return a server's TLS context, TLS 1.2 or later. Raises CertificateError."""
        self.load()
        context = server_context()
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError:
            raise CertificateError(
                f"{self.key}: is not the private key of {self.certificate.name}; remove both and "
                f"create new ones with: podsettle certs --certs-dir {self.path}"
            ) from None
        except OSError as error:
            raise CertificateError(f"{self.key}: {error.strerror}") from None
        return context

    def names(self) -> tuple[str, ...]:
        """Return the DNS names and IP addresses of the server's certificate."""
        return _names(self.load())


class FileSource:
    """A source that serves the certificate of a directory and reloads it when it changes.

    The component that writes the files also registers their CA: for example cert-manager or
    OpenShift's service CA, through a mounted Secret.
    """

    bundle: bytes | None = None

    def __init__(self, directory: CertificateDirectory) -> None:
        """Load the certificate. Raises CertificateError."""
        self.directory = directory
        self.context = directory.ssl_context()
        self.expires = directory.load().not_valid_after_utc
        self._failure = ""
        self._loaded_version: object = self._version()

    @property
    def ready(self) -> bool:
        """Whether the served certificate has not expired."""
        return datetime.now(UTC) < self.expires

    @property
    def problem(self) -> str:
        """Why the current files are not served, and whether the served certificate has expired."""
        expired = "" if self.ready else f"{self.directory.certificate}: expired at {self.expires}"
        return "; ".join(filter(None, (self._failure, expired)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Check for new files each second while the block runs, and serve them.

        A key that does not match its certificate, as while files are written, is not loaded.
        """
        async with supervise(self._watch):
            yield

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1)
            version = self._version()
            if version != self._loaded_version:
                self._loaded_version = version if self._reload() else None

    def _reload(self) -> bool:
        try:
            # A trial context first: a key that does not match would break the context in use.
            self.directory.ssl_context()
            self.context.load_cert_chain(self.directory.certificate, self.directory.key)
            self.expires = self.directory.load().not_valid_after_utc
        except (CertificateError, OSError) as error:
            failure = f"{error} (the certificate that was read before stays in use)"
            if failure != self._failure:
                log.error("%s", failure)
            self._failure = failure
            return False
        self._failure = ""
        log.info("%s changed; the new certificate is served", self.directory.certificate)
        return True

    def _version(self) -> tuple[object, ...]:
        files = (self.directory.certificate, self.directory.key)
        return tuple((f.stat().st_mtime_ns, f.stat().st_ino) if f.exists() else None for f in files)


def ensure_development_certificates(
    directory: CertificateDirectory,
    names: tuple[str, ...] = DEVELOPMENT_NAMES,
    now: datetime | None = None,
) -> bool:
    """Create a CA and a certificate for `names` unless valid ones exist; return whether created.

    The CA's key is not kept: a client that trusts this CA trusts one certificate only. A
    certificate is replaced after two thirds of its lifetime. The new one keeps the old names.
    Raises CertificateError.
    """
    moment = now or datetime.now(UTC)
    if _is_reusable(directory, names, moment):
        return False
    ca = issue_ca("podsettle development CA", _DEVELOPMENT_LIFETIME, moment)
    leaf = issue_leaf(
        ca, dict.fromkeys((*names, *_known_names(directory))), _DEVELOPMENT_LIFETIME, moment
    )
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
        _write(directory.ca, ca.certificate_pem, 0o644)
        _write(directory.key, leaf.key_pem, 0o600)
        _write(directory.certificate, leaf.certificate_pem, 0o644)
    except OSError as error:
        raise CertificateError(f"{error.filename}: {error.strerror}") from None
    return True


def _is_reusable(directory: CertificateDirectory, names: tuple[str, ...], now: datetime) -> bool:
    try:
        leaf = x509.load_pem_x509_certificate(directory.certificate.read_bytes())
        ca = x509.load_pem_x509_certificate(directory.ca.read_bytes())
        leaf.verify_directly_issued_by(ca)
        directory.ssl_context()
    except (OSError, ValueError, TypeError, InvalidSignature, CertificateError):
        return False
    lifetime = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    return now < leaf.not_valid_before_utc + lifetime * 2 / 3 and set(names) <= set(_names(leaf))


def _known_names(directory: CertificateDirectory) -> tuple[str, ...]:
    try:
        return directory.names()
    except CertificateError:
        return ()


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in extension.value)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically, with these permissions. Raises CertificateError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None
