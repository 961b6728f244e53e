"""A certificate authority of podsettle's own: decides when CA and leaf are created and replaced.

Pure: the stored certificates, the time and the CAs that clients trust go in, the certificates to
store come out. The rules:

- A leaf is replaced after two thirds of its lifetime, and whenever it does not match its names,
  its key or any CA.
- A CA is replaced after two thirds of its lifetime, and stays trusted until it expires: old and new
  overlap. The old one signs until clients have had the time to receive the new one. A leaf never
  outlives its CA.
- Stored data that cannot be read is ignored, and missing certificates are created. Stored data
  never raises an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from webhook.tls.certificates import KeyPair, clock_skew, issue_ca, issue_leaf

_CA, _CA_KEY = "ca.crt", "ca.key"
_LEAF, _LEAF_KEY = "tls.crt", "tls.key"
_CERTIFICATE_END, _KEY_END = b"-----END CERTIFICATE-----", b"-----END PRIVATE KEY-----"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long certificates are valid."""

    leaf: timedelta
    ca: timedelta

    def __post_init__(self) -> None:
        """Raise ValueError where a CA could expire before a leaf that it signed."""
        if not timedelta(seconds=3) <= self.leaf <= self.ca / 4:
            raise ValueError(
                "a certificate must be valid for at least 3s, and its CA four times as long"
            )

    @property
    def propagation(self) -> timedelta:
        """How long a new CA is registered before it signs, so that every API server receives it.

        An API server usually needs milliseconds. The hour covers one that is disconnected.
        """
        return min(timedelta(hours=1), self.ca / 20)

    def is_due(self, certificate: x509.Certificate, now: datetime) -> bool:
        """Return whether a leaf is to be replaced."""
        return _is_due(certificate, self.leaf, now)


@dataclass(frozen=True, slots=True)
class Authority:
    """CAs, newest first, the keys of those that may still sign, and the leaf to serve."""

    cas: tuple[x509.Certificate, ...] = ()
    keys: tuple[ec.EllipticCurvePrivateKey, ...] = ()
    leaf: KeyPair | None = None

    @classmethod
    def read(cls, contents: Mapping[str, bytes]) -> Authority:
        """Return an authority of all stored certificates and keys that can be read."""
        cas = {ca for ca in _certificates(contents.get(_CA, b"")) if _is_ca(ca)}
        certificate = next(_certificates(contents.get(_LEAF, b"")), None)
        key = next(_keys(contents.get(_LEAF_KEY, b"")), None)
        leaf = None
        if certificate and key and certificate.public_key() == key.public_key():
            leaf = KeyPair(certificate, key)
        return cls(_newest_first(cas), tuple(_keys(contents.get(_CA_KEY, b""))), leaf)

    @property
    def contents(self) -> dict[str, bytes]:
        """The data to store: PEM by file name."""
        stored = {_CA: self.bundle, _CA_KEY: b"".join(map(_key_pem, self.keys))}
        if self.leaf:
            stored |= {_LEAF: self.leaf.certificate_pem, _LEAF_KEY: self.leaf.key_pem}
        return stored

    @property
    def issuer(self) -> str:
        """The fingerprint of the CA that issued the leaf; empty where this CA is not stored."""
        if self.leaf is None:
            return ""
        leaf = self.leaf.certificate
        return next((fingerprint(ca) for ca in self.cas if _issued(ca, leaf)), "")

    @property
    def bundle(self) -> bytes:
        """The CAs that clients have to trust, PEM."""
        return b"".join(map(pem, self.cas))

    def renewed(
        self,
        names: Collection[str],
        lifetimes: Lifetimes,
        now: datetime,
        trusted: Collection[str] = (),
    ) -> Authority:
        """Return the authority to store at this time: the same object where nothing is due.

        `names` are the DNS names and addresses of the leaf, its subject first. `trusted` are the
        fingerprints of the CAs that clients have had the time to receive.
        """
        cas = tuple(ca for ca in self.cas if now < ca.not_valid_after_utc)
        keys = tuple(key for key in self.keys if any(_fits(key, ca) for ca in cas))
        signers = _signers(cas, keys, now)
        if all(_is_due(ca.certificate, lifetimes.ca, now) for ca in signers):
            made = issue_ca(f"podsettle CA {now:%Y-%m-%dT%H:%M:%SZ}", lifetimes.ca, now)
            cas, keys = _newest_first({made.certificate, *cas}), (made.key, *keys)
            signers = (made, *signers)
        leaf = self.leaf
        if leaf is None or not _is_valid(leaf.certificate, cas, names, lifetimes, now):
            leaf = issue_leaf(_signer(signers, lifetimes, now, trusted), names, lifetimes.leaf, now)
        if (cas, keys, leaf) == (self.cas, self.keys, self.leaf):
            return self
        return replace(self, cas=cas, keys=keys, leaf=leaf)


def pem(certificate: x509.Certificate) -> bytes:
    """Encode a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def fingerprint(certificate: x509.Certificate) -> str:
    """Return a certificate's SHA-256 in hex, as `openssl x509 -fingerprint` without colons."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def fingerprints(bundle: bytes) -> frozenset[str]:
    """Return the fingerprints of all readable certificates in a PEM bundle."""
    return frozenset(map(fingerprint, _certificates(bundle)))


def _newest_first(cas: Collection[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    order = sorted(cas, key=lambda ca: (ca.not_valid_before_utc, ca.serial_number), reverse=True)
    return tuple(order)


def _signer(
    signers: tuple[KeyPair, ...], lifetimes: Lifetimes, now: datetime, trusted: Collection[str]
) -> KeyPair:
    """Return the newest CA that clients trust, or the oldest where none is known to be trusted."""
    lasting = [ca for ca in signers if ca.certificate.not_valid_after_utc - now >= lifetimes.leaf]
    for ca in lasting:
        if fingerprint(ca.certificate) in trusted:
            return ca
    return lasting[-1]


def _signers(
    cas: tuple[x509.Certificate, ...], keys: tuple[ec.EllipticCurvePrivateKey, ...], now: datetime
) -> tuple[KeyPair, ...]:
    # A CA that is not valid yet was created by a replica whose clock was ahead.
    begun = (ca for ca in cas if ca.not_valid_before_utc <= now)
    return tuple(KeyPair(ca, key) for ca in begun for key in keys if _fits(key, ca))


def _is_valid(
    leaf: x509.Certificate,
    cas: tuple[x509.Certificate, ...],
    names: Collection[str],
    lifetimes: Lifetimes,
    now: datetime,
) -> bool:
    return (
        leaf.not_valid_before_utc <= now
        and not lifetimes.is_due(leaf, now)
        and set(_names(leaf)) == set(names)
        and any(_issued(ca, leaf) for ca in cas)
    )


def _is_due(certificate: x509.Certificate, lifetime: timedelta, now: datetime) -> bool:
    left = certificate.not_valid_after_utc - now
    # More than a whole lifetime is left where the clock was ahead, or lifetimes were longer.
    return not lifetime / 3 < left <= lifetime + clock_skew(lifetime)


def _issued(ca: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return leaf.not_valid_after_utc <= ca.not_valid_after_utc


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return found.value.ca


def _fits(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    return certificate.public_key() == key.public_key()


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in found.value)


def _certificates(text: bytes) -> Iterator[x509.Certificate]:
    """Yield the certificates of a PEM bundle, without those that cannot be read."""
    for part in text.split(_CERTIFICATE_END)[:-1]:
        try:
            certificate = x509.load_pem_x509_certificate(part + _CERTIFICATE_END)
            # The library parses these lazily. Errors are raised here, where they are caught.
            certificate.public_key(), certificate.extensions
        except Exception:  # noqa: S112 (a damaged certificate may raise any error)
            continue
        yield certificate


def _keys(text: bytes) -> Iterator[ec.EllipticCurvePrivateKey]:
    for part in text.split(_KEY_END)[:-1]:
        try:
            key = serialization.load_pem_private_key(part + _KEY_END, None)
        except Exception:  # noqa: S112 (as above)
            continue
        if isinstance(key, ec.EllipticCurvePrivateKey):
            yield key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
