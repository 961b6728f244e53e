"""Issued certificates, verified by OpenSSL in a handshake as the API server verifies them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from webhook.tls.context import load_key_pair, server_context
from webhook.tls.issuing import issue_ca, issue_leaf
from webhook.tls.served_certificate_check import verify_error

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


def test_openssl_accepts_the_issued_names() -> None:
    context, ca = server_context(), issue_ca("test CA", DAY)
    load_key_pair(context, issue_leaf(ca, ["localhost", "::1"], DAY))
    for host in ("localhost", "::1"):
        assert verify_error(context, host, ca.certificate_pem) == ""
    assert "127.0.0.1" in verify_error(context, "127.0.0.1", ca.certificate_pem)
