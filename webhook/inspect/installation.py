"""The installation of podsettle in a cluster, as its Deployment describes it.

Commands read what the server was started with from the arguments and the environment of the
Deployment. So they need no access to the pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.core.constants import GROUP, OBJECT_NAME
from webhook.core.defects.versions import Version, parse_version
from webhook.core.docs_url import docs_url_problem
from webhook.core.types import Json
from webhook.inspect.webhook_configurations_api import CONFIGURATIONS_RIGHT

DEPLOYMENTS = "/apis/apps/v1"
_NAME_LABEL = "app.kubernetes.io/name"
_COMPONENT_LABEL = "app.kubernetes.io/component"
_SELECTOR = f"labelSelector={_NAME_LABEL}%3Dpodsettle"
_HELM_RELEASE = "meta.helm.sh/release-name"
# The variables of `podsettle serve` whose names do not follow from the names of the options.
_OPTIONS_BY_VARIABLE = {"PODSETTLE_NAMESPACE": "own-namespace"}
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
    def writes_events(self) -> bool:
        """Whether podsettle writes Events."""
        return self.arguments.get("events", "false").lower() not in ("false", "0")

    @property
    def tls_secret(self) -> str:
        """The name of the Secret with the certificate."""
        if self.is_self_managed:
            return self.arguments.get("tls-secret", "podsettle-tls")
        for volume in self._pod_spec.get("volumes") or ():
            if volume.get("name") == "tls" and "secret" in volume:
                return str(volume["secret"].get("secretName", ""))
        return f"{self.name}-tls"

    @property
    def service_account(self) -> str:
        """The name of the ServiceAccount of the replicas."""
        return str(self._pod_spec.get("serviceAccountName") or "default")

    @property
    def desired_replicas(self) -> int:
        """The number of replicas in the Deployment."""
        count: int = self.deployment["spec"].get("replicas", 1)
        return count

    @property
    def pod_labels(self) -> Mapping[str, str]:
        """The labels that select the pods of the Deployment."""
        labels: dict[str, str] = self.deployment["spec"]["selector"].get("matchLabels") or {}
        return labels

    @property
    def helm_release(self) -> str | None:
        """The Helm release that the Deployment belongs to, or None if Helm did not create it.

        The API server does not check the annotation, so it may contain a command of a shell.
        """
        annotations = self.deployment["metadata"].get("annotations") or {}
        release = annotations.get(_HELM_RELEASE) or ""
        return release if OBJECT_NAME.fullmatch(release) else None

    @property
    def _pod_spec(self) -> Json:
        spec: Json = self.deployment["spec"]["template"]["spec"]
        return spec


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
        return await _find_in(reader, (namespace,))
    items: list[Json] | None
    try:
        items = await reader.list(CONFIGURATIONS_RIGHT)
    except NotAllowedError:
        items = None
    called = sorted(
        set(filter(None, (service_namespace(each) for each in own_configurations(items or ()))))
    )
    in_called = await _find_in(reader, called) if called else None
    if isinstance(in_called, Installation) or (in_called is not None and in_called.several):
        return in_called
    try:
        return _choose(await _deployments(reader, None), "")
    except NotAllowedError as error:
        if items is None:
            why = "podsettle's Deployment could not be looked for"
            return Absent(why, (error.right, CONFIGURATIONS_RIGHT))
        why = "no MutatingWebhookConfiguration is podsettle's"
        return in_called or Absent(why, (error.right,))


def installation_of(deployment: Json) -> Installation:
    """Return the installation that a Deployment describes."""
    metadata = deployment["metadata"]
    return Installation(metadata["namespace"], metadata["name"], _arguments(deployment), deployment)


def own_configurations(configurations: Iterable[Json]) -> Iterator[Json]:
    """Yield the MutatingWebhookConfigurations that have one of podsettle's webhooks."""
    for configuration in configurations:
        if any(is_own_webhook(each["name"]) for each in configuration.get("webhooks") or ()):
            yield configuration


def own_webhooks(configuration: Json) -> list[tuple[int, Json]]:
    """Return podsettle's webhooks, each with its index in the configuration."""
    return [
        (index, webhook)
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        if is_own_webhook(webhook["name"])
    ]


def refuses_pods(configuration: Json) -> bool:
    """Return whether the API server refuses pods if it cannot call one of podsettle's webhooks."""
    return any(each.get("failurePolicy") == "Fail" for _, each in own_webhooks(configuration))


def is_own_webhook(name: str) -> bool:
    """Return whether a webhook of this name is podsettle's."""
    return name.endswith(f".{GROUP}")


def service_namespace(configuration: Json) -> str:
    """Return the namespace of the Service that a configuration calls. Empty if it calls a URL."""
    for webhook in configuration.get("webhooks") or ():
        service = (webhook.get("clientConfig") or {}).get("service")
        if is_own_webhook(webhook["name"]) and service:
            return str(service["namespace"])
    return ""


async def _find_in(reader: ClusterReader, namespaces: Iterable[str]) -> Installation | Absent:
    found: list[Json] = []
    denied: list[Right] = []
    for namespace in namespaces:
        try:
            found += await _deployments(reader, namespace)
        except NotAllowedError as error:
            denied.append(error.right)
    if denied and not found:
        return Absent("podsettle's Deployment could not be read", tuple(denied))
    return _choose(found, f" in {', '.join(namespaces)}")


async def _deployments(reader: ClusterReader, namespace: str | None) -> list[Json]:
    """Return the Deployments of podsettle's webhook.

    Raises NotAllowedError, and ApiError and Unreachable for other failures.
    """
    items = await reader.list(Right("list", "apps", "deployments", namespace), _SELECTOR)
    return [each for each in items if _runs_webhook(each)]


def _runs_webhook(deployment: Json) -> bool:
    labels = deployment["spec"]["template"]["metadata"].get("labels") or {}
    return labels.get(_COMPONENT_LABEL) == "webhook"


def _choose(deployments: list[Json], where: str) -> Installation | Absent:
    """Return the only installation, or why there is not exactly one."""
    if not deployments:
        return Absent(f"there is no Deployment of podsettle{where}")
    if len(deployments) > 1:
        names = sorted(
            f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in deployments
        )
        why = f"there are several Deployments of podsettle: {', '.join(names)}"
        return Absent(why, several=True)
    (deployment,) = deployments
    return installation_of(deployment)


def _arguments(deployment: Json) -> dict[str, str]:
    """Return the options of the server. An argument takes precedence over the environment.

    A value that no terminal can show is left out: no option of podsettle has one.
    """
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    options = {}
    for variable in container.get("env") or ():
        if variable["name"].startswith(_VARIABLE_PREFIX):
            option = _option_of(variable["name"])
            source = (variable.get("valueFrom") or {}).get("fieldRef") or {}
            if "value" in variable:
                options[option] = str(variable["value"])
            elif source.get("fieldPath") == "metadata.namespace":
                options[option] = str(deployment["metadata"]["namespace"])
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        option, equals, value = word.removeprefix("--").partition("=")
        following = words[index + 1] if index + 1 < len(words) else ""
        if equals:
            options[option] = value
        else:
            options[option] = "" if following.startswith("-") else following
    return {option: value for option, value in options.items() if value.isprintable()}


def _option_of(variable: str) -> str:
    """Return the option of `podsettle serve` that an environment variable sets."""
    option = variable.removeprefix(_VARIABLE_PREFIX).lower().replace("_", "-")
    return _OPTIONS_BY_VARIABLE.get(variable, option)
