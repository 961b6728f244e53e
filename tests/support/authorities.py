"""CAs as others make them, and certificates that are wrong in one respect."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

_DAY = timedelta(days=1)
_KEY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_encipherment=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass
class Issued:
    """A certificate and its key, in one PEM file."""

    file: Path

    def configure(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self.file)


class Authority:
    """A CA with or without the two extensions that Python's strict verification wants."""

    def __init__(self, directory: Path, *, key_identifiers: bool, key_usage: bool) -> None:
        self.file = directory / "ca.pem"
        self._directory = directory
        self._key_identifiers = key_identifiers
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority")])
        builder = self._builder(self._name, self._key, timedelta(0)).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        if key_usage:
            builder = builder.add_extension(_KEY_USAGE, critical=True)
        self.file.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def issue(self, host: str, *, expired: bool = False, only_common_name: bool = False) -> Issued:
        """A certificate for an address or a name, which a server and a client may show."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        age = 3 * _DAY if expired else timedelta(0)
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        if only_common_name:
            subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
            builder = self._builder(subject, key, age)
        else:
            names = x509.SubjectAlternativeName([name])
            builder = self._builder(x509.Name([]), key, age).add_extension(names, critical=True)
        certificate = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False).sign(
            self._key, SHA256()
        )
        file = self._directory / f"{host}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(certificate.public_bytes(Encoding.PEM) + private)
        return Issued(file)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, age: timedelta
    ) -> x509.CertificateBuilder:
        begin = datetime.now(UTC) - _DAY - age
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + 2 * _DAY)
        )
        if not self._key_identifiers:
            return builder
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuers = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(own, False).add_extension(issuers, False)
