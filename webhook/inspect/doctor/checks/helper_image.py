"""The image of the helper: whether it is named, and whether pods can pull it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.core.cluster.helper_version import HelperFeature, helper_version
from webhook.core.constants import HELPER
from webhook.core.image_reference import parse_reference
from webhook.core.images import ImageQuery, LookupRules, Unavailable
from webhook.core.policy.model import SettlePolicy
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.core.types import Json
from webhook.inspect.cluster_flags import kubectl
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.checks.policies import acting
from webhook.inspect.doctor.commands import helm_upgrade
from webhook.inspect.doctor.model import Result, fault, ok, unknown, warning
from webhook.inspect.doctor.round_readings import Installed
from webhook.inspect.doctor.target import find_target
from webhook.inspect.installation import Installation

_PULL_SECONDS = 10.0
_PENDING_PODS = "fieldSelector=status.phase%3DPending&limit=500"
"""The query for pods that wait. A namespace may have thousands of others."""
_PULL_ERRORS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName")


async def _check_named(installed: Installed) -> list[Result]:
    installation = installed.installation
    image, stated = installation.linger_image, installation.linger_version
    version, tagged = helper_version(image, stated), helper_version(image, None)
    if stated is not None and tagged is not None and tagged != stated:
        consequence = (
            "podsettle may use what the helper does not have, and the pod then fails"
            if tagged < stated
            else "podsettle does without what the helper has"
        )
        return [
            warning(
                f"its version is stated as {stated}, and the tag of {image} says {tagged}",
                f"If the tag is right, {consequence}. To let the tag say the version:",
                helm_upgrade(installation, "--set", "lingerVersion="),
            )
        ]
    if image and not any(feature.missing(image, version) for feature in HelperFeature):
        return [ok(_named(installation, image))]
    view = (await installed.require("settlepolicies")).view
    needing = {
        f"{remedy} of {policy.metadata.name}": remedy
        for policy in acting(view.policies.documents)
        for remedy in _remedies_with_helper(policy)
    }
    if image:
        return [_judge_version(installation, image, needing)]
    if not needing:
        return [ok("none is named, and no policy needs it")]
    return [
        fault(
            f"none is named, and these need it: {', '.join(sorted(needing))}",
            "Containers without a shell stay unchanged, and kubeletGate and startGate do nothing. "
            "Name the image that was built from the same release.",
            helm_upgrade(installation, "--set", "lingerImage=IMAGE"),
        )
    ]


def _named(installation: Installation, image: str) -> str:
    """Return which image it is, and how its version is known if its tag does not say it."""
    stated = installation.linger_version
    if stated is None or helper_version(image, None) is not None:
        return f"it is {image}"
    return f"it is {image}. Its version {stated} is only stated: the tag does not show it"


def _judge_version(installation: Installation, image: str, needing: Mapping[str, str]) -> Result:
    """Judge whether the helper is new enough for the remedies that need it.

    `needing` has each remedy by the text that names it and its policy.
    """
    version = helper_version(image, installation.linger_version)
    too_old = {
        use
        for use, remedy in needing.items()
        if (feature := REMEDIES[remedy].helper_feature) and feature.missing(image, version)
    }
    if not too_old:
        return ok(_named(installation, image))
    names = ", ".join(sorted(too_old))
    if version is None:
        return fault(
            f"nothing says which version of the helper is in {image}, and podsettle skips what "
            f"not every version has: {names}",
            "Give the version. The image prints it: docker run --rm IMAGE --version",
            helm_upgrade(installation, "--set", "lingerVersion=VERSION"),
        )
    return fault(
        f"the helper in {image} has version {version}, and podsettle skips what needs a newer one: "
        f"{names}",
        "Name the image that was built from the same release.",
        helm_upgrade(installation, "--set", "lingerImage=IMAGE", "--set", "lingerVersion="),
    )


def _remedies_with_helper(policy: SettlePolicy) -> list[str]:
    """Return the remedies of a policy that may need the helper."""
    return [
        name
        for name, settings in policy.spec.settings().items()
        if Reason.HELPER_IMAGE_MISSING in REMEDIES[name].reasons
        # The shell wrapper is the one delivery that never uses the helper.
        and getattr(settings, "delivery", None) != "Shell"
    ]


async def _check_pull(installed: Installed) -> list[Result]:
    image = installed.installation.linger_image
    if not image:
        return [ok("no image is named")]
    target = await find_target(installed)
    if isinstance(target, str):
        return [unknown(f"{target}; choose a covered namespace with --in")]
    waiting = await _waiting_pods(installed, image, target.namespace)
    if waiting:
        return [
            fault(
                f"nodes cannot pull {image}: {next(iter(waiting.values()))}",
                "Name an image that the nodes can pull. New pods get it. Pods that wait keep the "
                "old one: delete them.",
                helm_upgrade(installed.installation, "--set", "lingerImage=IMAGE"),
                kubectl("-n", target.namespace, "delete", "pod", *waiting),
            )
        ]
    return [await _pull_from_here(installed, image, target.namespace)]


async def _waiting_pods(installed: Installed, image: str, namespace: str) -> dict[str, str]:
    """Return why pods of a namespace wait for the helper's image, by the name of the pod."""
    try:
        pods = await installed.reader.list(Right("list", "", "pods", namespace), _PENDING_PODS)
    except NotAllowedError:
        return {}
    return {
        pod["metadata"]["name"]: waiting.get("message") or waiting["reason"]
        for pod in pods
        for waiting in waiting_states(pod, image)
    }


def waiting_states(pod: Json, image: str) -> list[dict[str, Any]]:
    """Return the states of helpers of a pod that wait for an image.

    A tenant may give any image to a container with the helper's name. And a pod that was created
    before the operator named another image waits for the earlier one.
    """
    inits = (pod.get("spec") or {}).get("initContainers") or ()
    if not any(each["name"] == HELPER and each.get("image") == image for each in inits):
        return []
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    states = [
        ((each.get("state") or {}).get("waiting") or {})
        for each in statuses
        if each["name"] == HELPER
    ]
    return [state for state in states if state.get("reason") in _PULL_ERRORS]


async def _pull_from_here(installed: Installed, image: str, namespace: str) -> Result:
    """Look the image up from this machine, with the pull secrets of the namespace."""
    try:
        host = parse_reference(image).host
    except ValueError as error:
        return unknown(str(error))
    query = ImageQuery(
        image, LookupRules(registries=(host,)), namespace=namespace, service_account="default"
    )
    async with aclosing(installed.new_image_resolver(installed.server)) as resolver:
        found = (await resolver.find([query], _PULL_SECONDS)).get(query)
    if found is None or isinstance(found, Unavailable):
        why = found.why if found is not None else "no answer"
        return unknown(f"{image} could not be looked up from this machine; a node may do so: {why}")
    return ok(f"pods of namespace {namespace} can pull {image}, as seen from this machine")


HELPER_IMAGE = DoctorCheck(
    "helper image",
    "whether the image of the helper is named, and new enough for the policies",
    _check_named,
)
HELPER_PULL = DoctorCheck(
    "helper pull", "whether pods can pull the image of the helper", _check_pull
)
