"""The development CA and its certificate, which `podsettle certs` and `make run` create."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from webhook.tls.certificate_directory import CertificateDirectory, CertificateError
from webhook.tls.issuing import alternative_names, issue_ca, issue_leaf

DEVELOPMENT_NAMES = ("localhost", "127.0.0.1", "::1")
_LIFETIME = timedelta(days=90)


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
    ca = issue_ca("podsettle development CA", _LIFETIME, moment)
    leaf = issue_leaf(ca, dict.fromkeys((*names, *_existing_names(directory))), _LIFETIME, moment)
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
        leaf = directory.load_checked()
        ca = x509.load_pem_x509_certificate(directory.ca.read_bytes())
        leaf.verify_directly_issued_by(ca)
    except (OSError, ValueError, TypeError, InvalidSignature, CertificateError):
        return False
    lifetime = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    is_due = now >= leaf.not_valid_before_utc + lifetime * 2 / 3
    return not is_due and set(names) <= set(alternative_names(leaf))


def _existing_names(directory: CertificateDirectory) -> tuple[str, ...]:
    """Return the names of the existing certificate, or none if it cannot be read."""
    try:
        return alternative_names(directory.load())
    except CertificateError:
        return ()


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
