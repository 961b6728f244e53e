"""Fields of the opt-in webhook that differ from the chart, so that podsettle gets no pods.

podsettle derives its other webhooks from this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from webhook.core.policy.cluster_webhooks import OPT_IN_WEBHOOK
from webhook.core.types import Json
from webhook.inspect.cluster_flags import Command
from webhook.inspect.doctor.commands import helm_upgrade, json_patch
from webhook.inspect.doctor.model import Advice
from webhook.inspect.installation import Installation, own_webhooks

_PATH = "/mutate"
_PORT = 443


class Deviation(NamedTuple):
    """A difference from the chart, and how to end it."""

    what: str
    """A clause."""
    advice: Advice


def restoring_advice(configuration: Json, installation: Installation) -> Advice:
    """Return what to do if no webhook is called for the pods that a policy covers."""
    for index, webhook in _opt_in(configuration):
        if webhook.get("objectSelector"):
            return Advice(
                f"Remove the objectSelector of {OPT_IN_WEBHOOK}. The chart has none, and podsettle "
                "copies it into its other webhooks.",
                (_removal(installation, index, "objectSelector"),),
            )
    return Advice(
        "Write the webhook of the chart again. If the chart's value webhook.excludedNamespaces "
        "names the namespace, take it out, or let the policy leave the namespace out.",
        (helm_upgrade(installation),),
    )


def wrong_address(configuration: Json, installation: Installation) -> Iterator[Deviation]:
    """Yield that the opt-in webhook does not call podsettle's Service."""
    wanted = f"Service {installation.namespace}/{installation.service}:{_PORT}{_PATH}"
    for _, webhook in _opt_in(configuration):
        address = _address(webhook.get("clientConfig") or {})
        if address != wanted:
            advice = Advice("Write the webhook of the chart again.", (helm_upgrade(installation),))
            yield Deviation(f"{OPT_IN_WEBHOOK} calls {address} instead of {wanted}", advice)


def foreign_conditions(configuration: Json, installation: Installation) -> Iterator[Deviation]:
    """Yield the match conditions of the opt-in webhook. The chart has none.

    Only the API server evaluates them, so they are named as a possible cause.
    """
    for index, webhook in _opt_in(configuration):
        if conditions := webhook.get("matchConditions"):
            names = ", ".join(each["name"] for each in conditions)
            yield Deviation(
                f"the match conditions of {OPT_IN_WEBHOOK} may leave them out: {names}",
                Advice(
                    "The chart has none. Remove them, or correct their expressions. If they are "
                    "right, the API server does not reach the pods: check firewalls of the control "
                    "plane and NetworkPolicies.",
                    (_removal(installation, index, "matchConditions"),),
                ),
            )


def _opt_in(configuration: Json) -> list[tuple[int, Json]]:
    return [each for each in own_webhooks(configuration) if each[1]["name"] == OPT_IN_WEBHOOK]


def _removal(installation: Installation, index: int, field: str) -> Command:
    # The webhook could get another index before the command runs.
    operations: list[Json] = [
        {"op": "test", "path": f"/webhooks/{index}/name", "value": OPT_IN_WEBHOOK},
        {"op": "remove", "path": f"/webhooks/{index}/{field}"},
    ]
    return json_patch("mutatingwebhookconfiguration", installation.configuration, operations)


def _address(client: Mapping[str, Any]) -> str:
    """Return what a webhook calls, in the form that messages show."""
    service = client.get("service")
    if not service:
        return f"the URL {client.get('url', '')}"
    port, path = service.get("port", _PORT), service.get("path", "")
    return f"Service {service['namespace']}/{service['name']}:{port}{path}"
