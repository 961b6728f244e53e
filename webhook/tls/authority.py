"""podsettle's certificate authority: decides when CA and leaf are created and replaced.

This module does no input or output. Its input is the stored certificates, the time and the CAs
that clients trust. Its output is the certificates to store. The rules:

- A leaf is replaced after two thirds of its lifetime, or earlier if its names are not the
  configured ones, if its key does not match, or if no stored CA has issued it.
- A new CA is created after two thirds of the lifetime of the old one. The old CA stays trusted
  until it expires. It signs leaves until clients have had the time to receive the new CA. A leaf
  never expires later than its CA.
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

from webhook.tls.issuing import (
    KeyPair,
    alternative_names,
    clock_skew,
    issue_ca,
    issue_leaf,
    key_pem,
)

# The API server refuses a CA that is not valid yet. So a CA must not begin at the time of a replica
# whose clock is ahead. Only a clock that is ahead by months causes a new CA, because the default
# lifetime of a CA is a year.
_BACKDATE = timedelta(days=400)

_CA, _CA_KEY = "ca.crt", "ca.key"
_LEAF, _LEAF_KEY = "tls.crt", "tls.key"
_CERTIFICATE_END, _KEY_END = b"-----END CERTIFICATE-----", b"-----END PRIVATE KEY-----"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long certificates are valid."""

    leaf: timedelta
    ca: timedelta

    def __post_init__(self) -> None:
        """Raise ValueError if a CA could expire before a leaf that it signed."""
        if not timedelta(seconds=3) <= self.leaf <= self.ca / 4:
            raise ValueError(
                "a certificate must be valid for at least 3s, and its CA four times as long"
            )

    @property
    def propagation(self) -> timedelta:
        """How long a new CA must be registered before it signs a leaf.

        Every API server must receive the CA in this time, which usually takes milliseconds. The
        hour covers an API server that is disconnected for a while.
        """
        return min(timedelta(hours=1), self.ca / 20)


@dataclass(frozen=True, slots=True)
class Authority:
    """The stored certificates: CAs, the private keys of CAs, and the leaf to serve.

    `cas` are sorted, the newest first. `keys` may lack the key of a CA, which then cannot sign.
    """

    cas: tuple[x509.Certificate, ...] = ()
    keys: tuple[ec.EllipticCurvePrivateKey, ...] = ()
    leaf: KeyPair | None = None

    @classmethod
    def read(cls, contents: Mapping[str, bytes]) -> Authority:
        """Return an authority of all stored certificates and keys that can be read."""
        cas = {ca for ca in _parse_certificates(contents.get(_CA, b"")) if _is_ca(ca)}
        certificate = next(_parse_certificates(contents.get(_LEAF, b"")), None)
        key = next(_parse_keys(contents.get(_LEAF_KEY, b"")), None)
        leaf = None
        if certificate and key and certificate.public_key() == key.public_key():
            leaf = KeyPair(certificate, key)
        return cls(_newest_first(cas), tuple(_parse_keys(contents.get(_CA_KEY, b""))), leaf)

    @property
    def contents(self) -> dict[str, bytes]:
        """The data to store: for each file name, its content (PEM)."""
        stored = {_CA: self.bundle, _CA_KEY: b"".join(map(key_pem, self.keys))}
        if self.leaf:
            stored |= {_LEAF: self.leaf.certificate_pem, _LEAF_KEY: self.leaf.key_pem}
        return stored

    @property
    def issuer_fingerprint(self) -> str:
        """The fingerprint of the CA that issued the leaf, or an empty text if it is not stored."""
        if self.leaf is None:
            return ""
        leaf = self.leaf.certificate
        return next((fingerprint(ca) for ca in self.cas if _has_issued(ca, leaf)), "")

    @property
    def bundle(self) -> bytes:
        """The CAs (PEM) that clients have to trust."""
        return b"".join(map(pem, self.cas))

    def renew(
        self,
        names: Collection[str],
        lifetimes: Lifetimes,
        now: datetime,
        trusted: Collection[str] = (),
    ) -> Authority:
        """Return the authority to store at this time, or this same object if nothing is due.

        `names` are the DNS names and addresses of the leaf, its subject first. `trusted` are the
        fingerprints of the CAs that clients have had the time to receive.
        """
        cas = tuple(ca for ca in self.cas if now < ca.not_valid_after_utc)
        keys = tuple(key for key in self.keys if any(_is_key_of(key, ca) for ca in cas))
        signers = _usable_signers(cas, keys, now)
        if all(is_due(ca.certificate, lifetimes.ca, now) for ca in signers):
            name = f"podsettle CA {now:%Y-%m-%dT%H:%M:%SZ}"
            new_ca = issue_ca(name, lifetimes.ca, now, _BACKDATE)
            cas, keys = _newest_first({new_ca.certificate, *cas}), (new_ca.key, *keys)
            signers = (new_ca, *signers)
        leaf = self.leaf
        if leaf is None or not _is_valid(leaf.certificate, cas, names, lifetimes, now):
            leaf = issue_leaf(
                _choose_signer(signers, lifetimes, now, trusted), names, lifetimes.leaf, now
            )
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
    return frozenset(map(fingerprint, _parse_certificates(bundle)))


def has_issuer(bundle: bytes, leaf: x509.Certificate) -> bool:
    """Return whether a CA in a PEM bundle has issued a leaf, whatever the time is."""
    return any(_has_issued(ca, leaf) for ca in _parse_certificates(bundle))


def _newest_first(cas: Collection[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    # The serial number makes the order of CAs with the same time definite.
    order = sorted(cas, key=lambda ca: (ca.not_valid_before_utc, ca.serial_number), reverse=True)
    return tuple(order)


def _choose_signer(
    signers: tuple[KeyPair, ...], lifetimes: Lifetimes, now: datetime, trusted: Collection[str]
) -> KeyPair:
    """Return the newest CA that clients trust, or the oldest CA if none is known to be trusted.

    Only CAs that are valid for the lifetime of a leaf are considered.
    """
    candidates = [
        ca for ca in signers if ca.certificate.not_valid_after_utc - now >= lifetimes.leaf
    ]
    for ca in candidates:
        if fingerprint(ca.certificate) in trusted:
            return ca
    return candidates[-1]


def _usable_signers(
    cas: tuple[x509.Certificate, ...], keys: tuple[ec.EllipticCurvePrivateKey, ...], now: datetime
) -> tuple[KeyPair, ...]:
    """Return the CAs that are valid and have a key, newest first."""
    # A CA that is not valid yet was created by a replica whose clock was ahead.
    already_valid = (ca for ca in cas if ca.not_valid_before_utc <= now)
    return tuple(KeyPair(ca, key) for ca in already_valid for key in keys if _is_key_of(key, ca))


def _is_valid(
    leaf: x509.Certificate,
    cas: tuple[x509.Certificate, ...],
    names: Collection[str],
    lifetimes: Lifetimes,
    now: datetime,
) -> bool:
    """Return whether a stored leaf need not be replaced."""
    return (
        leaf.not_valid_before_utc <= now
        and not is_due(leaf, lifetimes.leaf, now)
        and set(alternative_names(leaf)) == set(names)
        and any(_has_issued(ca, leaf) for ca in cas)
    )


def is_due(certificate: x509.Certificate, lifetime: timedelta, now: datetime) -> bool:
    """Return whether it is time to replace a certificate that is issued for `lifetime`."""
    remaining = certificate.not_valid_after_utc - now
    # More than the lifetime remains if the issuer's clock was ahead, or if lifetimes were longer.
    return not lifetime / 3 < remaining <= lifetime + clock_skew(lifetime)


def _has_issued(ca: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Return whether a CA has issued a leaf and does not expire before it."""
    try:
        leaf.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return leaf.not_valid_after_utc <= ca.not_valid_after_utc


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return extension.value.ca


def _is_key_of(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    return certificate.public_key() == key.public_key()


def _parse_certificates(text: bytes) -> Iterator[x509.Certificate]:
    """Yield the certificates of a PEM bundle. Skip certificates that cannot be read."""
    for part in text.split(_CERTIFICATE_END)[:-1]:
        try:
            certificate = x509.load_pem_x509_certificate(part + _CERTIFICATE_END)
            # The library parses these parts at their first use. Use them here, where errors are
            # caught.
            certificate.public_key(), certificate.extensions
        except Exception:  # noqa: S112 (a damaged certificate may raise any error)
            continue
        yield certificate


def _parse_keys(text: bytes) -> Iterator[ec.EllipticCurvePrivateKey]:
    """Yield the elliptic curve keys of a PEM text. Skip keys that cannot be read."""
    for part in text.split(_KEY_END)[:-1]:
        try:
            key = serialization.load_pem_private_key(part + _KEY_END, None)
        except Exception:  # noqa: S112 (a damaged key may raise any error)
            continue
        if isinstance(key, ec.EllipticCurvePrivateKey):
            yield key
