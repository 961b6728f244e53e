"""The installation of podsettle in a cluster, as its Deployment describes it.

Commands read what the server was started with from the arguments and the environment of the
Deployment. So they need no access to the pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.core.constants import GROUP
from webhook.core.defects.versions import Version, parse_version
from webhook.core.docs_url import docs_url_problem
from webhook.core.types import Json

CONFIGURATIONS_RIGHT = Right(
    "list", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"
)
_SELECTOR = "labelSelector=app.kubernetes.io/name%3Dpodsettle"
_COMPONENT_LABEL = "app.kubernetes.io/component"
_OPTIONS_BY_VARIABLE = {"PODSETTLE_NAMESPACE": "own-namespace"}
"""The variables of `podsettle serve` whose names do not follow from the names of the options."""
_VARIABLE_PREFIX = "PODSETTLE_"


@dataclass(frozen=True, slots=True)
class Installation:
    """An installed webhook. The defaults are those of `podsettle serve`."""

    namespace: str
    name: str
    """The name of the Deployment. The chart gives all its objects this name."""
    arguments: Mapping[str, str]
    """The options of `podsettle serve` without their dashes, from arguments and environment. The
    value of a flag is empty."""
    deployment: Json
    """The Deployment, as the API server returned it."""

    @property
    def linger_image(self) -> str | None:
        """The image of the helper, or None if there is none."""
        return self.arguments.get("linger-image") or None

    @property
    def linger_version(self) -> Version | None:
        """The version of the helper that the operator gave, or None."""
        return parse_version(self.arguments.get("linger-version", ""))

    @property
    def docs_url(self) -> str | None:
        """The address of the documentation that the operator gave, or None."""
        url = self.arguments.get("docs-url") or None
        return None if url is None or docs_url_problem(url) else url

    @property
    def own_namespace(self) -> str | None:
        """The namespace that the server treats as its own, or None if it was given none."""
        return self.arguments.get("own-namespace") or None

    @property
    def protected_namespace(self) -> str | None:
        """The namespace for which decisions are never positive, or None.

        Any tenant can create a Deployment with podsettle's labels. It must not hide the pods of
        another namespace.
        """
        return self.own_namespace if self.own_namespace == self.namespace else None

    @property
    def service(self) -> str:
        """The name of the Service."""
        return self.arguments.get("service", "podsettle")

    @property
    def lease(self) -> str:
        """The name of the Lease."""
        return self.arguments.get("lease", "podsettle")

    @property
    def configuration(self) -> str:
        """The name of the MutatingWebhookConfiguration."""
        return self.arguments.get("webhook-configuration") or self.name

    @property
    def is_self_managed(self) -> bool:
        """Whether podsettle issues its certificate itself."""
        return self.arguments.get("tls") == "self-managed"

    @property
    def tls_secret(self) -> str:
        """The name of the Secret into which podsettle writes a certificate that it issues."""
        return self.arguments.get("tls-secret", "podsettle-tls")

    @property
    def service_account(self) -> str:
        """The user name of the replicas' ServiceAccount."""
        name = self.deployment["spec"]["template"]["spec"].get("serviceAccountName") or "default"
        return f"system:serviceaccount:{self.namespace}:{name}"


@dataclass(frozen=True, slots=True)
class Absent:
    """The result of a search that found no installation."""

    why: str
    rights: tuple[Right, ...] = ()
    """The rights that the user lacks. If there are any, podsettle may be installed."""
    several: bool = False
    """Whether there are too many Deployments, so that a user has to choose a namespace."""


async def find_installation(
    reader: ClusterReader, namespace: str | None = None
) -> Installation | Absent:
    """Find the installation of a cluster, or the installation in one namespace.

    Any tenant can create a Deployment with podsettle's labels, and only an administrator can create
    a webhook configuration. So the Deployments in the namespace of the Service that the
    configuration calls come first. The others count if there is no such Deployment: the
    configuration may be missing. Raises Unreachable, and ApiError for an unexpected response.
    """
    if namespace is not None:
        return await _find_in(reader, [namespace])
    configurations: list[Json] | None = None
    with suppress(NotAllowedError):
        configurations = await reader.list(CONFIGURATIONS_RIGHT)
    called = sorted({service_namespace(each) for each in configurations or ()} - {""})
    in_called = await _find_in(reader, called) if called else None
    if isinstance(in_called, Installation) or (in_called is not None and in_called.several):
        return in_called
    found = await _find_in(reader, [None])
    if isinstance(found, Installation) or not found.rights:
        return found
    if configurations is None:
        why = "podsettle's Deployment could not be looked for"
        return Absent(why, (*found.rights, CONFIGURATIONS_RIGHT))
    return in_called or Absent("no MutatingWebhookConfiguration is podsettle's", found.rights)


def installation_of(deployment: Json) -> Installation:
    """Return the installation that a Deployment describes."""
    metadata = deployment["metadata"]
    return Installation(metadata["namespace"], metadata["name"], _arguments(deployment), deployment)


def own_webhooks(configuration: Json) -> list[Json]:
    """Return podsettle's webhooks of a configuration."""
    webhooks: list[Json] = configuration.get("webhooks") or []
    return [each for each in webhooks if each["name"].endswith(f".{GROUP}")]


def service_namespace(configuration: Json) -> str:
    """Return the namespace of the Service that a configuration calls. Empty if it calls a URL."""
    for webhook in own_webhooks(configuration):
        if service := (webhook.get("clientConfig") or {}).get("service"):
            return str(service["namespace"])
    return ""


async def _find_in(
    reader: ClusterReader, namespaces: Sequence[str | None]
) -> Installation | Absent:
    """Return the only installation, or why there is not exactly one. None: all namespaces."""
    found: list[Json] = []
    denied: list[Right] = []
    for namespace in namespaces:
        right = Right("list", "apps", "deployments", namespace)
        try:
            deployments = await reader.list(right, _SELECTOR)
        except NotAllowedError as error:
            denied.append(error.right)
            continue
        for each in deployments:
            labels = each["spec"]["template"]["metadata"].get("labels") or {}
            found += [each] if labels.get(_COMPONENT_LABEL) == "webhook" else []
    if denied and not found:
        return Absent("podsettle's Deployment could not be read", tuple(denied))
    if len(found) == 1:
        return installation_of(found[0])
    if found:
        names = sorted(
            f"{m['namespace']}/{m['name']}" for m in (each["metadata"] for each in found)
        )
        why = f"there are several Deployments of podsettle: {', '.join(names)}"
        return Absent(why, several=True)
    where = f" in {', '.join(filter(None, namespaces))}" if any(namespaces) else ""
    return Absent(f"there is no Deployment of podsettle{where}")


def _arguments(deployment: Json) -> dict[str, str]:
    """Return the options of the server. An argument takes precedence over the environment.

    A value that no terminal can show is left out: no option of podsettle has one.
    """
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    options = {}
    for variable in container.get("env") or ():
        name = variable["name"]
        if name.startswith(_VARIABLE_PREFIX):
            usual = name.removeprefix(_VARIABLE_PREFIX).lower().replace("_", "-")
            option = _OPTIONS_BY_VARIABLE.get(name, usual)
            source = (variable.get("valueFrom") or {}).get("fieldRef") or {}
            if "value" in variable:
                options[option] = str(variable["value"])
            elif source.get("fieldPath") == "metadata.namespace":
                options[option] = str(deployment["metadata"]["namespace"])
    words = [*(container.get("command") or ()), *(container.get("args") or ()), ""]
    for word, following in pairwise(words):
        if word.startswith("--"):
            option, equals, value = word.removeprefix("--").partition("=")
            options[option] = value if equals or following.startswith("-") else following
    return {option: value for option, value in options.items() if value.isprintable()}
