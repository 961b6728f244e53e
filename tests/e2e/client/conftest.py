"""The fixtures of tests of `podsettle wait` and `podsettle logs`."""

from __future__ import annotations

from tests.support.client_fixtures import kubelet, namespace, run

__all__ = ["kubelet", "namespace", "run"]
