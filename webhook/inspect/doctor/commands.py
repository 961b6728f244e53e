"""The commands that several pieces of advice share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from webhook.inspect.cluster_flags import Command, kubectl
from webhook.inspect.installation import Installation

CHART = "charts/podsettle"
"""The path of the chart in a checkout of the installed version."""
_HELM_FLAGS = ("--reset-then-reuse-values", "--server-side=true", "--force-conflicts")


def helm_upgrade(installation: Installation, *values: str) -> Command:
    """Return the command that writes all objects of the release again.

    `values` are flags that change values. Without a Helm release, the name of the Deployment stands
    for the release.
    """
    release = installation.helm_release or installation.name
    words = ("helm", "upgrade", release, CHART, "-n", installation.namespace, *_HELM_FLAGS, *values)
    return (words,)


def json_patch(
    kind: str, name: str, operations: Iterable[dict[str, Any]], namespace: str | None = None
) -> Command:
    """Return the command that applies a JSON patch to an object."""
    return _patch(kind, name, "json", list(operations), namespace)


def merge_patch(
    kind: str, name: str, body: dict[str, Any], namespace: str | None = None
) -> Command:
    """Return the command that applies a merge patch to an object."""
    return _patch(kind, name, "merge", body, namespace)


def only_report(policy: str) -> Command:
    """Return the command with which a policy reports and changes nothing."""
    return merge_patch("settlepolicy", policy, {"spec": {"action": "Audit"}})


def restart(installation: Installation) -> Command:
    """Return the command that replaces the replicas."""
    deployment = f"deployment/{installation.name}"
    return kubectl("-n", installation.namespace, "rollout", "restart", deployment)


def logs(installation: Installation, tail: int) -> Command:
    """Return the command that prints the last lines of each replica's log. -1 means all lines."""
    selector = ("-l", "app.kubernetes.io/component=webhook")
    return kubectl("-n", installation.namespace, "logs", *selector, "--prefix", f"--tail={tail}")


def _patch(kind: str, name: str, patch_type: str, body: object, namespace: str | None) -> Command:
    scope = ("-n", namespace) if namespace else ()
    text = json.dumps(body, separators=(",", ":"))
    return kubectl(*scope, "patch", kind, name, f"--type={patch_type}", "-p", text)
