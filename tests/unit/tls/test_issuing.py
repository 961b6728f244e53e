"""Issued certificates, verified by OpenSSL in a handshake as the API server verifies them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from webhook.tls.issuing import issue_ca, issue_leaf

DAY = timedelta(days=1)
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def verify(name: str, at: datetime) -> None:
    ca = issue_ca("test CA", DAY, NOW)
    leaf = issue_leaf(ca, ["podsettle.podsettle.svc", "127.0.0.1"], DAY, NOW)
    builder = PolicyBuilder().store(Store([ca.certificate])).time(at)
    verifier = builder.build_server_verifier(x509.DNSName(name))
    verifier.verify(leaf.certificate, [])


def test_a_leaf_verifies_for_its_names_during_its_lifetime() -> None:
    verify("podsettle.podsettle.svc", NOW)
    verify("podsettle.podsettle.svc", NOW + DAY)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("other.podsettle.svc", NOW),
        ("podsettle.podsettle.svc", NOW + DAY + timedelta(seconds=1)),
        ("podsettle.podsettle.svc", NOW - timedelta(minutes=6)),
    ],
)
def test_a_leaf_does_not_verify_for_another_name_or_time(name: str, at: datetime) -> None:
    with pytest.raises(VerificationError):
        verify(name, at)


def test_keys_are_p256_and_a_leaf_cannot_sign() -> None:
    ca = issue_ca("test CA", DAY)
    leaf = issue_leaf(ca, ["localhost"], DAY)
    for pair in (ca, leaf):
        assert isinstance(pair.key.curve, ec.SECP256R1)
    constraints = leaf.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca


def test_openssl_accepts_the_issued_pem_files(tmp_path: Path) -> None:
    ca = issue_ca("test CA", DAY)
    leaf = issue_leaf(ca, ["localhost", "::1"], DAY)
    (tmp_path / "crt").write_bytes(leaf.certificate_pem)
    (tmp_path / "key").write_bytes(leaf.key_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    client = ssl.create_default_context(cadata=ca.certificate_pem.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    pending = [one, other, one, other]
    for side in pending:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert one.cipher() is not None
    assert one.getpeercert()["subjectAltName"] == (  # type: ignore[index]
        ("DNS", "localhost"),
        ("IP Address", "0:0:0:0:0:0:0:1"),
    )
