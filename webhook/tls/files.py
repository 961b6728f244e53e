"""A certificate directory: `ca.crt`, `tls.crt`, `tls.key`, the names that Kubernetes uses."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from webhook.tls.issue import issue_ca, issue_leaf

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
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            raise CertificateError(
                f"{self.key}: {error.strerror or 'does not belong to tls.crt'}"
            ) from None
        return context


def ensure_development_certificates(
    directory: CertificateDirectory,
    names: tuple[str, ...] = DEVELOPMENT_NAMES,
    now: datetime | None = None,
) -> bool:
    """Make a CA and a certificate for `names` unless those there are good for them; whether made.

    The CA's key is thrown away once it has signed: whoever trusts this CA trusts one certificate.
    A certificate that is past two thirds of its life is replaced. Raises CertificateError.
    """
    moment = now or datetime.now(UTC)
    if _still_good(directory, names, moment):
        return False
    ca = issue_ca("podsettle development CA", _LIFE, moment)
    leaf = issue_leaf(ca, names, _LIFE, moment)
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
    return now < leaf.not_valid_before_utc + life * 2 / 3 and set(names) <= _names(leaf)


def _names(leaf: x509.Certificate) -> set[str]:
    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in extension.value}


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file whole or not at all, never readable by more than `mode` says."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
