"""The serving certificate of a real kubelet, taken away until a test approves the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.node.kubelet import ROOT
from tests.support.node.node import TIMEOUT_SECONDS, RealNode
from tests.support.waiting import await_that

_DIRECTORY = ROOT / "pki"
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class ServingCertificate:
    """The serving certificate of a kubelet that has requested it."""

    def __init__(self, node: RealNode) -> None:
        self._node = node

    @property
    def is_issued(self) -> bool:
        """Whether the kubelet has stored the certificate."""
        return (_DIRECTORY / "kubelet-server-current.pem").exists()

    def approve(self) -> None:
        """Approve the kubelet's request. The controller manager then issues the certificate."""
        await_that(self._node.approve_certificates, "the kubelet requests a certificate")

    def issue(self) -> None:
        """Approve the kubelet's request, and wait until the kubelet serves with the certificate."""
        self.approve()
        await_that(self._node.serves, "the kubelet serves", TIMEOUT_SECONDS)


@contextmanager
def unapproved_certificate(node: RealNode) -> Iterator[ServingCertificate]:
    """Make the node one that has just joined: its kubelet waits for its serving certificate.

    At the end of the block the kubelet has it.
    """
    node.kubelet.stop()
    # The kubelet would wait for an earlier request.
    node.cluster.request("DELETE", _REQUESTS)
    for path in _DIRECTORY.glob("kubelet-server-*"):
        path.unlink()
    node.kubelet.start()
    certificate = ServingCertificate(node)
    try:
        yield certificate
    finally:
        if not certificate.is_issued:
            # An approved one is on its way.
            node.approve_certificates()
        await_that(node.serves, "the kubelet serves", TIMEOUT_SECONDS)
