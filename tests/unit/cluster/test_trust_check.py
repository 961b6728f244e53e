"""The cached check of the served certificate against the registered caBundles."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from webhook.cluster.trust_check import MAX_AGE_SECONDS, TrustCheck
from webhook.cluster.webhook_configuration import RegisteredWebhook
from webhook.tls.context import server_context
from webhook.tls.served_certificate_check import verify_error

HOST = "podsettle.test.svc"


class Case:
    """A served certificate, the registered webhooks, and the number of TLS handshakes."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handshakes = 0
        self.ca = trustme.CA()
        self.webhooks: tuple[RegisteredWebhook, ...] = (registered(self.ca),)
        expires = datetime(2027, 1, 1, tzinfo=UTC)
        self.certificates: Any = SimpleNamespace(context=server_context(), expires=expires)
        self.serve(self.ca)
        self.trust_check = TrustCheck(self.certificates, lambda: self.now, self.verify)

    def serve(self, ca: trustme.CA) -> None:
        ca.issue_cert(HOST).configure_cert(self.certificates.context)

    def verify(self, *arguments: Any) -> str:
        self.handshakes += 1
        return verify_error(*arguments)

    def has_errors(self) -> bool:
        return bool(self.trust_check.errors(self.webhooks))


def registered(ca: trustme.CA) -> RegisteredWebhook:
    return RegisteredWebhook(HOST, ca.cert_pem.bytes())


@pytest.fixture
def case() -> Case:
    return Case()


def test_result_is_cached_until_it_is_too_old(case: Case) -> None:
    for _ in range(100):
        assert not case.has_errors()
    assert case.handshakes == 1
    case.now += MAX_AGE_SECONDS
    assert not case.has_errors()
    assert case.handshakes == 2


def test_change_of_registered_webhooks_is_checked_at_once(case: Case) -> None:
    assert not case.has_errors()
    case.webhooks = (*case.webhooks, registered(trustme.CA()))
    assert case.has_errors()
    case.webhooks = case.webhooks[:1]
    assert not case.has_errors()


def test_new_certificate_is_checked_at_once(case: Case) -> None:
    assert not case.has_errors()
    case.serve(trustme.CA())
    case.certificates.expires = datetime(2028, 1, 1, tzinfo=UTC)
    assert case.has_errors()


@pytest.mark.parametrize("bundles", [1, 2, 3])
def test_webhooks_that_share_host_and_bundle_need_one_handshake(case: Case, bundles: int) -> None:
    other = [registered(trustme.CA()) for _ in range(bundles - 1)]
    case.webhooks = (*case.webhooks, *other) * 20
    assert len(case.trust_check.errors(case.webhooks)) == len(other)
    assert case.handshakes == bundles


def test_errors_are_cached_too(case: Case) -> None:
    case.webhooks = (registered(trustme.CA()),)
    for _ in range(100):
        assert case.has_errors()
    assert case.handshakes == 1
