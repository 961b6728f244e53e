"""The API of MutatingWebhookConfigurations, and the right to list them."""

from __future__ import annotations

from webhook.cluster.rights import Right

CONFIGURATION_GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS_RESOURCE = "mutatingwebhookconfigurations"
CONFIGURATIONS_RIGHT = Right("list", CONFIGURATION_GROUP, CONFIGURATIONS_RESOURCE)
