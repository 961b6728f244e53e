"""The check that podsettle wrapped a pod's containers by the delivery of its condition.

A delivery that podsettle chose instead of another one would be counted under the wrong name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from race.cells import Condition, Delivery
from race.errors import RaceError
from race.pods import is_work
from tests.support.node.pods import wrapper_of
from webhook.core.constants import HELPER

_HELPER_WRAPPER = "helper"


def check_delivery(pod: Mapping[str, Any], condition: Condition) -> None:
    """Raise RaceError unless each counted container of a created pod has the right wrapper."""
    spec = pod["spec"]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        if not is_work(container["name"]):
            continue
        found = _delivery_of(spec, container["command"])
        wanted = _wanted(condition, container["command"])
        if found is not wanted:
            raise RaceError(
                f"pod {pod['metadata']['name']}: container {container['name']} has the delivery "
                f"{found} and not {wanted}: {pod['metadata'].get('annotations')}"
            )


def _delivery_of(spec: Mapping[str, Any], command: list[str]) -> Delivery:
    wrapper = wrapper_of(command)
    if wrapper != _HELPER_WRAPPER:
        return Delivery.SHELL if wrapper else Delivery.NONE
    volumes = [each for each in spec.get("volumes", ()) if each["name"] == HELPER]
    return Delivery.IMAGE_VOLUME if any("image" in each for each in volumes) else Delivery.BINARY


def _wanted(condition: Condition, command: list[str]) -> Delivery:
    if condition.delivery is not Delivery.AUTO:
        return condition.delivery
    # `make_pod` gives every second container a shell. It stays in the wrapped command.
    return Delivery.SHELL if "sh" in command else Delivery.IMAGE_VOLUME
