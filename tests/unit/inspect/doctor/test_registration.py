"""Differences of the opt-in webhook from the chart."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.inspect.cluster_flags import NO_FLAGS
from webhook.inspect.doctor.registration import (
    foreign_conditions,
    restoring_advice,
    wrong_address,
)
from webhook.inspect.installation import Installation

INSTALLATION = Installation("system", "settle", {"service": "settle"}, {"metadata": {}})
SERVICE = {"namespace": "system", "name": "settle", "path": "/mutate", "port": 443}


def configuration(**fields: Any) -> dict[str, Any]:
    webhook = {
        "name": "opt-in.podsettle.dev",
        "clientConfig": {"service": SERVICE},
    }
    return {"webhooks": [{"name": "other.example.com"}, webhook | fields]}


@pytest.mark.parametrize(
    ("client", "address"),
    [
        ({"url": "https://198.51.100.1/mutate"}, "the URL https://198.51.100.1/mutate"),
        ({"service": SERVICE | {"path": "/"}}, "Service system/settle:443/"),
        ({"service": SERVICE | {"port": 8443}}, "Service system/settle:8443/mutate"),
        ({"service": SERVICE | {"namespace": "old"}}, "Service old/settle:443/mutate"),
    ],
)
def test_call_of_another_address_is_named(client: dict[str, Any], address: str) -> None:
    (found,) = wrong_address(configuration(clientConfig=client), INSTALLATION)
    wanted = "Service system/settle:443/mutate"
    assert found.what == f"opt-in.podsettle.dev calls {address} instead of {wanted}"


def test_service_without_a_port_is_called_on_443() -> None:
    service = {key: value for key, value in SERVICE.items() if key != "port"}
    found = configuration(clientConfig={"service": service})
    assert list(wrong_address(found, INSTALLATION)) == []


def test_match_conditions_are_named_and_removed_by_the_advice() -> None:
    condition = {"name": "never", "expression": "false"}
    (found,) = foreign_conditions(configuration(matchConditions=[condition]), INSTALLATION)
    assert found.what.endswith("may leave them out: never")
    (command,) = found.advice.printed(NO_FLAGS).commands
    assert '{"op":"remove","path":"/webhooks/1/matchConditions"}' in command


def test_foreign_object_selector_is_removed_by_the_advice() -> None:
    found = configuration(objectSelector={"matchLabels": {"a": "b"}})
    (command,) = restoring_advice(found, INSTALLATION).printed(NO_FLAGS).commands
    assert '{"op":"remove","path":"/webhooks/1/objectSelector"}' in command
    (command,) = (
        restoring_advice(configuration(objectSelector={}), INSTALLATION).printed(NO_FLAGS).commands
    )
    assert command.startswith("helm upgrade settle ")


def test_webhook_of_the_chart_has_no_deviation() -> None:
    found = configuration()
    assert list(wrong_address(found, INSTALLATION)) == []
    assert list(foreign_conditions(found, INSTALLATION)) == []
