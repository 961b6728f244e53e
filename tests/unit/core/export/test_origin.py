"""Tests of what a native policy says about its origin."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import policy, view
from webhook import __version__
from webhook.core.export.native_policies import export
from webhook.core.export.origin import digest
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy

FS_GROUP = {"fsGroupChangePolicy": "OnRootMismatch"}
SELINUX = {"seLinuxChangePolicy": "Recursive"}
FIRST = policy("first", priority=1, remedies=FS_GROUP)


def digest_of(first: SettlePolicy, *others: SettlePolicy) -> str:
    return digest(first, PolicySet([first, *others]).by_precedence)


def test_policies_name_their_source_its_digest_and_the_version() -> None:
    seen = view(policy(remedies=FS_GROUP), FIRST)
    found = export(seen)
    annotations = {
        each.source.metadata.name: each.documents[0]["metadata"]["annotations"]
        for each in found.policies
    }
    assert annotations["p"] == {
        "podsettle.dev/exported-from": "p",
        "podsettle.dev/exported-by": __version__,
        "podsettle.dev/exported-digest": digest_of(policy(remedies=FS_GROUP), FIRST),
    }
    assert annotations["first"]["podsettle.dev/exported-from"] == "first"


@pytest.mark.parametrize(
    ("spec", "is_changed"),
    [
        ({"description": "Other words."}, False),
        ({"priority": -1}, False),
        ({"action": "Mutate", "podSelector": {}}, False),
        ({"imageConfig": {"lookup": "Never"}}, False),
        ({"action": "Audit"}, True),
        ({"podSelector": {"matchLabels": {"a": "b"}}}, True),
        ({"namespaceSelector": None}, True),
        ({"remedies": {**FS_GROUP, **SELINUX}}, True),
        ({"priority": 2}, True),
    ],
    ids=str,
)
def test_only_fields_with_an_effect_change_the_digest(
    spec: dict[str, Any], is_changed: bool
) -> None:
    changed = policy(**{"remedies": FS_GROUP, **spec})
    assert (digest_of(changed, FIRST) != digest_of(policy(remedies=FS_GROUP), FIRST)) is is_changed


@pytest.mark.parametrize(
    ("other", "is_changed"),
    [
        (policy("other", remedies=FS_GROUP, priority=1), True),
        (policy("other", remedies=FS_GROUP, priority=-1), False),
        (policy("other", remedies=SELINUX, priority=1), False),
        (policy("other", remedies=FS_GROUP, priority=1, action="Audit"), False),
    ],
    ids=["earlier", "later", "another remedy", "another action"],
)
def test_only_policies_that_come_first_count(other: SettlePolicy, is_changed: bool) -> None:
    own = policy(remedies=FS_GROUP)
    assert (digest_of(own, other) != digest_of(own)) == is_changed


def test_only_selectors_of_policies_that_come_first_count() -> None:
    own = policy(remedies=FS_GROUP)
    more = policy("first", priority=1, remedies={**FS_GROUP, **SELINUX})
    fewer_pods = policy(
        "first", priority=1, remedies=FS_GROUP, podSelector={"matchLabels": {"a": "b"}}
    )
    assert digest_of(own, more) == digest_of(own, FIRST)
    assert digest_of(own, fewer_pods) != digest_of(own, FIRST)


def test_policies_are_told_apart_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare hundreds of policies with one another field by field took half a minute."""
    compared: list[object] = []
    monkeypatch.setattr(SettlePolicy, "__eq__", lambda _self, other: compared.append(other))
    seen = view(*(policy(f"p{i}", priority=i, remedies=FS_GROUP) for i in range(3)))
    assert len(export(seen).policies) == 3
    assert compared == []
