"""What a client says to a certificate, for every way in which it can be wrong."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
import trustme

from webhook.tls.certificates import KeyPair, issue_ca, issue_leaf
from webhook.tls.context import load, server_context
from webhook.tls.verify import objection

DAY = timedelta(days=1)
HOST = "podsettle.podsettle.svc"


class Served(NamedTuple):
    ca: KeyPair
    context: ssl.SSLContext


def serve(age: timedelta = timedelta(0)) -> Served:
    now = datetime.now(UTC) - age
    ca = issue_ca("test CA", 2 * DAY, now)
    context = server_context()
    load(context, issue_leaf(ca, [HOST], DAY, now))
    return Served(ca, context)


def test_a_good_certificate_finds_no_objection() -> None:
    served = serve()
    assert objection(served.context, HOST, served.ca.certificate_pem) == ""


def test_one_ca_of_several_is_enough() -> None:
    served, other = serve(), serve()
    for bundle in (served.ca, other.ca), (other.ca, served.ca):
        text = b"".join(ca.certificate_pem for ca in bundle)
        assert objection(served.context, HOST, text) == ""


def test_another_ca_of_the_same_name() -> None:
    said = objection(serve().context, HOST, serve().ca.certificate_pem)
    assert "certificate" in said
    assert said.startswith("unable to get") or "signature" in said


def test_another_host() -> None:
    served = serve()
    said = objection(served.context, "other.podsettle.svc", served.ca.certificate_pem)
    assert "other.podsettle.svc" in said


@pytest.mark.parametrize(
    ("age", "said"), [(1.5 * DAY, "certificate has expired"), (-DAY, "not yet valid")]
)
def test_another_time(age: timedelta, said: str) -> None:
    served = serve(age)
    assert said in objection(served.context, HOST, served.ca.certificate_pem)


@pytest.mark.parametrize("bundle", [b"", b" \n"])
def test_no_bundle(bundle: bytes) -> None:
    assert objection(serve().context, HOST, bundle) == "no CA bundle is registered"


@pytest.mark.parametrize(
    "bundle",
    [
        b"rubbish",
        "Zertifikat für".encode(),
        b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ],
)
def test_a_bundle_that_is_none(bundle: bytes) -> None:
    assert "no certificate" in objection(serve().context, HOST, bundle)


def test_a_server_without_a_certificate() -> None:
    assert objection(server_context(), HOST, serve().ca.certificate_pem)


def test_an_intermediate_may_be_what_is_trusted() -> None:
    """Go ends a chain at whatever it is told to trust; cert-manager's bundles rely on it."""
    root = trustme.CA()
    intermediate = root.create_child_ca()
    context = server_context()
    intermediate.issue_cert(HOST).configure_cert(context)
    assert objection(context, HOST, intermediate.cert_pem.bytes()) == ""


def test_a_client_certificate_that_is_asked_for_is_no_matter() -> None:
    served = serve()
    served.context.load_verify_locations(cadata=served.ca.certificate_pem.decode())
    served.context.verify_mode = ssl.CERT_OPTIONAL
    assert objection(served.context, HOST, served.ca.certificate_pem) == ""


def test_the_minimum_is_tls_1_2() -> None:
    served = serve()
    assert served.context.minimum_version == ssl.TLSVersion.TLSv1_2
    served.context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert objection(served.context, HOST, served.ca.certificate_pem) == ""
