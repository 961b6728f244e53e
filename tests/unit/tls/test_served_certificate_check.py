"""The verify error of each kind of wrong certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
import trustme

from webhook.tls.context import load_key_pair, server_context
from webhook.tls.issuing import KeyPair, issue_ca, issue_leaf
from webhook.tls.served_certificate_check import verify_error

DAY = timedelta(days=1)
HOST = "podsettle.podsettle.svc"


class Served(NamedTuple):
    ca: KeyPair
    context: ssl.SSLContext


def serve(age: timedelta = timedelta(0)) -> Served:
    now = datetime.now(UTC) - age
    ca = issue_ca("test CA", 2 * DAY, now)
    context = server_context()
    load_key_pair(context, issue_leaf(ca, [HOST], DAY, now))
    return Served(ca, context)


def test_one_matching_ca_in_the_bundle_is_sufficient() -> None:
    served, other = serve(), serve()
    for bundle in (served.ca, other.ca), (other.ca, served.ca):
        text = b"".join(ca.certificate_pem for ca in bundle)
        assert verify_error(served.context, HOST, text) == ""


def test_a_ca_with_the_same_name_and_another_key_is_refused() -> None:
    said = verify_error(serve().context, HOST, serve().ca.certificate_pem)
    assert "certificate" in said
    assert said.startswith("unable to get") or "signature" in said


def test_a_certificate_for_another_host_is_refused() -> None:
    served = serve()
    said = verify_error(served.context, "other.podsettle.svc", served.ca.certificate_pem)
    assert "other.podsettle.svc" in said


@pytest.mark.parametrize(
    ("age", "said"), [(1.5 * DAY, "certificate has expired"), (-DAY, "not yet valid")]
)
def test_a_certificate_outside_its_validity_is_refused(age: timedelta, said: str) -> None:
    served = serve(age)
    assert said in verify_error(served.context, HOST, served.ca.certificate_pem)


@pytest.mark.parametrize("bundle", [b"", b" \n"])
def test_an_empty_bundle_is_reported(bundle: bytes) -> None:
    assert verify_error(serve().context, HOST, bundle) == "no CA bundle is registered"


@pytest.mark.parametrize(
    "bundle",
    [
        b"rubbish",
        "Zertifikat für".encode(),
        b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ],
)
def test_a_bundle_without_pem_is_reported(bundle: bytes) -> None:
    assert "no certificate" in verify_error(serve().context, HOST, bundle)


def test_a_context_without_a_certificate_is_refused() -> None:
    assert verify_error(server_context(), HOST, serve().ca.certificate_pem)


def test_an_intermediate_ca_may_be_the_trust_anchor() -> None:
    """Go accepts a chain that ends at any trusted certificate; cert-manager's bundles need that."""
    root = trustme.CA()
    intermediate = root.create_child_ca()
    context = server_context()
    intermediate.issue_cert(HOST).configure_cert(context)
    assert verify_error(context, HOST, intermediate.cert_pem.bytes()) == ""


def test_a_requested_client_certificate_does_not_affect_verification() -> None:
    served = serve()
    served.context.load_verify_locations(cadata=served.ca.certificate_pem.decode())
    served.context.verify_mode = ssl.CERT_OPTIONAL
    assert verify_error(served.context, HOST, served.ca.certificate_pem) == ""


def test_the_minimum_is_tls_1_2() -> None:
    served = serve()
    assert served.context.minimum_version == ssl.TLSVersion.TLSv1_2
    served.context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert verify_error(served.context, HOST, served.ca.certificate_pem) == ""
