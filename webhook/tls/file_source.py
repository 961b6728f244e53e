"""A certificate directory: `ca.crt`, `tls.crt`, `tls.key`, the names that Kubernetes uses."""

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
_LIFE = timedelta(days=90)


class CertificateError(Exception):
    """A certificate directory that cannot be served from, and what to do about it."""


@dataclass(frozen=True, slots=True)
class CertificateDirectory:
    """The three files, whether they are there or not."""

    path: Path

    @property
    def ca(self) -> Path:
        """What a client has to trust."""
        return self.path / "ca.crt"

    @property
    def certificate(self) -> Path:
        """What the server shows."""
        return self.path / "tls.crt"

    @property
    def key(self) -> Path:
        """The key to it."""
        return self.path / "tls.key"

    def load(self) -> x509.Certificate:
        """The server's certificate. Raises CertificateError."""
        try:
            return x509.load_pem_x509_certificate(self.certificate.read_bytes())
        except OSError as error:
            raise CertificateError(
                f"{self.certificate}: {error.strerror}; "
                f"make one with: podsettle certs --certs-dir {self.path}"
            ) from None
        except ValueError as error:
            raise CertificateError(f"{self.certificate}: not a PEM certificate: {error}") from None

    def ssl_context(self) -> ssl.SSLContext:
        """A server's TLS context: TLS 1.2 or later. Raises CertificateError."""
        self.load()
        context = server_context()
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError:
            raise CertificateError(
                f"{self.key}: is not the private key of {self.certificate.name}; remove both and "
                f"make new ones with: podsettle certs --certs-dir {self.path}"
            ) from None
        except OSError as error:
            raise CertificateError(f"{self.key}: {error.strerror}") from None
        return context

    def names(self) -> tuple[str, ...]:
        """The DNS names and addresses that the server's certificate is for."""
        return _names(self.load())


class FileSource:
    """Serves the certificate of a directory, as it is now.

    Whoever writes the files, such as cert-manager or OpenShift's service CA by way of a mounted
    Secret, also registers their CA.
    """

    bundle: bytes | None = None

    def __init__(self, directory: CertificateDirectory) -> None:
        """Raises CertificateError."""
        self.directory = directory
        self.context = directory.ssl_context()
        self.expires = directory.load().not_valid_after_utc
        self._failure = ""
        self._seen: object = self._signature()

    @property
    def ready(self) -> bool:
        """Whether the certificate is one that has not expired."""
        return datetime.now(UTC) < self.expires

    @property
    def problem(self) -> str:
        """Why the files as they are now are not served, or that what is served has expired."""
        expired = "" if self.ready else f"{self.directory.certificate}: expired at {self.expires}"
        return "; ".join(filter(None, (self._failure, expired)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look once a second for new files, and serve them without a restart.

        A pair that does not fit, as while it is being written, leaves the old one in place.
        """
        async with supervise(self._watch):
            yield

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1)
            signature = self._signature()
            if signature != self._seen:
                self._seen = signature if self._reload() else None

    def _reload(self) -> bool:
        try:
            # On a context of its own first: a key that does not fit would spoil the one in use.
            self.directory.ssl_context()
            self.context.load_cert_chain(self.directory.certificate, self.directory.key)
            self.expires = self.directory.load().not_valid_after_utc
        except (CertificateError, OSError) as error:
            failure = f"{error} (the certificate read before is served on)"
            if failure != self._failure:
                log.error("%s", failure)
            self._failure = failure
            return False
        self._failure = ""
        log.info("%s changed and is served from now on", self.directory.certificate)
        return True

    def _signature(self) -> tuple[object, ...]:
        files = (self.directory.certificate, self.directory.key)
        return tuple((f.stat().st_mtime_ns, f.stat().st_ino) if f.exists() else None for f in files)


def ensure_development_certificates(
    directory: CertificateDirectory,
    names: tuple[str, ...] = DEVELOPMENT_NAMES,
    now: datetime | None = None,
) -> bool:
    """Make a CA and a certificate for `names` unless those there are good for them; whether made.

    The CA's key is thrown away once it has signed: whoever trusts this CA trusts one certificate.
    A certificate that is past two thirds of its life is replaced; a new one keeps the names of the
    old. Raises CertificateError.
    """
    moment = now or datetime.now(UTC)
    if _still_good(directory, names, moment):
        return False
    ca = issue_ca("podsettle development CA", _LIFE, moment)
    leaf = issue_leaf(ca, dict.fromkeys((*names, *_known_names(directory))), _LIFE, moment)
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
        _write(directory.ca, ca.certificate_pem, 0o644)
        _write(directory.key, leaf.key_pem, 0o600)
        _write(directory.certificate, leaf.certificate_pem, 0o644)
    except OSError as error:
        raise CertificateError(f"{error.filename}: {error.strerror}") from None
    return True


def _still_good(directory: CertificateDirectory, names: tuple[str, ...], now: datetime) -> bool:
    try:
        leaf = x509.load_pem_x509_certificate(directory.certificate.read_bytes())
        ca = x509.load_pem_x509_certificate(directory.ca.read_bytes())
        leaf.verify_directly_issued_by(ca)
        directory.ssl_context()
    except (OSError, ValueError, TypeError, InvalidSignature, CertificateError):
        return False
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    return now < leaf.not_valid_before_utc + life * 2 / 3 and set(names) <= set(_names(leaf))


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
    """Write a file whole or not at all, never readable by more than `mode` says."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None
