"""Label selectors of objects of the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.core.labels import Labels, compile_requirement


def selector_matches(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Return whether a LabelSelector matches. An empty one matches everything."""
    selector = selector or {}
    return all(
        labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()
    ) and all(
        compile_requirement(each["operator"], each["key"], tuple(each.get("values") or ()))(labels)
        for each in selector.get("matchExpressions") or ()
    )


def matching_labels(selector: Mapping[str, Any] | None) -> dict[str, str]:
    """Return labels for a new object that a LabelSelector may match.

    The requirements are met one by one. If two of them contradict each other, no labels match.
    """
    selector = selector or {}
    labels = dict(selector.get("matchLabels") or {})
    for each in selector.get("matchExpressions") or ():
        if each["operator"] == "In":
            values = each.get("values") or [""]
            if labels.get(each["key"]) not in values:
                labels[each["key"]] = values[0]
        elif each["operator"] == "Exists":
            labels.setdefault(each["key"], "podsettle-doctor")
    return labels
