"""Tests of the check that a pod has the delivery of its condition."""

from __future__ import annotations

from typing import Any

import pytest

from race.cells import Condition, Delivery, Kind, Provocation
from race.deliveries import check_delivery
from race.errors import RaceError
from webhook.core.constants import HELPER, HELPER_PATH
from webhook.core.remedies.shell_wrapper import SCRIPT

pytestmark = pytest.mark.lab

PLAIN = ["true"]
SHELL = ["sh", "-c", SCRIPT, "podsettle", "sh", "-c", "true"]
HELPED = [HELPER_PATH, "--", "true"]
HELPED_SHELL = [HELPER_PATH, "--", "sh", "-c", "true"]
IMAGE, EMPTY = {"name": HELPER, "image": {}}, {"name": HELPER, "emptyDir": {}}


def pod(volume: dict[str, Any], *commands: list[str]) -> dict[str, Any]:
    init = [{"name": f"work-{n}", "command": command} for n, command in enumerate(commands)]
    return {
        "metadata": {"name": "a", "annotations": {}},
        "spec": {
            "initContainers": [{"name": HELPER, "args": []}, *init],
            "containers": [{"name": "main", "command": PLAIN}],
            "volumes": [volume],
        },
    }


def of(delivery: Delivery) -> Condition:
    return Condition(Provocation.LATE_EXIT, delivery, 500, Kind.INIT)


@pytest.mark.parametrize(
    ("delivery", "volume", "commands"),
    [
        (Delivery.NONE, {"name": "other"}, [PLAIN]),
        (Delivery.SHELL, {"name": "other"}, [SHELL]),
        (Delivery.BINARY, EMPTY, [HELPED]),
        (Delivery.IMAGE_VOLUME, IMAGE, [HELPED]),
        (Delivery.AUTO, IMAGE, [HELPED, SHELL]),
    ],
)
def test_the_delivery_of_the_condition_is_accepted(
    delivery: Delivery, volume: dict[str, Any], commands: list[list[str]]
) -> None:
    check_delivery(pod(volume, *commands), of(delivery))


@pytest.mark.parametrize(
    ("delivery", "volume", "commands"),
    [
        (Delivery.NONE, {"name": "other"}, [SHELL]),
        (Delivery.SHELL, IMAGE, [HELPED_SHELL]),
        (Delivery.BINARY, IMAGE, [HELPED]),
        (Delivery.IMAGE_VOLUME, EMPTY, [HELPED]),
        (Delivery.IMAGE_VOLUME, IMAGE, [HELPED, PLAIN]),
        (Delivery.AUTO, EMPTY, [HELPED, SHELL]),
        (Delivery.AUTO, IMAGE, [HELPED, HELPED_SHELL]),
    ],
)
def test_another_delivery_ends_the_run(
    delivery: Delivery, volume: dict[str, Any], commands: list[list[str]]
) -> None:
    with pytest.raises(RaceError, match="has the delivery"):
        check_delivery(pod(volume, *commands), of(delivery))
