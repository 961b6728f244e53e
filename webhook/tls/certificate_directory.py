"""A directory with `ca.crt`, `tls.crt` and `tls.key`, as a mounted TLS Secret has them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from webhook.tls.context import server_context


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


def _alternative_names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in extension.value)
