"""Where the MutatingWebhookConfigurations of a cluster are, and the right to list them."""

from __future__ import annotations

from webhook.cluster.rights import Right

CONFIGURATION_GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS_RESOURCE = "mutatingwebhookconfigurations"
CONFIGURATIONS = f"/apis/{CONFIGURATION_GROUP}/v1/{CONFIGURATIONS_RESOURCE}"
"""The path of the list."""
CONFIGURATIONS_RIGHT = Right("list", CONFIGURATION_GROUP, CONFIGURATIONS_RESOURCE)
