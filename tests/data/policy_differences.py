"""SettlePolicy documents on which the API server and `parse_policy` differ."""

from __future__ import annotations

from tests.data.invalid_policies import labels, requirement, sleep
from tests.support.factories import policy_document

# The API server drops a null before it validates, so a null is the same as no value.
LENIENT = {
    "no priority": policy_document(priority=None),
    "no action": policy_document(action=None),
    "no description": policy_document(description=None),
    "no pod selector": policy_document(podSelector=None),
    "no labels": policy_document(podSelector={"matchLabels": None}),
    "no entries": policy_document(podSelector={"matchExpressions": None}),
    "no values": requirement("Exists", values=None),
    "no duration": sleep(sleep=None),
    "no globs": sleep(initContainers=None),
    # JSON has one kind of number.
    "whole fraction": policy_document(priority=1.0),
    # The API server makes a name; a file has to have one.
    "a name to be made": {**policy_document(), "metadata": {"generateName": "p-"}},
    # A new object has no status, whatever it says.
    "number as status": {**policy_document(), "status": 5},
}
STRICT = {
    # What every object has is for the API server to judge, and for it alone.
    "unknown metadata": {**policy_document(), "metadata": {"name": "p", "extra": 1}},
    "labels of the policy": {**policy_document(), "metadata": {"name": "p", "labels": {"a b": ""}}},
    "unknown status": {**policy_document(), "status": {"extra": 1}},
    # The rules on keys may not cost more than an API server allows.
    "too many labels": labels({f"a{number}": "" for number in range(1001)}),
}
