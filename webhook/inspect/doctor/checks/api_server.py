"""What the API server lets podsettle do, and whether it is configured to call and reaches it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from webhook.cluster.errors import ApiError, status_message
from webhook.cluster.rights import NotAllowedError, Right, access_to, create_review
from webhook.core.constants import ANNOTATION_SKIP, LABEL_NAMESPACE_NAME, LABEL_POLICY
from webhook.core.policy.cluster_webhooks import OPT_IN_WEBHOOK
from webhook.core.policy.crd import CRD_NAME
from webhook.core.policy.selectors import LabelSelector
from webhook.core.printable import count_of
from webhook.core.types import Json
from webhook.inspect.cluster_flags import podsettle
from webhook.inspect.doctor.model import Finding, Installed, State, UnansweredError, is_ready
from webhook.inspect.installation import (
    CONFIGURATIONS_RIGHT,
    Called,
    Installation,
    WebhookCalls,
    own_webhooks,
    selector_matches,
)

_PORT = 443
_REVIEW = Right("create", "authorization.k8s.io", "subjectaccessreviews")


def required_rights(installation: Installation) -> list[Right]:
    """Return the rights without which an installation does not work."""
    own, configurations = installation.namespace, CONFIGURATIONS_RIGHT[1:3]
    rules: list[tuple[str, str, str, str | None, str | None]] = [
        ("get list watch", "", "namespaces", None, None),
        ("list watch", "", "nodes", None, None),
        ("list watch", "node.k8s.io", "runtimeclasses", None, None),
        ("list watch", "podsettle.dev", "settlepolicies", None, None),
        ("patch", "podsettle.dev", "settlepolicies/status", None, None),
        ("list watch", "apiextensions.k8s.io", "customresourcedefinitions", None, CRD_NAME),
        ("list watch patch", *configurations, None, installation.configuration),
        ("create", "authentication.k8s.io", "tokenreviews", None, None),
        ("create", "authorization.k8s.io", "subjectaccessreviews", None, None),
        ("create", "coordination.k8s.io", "leases", own, None),
        ("get update", "coordination.k8s.io", "leases", own, installation.arguments["lease"]),
        # The owner of the Lease.
        ("get", "apps", "deployments", own, installation.arguments["lease"]),
    ]
    secret = ("get update", "", "secrets", own, installation.arguments["tls-secret"])
    rules += [secret] * installation.is_self_managed
    return [
        Right(verb, group, resource.partition("/")[0], namespace, name, resource.partition("/")[2])
        for verbs, group, resource, namespace, name in rules
        for verb in verbs.split()
    ]


async def check_permissions(installed: Installed) -> AsyncIterator[Finding]:
    """Ask the API server about each right of the account, and yield those that are missing."""
    rights = required_rights(installed.installation)
    answers = await asyncio.gather(*(_is_allowed(installed, right) for right in rights))
    missing = [str(right) for right, answer in zip(rights, answers, strict=True) if not answer]
    if missing:
        account = installed.installation.service_account
        yield State.FAULT(f"the account {account} lacks: {', '.join(missing)}")


async def _is_allowed(installed: Installed, right: Right) -> bool:
    """Ask the API server whether the account has a right. Raises NotAllowedError."""
    account, namespace = installed.installation.service_account, installed.installation.namespace
    # The API server adds these groups when the account authenticates, but not here.
    accounts = "system:serviceaccounts"
    groups = [accounts, f"{accounts}:{namespace}", "system:authenticated"]
    spec = {"user": account, "groups": groups, **right.review_attributes()}
    try:
        review = await create_review(installed.server, "SubjectAccessReview", spec)
    except ApiError as error:
        if error.status == 403:
            raise NotAllowedError(_REVIEW) from None
        raise
    return bool((review.get("status") or {}).get("allowed"))


async def check_configuration(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether the API server is configured to call podsettle."""
    configuration = await installed.configuration()
    title = f"MutatingWebhookConfiguration {installed.installation.configuration}"
    webhooks = own_webhooks(configuration)
    if not configuration:
        yield State.FAULT(f"{title} does not exist, so the API server does not call podsettle")
    elif not opt_in_webhook(configuration):
        yield State.FAULT(f"{title} has no webhook {OPT_IN_WEBHOOK}, the source of the others")
    elif address := _wrong_address(configuration, installed.installation):
        yield State.FAULT(address)
    else:
        policies = sorted({str(each.get("failurePolicy")) for each in webhooks})
        count = count_of(len(webhooks), "webhook")
        yield State.OK(f"{title} has {count} with failurePolicy {' and '.join(policies)}")


async def check_exclusions(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether webhooks include podsettle's own namespace, or that of the control plane.

    podsettle would wait for itself. With failurePolicy Fail, its outage would prevent pods of the
    control plane.
    """
    webhooks = own_webhooks(await installed.configuration())
    failing = [each for each in webhooks if each.get("failurePolicy") == "Fail"]
    own = installed.installation.namespace
    for namespace, judged, scope in (
        (own, webhooks, f"podsettle's own namespace {own}"),
        ("kube-system", failing, "kube-system, with failurePolicy Fail"),
    ):
        found = await installed.reader.get(Right("get", "", "namespaces", name=namespace))
        if found is None:
            yield State.UNKNOWN(f"namespace {namespace} does not exist")
            continue
        labels = {**(found["metadata"].get("labels") or {}), LABEL_NAMESPACE_NAME: namespace}
        # Any user who may label a namespace can opt in, so only an exclusion by name is safe.
        variants = (labels, {**labels, LABEL_POLICY: "x"})
        including = ", ".join(
            each["name"]
            for each in judged
            if any(selector_matches(each.get("namespaceSelector"), every) for every in variants)
        )
        if including:
            yield State.FAULT(f"{including} includes {scope}")


def opt_in_webhook(configuration: Json) -> Json:
    """Return the webhook of the chart, from which podsettle derives the others. Empty if none."""
    return next((x for x in own_webhooks(configuration) if x["name"] == OPT_IN_WEBHOOK), {})


def _wrong_address(configuration: Json, installation: Installation) -> str:
    """Return what the opt-in webhook calls instead of podsettle's Service. Empty if it calls it."""
    client = opt_in_webhook(configuration)["clientConfig"]
    address = f"the URL {client.get('url', '')}"
    if service := client.get("service"):
        port, path = service.get("port", _PORT), service.get("path", "")
        address = f"Service {service['namespace']}/{service['name']}:{port}{path}"
    wanted = f"Service {installation.namespace}/{installation.arguments['service']}:{_PORT}/mutate"
    return "" if address == wanted else f"{OPT_IN_WEBHOOK} calls {address} instead of {wanted}"


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


async def find_target(installed: Installed) -> Target:
    """Return a target in the chosen namespace, or in any. One whose pods are sent comes first.

    Raises NotAllowedError, and UnansweredError if no policy covers a namespace.
    """
    view = (await installed.view("settlepolicies", "namespaces")).view
    chosen = installed.chosen_namespace
    if chosen is not None and chosen not in view.namespaces:
        raise UnansweredError(f"namespace {chosen} does not exist; choose a covered one with --in")
    documents = {each.metadata.name: each for each in view.policies.documents}
    calls = WebhookCalls(tuple(own_webhooks(await installed.configuration())))
    not_sent: Target | None = None
    for name in [chosen] if chosen else sorted(view.namespaces):
        namespace = view.namespaces[name]
        coverage = view.policies.coverage_for(namespace, installed.installation.own_namespace)
        for policy in coverage.policies:
            labels = matching_labels(documents[policy.name].spec.pod_selector)
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
    if not_sent is None:
        where = f"namespace {chosen}" if chosen else "a namespace"
        raise UnansweredError(f"no policy covers {where}; choose a covered namespace with --in")
    return not_sent


def matching_labels(selector: LabelSelector) -> dict[str, str]:
    """Return labels for a new object that a selector may match.

    The requirements are met one by one. If two of them contradict each other, no labels match.
    """
    labels = dict(selector.match_labels)
    for each in selector.match_expressions:
        if each.operator == "In" and labels.get(each.key) not in each.values:
            labels[each.key] = each.values[0]
        elif each.operator == "Exists":
            labels.setdefault(each.key, _MARK)
    return labels


async def check_dry_run(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether podsettle answered for a pod of a covered namespace, and if not, why."""
    if not any(map(is_ready, await installed.pods())):
        raise UnansweredError("no replica is ready")
    target = await find_target(installed)
    if target.not_sent:
        yield State.FAULT(target.not_sent)
        return
    right = Right("create", "", "pods", target.namespace)
    if await access_to(installed.server, right) == "denied":
        raise NotAllowedError(right)
    path = f"/api/v1/namespaces/{target.namespace}/pods?dryRun=All"
    pod = _probe_pod(target.labels)
    answer = await installed.server.fetch("POST", path, pod, accept="application/json")
    message = status_message(answer.content)
    if any(_MARK in text for text in answer.headers.getall("Warning", [])):
        yield State.OK(f"podsettle answered for a pod in namespace {target.namespace}")
    elif answer.status < 300:
        webhook = opt_in_webhook(await installed.configuration())
        if conditions := ", ".join(each["name"] for each in webhook.get("matchConditions") or ()):
            cause = f"the match conditions of {webhook['name']} may leave them out: {conditions}"
        else:
            cause = await _cause(installed)
        yield State.FAULT(f"pods are created without podsettle: {cause}")
    elif "failed calling webhook" in message and ".podsettle.dev" in message:
        # The API server has called the webhook, so its match conditions let the pod pass.
        yield State.FAULT(f"the API server refuses pods: {message}: {await _cause(installed)}")
    else:
        yield State.UNKNOWN(f"namespace {target.namespace} refuses the dry run's pod: {message}")


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


async def _cause(installed: Installed) -> str:
    """Return why a call did not reach podsettle, as far as objects of the cluster show it."""
    installation = installed.installation
    namespace, name = installation.namespace, installation.arguments["service"]
    if await installed.reader.get(Right("get", "", "services", namespace, name)) is None:
        return f"Service {namespace}/{name} does not exist"
    return f"the API server does not reach the replicas by Service {namespace}/{name}"


async def check_failed_calls(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether calls failed, by the metrics of the API server that answers."""
    answer = await installed.server.fetch("GET", "/metrics", max_bytes=_MAX_METRICS_BYTES)
    if answer.status == 403:
        raise NotAllowedError(Right("get", "", "/metrics"))
    if answer.status != 200:
        yield State.UNKNOWN(f"GET /metrics: {answer.status}: {status_message(answer.content)}")
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
        yield State.FAULT(f"failurePolicy is Fail, and {causes[0]}: {text}")
    elif missed or refused:
        yield State.WARNING(text, installed.flags.command(podsettle("scan")) if missed else "")
    else:
        yield State.OK(f"no call of podsettle failed {scope}")
