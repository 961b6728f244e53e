"""Client certificates for /mutate."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.support.http_client import Client, InProcess, in_process, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.server_fixtures import make_components
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server.reviews.client_certs import ClientCAError, request_client_certificate

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
WHOLE = mutate(REVIEW)


def is_settled(client: Client) -> bool:
    client.send(WHOLE)
    return "patch" in review_in(client.answer())


@pytest.fixture
def client_ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def guarded(source: ManifestsSource, client_ca: trustme.CA, tmp_path: Path) -> Iterator[InProcess]:
    """A server whose /mutate requires a client certificate."""
    file = tmp_path / "client-ca.crt"
    client_ca.cert_pem.write_to_path(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    request_client_certificate(context, file)
    components = make_components(source, needs_certificate=True)
    with in_process(components, context) as running:
        yield running


def test_client_with_a_certificate_gets_reviews_answered(
    guarded: InProcess, client_ca: trustme.CA
) -> None:
    client = guarded.connect(client_ca.issue_cert("api-server.test"))
    for _ in range(3):
        assert is_settled(client)


def test_client_without_a_certificate_gets_probes_but_no_reviews(guarded: InProcess) -> None:
    assert guarded.connect().get("/livez").status == 200
    client = guarded.connect()
    client.send(WHOLE)
    answer = client.answer()
    assert answer.status == 403
    assert b"needs a client certificate" in answer.body  # type: ignore[attr-defined]
    web = guarded.connect(web=True)
    metrics = web.get("/metrics").body  # type: ignore[attr-defined]
    assert b'podsettle_requests_refused_total{status="403"} 1.0' in metrics


def test_web_port_has_no_reviews_if_they_need_a_certificate(
    guarded: InProcess, client_ca: trustme.CA
) -> None:
    for certificate in (None, client_ca.issue_cert("api-server.test")):
        client = guarded.connect(certificate, web=True)
        client.send(WHOLE)
        assert client.answer().status == 404
    assert guarded.connect(web=True).get("/openapi.json").body.count(b"/mutate") == 0  # type: ignore[attr-defined]


def test_client_ca_file_that_is_not_a_bundle_is_an_error(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(ClientCAError, match="No such file"):
        request_client_certificate(context, tmp_path / "none")
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(ClientCAError, match="is not a bundle"):
        request_client_certificate(context, tmp_path / "ca.crt")
