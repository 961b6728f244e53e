"""The policies: whether podsettle accepts them, and whether they get what they need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, suppress

from webhook.cluster.rights import NotAllowedError, Right
from webhook.core.cluster.helper_version import HelperFeature, helper_version
from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.constants import HELPER, KIND
from webhook.core.image_reference import parse_reference
from webhook.core.images import ImageQuery, LookupRules, Unavailable
from webhook.core.pod import SpecFields
from webhook.core.policy.crd import CRD_NAME
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.core.types import Json
from webhook.inspect.doctor.checks.api_server import find_target
from webhook.inspect.doctor.model import Finding, Installed, State

_PULL_SECONDS = 10.0
_PENDING_PODS = "fieldSelector=status.phase%3DPending&limit=500"
"""The query for pods that wait. A namespace may have thousands of others."""
_PULL_ERRORS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName")


async def check_policies(installed: Installed) -> AsyncIterator[Finding]:
    """Yield each policy that podsettle does not accept."""
    unread = (await installed.view()).unread
    if any(each.resource == "settlepolicies" and not each.is_denied for each in unread):
        missing = f"CustomResourceDefinition {CRD_NAME} does not exist"
        yield Finding(check="crd", state=State.FAULT, result=missing)
    for problem in (await installed.view("settlepolicies")).problems:
        kind, _, name = problem.source.partition("/")
        if kind == KIND:
            where = f"{problem.path}: " if problem.path else ""
            yield State.FAULT(f"{KIND} {name} is not accepted: {where}{problem.message}")


async def check_runtime_classes(installed: Installed) -> AsyncIterator[Finding]:
    """Yield each RuntimeClass of a policy that does not exist, or whose handler no node has."""
    view = (await installed.view("settlepolicies", "runtimeclasses")).view
    named = [
        (policy.metadata.name, name)
        for policy in view.policies.documents
        if policy.spec.action == "Mutate"
        for name in policy.spec.runtime_classes()
    ]
    for policy, name in named:
        if name not in view.runtime_classes:
            yield State.FAULT(f"{policy} names RuntimeClass {name}, which does not exist")
    for policy, name in named:
        if found := view.runtime_classes.get(name):
            nodes = (await installed.view("nodes")).view.nodes.all
            if finding := judge_handler(policy, found, nodes):
                yield finding


def judge_handler(
    policy: str, runtime_class: RuntimeClassInfo, nodes: Iterable[Node]
) -> Finding | None:
    """Return None if a node that pods of the class can land on has its handler.

    Nodes with Windows do not count. It is a fault exactly if the webhook skips the RuntimeClass for
    a pod without a selector.
    """
    selector = runtime_class.node_selector.items()
    linux = (node for node in nodes if not node.is_windows)
    fitting = [node for node in linux if selector <= node.labels.items()]
    name, handler = runtime_class.name, runtime_class.handler
    if Nodes(fitting).lacks_handler(handler, SpecFields()):
        return State.FAULT(f"{policy} names RuntimeClass {name}, and no node has handler {handler}")
    if not fitting:
        return State.UNKNOWN(f"no known node with Linux has the labels of RuntimeClass {name}")
    if any(node.handlers is not None and handler in node.handlers for node in fitting):
        return None
    return State.UNKNOWN(f"not all nodes of RuntimeClass {name} list handlers, such as {handler}")


async def check_helper_image(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether the helper is named, and new enough for the policies."""
    settings = installed.installation.settings
    image, stated = settings.linger_image, settings.linger_version
    version, tagged = helper_version(image, stated), helper_version(image, None)
    if stated is not None and tagged not in (None, stated):
        yield State.WARNING(f"its stated version is {stated}, but the tag of {image} says {tagged}")
        return
    lacking = [each for each in HelperFeature if image is None or each.missing(image, version)]
    view = (await installed.view("settlepolicies")).view if lacking else Snapshot()
    needing = ", ".join(
        f"{remedy} of {policy.metadata.name}"
        for policy in view.policies.documents
        for remedy, given in policy.spec.settings().items()
        if policy.spec.action == "Mutate"
        and Reason.HELPER_IMAGE_MISSING in REMEDIES[remedy].reasons
        # The shell wrapper is the one delivery that never uses the helper.
        and getattr(given, "delivery", None) != "Shell"
        and (image is None or REMEDIES[remedy].helper_feature in lacking)
    )
    if image is None and needing:
        yield State.FAULT(f"none is named, and these need it: {needing}")
    elif needing:
        has = f"has version {version}" if version else "does not say its version"
        yield State.FAULT(f"{image} {has}, and podsettle skips what needs a newer one: {needing}")
    elif image is not None:
        note = f". Its version {stated} is only stated: the tag does not show it"
        yield State.OK(f"it is {image}{note * (stated is not None and tagged is None)}")


async def check_helper_pull(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether pods wait for the image of the helper, or else whether it can be looked up."""
    image = installed.installation.settings.linger_image
    if image is None:
        return
    target = await find_target(installed)
    pods: list[Json] = []
    with suppress(NotAllowedError):
        right = Right("list", "", "pods", target.namespace)
        pods = await installed.reader.list(right, _PENDING_PODS)
    if waiting := {
        pod["metadata"]["name"]: why for pod in pods if (why := why_waiting(pod, image))
    }:
        where = f"pods {', '.join(waiting)} of namespace {target.namespace}"
        yield State.FAULT(f"nodes cannot pull {image} for {where}: {next(iter(waiting.values()))}")
    else:
        yield await _look_up(installed, image, target.namespace)


def why_waiting(pod: Json, image: str) -> str:
    """Return why the helper of a pod waits for its image. Empty if it does not.

    A tenant may give any image to a container with the helper's name. And a pod that was created
    before the operator named another image waits for the earlier one.
    """
    inits = (pod.get("spec") or {}).get("initContainers") or ()
    if any(each["name"] == HELPER and each.get("image") == image for each in inits):
        for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
            waiting = (status.get("state") or {}).get("waiting") or {}
            if status["name"] == HELPER and waiting.get("reason") in _PULL_ERRORS:
                return str(waiting.get("message") or waiting["reason"])
    return ""


async def _look_up(installed: Installed, image: str, namespace: str) -> Finding:
    """Look the image up from this machine, with the pull secrets of the namespace."""
    try:
        rules = LookupRules(registries=(parse_reference(image).host,))
    except ValueError as error:
        return State.UNKNOWN(str(error))
    query = ImageQuery(image, rules, namespace=namespace, service_account="default")
    async with aclosing(installed.new_image_lookup(installed.server)) as lookup:
        found = (await lookup.find([query], _PULL_SECONDS)).get(query)
    if found is None or isinstance(found, Unavailable):
        why = found.why if found is not None else "no answer"
        return State.UNKNOWN(f"{image} could not be looked up from here; a node may pull it: {why}")
    return State.OK(f"pods of namespace {namespace} can pull {image}, as seen from this machine")
