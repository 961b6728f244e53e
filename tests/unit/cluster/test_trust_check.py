"""The verdict on what is served: kept for a moment, and never beyond a change."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from webhook.cluster import trust_check as acceptance
from webhook.cluster.trust_check import MAX_AGE_SECONDS, TrustCheck
from webhook.cluster.webhook_configuration import RegisteredWebhook
from webhook.tls.context import server_context
from webhook.tls.verify import verify_error

HOST = "podsettle.test.svc"


class Case:
    """A certificate that is served, and how often somebody tried it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handshakes = 0
        self.ca = trustme.CA()
        self.entries: tuple[RegisteredWebhook, ...] = (registered(self.ca),)
        expires = datetime(2027, 1, 1, tzinfo=UTC)
        self.certificates: Any = SimpleNamespace(context=server_context(), expires=expires)
        self.serve(self.ca)
        self.acceptance = TrustCheck(self.certificates, lambda: self.now)

    def serve(self, ca: trustme.CA) -> None:
        ca.issue_cert(HOST).configure_cert(self.certificates.context)

    def refused(self) -> bool:
        return bool(self.acceptance.errors(self.entries))


def registered(ca: trustme.CA) -> RegisteredWebhook:
    return RegisteredWebhook("opt-in", HOST, ca.cert_pem.bytes())


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    made = Case()

    def counted(*arguments: Any) -> str:
        made.handshakes += 1
        return verify_error(*arguments)

    monkeypatch.setattr(acceptance, "verify_error", counted)
    return made


def test_a_verdict_is_kept_for_a_moment(case: Case) -> None:
    for _ in range(100):
        assert not case.refused()
    assert case.handshakes == 1
    # The clock, too, can change it.
    case.now += MAX_AGE_SECONDS
    assert not case.refused()
    assert case.handshakes == 2


def test_other_entries_are_seen_at_once(case: Case) -> None:
    assert not case.refused()
    case.entries = (*case.entries, registered(trustme.CA()))
    assert case.refused()
    case.entries = case.entries[:1]
    assert not case.refused()


def test_another_certificate_is_seen_at_once(case: Case) -> None:
    assert not case.refused()
    case.serve(trustme.CA())
    case.certificates.expires = datetime(2028, 1, 1, tzinfo=UTC)
    assert case.refused()


def test_a_refusal_is_kept_as_well(case: Case) -> None:
    case.entries = (registered(trustme.CA()),)
    for _ in range(100):
        assert case.refused()
    assert case.handshakes == 1
