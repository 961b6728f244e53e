"""The namespace and the labels of a pod that the API server sends to podsettle."""

from __future__ import annotations

from typing import NamedTuple

from webhook.core.policy.model import SettlePolicy
from webhook.inspect.doctor.round_readings import Installed
from webhook.inspect.installation import own_webhooks
from webhook.inspect.selectors import matching_labels
from webhook.inspect.webhook_calls import Called, WebhookCalls


class Target(NamedTuple):
    """A namespace that a policy covers, and labels that the policy selects."""

    namespace: str
    labels: dict[str, str]


class NotSent(NamedTuple):
    """A namespace that a policy covers, and for which the API server does not call podsettle."""

    namespace: str
    policy: str
    why: str

    def __str__(self) -> str:
        """Return the contradiction as a clause."""
        return (
            f"policy {self.policy} covers namespace {self.namespace}, but the API server does not "
            f"call podsettle for its pods: {self.why}"
        )


async def find_target(installed: Installed) -> Target | NotSent | str:
    """Return a target in the chosen namespace, or in any.

    Return NotSent if podsettle is called for no covered namespace. Return a text if no namespace is
    covered. Raises NotAllowedError.
    """
    view = (await installed.require("settlepolicies", "namespaces")).view
    chosen = installed.chosen_namespace
    if chosen is not None and chosen not in view.namespaces:
        return f"namespace {chosen} does not exist"
    names = sorted(view.namespaces) if chosen is None else [chosen]
    own_namespace = installed.installation.own_namespace
    documents = {each.metadata.name: each for each in view.policies.documents}
    webhooks = own_webhooks(await installed.configuration() or {})
    calls = WebhookCalls(tuple(webhook for _, webhook in webhooks))
    not_sent: NotSent | None = None
    for name in names:
        namespace = view.namespaces[name]
        coverage = view.policies.coverage_for(namespace, own_namespace)
        for policy in coverage.policies:
            labels = _labels_for(documents[policy.name])
            if coverage.group.plan(labels) is None:
                continue
            call = calls.call_for(namespace, labels)
            if call.called is not Called.NO:
                return Target(name, labels)
            if not_sent is None:
                not_sent = NotSent(name, policy.name, call.why)
    if not_sent is not None:
        return not_sent
    return f"no policy covers namespace {chosen}" if chosen else "no policy covers a namespace"


def _labels_for(policy: SettlePolicy) -> dict[str, str]:
    return matching_labels(policy.spec.pod_selector.model_dump(by_alias=True))
