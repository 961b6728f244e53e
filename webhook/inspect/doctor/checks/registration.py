"""What the cluster lets podsettle do, and how the API server is configured to call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from webhook.cluster.errors import ApiError
from webhook.cluster.reader import path_of
from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.core.constants import LABEL_NAMESPACE_NAME, LABEL_POLICY
from webhook.core.policy.cluster_webhooks import OPT_IN_WEBHOOK
from webhook.core.policy.crd import CRD_NAME
from webhook.core.types import Json
from webhook.inspect.doctor.installed import Installed
from webhook.inspect.doctor.model import Finding, fault, ok, unknown
from webhook.inspect.installation import CONFIGURATIONS_RIGHT, Installation, own_webhooks
from webhook.inspect.selectors import selector_matches

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
        ("get update", "coordination.k8s.io", "leases", own, installation.lease),
        # The owner of the Lease.
        ("get", "apps", "deployments", own, installation.lease),
    ]
    secret = ("get update", "", "secrets", own, installation.tls_secret)
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
        yield fault(f"the account {account} lacks: {', '.join(missing)}")


async def _is_allowed(installed: Installed, right: Right) -> bool:
    """Ask the API server whether the account has a right. Raises NotAllowedError."""
    account, namespace = installed.installation.service_account, installed.installation.namespace
    # The API server adds these groups when the account authenticates, but not here.
    accounts = "system:serviceaccounts"
    groups = [accounts, f"{accounts}:{namespace}", "system:authenticated"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account, "groups": groups, **right.review_attributes()},
    }
    try:
        answer = await installed.server.request("POST", path_of(_REVIEW), review)
    except ApiError as error:
        if error.status == 403:
            raise NotAllowedError(_REVIEW) from None
        raise
    return bool((answer.get("status") or {}).get("allowed"))


async def check_configuration(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether the API server is configured to call podsettle."""
    configuration = await installed.configuration()
    title = f"MutatingWebhookConfiguration {installed.installation.configuration}"
    webhooks = own_webhooks(configuration)
    if not configuration:
        yield fault(f"{title} does not exist, so the API server does not call podsettle")
    elif not opt_in_webhook(configuration):
        yield fault(
            f"{title} has no webhook {OPT_IN_WEBHOOK}, from which podsettle derives the others"
        )
    else:
        policies = sorted({str(each.get("failurePolicy")) for each in webhooks})
        count = "1 webhook" if len(webhooks) == 1 else f"{len(webhooks)} webhooks"
        yield ok(f"{title} has {count} with failurePolicy {' and '.join(policies)}")


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
            yield unknown(f"namespace {namespace} does not exist")
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
            yield fault(f"{including} includes {scope}")


def opt_in_webhook(configuration: Json) -> Json:
    """Return the webhook of the chart, from which podsettle derives the others. Empty if none."""
    found = (each for each in own_webhooks(configuration) if each["name"] == OPT_IN_WEBHOOK)
    return next(found, {})


def wrong_address(configuration: Json, installation: Installation) -> str:
    """Return what the opt-in webhook calls instead of podsettle's Service. Empty if it calls it."""
    client = opt_in_webhook(configuration).get("clientConfig")
    if client is None:
        return ""
    address = f"the URL {client.get('url', '')}"
    if service := client.get("service"):
        port, path = service.get("port", _PORT), service.get("path", "")
        address = f"Service {service['namespace']}/{service['name']}:{port}{path}"
    wanted = f"Service {installation.namespace}/{installation.service}:{_PORT}/mutate"
    return "" if address == wanted else f"{OPT_IN_WEBHOOK} calls {address} instead of {wanted}"
