"""Tests for the comparison of an installed CRD with the CRD of this release."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.factories import Json
from webhook.core.policy.crd import crd
from webhook.core.policy.crd_comparison import CrdDifference, crd_difference


def spec_of(installed: Json) -> Json:
    (version,) = installed["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def difference(change: Callable[[Json], object]) -> CrdDifference:
    installed = crd()
    change(installed)
    return crd_difference(installed)


def missing(change: Callable[[Json], object]) -> tuple[str, ...]:
    found = difference(change)
    assert not found.other_defaults
    return found.lacks


def test_crd_of_this_release_has_no_difference() -> None:
    assert crd_difference(crd()) == CrdDifference()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda spec: spec.pop("podSelector"), "spec.podSelector"),
        (
            lambda spec: spec["remedies"]["properties"].pop("kubeletGate"),
            "spec.remedies.kubeletGate",
        ),
        (
            lambda spec: spec["remedies"]["properties"]["postInitSleep"]["properties"].pop("sleep"),
            "spec.remedies.postInitSleep.sleep",
        ),
        (
            lambda spec: spec["podSelector"]["properties"]["matchExpressions"]["items"][
                "properties"
            ].pop("values"),
            "spec.podSelector.matchExpressions[].values",
        ),
        (lambda spec: spec["action"]["enum"].remove("Audit"), "spec.action: Audit"),
    ],
)
def test_fields_and_values_missing_from_the_installed_crd_are_listed(
    change: Callable[[Json], object], path: str
) -> None:
    assert missing(lambda installed: change(spec_of(installed))) == (path,)


def newer(installed: Json) -> None:
    spec_of(installed)["later"] = {"type": "string"}
    spec_of(installed)["action"] |= {"default": "Audit", "enum": ["Mutate", "Audit", "Later"]}


def reworded(installed: Json) -> None:
    (version,) = installed["spec"]["versions"]
    version["additionalPrinterColumns"] = []
    spec_of(installed)["action"]["description"] = "Other words."
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = {"type": "object"}


def open_(installed: Json) -> None:
    (version,) = installed["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize("change", [newer, reworded, open_])
def test_newer_reworded_and_open_schemas_have_no_difference(
    change: Callable[[Json], object],
) -> None:
    assert difference(change) == CrdDifference()


def test_different_default_is_listed_if_fields_are_equal() -> None:
    found = difference(lambda installed: spec_of(installed)["action"].update(default="Audit"))
    assert found == CrdDifference(other_defaults=("spec.action: Audit, not Mutate",))


@pytest.mark.parametrize(
    "change",
    [
        lambda version: version.update(name="v1"),
        lambda version: version.update(served=False),
    ],
)
def test_unserved_version_is_listed(change: Callable[[Json], object]) -> None:
    assert missing(lambda installed: change(installed["spec"]["versions"][0])) == (
        "version v1alpha1",
    )


def test_version_without_a_schema_lacks_all_fields_of_the_spec() -> None:
    found = missing(lambda installed: installed["spec"]["versions"][0].pop("schema"))
    assert "spec.remedies" in found
