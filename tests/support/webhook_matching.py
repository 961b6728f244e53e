"""Which webhooks the API server calls for a pod."""

from __future__ import annotations

import re

from tests.support.factories import Json
from webhook.core.policy.selectors import LabelSelector, compile_selector


def asks(webhook: Json, space: Json, document: Json) -> bool:
    """Return whether the API server calls the webhook for a pod that is created in a namespace."""

    def matches(selector: str, labels: Json) -> bool:
        found = LabelSelector.model_validate(webhook.get(selector) or {})
        return compile_selector(found)(labels)

    return (
        matches("namespaceSelector", space["metadata"]["labels"])
        and matches("objectSelector", document["metadata"]["labels"])
        and all(
            _holds(condition, space["metadata"]["name"], document)
            for condition in webhook.get("matchConditions", ())
        )
    )


def _holds(condition: Json, space: str, document: Json) -> bool:
    """Return the value of one of podsettle's match conditions.

    tests/e2e/test_scope.py evaluates the real CEL expressions.
    """
    match condition["name"]:
        case "not-mirror":
            return "kubernetes.io/config.mirror" not in document["metadata"]["annotations"]
        case "not-windows":
            return bool(document["spec"].get("os", {}).get("name") != "windows")
        case "not-settled":
            return True
        case "not-protected":
            prefixes, _, named = condition["expression"].partition(" in ")
            protected = space.startswith(tuple(re.findall(r'startsWith\("([^"]*)"\)', prefixes)))
            return not protected or space in re.findall('"([^"]*)"', named)
    raise AssertionError(condition)
