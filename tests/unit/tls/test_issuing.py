"""Issued certificates and the TLS context that serves them, as the API server verifies them."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store

from webhook.tls.context import load_key_pair, server_context
from webhook.tls.issuing import KeyPair, alternative_names, issue_ca, issue_leaf
from webhook.tls.served_certificate_check import verify_error

DAY = timedelta(days=1)
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def test_a_leaf_verifies_for_its_names_alone_and_during_its_lifetime() -> None:
    ca, names = issue_ca("test CA", DAY, NOW), ("podsettle.podsettle.svc", "127.0.0.1")
    leaf = issue_leaf(ca, names, DAY, NOW).certificate
    for at in (NOW, NOW + DAY):
        builder = PolicyBuilder().store(Store([ca.certificate])).time(at)
        builder.build_server_verifier(x509.DNSName(names[0])).verify(leaf, [])
    assert alternative_names(leaf) == names
    assert leaf.not_valid_before_utc == NOW - timedelta(minutes=5)


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


@pytest.mark.parametrize(
    ("suite", "accepted"),
    [
        ("ECDHE-ECDSA-AES128-GCM-SHA256", True),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", True),
        ("ECDHE-ECDSA-AES128-SHA256", False),
        ("ECDHE-ECDSA-AES256-SHA384", False),
    ],
)
def test_tls_1_2_client_gets_aead_suites_only(suite: str, accepted: bool) -> None:
    context, ca = server_context(), issue_ca("test CA", DAY)
    load_key_pair(context, issue_leaf(ca, ["localhost"], DAY))
    asking = ssl.create_default_context(cadata=ca.certificate_pem.decode())
    asking.maximum_version = ssl.TLSVersion.TLSv1_2
    asking.set_ciphers(suite)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    serving = context.wrap_bio(to_server, to_client, server_side=True)
    with pytest.raises(ssl.SSLWantReadError if accepted else ssl.SSLError) as caught:
        serving.do_handshake()
    assert accepted or caught.value.reason == "NO_SHARED_CIPHER"


def test_a_handshake_under_way_keeps_the_certificate_it_began_with() -> None:
    context = server_context()
    old, new = issue_ca("old", DAY), issue_ca("new", DAY)
    load_key_pair(context, issue_leaf(old, ["localhost"], DAY))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=old.certificate_pem.decode())
    asking = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    serving = context.wrap_bio(to_server, to_client, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        asking.do_handshake()
    load_key_pair(context, issue_leaf(new, ["localhost"], DAY))
    with pytest.raises(ssl.SSLWantReadError):
        serving.do_handshake()
    asking.do_handshake()
    serving.do_handshake()


def test_a_key_of_another_certificate_is_refused() -> None:
    ca = issue_ca("test CA", DAY)
    one, other = (issue_leaf(ca, ["localhost"], DAY) for _ in range(2))
    with pytest.raises(ssl.SSLError):
        load_key_pair(server_context(), KeyPair(one.certificate, other.key))


def test_load_key_pair_leaves_no_file_descriptor_open() -> None:
    pair = issue_leaf(issue_ca("test CA", DAY), ["localhost"], DAY)
    before = len(os.listdir("/proc/self/fd"))
    load_key_pair(server_context(), pair)
    assert len(os.listdir("/proc/self/fd")) == before
