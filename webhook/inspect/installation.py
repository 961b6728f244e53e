"""The installation of podsettle in a cluster, and for which new pods the API server calls it.

Commands read what the server was started with from the arguments and the environment of its
Deployment, so they need no access to the pods. A decision says what podsettle does with a pod that
it is asked about. The API server may not ask: a selector of the webhook configuration leaves the
pod out, or there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, pairwise
from typing import Any, NamedTuple

from webhook.cluster.raw_responses import well_formed
from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import NotAllowedError, Right
from webhook.core.admission.decider import OperatorSettings
from webhook.core.cluster.view import Namespace
from webhook.core.constants import GROUP, LABEL_NAMESPACE_NAME
from webhook.core.defects.versions import parse_version
from webhook.core.docs_url import docs_url_problem
from webhook.core.labels import Labels, compile_requirement
from webhook.core.policy.cluster_webhooks import OWN_MATCH_CONDITIONS
from webhook.core.types import Json

CONFIGURATIONS_RIGHT = Right(
    "list", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"
)
_NAME_LABEL, _NAME = "app.kubernetes.io/name", "podsettle"
_COMPONENT_LABEL = "app.kubernetes.io/component"
_DEFAULTS = {"service": "podsettle", "lease": "podsettle", "tls-secret": "podsettle-tls"}
"""The defaults of `podsettle serve` that are names of objects."""


@dataclass(frozen=True, slots=True)
class Installation:
    """An installed webhook."""

    namespace: str
    name: str
    """The name of the Deployment. The chart gives all its objects this name."""
    arguments: Mapping[str, str]
    """The options of `podsettle serve` without their dashes, from arguments and environment, and
    some of its defaults. The value of a flag is empty."""
    deployment: Json
    """The Deployment, as the API server returned it."""

    @property
    def own_namespace(self) -> str | None:
        """The namespace that the server treats as its own, or None if it was given none."""
        return self.arguments.get("own-namespace") or None

    @property
    def settings(self) -> OperatorSettings:
        """The settings of decisions, as far as they are valid.

        Any tenant can create a Deployment with podsettle's labels. It must not hide the pods of
        another namespace.
        """
        url = self.arguments.get("docs-url", "")
        return OperatorSettings(
            self.own_namespace if self.own_namespace == self.namespace else None,
            self.arguments.get("linger-image") or None,
            None if not url or docs_url_problem(url) else url,
            parse_version(self.arguments.get("linger-version", "")),
        )

    @property
    def configuration(self) -> str:
        """The name of the MutatingWebhookConfiguration."""
        return self.arguments.get("webhook-configuration") or self.name

    @property
    def is_self_managed(self) -> bool:
        """Whether podsettle issues its certificate itself."""
        return self.arguments.get("tls") == "self-managed"

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


class Called(StrEnum):
    """Whether the API server calls podsettle for a pod."""

    YES = "True"
    NO = "False"
    UNKNOWN = "Unknown"


class WebhookCall(NamedTuple):
    """Whether the API server calls podsettle for a new pod, and why not."""

    called: Called
    why: str = ""
    """A clause. Empty if podsettle is called."""


@dataclass(frozen=True, slots=True)
class WebhookCalls:
    """podsettle's webhooks in all webhook configurations of a cluster."""

    webhooks: tuple[Json, ...] = ()
    readable: bool = True
    """Whether the user may read the configurations."""

    @well_formed("a webhook configuration")
    def call_for(self, namespace: Namespace, labels: Labels) -> WebhookCall:
        """Return whether the API server calls podsettle for a new pod with these labels.

        Raises Unreachable for a configuration that no API server has.
        """
        if not self.readable:
            return WebhookCall(Called.UNKNOWN, f"it needs the right to {CONFIGURATIONS_RIGHT}")
        for_pods = list(filter(_is_for_new_pods, self.webhooks))
        in_namespace = _selecting("namespaceSelector", for_pods, namespace.labels)
        matching = _selecting("objectSelector", in_namespace, labels)
        # Only the API server evaluates conditions, which are expressions of CEL.
        conditions = [
            {each["name"] for each in webhook.get("matchConditions") or ()} - OWN_MATCH_CONDITIONS
            for webhook in matching
        ]
        if matching and not all(conditions):
            return WebhookCall(Called.YES)
        if matching:
            names = ", ".join(sorted(set(chain.from_iterable(conditions))))
            why = f"its webhook has match conditions of the operator: {names}"
            return WebhookCall(Called.UNKNOWN, why)
        why = "no objectSelector of podsettle's webhooks matches the pod's labels"
        if not self.webhooks:
            why = "no MutatingWebhookConfiguration is podsettle's"
        elif not for_pods:
            why = "no rule of podsettle's webhooks is for the creation of pods"
        elif not in_namespace:
            others = {k: v for k, v in namespace.labels.items() if k != LABEL_NAMESPACE_NAME}
            why = f"no namespaceSelector of podsettle's webhooks matches namespace {namespace.name}"
            if _selecting("namespaceSelector", for_pods, others):
                why = f"the webhook configuration excludes namespace {namespace.name} by name"
        return WebhookCall(Called.NO, why)


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
    why, denied = "no MutatingWebhookConfiguration is podsettle's", list[Right]()
    called: set[str] = set()
    try:
        called = {*map(service_namespace, await reader.list(CONFIGURATIONS_RIGHT))} - {""}
    except NotAllowedError as error:
        why, denied = "podsettle's Deployment could not be looked for", [error.right]
    in_called = await _find_in(reader, sorted(called)) if called else None
    if isinstance(in_called, Installation) or (in_called is not None and in_called.several):
        return in_called
    found = await _find_in(reader, [None])
    if isinstance(found, Installation) or not found.rights:
        return found
    return in_called or Absent(why, (*found.rights, *denied))


async def read_webhook_calls(reader: ClusterReader) -> WebhookCalls:
    """Read podsettle's webhooks. Raises Unreachable, and ApiError for an unexpected response."""
    try:
        items = await reader.list(CONFIGURATIONS_RIGHT)
    except NotAllowedError:
        return WebhookCalls(readable=False)
    return WebhookCalls(tuple(chain.from_iterable(map(own_webhooks, items))))


def installation_of(deployment: Json) -> Installation:
    """Return the installation that a Deployment describes."""
    with well_formed("a Deployment"):
        metadata, arguments = deployment["metadata"], _DEFAULTS | _arguments(deployment)
        return Installation(metadata["namespace"], metadata["name"], arguments, deployment)


def own_webhooks(configuration: Json) -> list[Json]:
    """Return podsettle's webhooks of a configuration."""
    with well_formed("a webhook configuration"):
        webhooks: list[Json] = configuration.get("webhooks") or []
        return [each for each in webhooks if each["name"].endswith(f".{GROUP}")]


def service_namespace(configuration: Json) -> str:
    """Return the namespace of the Service that a configuration calls. Empty if it calls a URL."""
    with well_formed("a webhook configuration"):
        clients = (each.get("clientConfig") or {} for each in own_webhooks(configuration))
        services = (each["service"] for each in clients if each.get("service"))
        return next((str(each["namespace"]) for each in services), "")


async def _find_in(
    reader: ClusterReader, namespaces: Sequence[str | None]
) -> Installation | Absent:
    """Return the only installation, or why there is not exactly one. None: all namespaces."""
    found: list[Json] = []
    denied: list[Right] = []
    for namespace in namespaces:
        right = Right("list", "apps", "deployments", namespace)
        try:
            # As a dependency with an alias, the chart has another name, and so has this label.
            query = "" if namespace else f"labelSelector={_NAME_LABEL}%3D{_NAME}"
            deployments = await reader.list(right, query)
        except NotAllowedError as error:
            denied.append(error.right)
            continue
        for each in deployments:
            with well_formed("a Deployment"):
                template = each["spec"]["template"]
                labels = template["metadata"].get("labels") or {}
                container = template["spec"]["containers"][0]
                is_own = query or _NAME in (labels.get(_NAME_LABEL), container.get("name"))
                is_webhook = labels.get(_COMPONENT_LABEL) == "webhook"
                found += [each] if is_own and is_webhook else []
    if denied and not found:
        return Absent("podsettle's Deployment could not be read", tuple(denied))
    if len(found) == 1:
        return installation_of(found[0])
    if found:
        metadata = (each["metadata"] for each in found)
        names = ", ".join(sorted(f"{each['namespace']}/{each['name']}" for each in metadata))
        return Absent(f"there are several Deployments of podsettle: {names}", several=True)
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
        if name.startswith("PODSETTLE_"):
            usual = name.removeprefix("PODSETTLE_").lower().replace("_", "-")
            # The one variable that does not have the name of its option.
            option = "own-namespace" if usual == "namespace" else usual
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


def _is_for_new_pods(webhook: Json) -> bool:
    """Return whether a rule of a webhook includes the creation of pods."""
    return any(
        not {"CREATE", "*"}.isdisjoint(rule.get("operations") or ())
        and not {"", "*"}.isdisjoint(rule.get("apiGroups") or ())
        and not {"v1", "*"}.isdisjoint(rule.get("apiVersions") or ())
        and not {"pods", "*", "*/*"}.isdisjoint(rule.get("resources") or ())
        and rule.get("scope", "*") in ("*", "Namespaced")
        for rule in webhook.get("rules") or ()
    )


def selector_matches(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Return whether a LabelSelector matches. An empty one matches everything."""
    selector = selector or {}
    return (selector.get("matchLabels") or {}).items() <= labels.items() and all(
        compile_requirement(each["operator"], each["key"], tuple(each.get("values") or ()))(labels)
        for each in selector.get("matchExpressions") or ()
    )


def _selecting(selector: str, webhooks: list[Json], labels: Labels) -> list[Json]:
    """Return the webhooks one of whose selectors matches labels."""
    return [each for each in webhooks if selector_matches(each.get(selector), labels)]
