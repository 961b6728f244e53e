"""Whether the API server reaches podsettle: a dry run of a pod, and the API server's counters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from webhook.cluster.errors import status_message
from webhook.cluster.rights import Right, access_to
from webhook.cluster.unread import NotAllowedError
from webhook.core.constants import ANNOTATION_SKIP
from webhook.core.types import Json
from webhook.inspect.cluster_flags import kubectl, podsettle
from webhook.inspect.doctor.checks.certificate import CERTIFICATE, TRUST
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.checks.configuration import CONFIGURATION
from webhook.inspect.doctor.checks.replicas import READINESS
from webhook.inspect.doctor.commands import helm_upgrade, restart
from webhook.inspect.doctor.model import Result, State, fault, ok, unknown, warning
from webhook.inspect.doctor.registration import (
    Deviation,
    foreign_conditions,
    restoring_advice,
    wrong_address,
)
from webhook.inspect.doctor.round_readings import Installed, is_ready
from webhook.inspect.doctor.target import NotSent, Target, find_target
from webhook.inspect.installation import Installation, refuses_pods

_MARK = "podsettle-doctor"
"""The remedy in the pod's annotation `skip`. There is none of this name, so podsettle answers with
a warning that names it. It changes nothing, because the request is a dry run."""
_FAIL_OPEN = re.compile(
    r"apiserver_admission_webhook_(?P<kind>fail_open|rejection)_count\{[^}]*"
    r'name="[^"]*\.podsettle\.dev"[^}]*\} (?P<count>\S+)'
)
_MAX_METRICS_BYTES = 64 * 1024 * 1024
_HTTPS_PORT = 443


async def _check_dry_run(installed: Installed) -> list[Result]:
    pods = await installed.pods()
    if not pods:
        return [unknown("no replica exists")]
    configuration = await installed.configuration() or {}
    target = await find_target(installed)
    if isinstance(target, str):
        return [unknown(f"{target}; choose a covered namespace with --in")]
    if isinstance(target, NotSent):
        advice = restoring_advice(configuration, installed.installation)
        return [Result(State.FAULT, str(target), advice)]
    right = Right("create", "", "pods", target.namespace)
    if (await access_to(installed.server, [right]))[right] == "denied":
        raise NotAllowedError(right)
    path = f"/api/v1/namespaces/{target.namespace}/pods?dryRun=All"
    answer = await installed.server.fetch(
        "POST", path, _probe_pod(target), accept="application/json"
    )
    if any(_MARK in text for text in answer.headers.getall("Warning", [])):
        return [ok(f"podsettle answered for a pod in namespace {target.namespace}")]
    message = status_message(answer.content)
    if answer.status < 300:
        effect = "pods are created without podsettle"
        found = [
            *wrong_address(configuration, installed.installation),
            *foreign_conditions(configuration, installed.installation),
        ]
        return _deviating(effect, found) or [await _cause(installed, pods, effect)]
    if "failed calling webhook" in message and ".podsettle.dev" in message:
        effect = f"the API server refuses pods: {message}"
        # The API server has called the webhook. So its match conditions let the pod pass.
        found = list(wrong_address(configuration, installed.installation))
        return _deviating(effect, found) or [await _cause(installed, pods, effect)]
    return [unknown(f"namespace {target.namespace} refuses the pod of the dry run: {message}")]


def _deviating(effect: str, found: list[Deviation]) -> list[Result]:
    return [Result(State.FAULT, f"{effect}: {each.what}", each.advice) for each in found]


def _probe_pod(target: Target) -> Json:
    """Return a pod that the `restricted` Pod Security Standard and most quotas allow."""
    container: dict[str, Any] = {
        "name": _MARK,
        "image": f"registry.example/{_MARK}",
        "command": ["/none"],
        "resources": {key: {"cpu": "10m", "memory": "16Mi"} for key in ("requests", "limits")},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{_MARK}-",
            "labels": target.labels,
            "annotations": {ANNOTATION_SKIP: _MARK},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }


async def _cause(installed: Installed, pods: list[Json], effect: str) -> Result:
    """Return why the API server does not reach podsettle, as far as its objects show it."""
    installation = installed.installation
    namespace, service_name = installation.namespace, installation.service
    restore = helm_upgrade(installation)
    service = await installed.reader.get(Right("get", "", "services", namespace, service_name))
    if service is None:
        cause = f"Service {namespace}/{service_name} does not exist"
        return fault(f"{effect}: {cause}", "Create the Service again.", restore)
    ports = [each["port"] for each in service["spec"].get("ports") or ()]
    if _HTTPS_PORT not in ports:
        cause = f"Service {namespace}/{service_name} has no port {_HTTPS_PORT}"
        return fault(f"{effect}: {cause}", "Write the Service of the chart again.", restore)
    right = Right("list", "discovery.k8s.io", "endpointslices", namespace)
    query = f"labelSelector=kubernetes.io/service-name%3D{service_name}"
    slices = await installed.reader.list(right, query)
    endpoints = [each for one in slices for each in one.get("endpoints") or ()]
    if any((each.get("conditions") or {}).get("ready") is not False for each in endpoints):
        return fault(
            f"{effect}: the Service has ready endpoints, but the API server does not reach them",
            "Allow connections from the API server to port 8443 of the pods: check firewalls of "
            "the control plane and NetworkPolicies.",
            kubectl("-n", namespace, "get", "networkpolicies,endpointslices", "-o", "wide"),
        )
    if any(map(is_ready, pods)):
        cause = f"Service {namespace}/{service_name} selects no ready pod"
        return fault(f"{effect}: {cause}", "Write the Service of the chart again.", restore)
    return fault(
        f"{effect}: no replica is ready",
        "Restart the replicas. If they do not get ready, read their log.",
        restart(installation),
    )


async def _check_counters(installed: Installed) -> list[Result]:
    answer = await installed.server.fetch("GET", "/metrics", max_bytes=_MAX_METRICS_BYTES)
    if answer.status == 403:
        raise NotAllowedError(Right("get", "", "/metrics"))
    if answer.status != 200:
        return [unknown(f"GET /metrics: {answer.status}: {status_message(answer.content)}")]
    counts = count_failures(answer.content.decode(errors="replace"))
    cause = await _refusal_cause(installed) if counts["rejection"] else ""
    return [judge_counts(counts, cause, installed.installation)]


async def _refusal_cause(installed: Installed) -> str:
    """Return why the API server may refuse pods now, as a clause. Empty if nothing shows it."""
    try:
        configuration, pods = await installed.configuration(), await installed.pods()
    except NotAllowedError:
        return ""
    if not refuses_pods(configuration or {}):
        return ""
    if not any(map(is_ready, pods)):
        return "no replica is ready"
    checks = (CERTIFICATE.name, TRUST.name, REACHABILITY.name)
    return next((f"{name} has a fault" for name in checks if installed.has_fault(name)), "")


def judge_counts(counts: Mapping[str, int], cause: str, installation: Installation) -> Result:
    """Return the result for the API server's counts of failed calls.

    `cause` says why pods may be refused now. The counts only grow, so without a cause, refusals are
    no fault: they may have ended long ago.
    """
    scope = "since this API server started (others have counters of their own)"
    missed, refused = counts["fail_open"], counts["rejection"]
    if not missed and not refused:
        return ok(f"no call of podsettle failed {scope}")
    text = f"{missed} pods were created without podsettle and {refused} were refused {scope}"
    if cause:
        return fault(
            f"failurePolicy is Fail, and {cause}: {text}",
            "First make it possible to create pods again. These commands delete the webhooks, and "
            "create the first one again with Ignore. If a GitOps tool manages it, suspend the tool "
            "first: docs/operations.md#gitops-tools. Then mend the other faults.",
            kubectl("delete", "mutatingwebhookconfiguration", installation.configuration),
            helm_upgrade(installation, "--set", "webhook.failurePolicy=Ignore"),
        )
    sentences = []
    if refused:
        sentences.append("Refused pods do not exist: controllers try again, other clients may not.")
    if missed:
        sentences.append("This command finds the pods that were missed.")
    return warning(text, " ".join(sentences), *([podsettle("scan")] if missed else []))


def count_failures(metrics: str) -> dict[str, int]:
    """Return the API server's counts of failed calls of podsettle, by what became of the pods."""
    counts = {"fail_open": 0, "rejection": 0}
    for match in _FAIL_OPEN.finditer(metrics):
        counts[match["kind"]] += int(float(match["count"]))
    return counts


REACHABILITY = DoctorCheck(
    "reachability",
    "whether the API server reaches podsettle (a pod is created as a dry run)",
    _check_dry_run,
    blocked_by=(CONFIGURATION.name, CERTIFICATE.name, TRUST.name, READINESS.name),
)
FAIL_OPEN = DoctorCheck(
    "failed calls",
    "whether calls of podsettle failed earlier (the API server counts)",
    _check_counters,
)
