"""A directory with `ca.crt`, `tls.crt` and `tls.key`, as a mounted TLS Secret has them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from webhook.tls.context import server_context
from webhook.tls.load_pem import load_pem


class CertificateError(Exception):
    """A certificate directory cannot be used. The message names the file and the remedy."""


class CertificateFiles(NamedTuple):
    """The contents of the files of a server's certificate. Each was read once."""

    certificate: bytes
    key: bytes


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
        return self._parse(self._read_certificate())

    def read(self) -> CertificateFiles:
        """Read the files. Raises CertificateError if one cannot be read."""
        certificate = self._read_certificate()
        try:
            return CertificateFiles(certificate, self.key.read_bytes())
        except OSError as error:
            raise CertificateError(
                f"{self.key}: {error.strerror}; remove {self.certificate.name} and create new ones "
                f"with: podsettle certs --certs-dir {self.path}"
            ) from None

    def load_into(self, context: ssl.SSLContext, files: CertificateFiles) -> x509.Certificate:
        """Make a context serve files that were read, and return the certificate.

        Raises CertificateError. If the key is not that of the certificate, the context then has a
        part of the files.
        """
        certificate = self._parse(files.certificate)
        try:
            load_pem(context, files.certificate, files.key)
        except ssl.SSLError as error:
            # OpenSSL does not say which of the files it refuses.
            problem = self._problem_of_key(certificate, files.key)
            wrong = f"{self.key}: {problem}" if problem else f"{self.certificate}: {error}"
            raise CertificateError(
                f"{wrong}; remove both and create new ones with: podsettle certs --certs-dir "
                f"{self.path}"
            ) from None
        return certificate

    def load_checked(self) -> x509.Certificate:
        """Return the server's certificate, whose key is its own. Raises CertificateError."""
        return self.load_into(server_context(), self.read())

    def _read_certificate(self) -> bytes:
        try:
            return self.certificate.read_bytes()
        except OSError as error:
            raise CertificateError(
                f"{self.certificate}: {error.strerror}; "
                f"create one with: podsettle certs --certs-dir {self.path}"
            ) from None

    def _problem_of_key(self, certificate: x509.Certificate, key_pem: bytes) -> str:
        """Return why a key is not that of a certificate. Empty if it is."""
        try:
            key = load_pem_private_key(key_pem, None)
        except TypeError:
            return "the private key has a password"
        except (ValueError, UnsupportedAlgorithm):
            return "not a PEM private key"
        is_its_key = key.public_key() == certificate.public_key()
        return "" if is_its_key else f"not the private key of {self.certificate.name}"

    def _parse(self, certificate: bytes) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificate(certificate)
        except ValueError as error:
            raise CertificateError(f"{self.certificate}: not a PEM certificate: {error}") from None
