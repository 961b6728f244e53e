"""The certificate source that reads `ca.crt`, `tls.crt` and `tls.key` from a directory.

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
from webhook.tls.authority import fingerprint
from webhook.tls.certificates import issue_ca, issue_leaf
from webhook.tls.context import server_context

log = logging.getLogger(__name__)

DEVELOPMENT_NAMES = ("localhost", "127.0.0.1", "::1")
_DEVELOPMENT_LIFETIME = timedelta(days=90)


class CertificateError(Exception):
    """A certificate directory cannot be used. The message names the file and the remedy."""


@dataclass(frozen=True, slots=True)
class CertificateDirectory:
    """The directory with the three files. The files need not exist."""

    path: Path

    @property
    def ca(self) -> Path:
        """The path of the CA that a client has to trust."""
        return self.path / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The path of the server's certificate."""
        return self.path / "tls.crt"

    @property
    def key(self) -> Path:
        """The path of the certificate's private key."""
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
        """Return a server's TLS context with the certificate. Raises CertificateError."""
        self.load()
        context = server_context()
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            # The certificate itself has been read, so any other error is one of the key.
            is_other_key = (error.reason or "").endswith("_MISMATCH")
            problem = f"not the private key of {self.certificate.name}"
            raise CertificateError(
                f"{self.key}: {problem if is_other_key else 'not a PEM private key'}; remove both "
                f"and create new ones with: podsettle certs --certs-dir {self.path}"
            ) from None
        except OSError as error:
            raise CertificateError(
                f"{self.key}: {error.strerror}; remove {self.certificate.name} and create new ones "
                f"with: podsettle certs --certs-dir {self.path}"
            ) from None
        return context

    def names(self) -> tuple[str, ...]:
        """Return the DNS names and IP addresses of the server's certificate."""
        return _alternative_names(self.load())


class FileSource:
    """A source that serves the certificate of a directory and reloads it when it changes.

    The component that writes the files also registers their CA with the API server. Examples are
    cert-manager and OpenShift's service CA, which write a Secret that is mounted as the directory.
    """

    bundle: bytes | None = None

    def __init__(self, directory: CertificateDirectory) -> None:
        """Load the certificate. Raises CertificateError."""
        self.directory = directory
        self.context = directory.ssl_context()
        certificate = directory.load()
        self.expires = certificate.not_valid_after_utc
        self.fingerprint = fingerprint(certificate)
        self._load_error = ""
        self._loaded_versions: object = self._file_versions()

    @property
    def ready(self) -> bool:
        """Whether the served certificate has not expired."""
        return datetime.now(UTC) < self.expires

    @property
    def problem(self) -> str:
        """The error of the current files, and of an expired certificate, or an empty text."""
        expired = "" if self.ready else f"{self.directory.certificate}: expired at {self.expires}"
        return "; ".join(filter(None, (self._load_error, expired)))

    @property
    def problem_is_logged(self) -> bool:
        """Whether this source logs the problem. It does not log that the certificate expires."""
        return self.ready and bool(self._load_error)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Check for new files each second while the block runs, and serve them.

        Files whose key does not match the certificate are not loaded. The next check reads them
        again, because another component may just be writing them.
        """
        async with supervise(self._watch):
            yield

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1)
            versions = self._file_versions()
            if versions != self._loaded_versions:
                self._loaded_versions = versions if self._reload() else None

    def _reload(self) -> bool:
        """Load the files into the context in use. Return whether this succeeded."""
        try:
            # Load them into another context first. A key that does not match would break the
            # context in use.
            self.directory.ssl_context()
            self.context.load_cert_chain(self.directory.certificate, self.directory.key)
            certificate = self.directory.load()
            self.expires = certificate.not_valid_after_utc
            self.fingerprint = fingerprint(certificate)
        except (CertificateError, OSError) as error:
            failure = f"{error} (the previous certificate is still served)"
            if failure != self._load_error:
                log.error("%s", failure)
            self._load_error = failure
            return False
        self._load_error = ""
        log.info("%s: changed; the new certificate is served", self.directory.certificate)
        return True

    def _file_versions(self) -> tuple[object, ...]:
        """Return a value that differs if the certificate or the key was written again."""
        files = (self.directory.certificate, self.directory.key)
        return tuple((f.stat().st_mtime_ns, f.stat().st_ino) if f.exists() else None for f in files)


def ensure_development_certificates(
    directory: CertificateDirectory,
    names: tuple[str, ...] = DEVELOPMENT_NAMES,
    now: datetime | None = None,
) -> bool:
    """Create a CA and a certificate for `names` unless valid files exist.

    Returns whether files were created. The CA's key is not stored, so a client that trusts this CA
    trusts one certificate only. A certificate is replaced after two thirds of its lifetime. The
    new certificate also has the names of the old one. Raises CertificateError.
    """
    moment = now or datetime.now(UTC)
    if _is_reusable(directory, names, moment):
        return False
    ca = issue_ca("podsettle development CA", _DEVELOPMENT_LIFETIME, moment)
    leaf = issue_leaf(
        ca, dict.fromkeys((*names, *_existing_names(directory))), _DEVELOPMENT_LIFETIME, moment
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
    """Return whether the files are valid, have all `names` and are not due for renewal."""
    try:
        leaf = x509.load_pem_x509_certificate(directory.certificate.read_bytes())
        ca = x509.load_pem_x509_certificate(directory.ca.read_bytes())
        leaf.verify_directly_issued_by(ca)
        directory.ssl_context()
    except (OSError, ValueError, TypeError, InvalidSignature, CertificateError):
        return False
    lifetime = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    return now < leaf.not_valid_before_utc + lifetime * 2 / 3 and set(names) <= set(
        _alternative_names(leaf)
    )


def _existing_names(directory: CertificateDirectory) -> tuple[str, ...]:
    """Return the names of the existing certificate, or none if it cannot be read."""
    try:
        return directory.names()
    except CertificateError:
        return ()


def _alternative_names(leaf: x509.Certificate) -> tuple[str, ...]:
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
