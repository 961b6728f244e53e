"""Issues CA certificates, and leaf certificates that a CA signs.

All keys are P-256. The API server keeps at most 25 idle connections and opens a new one for each
further concurrent call. A P-256 handshake costs the server a tenth of the CPU time of an RSA-2048
handshake.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# As in kube-controller-manager (`Backdate` in kubernetes `pkg/controller/certificates/signer`).
_CLOCK_SKEW = timedelta(minutes=5)
# The upper bound of RFC 5280, appendix A.1. A longer name is cut, which is harmless: clients check
# the subject alternative names.
_MAX_COMMON_NAME_CHARACTERS = 64


def clock_skew(lifetime: timedelta) -> timedelta:
    """Return the difference between the clocks of issuer and client that is tolerated."""
    return min(_CLOCK_SKEW, lifetime / 10)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as PKCS 8 PEM, without a password."""
        return key_pem(self.key)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode a private key as PKCS 8 PEM, without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def alternative_names(leaf: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names and IP addresses of a certificate."""
    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in extension.value)


def issue_ca(
    common_name: str,
    lifetime: timedelta,
    now: datetime | None = None,
    backdate: timedelta | None = None,
) -> KeyPair:
    """Issue a CA that may sign leaves and no other CA.

    It is valid `backdate` before the current time. The default is the tolerated clock skew.
    """
    start = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    certificate = (
        _builder(name, name, key.public_key())
        .not_valid_before(start - (backdate or clock_skew(lifetime)))
        .not_valid_after(start + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def issue_leaf(
    ca: KeyPair, names: Iterable[str], lifetime: timedelta, now: datetime | None = None
) -> KeyPair:
    """Issue a server certificate for DNS names and IP addresses. The first one is its subject.

    Its validity begins together with the validity of the CA. If it began at the current time, a
    replica whose clock is days ahead would issue a certificate that clients do not accept yet.
    """
    hosts = list(names)
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(ca.key.public_key())
    certificate = (
        _builder(_name(hosts[0]), ca.certificate.subject, key.public_key())
        .not_valid_before(ca.certificate.not_valid_before_utc)
        .not_valid_after((now or datetime.now(UTC)) + lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(_general_name, hosts)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(ca.key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_MAX_COMMON_NAME_CHARACTERS])]
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )
