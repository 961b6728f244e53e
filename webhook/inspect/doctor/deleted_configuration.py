"""The webhook configuration that the kill switch deletes, and its record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import yaml

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError
from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import Right
from webhook.core.kubectl_yaml import KubectlDumper
from webhook.core.policy.cluster_webhooks import OPT_IN_WEBHOOK
from webhook.core.types import Json
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.installation import (
    Installation,
    find_installation,
    is_own_webhook,
    own_configurations,
    service_namespace,
)
from webhook.inspect.webhook_configurations_api import (
    CONFIGURATION_GROUP,
    CONFIGURATIONS,
    CONFIGURATIONS_RESOURCE,
    CONFIGURATIONS_RIGHT,
)


class KillSwitchError(Exception):
    """A reason why the kill switch cannot be used."""


class Switch(NamedTuple):
    """A webhook configuration that is to be deleted."""

    configuration: Json
    installation: Installation | None
    """None if it could not be found or read."""
    flags: ClusterFlags = ClusterFlags()
    """The flags of the printed commands."""

    @property
    def name(self) -> str:
        """The name of the configuration."""
        return _name(self.configuration)

    @property
    def record(self) -> str:
        """The configuration as YAML that `kubectl create -f` accepts.

        It lacks the webhooks that podsettle derives from the opt-in webhook.
        """
        metadata = self.configuration["metadata"]
        kept = {key: metadata[key] for key in ("name", "labels", "annotations") if key in metadata}
        webhooks = [
            webhook
            for webhook in self._webhooks
            if not (self._has_opt_in and is_own_webhook(webhook["name"]))
            or webhook["name"] == OPT_IN_WEBHOOK
        ]
        document = {
            "apiVersion": f"{CONFIGURATION_GROUP}/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": kept,
            "webhooks": webhooks,
        }
        return yaml.dump(document, Dumper=KubectlDumper, sort_keys=False)

    @property
    def file_name(self) -> str:
        """The name of the file for the record."""
        return f"{self.name}-webhook.yaml"

    @property
    def warnings(self) -> Iterator[str]:
        """What else the deletion does, and what the record cannot restore."""
        foreign = [each["name"] for each in self._webhooks if not is_own_webhook(each["name"])]
        if foreign:
            yield (
                "The configuration has webhooks that are not podsettle's, which the deletion "
                f"switches off too: {', '.join(foreign)}"
            )
        if not self._has_opt_in:
            yield (
                f"The configuration has no webhook {OPT_IN_WEBHOOK}, from which podsettle derives "
                "the others, so the record keeps all webhooks as they are."
            )

    @property
    def _webhooks(self) -> list[Json]:
        return self.configuration.get("webhooks") or []

    @property
    def _has_opt_in(self) -> bool:
        return any(each["name"] == OPT_IN_WEBHOOK for each in self._webhooks)


async def find_switch(
    server: ApiServer, namespace: str | None, name: str | None, flags: ClusterFlags
) -> Switch:
    """Find the configuration to delete. `namespace` is that of the installation.

    `name` is the name of the configuration, and needed if there are several. Raises
    KillSwitchError, ApiError and Unreachable. It does not need the Deployment, which may be missing
    when the switch is needed.
    """
    configuration = (
        await _only_configuration(server, namespace, flags)
        if name is None
        else await _named_configuration(server, name, flags)
    )
    try:
        installation = await find_installation(
            ClusterReader(server), service_namespace(configuration) or namespace
        )
    except ApiError:
        return Switch(configuration, None, flags)
    if isinstance(installation, Installation) and installation.configuration == _name(
        configuration
    ):
        return Switch(configuration, installation, flags)
    return Switch(configuration, None, flags)


def _name(configuration: Json) -> str:
    return str(configuration["metadata"]["name"])


async def _named_configuration(server: ApiServer, name: str, flags: ClusterFlags) -> Json:
    right = Right("get", CONFIGURATION_GROUP, CONFIGURATIONS_RESOURCE, name=name)
    try:
        found = await server.request("GET", f"{CONFIGURATIONS}/{name}")
    except ApiError as error:
        if error.status == 404:
            raise KillSwitchError(f"MutatingWebhookConfiguration {name} does not exist") from None
        raise _missing(error, right, flags) from None
    if not list(own_configurations([found])):
        # A typing error must not delete the configuration of another program.
        raise KillSwitchError(f"MutatingWebhookConfiguration {name} has no webhook of podsettle")
    return found


async def _only_configuration(
    server: ApiServer, namespace: str | None, flags: ClusterFlags
) -> Json:
    try:
        answer = await server.request("GET", CONFIGURATIONS)
    except ApiError as error:
        raise _missing(error, CONFIGURATIONS_RIGHT, flags) from None
    found = [
        each
        for each in own_configurations(answer.get("items") or ())
        if namespace is None or service_namespace(each) == namespace
    ]
    if not found:
        where = f" of namespace {namespace}" if namespace else ""
        raise KillSwitchError(
            f"no MutatingWebhookConfiguration{where} has a webhook of podsettle: the API server "
            "does not call it"
        )
    if len(found) > 1:
        names = ", ".join(sorted(map(_name, found)))
        raise KillSwitchError(f"there are several: {names}; choose one with --configuration NAME")
    return found[0]


def _missing(error: ApiError, right: Right, flags: ClusterFlags) -> ApiError | KillSwitchError:
    """Return the error for a request that a right is needed for."""
    if error.status != 403:
        return error
    return KillSwitchError(f"needs: {right} ({flags.add_to(right.command)})")
