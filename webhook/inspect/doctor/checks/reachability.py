"""Whether the API server reaches podsettle: a dry run of a pod, and the API server's counters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from webhook.cluster.errors import status_message
from webhook.cluster.rights import Right, access_to
from webhook.cluster.unread import NotAllowedError
from webhook.core.constants import ANNOTATION_SKIP
from webhook.core.types import Json
from webhook.inspect.cluster_flags import podsettle
from webhook.inspect.doctor.checks.registration import opt_in_webhook, wrong_address
from webhook.inspect.doctor.installed import Installed, is_ready
from webhook.inspect.doctor.model import Finding, fault, ok, unknown, warning
from webhook.inspect.installation import own_webhooks
from webhook.inspect.selectors import matching_labels
from webhook.inspect.webhook_calls import Called, WebhookCalls

_MARK = "podsettle-doctor"
"""The remedy in the pod's annotation `skip`. There is none of this name, so podsettle answers with
a warning that names it. It changes nothing, because the request is a dry run."""
_COUNT = re.compile(
    r"apiserver_admission_webhook_(?P<kind>fail_open|rejection)_count\{[^}]*"
    r'name="[^"]*\.podsettle\.dev"[^}]*\} (?P<count>\S+)'
)
_MAX_METRICS_BYTES = 64 * 1024 * 1024


class Target(NamedTuple):
    """A namespace that a policy covers, and labels that the policy selects."""

    namespace: str
    labels: dict[str, str]
    not_sent: str = ""
    """Why the API server does not call podsettle for such pods, as a clause. Empty if it may."""


async def find_target(installed: Installed) -> Target | str:
    """Return a target in the chosen namespace, or in any. One whose pods are sent comes first.

    Return a text if no policy covers a namespace. Raises NotAllowedError.
    """
    view = (await installed.view("settlepolicies", "namespaces")).view
    chosen = installed.chosen_namespace
    if chosen is not None and chosen not in view.namespaces:
        return f"namespace {chosen} does not exist"
    documents = {each.metadata.name: each for each in view.policies.documents}
    calls = WebhookCalls(tuple(own_webhooks(await installed.configuration())))
    not_sent: Target | None = None
    for name in [chosen] if chosen else sorted(view.namespaces):
        namespace = view.namespaces[name]
        coverage = view.policies.coverage_for(namespace, installed.installation.own_namespace)
        for policy in coverage.policies:
            selector = documents[policy.name].spec.pod_selector
            labels = matching_labels(selector.model_dump(by_alias=True))
            if coverage.group.plan(labels) is None:
                continue
            call = calls.call_for(namespace, labels)
            if call.called is not Called.NO:
                return Target(name, labels)
            why = (
                f"policy {policy.name} covers namespace {name}, but the API server does not call "
                f"podsettle for its pods: {call.why}"
            )
            not_sent = not_sent or Target(name, labels, why)
    return not_sent or f"no policy covers {f'namespace {chosen}' if chosen else 'a namespace'}"


async def check_dry_run(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether podsettle answered for a pod of a covered namespace, and if not, why."""
    if not any(map(is_ready, await installed.pods())):
        yield unknown("no replica is ready")
        return
    target = await find_target(installed)
    if isinstance(target, str):
        yield unknown(f"{target}; choose a covered namespace with --in")
        return
    if target.not_sent:
        yield fault(target.not_sent)
        return
    right = Right("create", "", "pods", target.namespace)
    if (await access_to(installed.server, [right]))[right] == "denied":
        raise NotAllowedError(right)
    path = f"/api/v1/namespaces/{target.namespace}/pods?dryRun=All"
    pod = _probe_pod(target.labels)
    answer = await installed.server.fetch("POST", path, pod, accept="application/json")
    message = status_message(answer.content)
    if any(_MARK in text for text in answer.headers.getall("Warning", [])):
        yield ok(f"podsettle answered for a pod in namespace {target.namespace}")
    elif answer.status < 300:
        cause = await _cause(installed, may_be_left_out=True)
        yield fault(f"pods are created without podsettle: {cause}")
    elif "failed calling webhook" in message and ".podsettle.dev" in message:
        # The API server has called the webhook, so its match conditions let the pod pass.
        cause = await _cause(installed, may_be_left_out=False)
        yield fault(f"the API server refuses pods: {message}: {cause}")
    else:
        yield unknown(f"namespace {target.namespace} refuses the pod of the dry run: {message}")


def _probe_pod(labels: Mapping[str, str]) -> Json:
    """Return a pod that the `restricted` Pod Security Standard and most quotas allow."""
    security = {"runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {
        "name": _MARK,
        "image": f"registry.example/{_MARK}",
        "command": ["/none"],
        "resources": {key: {"cpu": "10m", "memory": "16Mi"} for key in ("requests", "limits")},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    annotations = {ANNOTATION_SKIP: _MARK}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{_MARK}-", "labels": labels, "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, **security},
            "containers": [container],
        },
    }


async def _cause(installed: Installed, *, may_be_left_out: bool) -> str:
    """Return why podsettle did not answer, as far as objects of the cluster show it.

    `may_be_left_out` says whether the API server may not have called the webhook.
    """
    installation = installed.installation
    configuration = await installed.configuration()
    if address := wrong_address(configuration, installation):
        return address
    webhook = opt_in_webhook(configuration)
    if may_be_left_out and (conditions := webhook.get("matchConditions")):
        names = ", ".join(each["name"] for each in conditions)
        return f"the match conditions of {webhook['name']} may leave them out: {names}"
    right = Right("get", "", "services", installation.namespace, installation.service)
    service = f"Service {installation.namespace}/{installation.service}"
    if await installed.reader.get(right) is None:
        return f"{service} does not exist"
    return f"the API server does not reach the replicas by {service}"


async def check_failed_calls(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether calls failed, by the metrics of the API server that answers."""
    answer = await installed.server.fetch("GET", "/metrics", max_bytes=_MAX_METRICS_BYTES)
    if answer.status == 403:
        raise NotAllowedError(Right("get", "", "/metrics"))
    if answer.status != 200:
        yield unknown(f"GET /metrics: {answer.status}: {status_message(answer.content)}")
        return
    counts = {"fail_open": 0, "rejection": 0}
    for match in _COUNT.finditer(answer.content.decode(errors="replace")):
        counts[match["kind"]] += int(float(match["count"]))
    missed, refused = counts["fail_open"], counts["rejection"]
    scope = "since this API server started (others have counters of their own)"
    text = f"{missed} pods were created without podsettle and {refused} were refused {scope}"
    # The counts only grow. So without a cause of today, pods may have been refused long ago.
    may_prevent = ("certificate", "registration", "reachability")
    causes = [f"{name} has a fault" for name in may_prevent if name in installed.faults]
    fails = False
    with suppress(NotAllowedError):
        webhooks = own_webhooks(await installed.configuration())
        fails = any(each.get("failurePolicy") == "Fail" for each in webhooks)
        if not any(map(is_ready, await installed.pods())):
            causes.insert(0, "no replica is ready")
    if refused and fails and causes:
        yield fault(f"failurePolicy is Fail, and {causes[0]}: {text}")
    elif missed or refused:
        yield warning(text, installed.flags.command(podsettle("scan")) if missed else "")
    else:
        yield ok(f"no call of podsettle failed {scope}")
