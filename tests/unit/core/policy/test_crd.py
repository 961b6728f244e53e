"""Tests that the schema for editors agrees with the model, and of how the CRD is made."""

from __future__ import annotations

import pytest

from tests.data.invalid_policies import EXAMPLE_POLICIES, RIGHT, WRONG
from tests.support.factories import Json
from tests.support.json_schema import EDITOR, errors
from webhook.core.policy.crd import crd
from webhook.core.policy.model import parse_policy
from webhook.core.policy.structural_schema import structural_schema
from webhook.core.policy.validation_errors import InvalidPolicyError

CRD = crd()


def test_crd_is_an_independent_copy_each_time() -> None:
    changed = crd()
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"].clear()
    changed["spec"]["versions"][0]["additionalPrinterColumns"].clear()
    assert crd() == CRD


@pytest.mark.parametrize("name", [*EXAMPLE_POLICIES, *RIGHT])
def test_valid_policy_is_valid_for_editors_and_model(name: str) -> None:
    document = {**EXAMPLE_POLICIES, **RIGHT}[name]
    parse_policy(document)
    assert list(errors(EDITOR, document)) == []


@pytest.mark.parametrize("name", WRONG)
def test_invalid_policy_is_invalid_for_editors_and_model(name: str) -> None:
    wrong = WRONG[name]
    with pytest.raises(InvalidPolicyError) as raised:
        parse_policy(wrong.document)
    paths = [str(problem) for problem in raised.value.errors]
    assert all(path.startswith(wrong.path) for path in paths), paths
    assert bool(list(errors(EDITOR, wrong.document))) is not wrong.only_rule


MESSAGES = {
    "text as priority": "is a string, should be a whole number",
    "fraction as priority": "is a number, should be a whole number",
    "truth as label": "is true or false, should be a string",
    "mapping as description": "is a mapping, should be a string",
    "list as remedies": "is a list, should be a mapping",
    "nothing as glob": "is empty, should be a string",
    "number as duration": "10 is not a duration: write it as 10ms, 1.5s or 1m30s",
    "duration '61s'": "'61s' is longer than 1m, the maximum delay of a pod",
    "no spec": "is missing",
    "a remedy of nothing": "is empty; write {} for the defaults",
    "empty remedies": "no remedy is set: name at least one",
    "unknown key": "unknown key; known are apiVersion, kind, metadata, spec, status",
    "unknown setting": "unknown key; did you mean minLifetime?",
    "unknown action": "is 'Enforce'; it can be 'Mutate' or 'Audit'",
    "other version": "is 'podsettle.dev/v1'; podsettle reads podsettle.dev/v1alpha1",
    "priority too high": "Input should be less than or equal to 2147483647",
    "no effect": "minLifetime and sleep are both 0: leave the remedy out instead",
    "none that may run again": "is empty; it takes at least one",
    "gate of '0'": "timeout is 0: leave the remedy out instead",
    "soft limit above the hard one": "soft is above hard",
    "limits for no container": "initContainers and containers are both empty, so nothing is "
    "wrapped: leave the remedy out instead",
    "node label '=a'": "'' is not a label key",
    "node label 'a=b=c'": "'b=c' is not a label value",
    "start gate with nine targets": "has 9 entries; it takes at most 8",
    "target of no kind": "set exactly one of tcp, http and dns",
    "no name of a class": "'A_b' is not a valid name (a DNS subdomain)",
    "images from nowhere": "lookup: Registry needs registries or mirrors: podsettle asks no others",
    "registry ''": "'' can match no registry: write it as quay.io, *.example.com or host:5000",
    "In {}": "operator In needs values",
    "Exists {'values': ['b']}": "operator Exists takes no values",
}


def test_message_of_a_mistake_says_what_to_write_instead() -> None:
    found = {}
    for name in MESSAGES:
        with pytest.raises(InvalidPolicyError) as raised:
            parse_policy(WRONG[name].document)
        found[name] = raised.value.errors[0].message
    assert found == MESSAGES


# A keyword that the generator cannot express is an error. It must not be dropped silently.


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "contentEncoding": "base64"},
        {"type": "integer", "exclusiveMaximum": 5},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object", "properties": {"a": {"oneOf": []}}},
    ],
)
def test_keyword_that_a_crd_cannot_hold_is_an_error(schema: Json) -> None:
    with pytest.raises(ValueError, match=r"a CRD cannot say|too many values"):
        structural_schema(schema, {})
